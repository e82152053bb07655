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
// A result in bf16 shows the last bits of a sum about once in 2^16 elements:
// only large ones are compared. Where bits may differ, a sample of the result
// has to be that of the first algorithm up to the rounding of sums: an
// algorithm that leaves out a part, or writes nothing, is none.
//
//===----------------------------------------------------------------------===//

#include "GemmTimer.h"

#include "plait/Plan/Check.h"

#include <algorithm>
#include <cstdio>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// How far results of two orders of additions may lie apart, as a part of their
/// root mean square: what sums over some ten thousand products lose in f32, or
/// products of TF32, with its 10 bits of mantissa. What is missing a part
/// differs by about the root mean square.
static constexpr float sumTolerance = 0.01f;

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
      tally.addKnown();
      note(use, "takes what was chosen before");
      continue;
    }
    if (Status status = time(use); !status.ok())
      return fail("timing matmuls, which `time-matmuls` off leaves out: ",
                  status.message());
    choices.set(what, gemms.writePinned(use.gemm));
  }
  std::string same = options.isKept ? "results but for rounding" : "bits";
  text +=
      tally.print("matmuls", uses.size(), Clock::now() - start, options.limit,
                  "algorithm than cuBLASLt names first, with the same " + same);
  return Status::success();
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
  PLAIT_RETURN_IF_ERROR(measurer.load());
  PLAIT_RETURN_IF_ERROR(fillOperands(use));
  auto same = findCandidates(use);
  gemms.pin(use.gemm, 0);
  if (!same.ok())
    return same.status();
  if (same->empty())
    return note(use, "has no algorithm that runs"), Status::success();
  // 3.
  PLAIT_RETURN_IF_ERROR(measurer.timeAll(callOf(use, use.adds), *same));
  // 4.
  const Measurer::Candidate &first = same->front();
  const Measurer::Candidate &chosen = Measurer::choose(*same);
  gemms.pin(use.gemm, chosen.number);
  tally.add(use.calls, first, chosen);
  char line[160];
  std::snprintf(line, sizeof(line),
                "takes algorithm %zu of %zu, %zu of which have the same %s: "
                "%.3f ms instead of %.3f",
                chosen.number + 1, gemms.countAlgorithms(use.gemm),
                same->size(),
                options.isKept ? "results but for rounding" : "bits",
                chosen.milliseconds, first.milliseconds);
  return note(use, line), Status::success();
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

/// Calls one of its algorithms, with the operands of the step.
Measurer::Call GemmTimer::callOf(const GemmUse &use, bool add) {
  return [this, &use, add](size_t algorithm) {
    gemms.pin(use.gemm, algorithm);
    return gemms.runPart(use.gemm, use.operands, add);
  };
}

/// Operands of cuBLASLt are those of the step exchanged.
Status GemmTimer::fillOperands(const GemmUse &use) {
  const GemmLayout &layout = gemms.layoutOf(use.gemm);
  uint64_t unit = plan::elementBytes(layout.a.type);
  auto fillMatrix = [&](const std::byte *data, int64_t place,
                        const GemmMatrix &matrix) {
    return measurer.fill({const_cast<std::byte *>(data) + place * unit,
                          bytesOf(matrix, layout.batch), matrix.type});
  };
  for (const GemmLayout::Place &place : layout.places) {
    PLAIT_RETURN_IF_ERROR(fillMatrix(use.operands.b, place.a, layout.a));
    PLAIT_RETURN_IF_ERROR(fillMatrix(use.operands.a, place.b, layout.b));
  }
  if (use.operands.bias)
    PLAIT_RETURN_IF_ERROR(measurer.fill(
        {const_cast<std::byte *>(use.operands.bias),
         layout.c.rows * plan::elementBytes(layout.c.type), layout.c.type}));
  if (layout.epilogue == fb::Epilogue::GeluGradient)
    return measurer.fill(
        {use.operands.geluInput, bytesOf(layout.c, 1), layout.c.type});
  return Status::success();
}

/// Finds what the GEMM writes. GELU's input lies like C, which is no batch
/// then.
std::vector<Measurer::Region> GemmTimer::findResults(const GemmUse &use) const {
  const GemmLayout &layout = gemms.layoutOf(use.gemm);
  std::vector<Measurer::Region> results;
  for (const GemmLayout::Place &place : layout.places)
    results.push_back(
        {use.operands.c + place.c * plan::elementBytes(layout.c.type),
         bytesOf(layout.c, layout.batch), layout.c.type});
  if (layout.hasGeluInput && layout.epilogue != fb::Epilogue::GeluGradient)
    results.push_back(
        {use.operands.geluInput, bytesOf(layout.c, 1), layout.c.type});
  return results;
}

/// Results are zero before, so that one which writes nothing differs. Sums are
/// also added to, where the step does that.
Result<std::vector<Measurer::Candidate>>
GemmTimer::findCandidates(const GemmUse &use) {
  std::vector<Measurer::Region> results = findResults(use);
  auto attempt = [&](size_t algorithm) -> Result<std::optional<float>> {
    PLAIT_RETURN_IF_ERROR(measurer.clear(results));
    auto took = measurer.time(callOf(use, /*add=*/false), algorithm, 1);
    if (took.ok() && *took && use.adds)
      took = measurer.time(callOf(use, /*add=*/true), algorithm, 1);
    return took;
  };
  return measurer.findSame(gemms.countAlgorithms(use.gemm), attempt, results,
                           {options.isKept, sumTolerance, deadline});
}
