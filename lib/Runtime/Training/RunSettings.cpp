//===- RunSettings.cpp - Description of a run's settings ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The settings of a run in a few lines, each of one subject, from the JSON
// object that the command line has made of all options. An option that is new
// and in no line here appears in the last one: nothing is left out by mistake.
//
//===----------------------------------------------------------------------===//

#include "RunSettings.h"

#include "LearningRate.h"
#include "OptimizerOptions.h"
#include "plait/Configuration/Configuration.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Json.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Support/Quantities.h"

#include <map>
#include <set>
#include <sstream>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::ordered_json;

namespace {

/// A subject and the options that belong to it, by their names on the command
/// line without the dashes in front.
struct Line {
  const char *title;
  std::set<std::string> options;
  bool isShared = true; // by all processes of a run
};

/// Lists what some optimizer reads, and what is done to gradients before.
std::set<std::string> getOptimizerLine() {
  std::set<std::string> names = {"grad-clip"};
  for (const SharedOption &option : getOptimizerOptions())
    names.emplace(option.name);
  return names;
}

/// An option that is in none of them goes to the last one.
const Line lines[] = {
    {"training",
     {"seed", "steps", "epochs", "lr", "lr-schedule", "warmup-steps", "min-lr",
      "decay-steps"}},
    {"optimizer", getOptimizerLine()},
    {"data",
     {"weights", "adapter", "tokens", "token-type", "text", "text-as-bytes",
      "shuffle", "document-end"}},
    {"evaluation",
     {"eval-tokens", "eval-text", "eval-every", "eval-steps", "best"}},
    {"checkpoints",
     {"checkpoint", "checkpoint-every", "keep", "replica", "replica-every",
      "resume"}},
    {"bad steps",
     {"on-nan", "on-spike", "spike-steps", "spike-deviations", "guard"}},
    {"execution",
     {"threads", "devices", "collective-blocks", "cuda-graph", "overlap",
      "tf32", "time-matmuls", "timeout", "stress"},
     false},
    {"outputs", {}, false},
};

/// "lr 0.001"; a flag is its name, and nothing where it is not set.
std::string describe(const std::string &name, const Json &value) {
  if (value.is_boolean())
    return value.get<bool>() ? name : "";
  return name + " " +
         (value.is_string() ? value.get<std::string>() : value.dump());
}

/// The last line has no options of its own and takes what is left.
const Line &lineOf(const std::string &option) {
  for (const Line &line : lines)
    if (line.options.count(option))
      return line;
  return *std::prev(std::end(lines));
}

/// "cpu, dp=2,tp=2, 4 ranks in 2 processes, adamw".
std::string describePlan(const RunInfo &run) {
  PlanIdentity plan = PlanIdentity::of(run.plan, run.options.planHash);
  uint32_t ranks = plan::RankGrid(run.plan).ranks();
  const Rendezvous *processes = run.options.executor.processes;
  uint32_t count = processes ? processes->place().count : 1;
  std::ostringstream text;
  text << plan::backendOf(run.plan) << ", " << plan.mesh << ", "
       << countOf(ranks, "rank") << " in " << countOf(count, "process", "es")
       << ", " << plan.nameOptimizers();
  return text.str();
}

} // namespace

/// The backend that executes a plan has options of its own, and so has its
/// optimizer (docs/Strategies.md); all others are every plan's.
std::optional<OptionMismatch> runtime::findMismatch(const fb::Plan &plan,
                                                    std::string_view option) {
  static const std::map<std::string_view, std::string> backends = {
      {"threads", "cpu"},       {"overlap", "cpu"},           {"stress", "cpu"},
      {"devices", "cuda"},      {"cuda-graph", "cuda"},       {"tf32", "cuda"},
      {"time-matmuls", "cuda"}, {"collective-blocks", "cuda"}};
  std::string backend(plan::backendOf(plan));
  auto one = backends.find(option);
  if (one != backends.end() && one->second != backend)
    return OptionMismatch{"for " + one->second, "is for " + backend};
  for (const PlanOption &own : getOptions(plan))
    if (own.isSetBy(option))
      return std::nullopt;
  const auto &known = getOptimizerOptions();
  auto other = std::ranges::find(known, option, &SharedOption::name);
  if (other == known.end())
    return std::nullopt; // no optimizer's
  std::vector<std::string> readers;
  for (const SharedOption::Reader &reader : other->readers)
    readers.push_back(std::string(reader.optimizer->name) +
                      (reader.isOfGroup ? " for a group" : ""));
  return OptionMismatch{"with optimizer " + joinChoices(readers),
                        "has " + PlanIdentity::of(plan, 0).nameOptimizers()};
}

/// Option by option, so that the failure names the one that differs. What lies
/// behind a path may be called otherwise on each host.
Status runtime::compareSettings(Rendezvous &processes,
                                const std::string &settings) {
  static const std::set<std::string> own = {
      "weights",   "adapter",    "tokens",  "text",  "eval-tokens",
      "eval-text", "checkpoint", "replica", "resume"};
  Json all =
      settings.empty() ? Json::object() : parsePrintedJson<Json>(settings);
  std::vector<SharedValue> mine;
  for (const Line &line : lines)
    for (const std::string &name : line.options) {
      if (!line.isShared || own.count(name))
        continue;
      std::string text =
          all.contains(name) ? describe(name, all[name]) : std::string();
      mine.push_back({text, text.empty() ? "no " + name : text});
    }
  return processes.agreeOn(mine);
}

/// Takes what is learned with; files may be a site's own.
std::map<std::string, std::string>
runtime::getSiteSettings(const std::string &settings) {
  Json all =
      settings.empty() ? Json::object() : parsePrintedJson<Json>(settings);
  std::map<std::string, std::string> shared;
  for (const auto &[name, value] : all.items()) {
    std::string_view title = lineOf(name).title;
    std::string text = describe(name, value);
    if ((title == "training" || title == "optimizer") && !text.empty())
      shared[name] = text;
  }
  return shared;
}

/// Sets `value` to what the JSON has; a text where it has one, else a number.
static void assign(const Json &json, std::string &value) {
  value = json.get<std::string>();
}
template <typename T> static void assign(const Json &json, T &value) {
  value = json.get<double>();
}
static void assign(const Json &json, uint64_t &value) {
  value = json.get<uint64_t>();
}
static void assign(const Json &json, std::optional<double> &value) {
  value = json.get<double>();
}
static void assign(const Json &json, std::optional<uint64_t> &value) {
  value = json.get<uint64_t>();
}

/// Calls `visit(name, member, other)` for each number that a run learns with,
/// where `other` may set it, too; empty: nothing does. The schedule comes
/// before what belongs to it.
template <typename Visit>
static void visitLearning(TrainOptions &options, Visit &&visit) {
  visit("lr", options.learningRate, "");
  visit("lr-schedule", options.schedule, "");
  visit("warmup-steps", options.warmupSteps, "lr-schedule");
  visit("min-lr", options.leastLearningRate, "lr-schedule");
  visit("decay-steps", options.decaySteps, "lr-schedule");
  for (const SharedOption &option : getOptimizerOptions())
    visit(option.name, options.optimizer[option.name],
          std::string(option.shared));
  visit("grad-clip", options.gradClip, "");
}

Result<std::string> runtime::keepSettings(TrainOptions &options,
                                          const std::string &found) {
  Json theirs = found.empty() ? Json::object() : parsePrintedJson<Json>(found);
  Json mine = options.settings.empty()
                  ? Json::object()
                  : parsePrintedJson<Json>(options.settings);
  std::string kept;
  Status status = Status::success();
  visitLearning(options, [&](const std::string &name, auto &value,
                             const std::string &other) {
    bool isGiven = options.given.count(name) || options.given.count(other);
    if (isGiven || !theirs.contains(name) ||
        theirs[name] == mine.value(name, Json()))
      return;
    try {
      assign(theirs[name], value);
    } catch (const Json::type_error &) {
      status =
          fail("the checkpoint's setting ", name, " is ", theirs[name].dump());
    }
    mine[name] = theirs[name];
    kept += (kept.empty() ? "" : ", ") + describe(name, theirs[name]);
  });
  if (!status.ok())
    return status;
  // Not learned with, but its tokenizer belongs to the model.
  if (options.weights.empty() && theirs.contains("weights") &&
      theirs["weights"].is_string()) {
    options.origin = theirs["weights"].get<std::string>();
    mine["weights"] = options.origin;
  }
  if (!kept.empty() || !options.origin.empty())
    options.settings = mine.dump();
  return kept;
}

std::string runtime::describeOtherLength(const TrainOptions &options,
                                         const std::string &found) {
  Json theirs = found.empty() ? Json::object() : parsePrintedJson<Json>(found);
  Json steps = theirs.value("steps", Json());
  if (options.schedule == "constant" || options.decaySteps || options.epochs ||
      !steps.is_number_unsigned() || steps.get<uint64_t>() == options.steps)
    return "";
  return "the schedule of the learning rate is as long as the run, " +
         countOf(options.steps, "step") + "; the checkpoint's was " +
         steps.dump() + ": `decay-steps` " + steps.dump() + " keeps it";
}

/// Settings come in the order of the object.
Json runtime::effectiveSettings(const RunInfo &run) {
  Json settings = run.options.settings.empty()
                      ? Json::object()
                      : parsePrintedJson<Json>(run.options.settings);
  settings["steps"] = run.options.steps; // where there are epochs, of them
  if (std::optional<uint64_t> steps = LearningRate::decaySteps(run.options))
    settings["decay-steps"] = *steps;
  Json effective = Json::object();
  for (const auto &[name, value] : settings.items())
    if (!describe(name, value).empty() && !findMismatch(run.plan, name))
      effective[name] = value;
  return effective;
}

/// Options come in their order, lines in that of the table.
std::string runtime::describeRun(const RunInfo &run) {
  std::map<const Line *, std::string> texts;
  Json settings = effectiveSettings(run);
  for (const auto &[name, value] : settings.items()) {
    if (name == "plan")
      continue;
    std::string &line = texts[&lineOf(name)];
    line += (line.empty() ? "" : ", ") + describe(name, value);
  }
  std::string all = "settings: plan: " + describePlan(run) + "\n";
  for (const Line &line : lines)
    if (const std::string &text = texts[&line]; !text.empty())
      all += std::string("settings: ") + line.title + ": " + text + "\n";
  return all;
}
