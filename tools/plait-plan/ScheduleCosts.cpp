//===- ScheduleCosts.cpp - Files of layer costs ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads the costs of layers, with the helpers that read hardware files: they
// know where in the file they are, so that a message names the field. Whether
// the numbers make a problem is schedule::JointProblem's to say.
//
//===----------------------------------------------------------------------===//

#include "ScheduleCosts.h"
#include "plait/Planner/Json.h"

using namespace plait;
using namespace plait::planner;
using namespace plait::schedule;

/// The range of what could possibly be milliseconds; NaN and negative numbers
/// are not.
static constexpr Range anyTime = {0, 1e12};

/// Layers without a name are numbered. Fields that are not known are errors.
static Result<Layer> readLayer(const Json &json, size_t index,
                               const std::string &where) {
  Layer layer;
  layer.name = "layer " + std::to_string(index);
  layer.activation = 1;
  Fields fields(json, where + "layers[" + std::to_string(index) + "]");
  fields.read("name", layer.name);
  fields.require("f").read("f", layer.forward, anyTime);
  fields.require("b").read("b", layer.backwardInput, anyTime);
  fields.require("w").read("w", layer.backwardWeight, anyTime);
  fields.read("activation", layer.activation, anyTime);
  PLAIT_RETURN_IF_ERROR(fields.finish());
  return layer;
}

/// 1. The pipeline.
/// 2. The layers, each with its own messages.
/// 3. The whole.
Result<JointProblem> tool::readScheduleCosts(const std::string &path) {
  Result<Json> json = readJsonFile(path, "costs file");
  if (!json.ok())
    return json.status();
  // 1. The pipeline.
  Fields fields(*json, "costs file '" + path + "':");
  constexpr Range counts = {1, 1 << 22};
  int stages = 1, microbatches = 1;
  JointProblem problem;
  fields.require("stages").read("stages", stages, counts);
  fields.require("microbatches").read("microbatches", microbatches, counts);
  fields.read("tcomm", problem.transfer, anyTime);
  fields.read("weight_share", problem.memory.weightShare, {0, 1});
  if (const Json *limit = fields.get("memory_limit");
      limit && !limit->is_null())
    fields.read("memory_limit", problem.memory.limit, {1e-9, 1e12});
  problem.stages = uint32_t(stages);
  problem.microbatches = uint32_t(microbatches);
  const Json *layers = fields.require("layers").get("layers");
  if (layers && !layers->is_array())
    fields.fail(fail(fields.path("layers"), " must be a list of objects"));
  PLAIT_RETURN_IF_ERROR(fields.finish());
  // 2. Required above: the list is there.
  for (const Json &layer : *layers) {
    Result<Layer> read =
        readLayer(layer, problem.layers.size(), fields.path(""));
    if (!read.ok())
      return read.status();
    problem.layers.push_back(std::move(*read));
  }
  // 3. Together.
  if (Status status = problem.check(); !status.ok())
    return fail("costs file '", path, "': ", status.message());
  return problem;
}
