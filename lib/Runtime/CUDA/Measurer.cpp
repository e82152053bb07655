//===- Measurer.cpp - How long a library's calls take ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Candidates work where the plan has their operands, on a pattern that is
// repeated over them: numbers most of whose sums are rounded, so that another
// order of additions gives other bits. Where bits may differ, a sample of the
// result, strips of it that lie as far apart as they can, shows whether a part
// of a sum is missing.
//
//===----------------------------------------------------------------------===//

#include "Measurer.h"

#include "ChecksumKernel.h"
#include "plait/Plan/Check.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

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

/// How far results may lie apart as a part of the number itself, for the last
/// bit of bf16.
static constexpr float roundTolerance = 1.0f / 64;

static float makeNumber(uint64_t index) {
  uint64_t bits = mixBits(index + 1);
  return std::ldexp(float(int32_t(bits)), -31 - int(bits >> 61));
}

Status Measurer::load() {
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
Status Measurer::fill(const Region &target) {
  const DeviceMemory &pattern =
      target.type == fb::DType::BF16 ? *halves : *floats;
  uint64_t done = std::min(target.bytes, pattern.bytes());
  PLAIT_RETURN_IF_ERROR(stream.copy(target.data, pattern.data(), done));
  for (uint64_t more = 0; done < target.bytes; done += more) {
    more = std::min(done, target.bytes - done);
    PLAIT_RETURN_IF_ERROR(stream.copy(target.data + done, target.data, more));
  }
  return Status::success();
}

Status Measurer::clear(const std::vector<Region> &targets) {
  for (const Region &target : targets)
    PLAIT_RETURN_IF_ERROR(stream.fillZero(target.data, target.bytes));
  return Status::success();
}

Result<std::optional<float>> Measurer::time(const Call &call, size_t number,
                                            int runs) {
  PLAIT_RETURN_IF_ERROR(stream.record(begin));
  Status called = Status::success();
  for (int i = 0; i < runs && called.ok(); ++i)
    called = call(number);
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

Result<std::vector<Measurer::Candidate>>
Measurer::findSame(size_t count, const Attempt &attempt,
                   const std::vector<Region> &results, const Comparison &how) {
  std::vector<Candidate> same;
  Outcome expected;
  for (size_t number = 0; number < count; ++number) {
    auto took = attempt(number);
    if (!took.ok())
      return took.status();
    if (!*took)
      continue;
    auto found = look(results, how.sampled);
    if (!found.ok())
      return found.status();
    if (same.empty()) {
      expected = std::move(*found);
      same.push_back({number});
      count = std::min(count, number + 1 + countUntil(how.deadline, **took));
    } else if (agree(expected, *found, how.tolerance)) {
      same.push_back({number});
    }
  }
  return same;
}

/// The first candidate has all rounds.
Status Measurer::timeAll(const Call &call, std::vector<Candidate> &candidates) {
  float fastest = INFINITY;
  for (int round = 0; round < rounds; ++round)
    for (Candidate &candidate : candidates) {
      if (round && &candidate != &candidates.front() &&
          candidate.milliseconds > hopeless * fastest)
        continue;
      auto milliseconds = time(call, candidate.number, callsOfRound);
      if (!milliseconds.ok())
        return milliseconds.status();
      float took = milliseconds->value_or(INFINITY) / callsOfRound;
      candidate.milliseconds =
          round ? std::min(candidate.milliseconds, took) : took;
      fastest = std::min(fastest, took);
    }
  return Status::success();
}

/// Finds the first of equal ones.
const Measurer::Candidate &
Measurer::choose(const std::vector<Candidate> &candidates) {
  const Candidate &first = candidates.front();
  const Candidate &best =
      *std::ranges::min_element(candidates, {}, &Candidate::milliseconds);
  return best.milliseconds < (1 - leastGain) * first.milliseconds ? best
                                                                  : first;
}

/// Each is called twice before it is measured.
size_t Measurer::countUntil(std::chrono::steady_clock::time_point deadline,
                            float milliseconds) {
  std::chrono::duration<double, std::milli> left =
      deadline - std::chrono::steady_clock::now();
  double each =
      (rounds * callsOfRound + 2) * std::max(1e-3, double(milliseconds));
  return size_t(left.count() > 0 ? left.count() / each : 0);
}

Result<uint64_t> Measurer::checksum(const std::vector<Region> &results) {
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

Result<Measurer::Outcome> Measurer::look(const std::vector<Region> &results,
                                         bool sampled) {
  auto sum = checksum(results);
  if (!sum.ok())
    return sum.status();
  Outcome outcome = {*sum, {}};
  uint64_t each = std::max<uint64_t>(1, mostStrips / results.size());
  for (const Region &region : results) {
    if (!sampled)
      break;
    auto numbers = sample(region, each);
    if (!numbers.ok())
      return numbers.status();
    outcome.samples.push_back(std::move(*numbers));
  }
  return outcome;
}

/// Reads up to `strips` parts of `region`, which lie as far apart as they can.
Result<std::vector<float>> Measurer::sample(const Region &region,
                                            uint64_t strips) {
  uint64_t bytes = std::min(region.bytes, stripBytes);
  uint64_t rows = std::clamp<uint64_t>(region.bytes / stripBytes, 1, strips);
  uint64_t unit = plan::elementBytes(region.type);
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
  std::vector<float> numbers;
  for (uint64_t at = 0; at < found.size(); at += unit) {
    float number = 0;
    BFloat16 narrow;
    if (region.type == fb::DType::BF16) {
      std::memcpy(&narrow, &found[at], sizeof(narrow));
      number = float(narrow);
    } else {
      std::memcpy(&number, &found[at], sizeof(number));
    }
    numbers.push_back(number);
  }
  return numbers;
}

/// NaN is far from everything.
static bool isNear(const std::vector<float> &first,
                   const std::vector<float> &other, float tolerance) {
  double squares = 0;
  for (float number : first)
    squares += double(number) * number;
  double size = std::sqrt(squares / double(first.size()));
  return std::ranges::equal(first, other, [&](float x, float y) {
    return std::abs(x - y) <= tolerance * size + roundTolerance * std::abs(x);
  });
}

bool Measurer::agree(const Outcome &first, const Outcome &other,
                     float tolerance) {
  if (first.checksum == other.checksum || first.samples.empty())
    return first.checksum == other.checksum;
  return std::ranges::equal(first.samples, other.samples,
                            [&](const auto &one, const auto &two) {
                              return isNear(one, two, tolerance);
                            });
}

void TimingTally::add(size_t uses, const Measurer::Candidate &first,
                      const Measurer::Candidate &chosen) {
  ++timed;
  changed += chosen.number != 0;
  byFirst += double(uses) * first.milliseconds;
  byFastest += double(uses) * chosen.milliseconds;
}

std::string TimingTally::print(const std::string &what, size_t shapes,
                               std::chrono::duration<double> took,
                               std::chrono::duration<double> limit,
                               const std::string &choice) const {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << what << ": " << timed << " of "
       << shapes << " shapes timed in " << took.count() << " s of at most "
       << limit.count();
  if (known)
    line << ", " << known << " as chosen before";
  line << std::setprecision(3) << "; " << changed << " take another " << choice
       << ": " << byFastest << " ms a step instead of " << byFirst;
  return line.str();
}
