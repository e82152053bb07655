//===- GatherBatch.h - Gathers that are launched together -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_GATHERBATCH_H
#define PLAIT_LIB_PLANNER_SIMULATOR_GATHERBATCH_H

#include "Replicated.h"
#include "plait/Plan/Communicators.h"

#include <algorithm>
#include <map>
#include <utility>

namespace plait::planner {

/// Gathers that a library on GPUs launches together, as those of a block's
/// parameters (plan::batchGathers), cost one gather of all of their bytes.
class GatherBatch {
public:
  /// Returns `alone`, a gather of `bytes` in all, with the seconds that it adds
  /// to those of the same block before it in the batch, or that begins one.
  Replicated add(Replicated alone, double bytes, const ParameterGroup &group,
                 const StageBlocks::Entry *of, const Context &context) {
    double own = bytes / context.divisions(group.experts);
    bool isOneAxis = std::ranges::count_if(alone.count, [](double count) {
                       return count > 0;
                     }) == 1;
    bool joins = of && of == block && isOneAxis && experts == group.experts &&
                 given + own <= plan::kMostBatched;
    if (!joins)
      given = gathered = 0;
    block = of;
    experts = group.experts;
    Replicated before = std::exchange(all, alone);
    if (joins) {
      all = getReplicated(CollectiveKind::AllGather, gathered + bytes, experts,
                          context);
      for (const AxisFacts &facts : kAxes)
        alone.seconds[facts.axis] =
            std::max(0.0, all.seconds[facts.axis] - before.seconds[facts.axis]);
    }
    given += own;
    gathered += bytes;
    return alone;
  }

private:
  double given = 0, gathered = 0; // bytes, by a rank and in all
  Replicated all;                 // of these, as one
  const StageBlocks::Entry *block = nullptr;
  bool experts = false;
};

/// How one parameter is gathered and reduced, alone. Layers that are alike ask
/// for the same.
class ExchangesAlone {
public:
  struct Both {
    Replicated gather, reduce;
  };

  explicit ExchangesAlone(const Context &context)
      : context(context), element(elementBytes(context.training.precision)) {}

  const Both &get(const ParameterGroup &group) {
    auto [found, isNew] = known.try_emplace({group.elements, group.experts});
    if (isNew)
      found->second = {getReplicated(CollectiveKind::AllGather,
                                     group.elements * element, group.experts,
                                     context),
                       getReplicated(CollectiveKind::ReduceScatter,
                                     group.elements * context.reducedBytes(),
                                     group.experts, context)};
    return found->second;
  }

private:
  const Context &context;
  double element; // bytes
  std::map<std::pair<double, bool>, Both> known;
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_GATHERBATCH_H
