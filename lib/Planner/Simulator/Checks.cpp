//===- Checks.cpp - Configurations that make no sense ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whether a configuration makes sense, before anything is computed with it. The
// order of the checks is that of what they rely on: counts first, so that
// products stay in range, then devices, the work's own configuration, what has
// to divide what, and the layers. A search calls this for each estimate, so
// that each check is arithmetic; sentences are only made where one fails.
//
//===----------------------------------------------------------------------===//

#include "Checks.h"

#include "plait/Configuration/CompressionFacts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

using namespace plait;
using namespace plait::planner;

/// Counts beyond this have no meaning, and below it no product overflows.
static constexpr int64_t maximum = std::numeric_limits<int32_t>::max();

/// Every count between 1 and what 32 bits hold. A count of 0 would be divided
/// by further on.
static Status checkCounts(const Context &context) {
  const Configuration &configuration = context.configuration;
  std::vector<std::pair<std::string_view, int64_t>> counts = {
      {"chunks", configuration.chunks},
      {"microbatch", configuration.microBatch},
      {"global batch", context.training.globalBatch},
      {"sequence", context.training.sequence}};
  for (const AxisFacts &facts : kAxes)
    counts.emplace_back(facts.name, configuration.mesh[facts.axis]);
  for (auto [name, count] : counts) {
    if (count < 1)
      return fail(name, " is ", count, ", expected at least 1");
    if (count > maximum)
      return fail(name, " is ", count, ", expected at most ", maximum);
  }
  if (configuration.zero < 0 || configuration.zero > 3)
    return fail("zero stage is ", configuration.zero, ", expected 0 to 3");
  return Status::success();
}

/// Multiplies size by size and stops at the cluster's, which keeps the product
/// in range. Fewer ranks than devices are allowed.
static Status checkDevices(const Context &context) {
  const Configuration &configuration = context.configuration;
  int64_t devices = context.cluster.devices(), ranks = 1;
  for (const AxisFacts &facts : kAxes) {
    ranks *= configuration.mesh[facts.axis];
    if (ranks > devices)
      return fail("mesh ", configuration.mesh.print(),
                  " needs more than the cluster's ", devices, " devices");
  }
  return Status::success();
}

/// A profile is of one degree of tp, with or without sequence parallelism, and
/// of one length of sequence: with another one every size in it would be wrong,
/// and nothing else would notice. One rank of tp has no sequence to share.
static Status checkWork(const Context &context) {
  const Work &work = context.work;
  const Configuration &configuration = context.configuration;
  if (work.tensorParallel != configuration.mesh[Axis::TP])
    return fail("the work is for tp ", work.tensorParallel,
                ", the configuration has ", configuration.mesh[Axis::TP]);
  if (work.expertParallel != configuration.mesh[Axis::EP])
    return fail("the work is for ep ", work.expertParallel,
                ", the configuration has ", configuration.mesh[Axis::EP]);
  if (work.expertExchange != configuration.degrees().exchange)
    return fail("the work exchanges ", print(work.expertExchange),
                " around experts, the configuration ",
                print(configuration.degrees().exchange));
  if (configuration.mesh[Axis::TP] > 1 &&
      work.sequenceParallel != configuration.sequenceParallel)
    return fail("the work is ", work.sequenceParallel ? "with" : "without",
                " sequence parallelism, the configuration is ",
                configuration.sequenceParallel ? "with" : "without");
  if (context.training.sequence != work.sequence)
    return fail("the work is for sequences of ", work.sequence,
                " tokens, the training has ", context.training.sequence);
  return Status::success();
}

static Status checkDivisions(const Context &context) {
  const Training &training = context.training;
  const Configuration &configuration = context.configuration;
  // Whole microbatches on every replica: a step has no shorter one at its end.
  int64_t slice = configuration.microBatch * configuration.mesh.batchParts();
  if (training.globalBatch % slice != 0)
    return fail("global batch ", training.globalBatch,
                " is not a multiple of microbatch ", configuration.microBatch,
                " x data-parallel ", configuration.mesh.batchParts());
  if (training.sequence % configuration.mesh[Axis::CP] != 0)
    return fail("sequence ", training.sequence, " is not a multiple of cp ",
                configuration.mesh[Axis::CP]);
  return Status::success();
}

/// Of one of the two: "1, 2, 4".
static std::string listDivisors(int64_t a, int64_t b) {
  std::string list;
  // Heads are few: every number is tried.
  for (int64_t i = 1; i <= std::max(a, b); ++i)
    if (a % i == 0 || b % i == 0)
      list += (list.empty() ? "" : ", ") + std::to_string(i);
  return list;
}

/// As the compiler splits heads over cp: those of one group only without
/// dropout.
static Status checkHeads(const Context &context) {
  if (!context.exchangesHeads())
    return Status::success();
  int64_t members = context.configuration.mesh[Axis::CP];
  for (const Block &block : context.work.blocks)
    for (const Operation &op : block.operations) {
      if (op.kind != OperationKind::Attention || op.keyValueHeads == 0)
        continue;
      // Either whole groups go to a rank of cp, or each group's query heads are
      // divided and its keys and values gathered. Dropout's masks go by groups.
      int64_t groups = op.keyValueHeads;
      int64_t each = context.training.dropout ? 1 : op.heads / groups;
      if (groups % members == 0 || each % members == 0)
        continue;
      return fail("context-parallel is heads, but cp ", members,
                  " does not divide the ", groups, " key/value heads",
                  each > 1
                      ? " or " + std::to_string(each) + " query heads of each"
                      : "",
                  " that a rank of tp ", context.configuration.mesh[Axis::TP],
                  " has; possible are ", listDivisors(groups, each));
    }
  return Status::success();
}

/// As the compiler cuts the sequence.
static Status checkZigzag(const Context &context) {
  if (!context.isReordered())
    return Status::success();
  int64_t chunks = 2 * int64_t(context.configuration.mesh[Axis::CP]);
  if (context.training.sequence % chunks != 0)
    return fail("context-parallel is zigzag, but sequence ",
                context.training.sequence,
                " is not a multiple of 2 · cp = ", chunks);
  return Status::success();
}

static Status checkOffload(const Context &context) {
  const Device &device = context.cluster.device;
  Offload offload = context.configuration.offload;
  for (MemoryPlace place : {offload.optimizer, offload.activations})
    if (place != MemoryPlace::Arena && device.places[place].bandwidth <= 0)
      return fail("offload is ", print(offload), ", but the hardware file of ",
                  device.name, " has no ", getFacts(place).name, "Bandwidth");
  return Status::success();
}

/// Checks what the compiler does before it compresses sums.
static Status checkCompression(const Context &context) {
  const Training &training = context.training;
  int zero = context.configuration.zero;
  PLAIT_RETURN_IF_ERROR(checkZero(training.compress, zero));
  if (training.compress.isOn() && zero > 0)
    for (const Block &block : context.work.blocks)
      for (const ParameterGroup &group : block.parameters)
        if (group.isMatrix(training))
          return checkZeroOfMatrices(training.compress, zero);
  return Status::success();
}

/// Where no cut is given, one has to be possible: what comes before or after
/// the layers can be a stage alone, so that there may be more stages than
/// layers. A cut that is given has one count a virtual stage.
static Status checkLayers(const Context &context) {
  const Configuration &configuration = context.configuration;
  int64_t layers = context.work.layers();
  int64_t stages = int64_t(configuration.mesh[Axis::PP]) * configuration.chunks;
  PLAIT_RETURN_IF_ERROR(checkStages(configuration.recompute, stages));
  const std::vector<int> &given = configuration.layers;
  if (given.empty() && stages > context.work.mostStages())
    return fail("the pipeline has ", stages, " virtual stages, the model ",
                layers, " layers");
  if (given.empty())
    return plait::checkLayerCounts(configuration.recompute, layers);
  // What is wrong in every pipeline comes first.
  int64_t sum = std::accumulate(given.begin(), given.end(), int64_t(0));
  if (sum != layers)
    return fail("the layers given add up to ", sum, ", the model has ", layers);
  for (size_t stage = 0; stage < given.size(); ++stage) {
    bool isEnd = (stage == 0 && context.work.before > 0) ||
                 (stage + 1 == given.size() && context.work.after > 0);
    if (given[stage] < (isEnd ? 0 : 1))
      return fail("virtual stage ", stage, " is given ", given[stage],
                  " layers, expected at least ", isEnd ? 0 : 1);
  }
  if (int64_t(given.size()) != stages)
    return fail("layers are given for ", given.size(),
                " virtual stages, the pipeline has ", stages);
  return plait::checkLayerCounts(configuration.recompute,
                                 *std::max_element(given.begin(), given.end()));
}

Status planner::checkConfiguration(const Context &context) {
  PLAIT_RETURN_IF_ERROR(checkCounts(context));
  PLAIT_RETURN_IF_ERROR(checkDevices(context));
  PLAIT_RETURN_IF_ERROR(checkWork(context));
  PLAIT_RETURN_IF_ERROR(checkDivisions(context));
  PLAIT_RETURN_IF_ERROR(checkHeads(context));
  PLAIT_RETURN_IF_ERROR(checkZigzag(context));
  PLAIT_RETURN_IF_ERROR(checkOffload(context));
  PLAIT_RETURN_IF_ERROR(checkCompression(context));
  return checkLayers(context);
}
