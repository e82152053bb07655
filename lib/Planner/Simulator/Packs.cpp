//===- Packs.cpp - What is reduced and updated as one ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The packs that the compiler makes of a rank's parameters
// (PackParameters.cpp), by their sizes and what their gradients are summed
// over.
//
//===----------------------------------------------------------------------===//

#include "Packs.h"

#include "plait/Support/Buckets.h"

using namespace plait;
using namespace plait::planner;

size_t planner::getPackIndex(const ParameterGroup &group,
                             const StepLoad &load) {
  if (group.tied && load.tied > 0)
    return std::tuple_size_v<Packs> - 1;
  return 6 * group.experts + 3 * group.decays + group.replicated +
         group.partial;
}

Packs planner::getPacks(bool areDivided, double parameters,
                        const StepLoad &load, const Context &context) {
  double parts = areDivided ? context.divisions() : 1;
  if (load.stages.empty())
    return {Pack{parameters / parts}};
  const Compression &compression = context.training.compress;
  int64_t chunk = compression.isOn() ? compression.block : 0;
  Packs packs = {};
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        if (areDivided != (context.zero() >= 2 && context.isDivided(group)))
          return;
        Pack &pack = packs[getPackIndex(group, load)];
        pack.elements +=
            count * double(alignInPack(int64_t(group.elements / parts), chunk));
        pack.summed = {group.partial, group.experts};
      });
  int64_t shares = context.zero() >= 1 && !areDivided ? context.divisions() : 1;
  for (Pack &pack : packs)
    if (pack.elements > 0)
      pack.elements = double(
          getPackShape(int64_t(pack.elements), shares, chunk).elements());
  return packs;
}

double planner::getLeastBucket(const Context &context) {
  return double(getBucketElements(!context.cluster.device.isProcessor,
                                  context.configuration.mesh[Axis::DP]));
}

double planner::countBuckets(double elements, const Context &context) {
  return double(
      plait::countBuckets(int64_t(elements), int64_t(getLeastBucket(context))));
}
