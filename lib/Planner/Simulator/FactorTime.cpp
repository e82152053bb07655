//===- FactorTime.cpp - Gradients that are sent as two factors ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lib/Transforms/Gradients/LowRankSum.cpp makes of each matrix.
//
//===----------------------------------------------------------------------===//

#include "Replicated.h"
#include "plait/Configuration/CompressionFacts.h"

using namespace plait;
using namespace plait::planner;

/// Two products with the matrix, the product of the factors (with error
/// feedback, of the own ones as well), and the rows of a factor made
/// orthonormal, each in a few sweeps over all of them and about 20 kernels.
static double makingSeconds(double elements, const ParameterGroup &group,
                            const Context &context) {
  const Compression &compression = context.training.compress;
  constexpr double number = sizeof(float), sweeps = 10, kernels = 20;
  double rank = double(compression.keep);
  double reads = compression.feedback ? 8 : 3;
  double swept = sweeps * rank * rank * double(group.factorRows);
  double products = compression.feedback ? 4 : 3;
  const Device &device = context.cluster.device;
  return memoryCost(number * (reads * elements + swept), device).seconds +
         products * 2 * rank * elements / device.peak(Precision::FP32) +
         kernels * rank * device.launchSeconds;
}

double planner::getFactorSeconds(const StepLoad &load, const Context &context) {
  Replicated summed, gathered;
  double rank = double(context.training.compress.keep);
  forEachGroup(
      context.work, load.stages, [&](const ParameterGroup &group, int count) {
        if (!hasFactors(group, context))
          return;
        double bytes = group.elements * context.gradientBytes();
        summed.add(getOthers(bytes, {group.partial, group.experts}, context),
                   count);
        double parts = 1;
        for (auto [axis, isSplit] : {std::pair(Axis::EP, group.experts),
                                     {Axis::TP, !group.replicated}}) {
          if (!isSplit || context.configuration.mesh[axis] == 1)
            continue;
          parts *= double(context.configuration.mesh[axis]);
          gathered.add(getCollective(CollectiveKind::AllGather, axis,
                                     bytes * parts, context.group(axis),
                                     context),
                       count);
        }
        if (context.configuration.mesh[Axis::DP] > 1) {
          for (int64_t side : {group.factorRows, group.factorColumns})
            summed.add(getCollective(CollectiveKind::AllReduce, Axis::DP,
                                     rank * double(side) * sizeof(float),
                                     context.group(Axis::DP), context),
                       count);
        }
        summed.rounding +=
            count * makingSeconds(group.elements * parts, group, context);
      });
  for (const Replicated *made : {&summed, &gathered})
    made->note(Moment::Reduce, 1, made->getSeconds(), context);
  return summed.getSeconds() + gathered.getSeconds();
}
