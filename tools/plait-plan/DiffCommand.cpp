//===- DiffCommand.cpp - plait-plan diff ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both plans are turned into lists of facts, a name and a value each, and the
// lists are compared; the comparison knows nothing of plans. A fact that one
// plan lacks is a difference as well. Names of facts are what is printed, and
// scripts may look for.
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "PlanSummary.h"
#include "TextOutput.h"
#include "plait/Plan/CompileSettings.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Profile.h"
#include "plait/Planner/PlanCost.h"
#include "plait/Runtime/Checkpoint.h"
#include "plait/Support/MemoryPlaces.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <iostream>
#include <memory>

using namespace plait;
using flatbuffers::GetString;
namespace fb = plait::plan::fb;
using Json = nlohmann::ordered_json;

namespace {

/// The facts that a plan has about one thing, as text or number; null where it
/// does not have that thing.
using Facts = std::vector<std::pair<std::string, Json>>;

/// Null on the side that does not have the fact.
struct Difference {
  std::string what;
  Json left, right;
};

/// The stages that hold a parameter, and the axes that split its dimensions:
/// `0, 3: [{}, {"tp"}]`. By name: parameters of two plans may have other
/// numbers. Tied ones are on several stages.
std::map<std::string, std::string> getPlacements(const fb::Plan &plan) {
  std::map<std::string, std::string> stages, dims;
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    // A program may hold none.
    const auto *shards = plan.programs()->Get(i)->shards();
    for (uint32_t j = 0; j < plan::length(shards); ++j) {
      const fb::Shard &shard = *shards->Get(j);
      std::string name =
          plan.parameters()->Get(shard.parameter())->name()->str();
      std::string &stage = stages[name];
      stage += (stage.empty() ? "" : ", ") + std::to_string(i);
      std::string text;
      for (const fb::DimSharding *dim : *shard.dims()) {
        text += text.empty() ? "{" : ", {";
        for (uint32_t k = 0; k < plan::length(dim->axes()); ++k)
          text += (k ? ", \"" : "\"") +
                  plan.mesh()->Get(dim->axes()->Get(k))->name()->str() + "\"";
        text += "}";
      }
      // The last stage that holds it says how it is split.
      dims[name] = "[" + text + "]";
    }
  }
  for (auto &[name, stage] : stages)
    stage = "stage " + stage + ", " + dims[name];
  return stages;
}

/// Adds what was chosen, in the order of plaitc's options; absent fields are
/// left out, as they are of a version that did not have them.
void addHeader(Facts &facts, const fb::Plan &plan) {
  facts.emplace_back("model", GetString(plan.model_type()) + " " +
                                  GetString(plan.model_name()));
  if (plan.cluster())
    facts.emplace_back("cluster", plan.cluster()->name()->str());
  facts.emplace_back("backend", plan::backendOf(plan));
  facts.emplace_back("mesh", planner::printMesh(plan));
  // Of schedules the name: two of one name differ in the actions, of which the
  // counts of steps below are all that is compared.
  for (auto &[name, value] : plan::settingsOf(plan))
    facts.emplace_back(name,
                       name == "optimizer"
                           ? runtime::PlanIdentity::of(plan, 0).nameOptimizers()
                           : value);
  facts.emplace_back("microbatches", plan.microbatches());
  facts.emplace_back("stages", plan.programs()->size());
  // For which processor, not the code itself: kernels differ in ways that say
  // nothing. There may be several for a target, as for GPUs of two generations.
  std::map<std::string, std::string> code;
  for (uint32_t i = 0; i < plan::length(plan.code()); ++i) {
    std::string &cpus = code[plan.code()->Get(i)->target()->str()];
    cpus += (cpus.empty() ? "" : ", ") + GetString(plan.code()->Get(i)->cpu());
  }
  for (auto &[target, cpus] : code)
    facts.emplace_back("code for " + target, cpus);
}

/// Facts of one pipeline stage, each under its index: plans with different
/// numbers of stages differ in whole programs.
void addProgram(Facts &facts, const fb::Plan &plan, uint32_t index) {
  const fb::Program &program = *plan.programs()->Get(index);
  tool::ProgramSummary summary = tool::summarise(plan, program);
  // Facts of one program sort together.
  std::string prefix = "program " + std::to_string(index) + " ";
  facts.emplace_back(prefix + "weights", summary.weights);
  facts.emplace_back(prefix + "microbatches in flight", summary.inFlight);
  facts.emplace_back(prefix + "arena bytes", program.arena_bytes());
  for (const MemoryPlaceFacts &other : otherPlaces)
    if (uint64_t bytes = getPlaceBytes(program, other.place))
      facts.emplace_back(prefix + "bytes on the " + std::string(other.name),
                         bytes);
  // Categories without bytes are no facts: where one plan alone has them, the
  // other shows a dash.
  for (auto [category, bytes] : summary.peakBytes)
    facts.emplace_back(prefix + tool::toWord(fb::EnumNameCategory(category)) +
                           " bytes",
                       bytes);
  for (auto [kind, count] : summary.steps)
    facts.emplace_back(
        prefix + tool::toWord(fb::EnumNameStepKind(kind)) + " steps", count);
  for (auto [kind, count] : summary.epilogues)
    facts.emplace_back(prefix + "gemm steps with " +
                           tool::toWord(fb::EnumNameEpilogue(kind)),
                       count);
  // By the axis's name, for plans may have other axes.
  for (uint32_t axis = 0; axis < summary.sentBytes.size(); ++axis)
    facts.emplace_back(prefix + "bytes sent over " +
                           plan.mesh()->Get(axis)->name()->str(),
                       summary.sentBytes[axis]);
  for (uint32_t i = 0; i < summary.agreedBytes.size(); ++i)
    if (summary.agreedBytes[i])
      facts.emplace_back(prefix + "bytes sent when sites agree, list " +
                             plan.lists()->Get(i)->name()->str(),
                         summary.agreedBytes[i]);
}

/// Parameters last: there may be hundreds, of which few differ.
Facts getFacts(const plan::PlanFile &file) {
  const fb::Plan &plan = file.plan();
  Facts facts;
  addHeader(facts, plan);
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    addProgram(facts, plan, i);
  for (auto &[name, placement] : getPlacements(plan))
    facts.emplace_back("parameter " + name, placement);
  return facts;
}

/// Differences come in the order of `left`; what only `right` has comes last. n
/// log n; `others` is left with what `left` does not have.
std::vector<Difference> compare(const Facts &left, const Facts &right) {
  // Names are unique in a list.
  std::map<std::string, Json> others(right.begin(), right.end());
  std::vector<Difference> differences;
  for (const auto &[what, value] : left) {
    auto found = others.find(what);
    Json other = found == others.end() ? Json() : found->second;
    // Numbers and texts compare as JSON values: 1 and "1" differ.
    if (value != other)
      differences.push_back({what, value, other});
    // What is left at the end has not been met.
    if (found != others.end())
      others.erase(found);
  }
  for (const auto &[what, value] : right)
    if (others.count(what))
      differences.push_back({what, Json(), value});
  return differences;
}

/// A dash stands for a fact that the other plan alone has.
std::string toText(const Json &value) {
  if (value.is_null())
    return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// One line each, in columns.
void print(const std::vector<Difference> &differences) {
  if (differences.empty())
    std::cout << "the plans are equal\n";
  for (const Difference &difference : differences)
    std::cout << tool::format("%-36s  ", difference.what.c_str())
              << toText(difference.left) << "  ->  " << toText(difference.right)
              << "\n";
}

/// Values keep their types.
std::string toJson(const std::vector<Difference> &differences) {
  Json list = Json::array();
  for (const Difference &difference : differences)
    list.push_back({{"what", difference.what},
                    {"a", difference.left},
                    {"b", difference.right}});
  Json content = {{"equal", differences.empty()},
                  {"differences", std::move(list)}};
  return content.dump(2) + "\n";
}

struct Options {
  std::string left, right;
  std::string json;    // a file; empty: none
  bool differ = false; // the outcome
};

/// Plans that differ are no failure: `options.differ` tells the exit code.
Status run(Options &options) {
  PLAIT_RETURN_IF_ERROR(checkOutputs(
      {{"--json", options.json}}, {{"a", options.left}, {"b", options.right}}));
  // Both are checked, as all plans are that are opened.
  Result<plan::PlanFile> left = plan::PlanFile::open(options.left);
  if (!left.ok())
    return left.status();
  Result<plan::PlanFile> right = plan::PlanFile::open(options.right);
  if (!right.ok())
    return right.status();
  std::vector<Difference> differences =
      compare(getFacts(*left), getFacts(*right));
  // Of what is not listed, such as the code of kernels and addresses.
  if (differences.empty() && left->hash() != right->hash())
    differences.push_back({"bytes of the file", plan::identify(left->hash()),
                           plan::identify(right->hash())});
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(writeTextFile(options.json, toJson(differences)));
  if (!isStandardOutput(options.json))
    print(differences);
  options.differ = !differences.empty();
  return Status::success();
}

} // namespace

/// Exit codes are those of diff(1): errors must not look like a difference.
tool::Command tool::addDiffCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand(
      "diff", "Say how two plans differ; exits with 1 where they do");
  auto options = std::make_shared<Options>();
  command->add_option("a", options->left, "A .plan file")->required();
  command->add_option("b", options->right, "Another")->required();
  command->add_option("--json", options->json, tool::jsonHelp);
  Command result{command, [options] { return run(*options); }};
  result.exitCode = [options] { return options->differ ? 1 : 0; };
  result.failureCode = 2;
  return result;
}
