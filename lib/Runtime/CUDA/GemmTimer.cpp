//===- GemmTimer.cpp - The fastest algorithm of each GEMM -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt's heuristic guesses which algorithm is the fastest; here the first
// few of its list are measured. A measurement comes out differently in every
// run and on every rank. Still ranks that compute the same thing have to stay
// the same, and so has a run that goes on from a checkpoint. So one rank
// measures for all that run its program (WarmUp.cpp), and what it has found is
// LibraryChoices, which others are told and later starts are given.
//
// Where nothing is kept for later starts, every start has to find algorithms of
// the same bits. Then one counts only if its result has the bits of the first
// one's, which the heuristic names everywhere: it adds in the same order, and
// whether it is taken is seen in nothing but the time.
//
// That the bits are the same is seen on numbers most of whose sums are rounded,
// so that another order of additions gives other bits. A result in bf16 shows
// the last bits of a sum about once in 2^16 elements: only large ones are
// compared. Where bits may differ, a sample of the result has to be that of the
// first algorithm up to the rounding of sums: an algorithm that leaves out a
// part, or writes nothing, is none.
//
//===----------------------------------------------------------------------===//

#include "GemmTimer.h"

#include "ChecksumKernel.h"
#include "plait/Plan/Check.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// A prime: where rows begin in the pattern is different for each row.
static constexpr uint64_t patternLength = (1 << 20) - 3;

/// A candidate has two rounds, the better of which counts, of some calls each,
/// which hide how long the host takes to make them.
static constexpr int rounds = 2, callsOfRound = 3;

/// A faster time may be chance below this.
static constexpr float leastGain = 0.02f;

/// Bounds how much slower than the fastest a candidate may be in the first
/// round to have a second one.
static constexpr float hopeless = 1.25f;

/// The parts of a result that are looked at, and the bytes of each.
static constexpr uint64_t mostStrips = 4096, stripBytes = 64;

/// How far results of two orders of additions may lie apart: as a part of their
/// root mean square, for what sums over some ten thousand products lose in f32,
/// or products of TF32, with its 10 bits of mantissa; and as a part of the
/// number itself, for the last bit of bf16. What is missing a part differs by
/// about the root mean square.
static constexpr float sumTolerance = 0.01f, roundTolerance = 1.0f / 64;

/// Makes numbers of any sign, with all bits of the mantissa and eight
/// exponents: with fewer, sums may be exact, and the same in any order.
static float makeNumber(uint64_t index) {
  uint64_t bits = mixBits(index + 1);
  return std::ldexp(float(int32_t(bits)), -31 - int(bits >> 61));
}

/// Returns what a matrix takes from its address to its last element.
static uint64_t bytesOf(const GemmMatrix &matrix, int64_t batch) {
  return ((batch - 1) * matrix.batchStride +
          (matrix.columns - 1) * matrix.leading + matrix.rows) *
         plan::elementBytes(matrix.type);
}

static int64_t innerOf(const GemmLayout &layout) {
  return layout.b.transposed ? layout.b.columns : layout.b.rows;
}

/// Counts the elements of C.
static int64_t elementsOf(const GemmLayout &layout) {
  return layout.c.rows * layout.c.columns * layout.batch *
         int64_t(layout.places.size());
}

/// Calls in the order of the work that they do, so that what the time does not
/// suffice for is the least.
Status GemmTimer::run(std::vector<GemmUse> uses, LibraryChoices &choices) {
  if (uses.empty())
    return Status::success();
  auto workOf = [&](const GemmUse &use) {
    const GemmLayout &layout = gemms.layoutOf(use.gemm);
    return double(elementsOf(layout)) * double(innerOf(layout)) *
           double(use.calls);
  };
  std::stable_sort(uses.begin(), uses.end(),
                   [&](const GemmUse &a, const GemmUse &b) {
                     return workOf(a) > workOf(b);
                   });
  Clock::time_point start = Clock::now();
  deadline = start + options.limit;
  for (const GemmUse &use : uses) {
    std::string what = gemms.describe(use.gemm);
    const std::string *algorithm = choices.find(what);
    if (algorithm && gemms.take(use.gemm, *algorithm).ok()) {
      ++known;
      note(use, "takes what was chosen before");
      continue;
    }
    if (Status status = time(use); !status.ok())
      return fail("timing matmuls, which `time-matmuls` off leaves out: ",
                  status.message());
    choices.set(what, gemms.writePinned(use.gemm));
  }
  report(uses.size(), Clock::now() - start);
  return Status::success();
}

/// The line that is said of all GEMMs.
void GemmTimer::report(size_t uses, std::chrono::duration<double> took) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << "matmuls: " << timed << " of "
       << uses << " shapes timed in " << took.count() << " s of at most "
       << std::chrono::duration<double>(options.limit).count();
  if (known)
    line << ", " << known << " as chosen before";
  line << std::setprecision(3) << "; " << changed
       << " take another algorithm than cuBLASLt names first, with the same "
       << (options.isKept ? "results but for rounding: " : "bits: ")
       << byFastest << " ms a step instead of " << byFirst;
  text += line.str();
}

/// 1. What is not worth it, or cannot be judged, keeps the first choice.
/// 2. Which algorithms compute the same.
/// 3. How long they take.
/// 4. The first one, unless another gains enough.
Status GemmTimer::time(const GemmUse &use) {
  // 1.
  const GemmLayout &layout = gemms.layoutOf(use.gemm);
  bool isNarrow = layout.c.type == fb::DType::BF16 && !options.isKept;
  gemms.pin(use.gemm, 0);
  if (gemms.countAlgorithms(use.gemm) < 2)
    return note(use, "has one algorithm"), Status::success();
  if (elementsOf(layout) < (isNarrow ? options.leastNarrow : options.least))
    return note(use, "is small"), Status::success();
  if (Clock::now() >= deadline)
    return note(use, "comes after the time limit"), Status::success();
  // 2.
  PLAIT_RETURN_IF_ERROR(load());
  PLAIT_RETURN_IF_ERROR(fillOperands(use));
  auto same = findCandidates(use);
  gemms.pin(use.gemm, 0);
  if (!same.ok())
    return same.status();
  if (same->empty())
    return note(use, "has no algorithm that runs"), Status::success();
  // 3.
  PLAIT_RETURN_IF_ERROR(measureAll(use, *same));
  // 4. Of equal ones min_element finds the first.
  const Candidate &first = same->front();
  auto best = std::min_element(same->begin(), same->end(),
                               [](const Candidate &a, const Candidate &b) {
                                 return a.milliseconds < b.milliseconds;
                               });
  bool gains =
      best->milliseconds < (1 - leastGain) * same->front().milliseconds;
  const Candidate &chosen = gains ? *best : first;
  gemms.pin(use.gemm, chosen.algorithm);
  ++timed;
  changed += chosen.algorithm != 0;
  byFirst += double(use.calls) * first.milliseconds;
  byFastest += double(use.calls) * chosen.milliseconds;
  char line[160];
  std::snprintf(line, sizeof(line),
                "takes algorithm %zu of %zu, %zu of which have the same %s: "
                "%.3f ms instead of %.3f",
                chosen.algorithm + 1, gemms.countAlgorithms(use.gemm),
                same->size(),
                options.isKept ? "results but for rounding" : "bits",
                chosen.milliseconds, first.milliseconds);
  return note(use, line), Status::success();
}

/// Measures in turns, so that a GPU which gets slower is slower for all. The
/// first candidate has all rounds.
Status GemmTimer::measureAll(const GemmUse &use,
                             std::vector<Candidate> &candidates) {
  float fastest = INFINITY;
  for (int round = 0; round < rounds; ++round)
    for (Candidate &candidate : candidates) {
      if (round && &candidate != &candidates.front() &&
          candidate.milliseconds > hopeless * fastest)
        continue;
      auto milliseconds =
          measure(use, candidate.algorithm, use.adds, callsOfRound);
      if (!milliseconds.ok())
        return milliseconds.status();
      // One that fails now is none.
      float took = milliseconds->value_or(INFINITY) / callsOfRound;
      candidate.milliseconds =
          round ? std::min(candidate.milliseconds, took) : took;
      fastest = std::min(fastest, took);
    }
  return Status::success();
}

/// Speaks in the step's terms, whose rows are cuBLASLt's columns.
void GemmTimer::note(const GemmUse &use, const std::string &outcome) {
  if (!options.verbose)
    return;
  const GemmLayout &layout = gemms.layoutOf(use.gemm);
  std::string inner = std::to_string(innerOf(layout));
  text += "matmul " + std::to_string(layout.c.columns) + " x " + inner +
          " by " + inner + " x " + std::to_string(layout.c.rows);
  if (int64_t batch = layout.batch * int64_t(layout.places.size()); batch > 1)
    text += ", batch " + std::to_string(batch);
  text += ", epilogue " + std::string(fb::EnumNameEpilogue(layout.epilogue)) +
          ", " + std::to_string(use.calls) + " a step, " + outcome + "\n";
}

/// The numbers, the kernel and what else a measurement needs, once.
Status GemmTimer::load() {
  if (module)
    return Status::success();
  for (auto [memory, bytes] :
       {std::pair(&floats, patternLength * sizeof(float)),
        std::pair(&halves, patternLength * sizeof(BFloat16)),
        std::pair(&sum, sizeof(uint64_t)),
        std::pair(&strips, mostStrips * stripBytes)}) {
    auto made = DeviceMemory::allocate(stream.context, bytes, "timing matmuls");
    if (!made.ok())
      return made.status();
    *memory = std::move(*made);
  }
  std::vector<float> numbers(patternLength);
  std::vector<BFloat16> narrow(patternLength);
  for (uint64_t i = 0; i < patternLength; ++i)
    narrow[i] = BFloat16(numbers[i] = makeNumber(i));
  for (auto [memory, source] :
       {std::pair(&floats, std::as_bytes(std::span(numbers))),
        std::pair(&halves, std::as_bytes(std::span(narrow)))})
    PLAIT_RETURN_IF_ERROR(stream.driver.check(
        stream.driver.cuMemcpyHtoDAsync(
            reinterpret_cast<CUdeviceptr>((*memory)->data()), source.data(),
            source.size(), stream.handle()),
        "cuMemcpyHtoDAsync"));
  for (CudaEvent *event : {&begin, &end}) {
    auto made = CudaEvent::create(stream.driver, /*timed=*/true);
    if (!made.ok())
      return made.status();
    *event = std::move(*made);
  }
  auto loaded = CudaModule::load(stream.context, checksumKernelPtx);
  if (!loaded.ok())
    return loaded.status();
  auto function = (*loaded)->find(PLAIT_CHECKSUM);
  if (!function.ok())
    return function.status();
  module = std::move(*loaded);
  checksumOf = *function;
  // Before the host's numbers go.
  return stream.synchronize();
}

/// Repeats the pattern, twice as much with each copy.
Status GemmTimer::fill(const Region &target, fb::DType type) {
  const DeviceMemory &pattern = type == fb::DType::BF16 ? *halves : *floats;
  uint64_t done = std::min(target.bytes, pattern.bytes());
  PLAIT_RETURN_IF_ERROR(stream.copy(target.data, pattern.data(), done));
  for (uint64_t more = 0; done < target.bytes; done += more) {
    more = std::min(done, target.bytes - done);
    PLAIT_RETURN_IF_ERROR(stream.copy(target.data + done, target.data, more));
  }
  return Status::success();
}

/// Operands of cuBLASLt are those of the step exchanged.
Status GemmTimer::fillOperands(const GemmUse &use) {
  const GemmLayout &layout = gemms.layoutOf(use.gemm);
  uint64_t unit = plan::elementBytes(layout.a.type);
  auto fillMatrix = [&](const std::byte *data, int64_t place,
                        const GemmMatrix &matrix) {
    return fill({const_cast<std::byte *>(data) + place * unit,
                 bytesOf(matrix, layout.batch)},
                matrix.type);
  };
  for (const GemmLayout::Place &place : layout.places) {
    PLAIT_RETURN_IF_ERROR(fillMatrix(use.operands.b, place.a, layout.a));
    PLAIT_RETURN_IF_ERROR(fillMatrix(use.operands.a, place.b, layout.b));
  }
  if (use.operands.bias)
    PLAIT_RETURN_IF_ERROR(
        fill({const_cast<std::byte *>(use.operands.bias),
              layout.c.rows * plan::elementBytes(layout.c.type)},
             layout.c.type));
  if (layout.epilogue == fb::Epilogue::GeluGradient)
    return fill({use.operands.geluInput, bytesOf(layout.c, 1)}, layout.c.type);
  return Status::success();
}

/// Finds what the GEMM writes. GELU's input lies like C, which is no batch
/// then.
std::vector<GemmTimer::Region>
GemmTimer::findResults(const GemmUse &use) const {
  const GemmLayout &layout = gemms.layoutOf(use.gemm);
  std::vector<Region> results;
  for (const GemmLayout::Place &place : layout.places)
    results.push_back(
        {use.operands.c + place.c * plan::elementBytes(layout.c.type),
         bytesOf(layout.c, layout.batch)});
  if (layout.hasGeluInput && layout.epilogue != fb::Epilogue::GeluGradient)
    results.push_back({use.operands.geluInput, bytesOf(layout.c, 1)});
  return results;
}

/// How long `runs` calls take; nothing where the algorithm refuses one.
Result<std::optional<float>>
GemmTimer::measure(const GemmUse &use, size_t algorithm, bool add, int runs) {
  gemms.pin(use.gemm, algorithm);
  PLAIT_RETURN_IF_ERROR(stream.record(begin));
  Status called = Status::success();
  for (int i = 0; i < runs && called.ok(); ++i)
    called = gemms.runPart(use.gemm, use.operands, add);
  PLAIT_RETURN_IF_ERROR(stream.record(end));
  PLAIT_RETURN_IF_ERROR(stream.synchronize());
  if (!called.ok())
    return std::optional<float>();
  float milliseconds = 0;
  PLAIT_RETURN_IF_ERROR(
      stream.driver.check(stream.driver.cuEventElapsedTime(
                              &milliseconds, begin.handle(), end.handle()),
                          "cuEventElapsedTime"));
  return std::optional(milliseconds);
}

Result<uint64_t> GemmTimer::checksum(const std::vector<Region> &results) {
  PLAIT_RETURN_IF_ERROR(stream.fillZero(sum->data(), sum->bytes()));
  for (const Region &region : results) {
    ChecksumParams params = {reinterpret_cast<const uint16_t *>(region.data),
                             region.bytes / sizeof(uint16_t),
                             reinterpret_cast<uint64_t *>(sum->data())};
    void *arguments[] = {&params};
    PLAIT_RETURN_IF_ERROR(stream.launch(
        checksumOf, stream.context->blocksFor(params.units, checksumThreads),
        checksumThreads, arguments));
  }
  uint64_t result = 0;
  PLAIT_RETURN_IF_ERROR(stream.driver.check(
      stream.driver.cuMemcpyDtoHAsync(
          &result, reinterpret_cast<CUdeviceptr>(sum->data()), sizeof(result),
          stream.handle()),
      "cuMemcpyDtoHAsync"));
  PLAIT_RETURN_IF_ERROR(stream.synchronize());
  return result;
}

/// Reads what the GEMM has written by now.
Result<GemmTimer::Outcome> GemmTimer::lookAt(const GemmUse &use) {
  std::vector<Region> results = findResults(use);
  auto sum = checksum(results);
  if (!sum.ok())
    return sum.status();
  Outcome outcome = {*sum, {}};
  uint64_t each = std::max<uint64_t>(1, mostStrips / results.size());
  if (options.isKept)
    for (const Region &region : results)
      PLAIT_RETURN_IF_ERROR(sample(region, gemms.layoutOf(use.gemm).c.type,
                                   each, outcome.sample));
  return outcome;
}

/// Appends the numbers of up to `strips` parts of `region`, which lie as far
/// apart as they can.
Status GemmTimer::sample(const Region &region, fb::DType type, uint64_t strips,
                         std::vector<float> &numbers) {
  uint64_t bytes = std::min(region.bytes, stripBytes);
  uint64_t rows = std::clamp<uint64_t>(region.bytes / stripBytes, 1, strips);
  uint64_t unit = plan::elementBytes(type);
  uint64_t pitch = region.bytes / unit / rows * unit;
  PLAIT_RETURN_IF_ERROR(stream.copyRows(this->strips->data(), bytes,
                                        region.data, pitch, bytes, rows));
  std::vector<std::byte> found(rows * bytes);
  PLAIT_RETURN_IF_ERROR(stream.driver.check(
      stream.driver.cuMemcpyDtoHAsync(
          found.data(), reinterpret_cast<CUdeviceptr>(this->strips->data()),
          found.size(), stream.handle()),
      "cuMemcpyDtoHAsync"));
  PLAIT_RETURN_IF_ERROR(stream.synchronize());
  for (uint64_t at = 0; at < found.size(); at += unit) {
    float number = 0;
    BFloat16 narrow;
    if (type == fb::DType::BF16) {
      std::memcpy(&narrow, &found[at], sizeof(narrow));
      number = float(narrow);
    } else {
      std::memcpy(&number, &found[at], sizeof(number));
    }
    numbers.push_back(number);
  }
  return Status::success();
}

/// Compares bits, or where they may differ, numbers: NaN is far from
/// everything.
bool GemmTimer::agree(const Outcome &first, const Outcome &other) const {
  if (first.checksum == other.checksum || !options.isKept)
    return first.checksum == other.checksum;
  double squares = 0;
  for (float number : first.sample)
    squares += double(number) * number;
  double size = std::sqrt(squares / double(first.sample.size()));
  return std::ranges::equal(first.sample, other.sample, [&](float x, float y) {
    return std::abs(x - y) <=
           sumTolerance * size + roundTolerance * std::abs(x);
  });
}

/// The first algorithm that runs, and those behind it with the same result; as
/// many as the time suffices for, if all are as slow as the first. Results are
/// zero before, so that one which writes nothing differs. Sums are also added
/// to, where the step does that.
Result<std::vector<GemmTimer::Candidate>>
GemmTimer::findCandidates(const GemmUse &use) {
  std::vector<Region> results = findResults(use);
  std::vector<Candidate> same;
  Outcome expected;
  size_t count = gemms.countAlgorithms(use.gemm);
  for (size_t algorithm = 0; algorithm < count; ++algorithm) {
    for (const Region &region : results)
      PLAIT_RETURN_IF_ERROR(stream.fillZero(region.data, region.bytes));
    auto took = measure(use, algorithm, /*add=*/false, 1);
    if (took.ok() && *took && use.adds)
      took = measure(use, algorithm, /*add=*/true, 1);
    if (!took.ok())
      return took.status();
    if (!*took)
      continue;
    auto found = lookAt(use);
    if (!found.ok())
      return found.status();
    if (same.empty()) {
      expected = std::move(*found);
      same.push_back({algorithm, 0});
      std::chrono::duration<double, std::milli> left = deadline - Clock::now();
      double each =
          (rounds * callsOfRound + 2) * std::max(1e-3, double(**took));
      count = std::min(count,
                       algorithm + 1 +
                           size_t(left.count() > 0 ? left.count() / each : 0));
    } else if (agree(expected, *found)) {
      same.push_back({algorithm, 0});
    }
  }
  return same;
}
