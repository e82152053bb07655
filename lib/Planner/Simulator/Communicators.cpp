//===- Communicators.cpp - GPU memory of a choice's groups ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulator/Communicators.h"

#include "plait/Plan/Communicators.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <string_view>

using namespace plait;
using namespace plait::planner;

/// Ranks agree along every axis, on the loss and the norm at least; those of
/// both ends of a longer pipeline add up a table that they share. A rank of the
/// pipeline hears from one neighbour and tells the other, in both directions of
/// a step; where stages turn back, it does both with both.
CommunicatorMemory
planner::countCommunicators(const Configuration &configuration, bool ties) {
  CommunicatorMemory made;
  for (const AxisFacts &facts : kAxes)
    made.groups += configuration.mesh[facts.axis] > 1;
  int stages = configuration.mesh[Axis::PP];
  if (stages == 1)
    return made;
  made.groups += ties && stages > 2;
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(configuration.schedule);
  bool turns =
      !generator.ok() || (*generator)->placement == schedule::Placement::VShape;
  made.routes = turns ? 8 : 4;
  return made;
}

/// Returns the bytes that rows of experts are packed into on their way out and
/// in, as plan::stageRows() has it, but for its lists.
static double getStagedBytes(const Context &context) {
  if (context.work.expertExchange != ExpertExchange::Rows)
    return 0;
  double most = 0;
  for (const Block &block : context.work.blocks)
    for (const Operation &op : block.operations)
      if (op.movesRows)
        most = std::max(most, op.collectiveElements(context.sequences()));
  return 2 * plan::kStagedRows * most *
         elementBytes(context.training.precision);
}

double planner::getUnreservedBytes(const Context &context) {
  const Device &device = context.cluster.device;
  if (device.target.empty() ||
      std::string_view(context.framework().name) != "plait")
    return 0;
  bool ties =
      std::any_of(context.work.blocks.begin(), context.work.blocks.end(),
                  [](const Block &block) {
                    return std::any_of(
                        block.parameters.begin(), block.parameters.end(),
                        [](const ParameterGroup &group) { return group.tied; });
                  });
  CommunicatorMemory made = countCommunicators(context.configuration, ties);
  made.scratch = uint64_t(getStagedBytes(context));
  return double(getReserve(uint64_t(device.reservedBytes), made)) -
         double(uint64_t(device.reservedBytes));
}
