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

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Support/Buckets.h"

using namespace plait;
using namespace plait::planner;

bool planner::hasFactors(const ParameterGroup &group, const Context &context) {
  return sendsFactors(context.training.compress) && group.factorRows > 0;
}

size_t planner::getPackIndex(const ParameterGroup &group, const StepLoad &load,
                             const Context &context) {
  if (group.tied && load.tied > 0)
    return std::tuple_size_v<Packs> - 1;
  return 12 * hasFactors(group, context) + 6 * group.experts +
         3 * group.decays + group.replicated + group.partial;
}

Packs planner::getPacks(bool areDivided, Elements parameters,
                        const StepLoad &load, const Context &context) {
  auto getParts = [&](bool experts) {
    return areDivided ? context.divisions(experts) : 1;
  };
  if (load.stages.empty())
    return {Pack{parameters.dense / getParts(false)},
            Pack{parameters.experts / getParts(true), {false, true}}};
  const Compression &compression = context.training.compress;
  int64_t chunk = compression.isOn() ? compression.block : 0;
  Packs packs = {};
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        if (areDivided != context.dividesByStage(group))
          return;
        Pack &pack = packs[getPackIndex(group, load, context)];
        pack.elements +=
            count *
            double(alignInPack(
                int64_t(group.elements / getParts(group.experts)), chunk));
        pack.summed = {group.partial, group.experts,
                       hasFactors(group, context)};
      });
  for (Pack &pack : packs) {
    bool experts = pack.summed.isExperts;
    int64_t shares = context.zero(experts) >= 1 && !areDivided
                         ? context.divisions(experts)
                     : compression.both ? context.configuration.mesh[Axis::DP]
                                        : 1;
    if (pack.elements > 0)
      pack.elements = double(
          getPackShape(int64_t(pack.elements), shares, chunk).elements());
  }
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
