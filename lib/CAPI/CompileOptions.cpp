//===- CompileOptions.cpp - Options of a compilation as JSON --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields of the configuration come from its own list; the few other options are
// named here, with where their values go.
//
//===----------------------------------------------------------------------===//

#include "CompileOptions.h"

#include "plait/Plan/Json.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::capi;
using Json = nlohmann::ordered_json;

namespace {

/// Takes the value of the option called `name`.
using Setter =
    std::function<Status(const std::string &name, const Json &value)>;
using Setters = std::map<std::string, Setter>;

template <typename... Parts>
Status refuse(const std::string &name, const Parts &...parts) {
  return fail(Code::InvalidOption, "`", name, "` ", parts...);
}

Setter setText(std::string &target) {
  return [&target](const std::string &name, const Json &value) {
    if (!value.is_string())
      return refuse(name, "is ", value.dump(), ", expected a string");
    target = value.get<std::string>();
    return Status::success();
  };
}

Setter setTruth(bool &target, bool isNegated = false) {
  return [&target, isNegated](const std::string &name, const Json &value) {
    if (!value.is_boolean())
      return refuse(name, "is ", value.dump(), ", expected true or false");
    target = value.get<bool>() != isNegated;
    return Status::success();
  };
}

Setter setCount(int &target, int most) {
  return [&target, most](const std::string &name, const Json &value) {
    bool isCount = value.is_number_integer() && value >= 1 && value <= most;
    if (!isCount)
      return refuse(name, "is ", value.dump(), ", expected 1 to ", most);
    target = value.get<int>();
    return Status::success();
  };
}

Setter setPositive(double &target, double most) {
  return [&target, most](const std::string &name, const Json &value) {
    // False of a NaN too.
    bool isInRange = value.is_number() && value > 0 && value <= most;
    if (!isInRange)
      return refuse(name, "is ", value.dump(), ", expected more than 0, up to ",
                    most);
    target = value.get<double>();
    return Status::success();
  };
}

Setter setList(std::vector<std::string> &target) {
  return [&target](const std::string &name, const Json &value) {
    for (const Json &one : value.is_array() ? value : Json::array({value})) {
      if (!one.is_string())
        return refuse(name, "has ", one.dump(), ", expected strings");
      target.push_back(one.get<std::string>());
    }
    return Status::success();
  };
}

/// The failure as one of the option called `name`. Tables of names, which the
/// configuration's parser asks, say what they have, and not who wants it.
Status nameOption(const std::string &name, const Status &failure) {
  return failure.field() == name
             ? failure
             : refuse(name, "is wrong: ", failure.message());
}

/// Calls the setter of each option of the object in `text`.
Status read(const char *text, const Setters &setters) {
  if (!text)
    return Status::success();
  std::string_view bytes = text;
  Result<Json> object = parseJson<Json>(
      {reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()});
  if (!object.ok() || !object->is_object())
    return fail(Code::InvalidOption, "the options are no JSON object",
                object.ok() ? "" : ": the text " + object.status().message());
  for (const auto &[name, value] : object->items()) {
    auto setter = setters.find(name);
    if (setter == setters.end())
      return fail(Code::InvalidOption, "the options have '", name,
                  "', which is no option here");
    if (Status status = setter->second(name, value); !status.ok())
      return nameOption(name, status);
  }
  return Status::success();
}

/// Returns what the configuration's own parser reads: "11,11,10", 4, true.
std::string textOf(const Json &value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

} // namespace

Result<ModelOptions> capi::readModelOptions(const char *path,
                                            const char *text) {
  ModelOptions options;
  options.model = path;
  std::string dropout = "config";
  double alpha = 0.0;
  PLAIT_RETURN_IF_ERROR(read(
      text,
      {{"dropout", setText(dropout)},
       {"document-mask", setTruth(options.edits.documentMask)},
       {"target-weights", setTruth(options.edits.targetWeights)},
       {"lora", setCount(options.edits.loraRank, ModelEdits::kMostLoraRank)},
       {"lora-alpha", setPositive(alpha, ModelEdits::kMostLoraAlpha)},
       {"lora-targets", setList(options.edits.loraTargets)},
       {"no-decay", setList(options.edits.noDecay)},
       {"freeze", setList(options.edits.frozen)},
       {"lr-factor", setList(options.edits.rateFactors)},
       {"optimizer-of", setList(options.edits.optimizers)},
       {"balance", setList(options.edits.balance)},
       {"ignore-field", setList(options.ignoredFields)},
       {"expert-chunks",
        setCount(options.expertChunks, options.kMostExpertChunks)},
       {"shard", setList(options.shardings)}}));
  if (dropout != "config" && dropout != "off")
    return refuse("dropout", "is '", dropout, "', expected config or off");
  options.edits.dropout = dropout == "config";
  const char *without = alpha != 0.0                        ? "lora-alpha"
                        : options.edits.loraTargets.empty() ? nullptr
                                                            : "lora-targets";
  if (without && !options.edits.loraRank)
    return refuse(without, "needs `lora`, the rank of adapters");
  if (alpha != 0.0)
    options.edits.loraAlpha = alpha;
  return options;
}

Result<CompileOptions>
capi::readCompileOptions(const char *text, std::vector<std::string> *ignored) {
  CompileOptions options;
  Setters setters = {{"mesh", setText(options.mesh)},
                     {"schedule-file", setText(options.scheduleFile)},
                     {"backend", setText(options.backend)},
                     {"target", setText(options.target)},
                     {"target-cpu", setText(options.targetCPU)},
                     {"cluster", setText(options.cluster)},
                     {"claim", setText(options.claim)},
                     {"dump-phases-to", setText(options.dumpPhasesTo)},
                     {"no-prove", setTruth(options.prove, true)},
                     {"no-reference", setTruth(options.reference, true)},
                     {"verify-each-phase", setTruth(options.verifyEachPhase)}};
  visitConfiguration(
      [&](const Field &field, auto &pin) {
        setters[field.name] = [&pin](const std::string &name,
                                     const Json &value) {
          // Messages about options have their names in backquotes.
          return parse("`" + name + "`", textOf(value), pin);
        };
      },
      options.pins);
  if (ignored)
    setters["ignore-field"] = setList(*ignored);
  PLAIT_RETURN_IF_ERROR(read(text, setters));
  return options;
}

Result<CompileOptions>
capi::readPlanOptions(const char *text, std::vector<std::string> *ignored) {
  auto options = readCompileOptions(text, ignored);
  if (options.ok() && options->cluster.empty())
    return fail(Code::InvalidOption,
                "`cluster` has to say what the plan is for");
  return options;
}

/// Numbers and truth values are those of JSON.
std::string capi::printCompileOptions(const CompileOptions &options) {
  Json object = Json::object();
  for (auto [name, text] : {std::pair("mesh", &options.mesh),
                            {"schedule-file", &options.scheduleFile},
                            {"backend", &options.backend},
                            {"target", &options.target},
                            {"target-cpu", &options.targetCPU},
                            {"cluster", &options.cluster}})
    if (!text->empty())
      object[name] = *text;
  visitConfiguration(
      [&](const Field &field, const auto &pin) {
        using T = std::decay_t<decltype(*pin)>;
        if (!pin)
          return;
        if constexpr (std::is_integral_v<T>)
          object[field.name] = *pin;
        else
          object[field.name] = print(*pin);
      },
      options.pins);
  if (!options.prove)
    object["no-prove"] = true;
  if (!options.reference)
    object["no-reference"] = true;
  return object.dump();
}
