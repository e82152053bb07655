//===- Packs.h - What is reduced and updated as one -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_PACKS_H
#define PLAIT_LIB_PLANNER_SIMULATOR_PACKS_H

#include "StepEndTime.h"

#include <array>
#include <utility>

namespace plait::planner {

/// Over which ranks gradients are summed.
struct Summed {
  bool isPartial = false;  // ranks of tp have parts of the sums, too
  bool isExperts = false;  // and those of ep have others
  bool hasFactors = false; // of matrices, which are sent as two
};

/// Gradients that are reduced as one.
struct Pack {
  double elements = 0;
  Summed summed = {};
};

/// The packs of a rank; without elements: there is none. No estimate allocates
/// for them, of which a search makes many.
using Packs = std::array<Pack, 25>;

/// Returns which of the packs of `load` has parameters like `group`: what is
/// updated alike is in one. A table that two ranks hold is in the last, one of
/// its own.
size_t getPackIndex(const ParameterGroup &group, const StepLoad &load,
                    const Context &context);

/// Returns whether the gradient of `group` is sent as two factors.
bool hasFactors(const ParameterGroup &group, const Context &context);

/// Returns the packs of what ZeRO 2 and 3 divide, of which a rank has its
/// parts, or of what they do not. What is not known one by one are
/// `parameters`.
Packs getPacks(bool areDivided, Elements parameters, const StepLoad &load,
               const Context &context);

/// Returns how many buckets a pack of `elements` is cut into.
double countBuckets(double elements, const Context &context);

/// The least elements of a bucket.
double getLeastBucket(const Context &context);

/// Calls `visit(elements)` for each piece that the optimizer fetches from the
/// host, updates and brings back, in the order of the compiler's StepEnd: pack
/// after pack, of those that ranks divide the buckets, of others parameter by
/// parameter, as is what ZeRO 2 divides, which is in no pack.
template <typename Visitor>
void forEachFetched(const StepLoad &load, const Context &context,
                    Visitor visit) {
  Packs packs = {};
  if (context.zero(/*experts=*/false) >= 1)
    packs = getPacks(/*areDivided=*/false, {}, load, context);
  auto isSingle = [&](const ParameterGroup &group) {
    return context.zero(group.experts) == 0 || context.dividesByStage(group);
  };
  auto getParts = [&](bool experts) {
    return context.zero(experts) >= 1 ? context.divisions(experts) : 1;
  };
  std::array<std::array<bool, std::tuple_size_v<Packs>>, 2> isDone = {};
  auto visitPack = [&](size_t index, bool single) {
    double buckets = single ? 0 : countBuckets(packs[index].elements, context);
    for (int i = 0; i < int(buckets); ++i)
      visit(packs[index].elements / getParts(packs[index].summed.isExperts) /
            buckets);
    if (!single)
      return;
    forEachParameter(
        context.work, load.stages, [&](const ParameterGroup &group) {
          if (isSingle(group) && getPackIndex(group, load, context) == index)
            visit(group.elements / getParts(group.experts));
        });
  };
  forEachParameter(context.work, load.stages, [&](const ParameterGroup &group) {
    if (context.zero(group.experts) == 2 && context.dividesByStage(group))
      return visit(group.elements / getParts(group.experts));
    size_t index = getPackIndex(group, load, context);
    bool single = isSingle(group);
    if (!std::exchange(isDone[single][index], true))
      visitPack(index, single);
  });
}

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_PACKS_H
