//===- Describe.cpp - Objects as JSON -------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a caller has to know to give data and to ask for tensors.
//
//===----------------------------------------------------------------------===//

#include "Objects.h"
#include "RunObject.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"

#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::capi;
namespace fb = plait::plan::fb;
using Json = nlohmann::ordered_json;

Result<std::string> SessionObject::describe() {
  return Json{{"version", PLAIT_VERSION}, {"interface", PLAIT_C_VERSION}}
      .dump();
}

template <typename T>
static Json printNumbers(const flatbuffers::Vector<T> &numbers) {
  return Json(std::vector<int64_t>(numbers.begin(), numbers.end()));
}

/// Names as plaitc and plait-run have them.
Result<std::string> PlanObject::describe() {
  const fb::Plan &plan = file.plan();
  Json mesh = Json::object();
  for (const fb::MeshAxis *axis : *plan.mesh())
    mesh[axis->name()->str()] = axis->size();
  runtime::PlanIdentity identity = runtime::PlanIdentity::of(plan, file.hash());
  Json parameters = Json::array();
  for (const fb::Parameter *parameter : *plan.parameters())
    parameters.push_back(
        {{"name", parameter->name()->str()},
         {"shape", printNumbers(*parameter->shape())},
         {"file_name", parameter->file_name()->str()},
         {"file_shape", printNumbers(*parameter->file_shape())},
         {"file_begin", printNumbers(*parameter->box_begin())},
         {"frozen", parameter->frozen()},
         {"lr_factor", parameter->rate()},
         {"optimizer", parameter->optimizer() ? parameter->optimizer()->str()
                                              : identity.optimizer}});
  Json losses = Json::array();
  if (const auto *named = plan.named_losses())
    for (const flatbuffers::String *name : *named)
      losses.push_back(name->str());
  Json inputs = Json::array();
  if (const auto *floats = plan.float_inputs())
    for (const fb::FloatInput *input : *floats)
      inputs.push_back({{"name", input->name()->str()},
                        {"of_positions", input->of_positions()},
                        {"shape", input->shape() ? printNumbers(*input->shape())
                                                 : Json::array()}});
  return Json{{"hash", identity.hash},
              {"model", plan.model_type()->str()},
              {"backend", plan::backendOf(plan)},
              {"precision", plan::isMixed(plan) ? "bf16" : "fp32"},
              {"mesh", std::move(mesh)},
              {"ranks", plan::RankGrid(plan).ranks()},
              {"global_batch", plan.global_batch()},
              {"sequence", plan.sequence()},
              {"vocabulary", plan.vocab_size()},
              {"optimizer", identity.optimizer},
              {"named_losses", std::move(losses)},
              {"float_inputs", std::move(inputs)},
              {"parameters", std::move(parameters)}}
      .dump();
}

/// The options are those that the run has, defaults too.
Result<std::string> RunObject::describe() {
  runtime::Executor &executor = run->executor();
  const runtime::RunState &state = run->state();
  const std::string &settings = run->options().settings;
  return Json{
      {"step", state.step},
      {"updates", state.updates},
      {"tokens", state.tokens},
      {"steps", run->options().steps},
      {"ranks",
       std::vector<uint32_t>(executor.ranks().begin(), executor.ranks().end())},
      {"options", settings.empty() ? Json::object() : Json::parse(settings)}}
      .dump();
}
