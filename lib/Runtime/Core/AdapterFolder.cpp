//===- AdapterFolder.cpp - Adapters as PEFT saves them --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The fields are those of PEFT's LoraConfig. What is not written has its
// default there.
//
//===----------------------------------------------------------------------===//

#include "AdapterFolder.h"

#include "FileLayout.h"
#include "plait/Plan/Adapters.h"
#include "plait/Plan/CompileSettings.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Json.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

using namespace plait;
using namespace plait::runtime;

using Json = nlohmann::ordered_json;

namespace {

struct Facts {
  int64_t rank = 0;
  std::set<std::string> modules;
  /// Whether files have the layers' matrices as [inputs, outputs].
  bool isTransposed = false;
};

using Shape = flatbuffers::Vector<int64_t>;

/// Whether the dimensions of the inputs, which A has behind the rank, are the
/// first ones of `weight` and not its last.
bool beginsWithInputs(const Shape &weight, const Shape &a) {
  size_t inputs = a.size() - 1;
  return weight.size() > inputs &&
         std::equal(a.begin() + 1, a.end(), weight.begin()) &&
         !std::equal(a.begin() + 1, a.end(), weight.end() - inputs);
}

Facts findFacts(const fb::Plan &plan) {
  Facts facts;
  std::map<std::string, const Shape *, std::less<>> shapes;
  for (const fb::Parameter *parameter : *plan.parameters())
    shapes.emplace(parameter->file_name()->str(), parameter->shape());
  for (const fb::Parameter *parameter : *plan.parameters()) {
    std::string_view name = parameter->file_name()->string_view();
    if (!plan::isAdapter(name) || !name.ends_with(plan::kAdapterA))
      continue;
    name.remove_prefix(plan::kAdapterPrefix.size());
    name.remove_suffix(plan::kAdapterA.size());
    std::string module(name);
    facts.rank = parameter->file_shape()->Get(0);
    auto weight = shapes.find(module + ".weight");
    facts.isTransposed |=
        weight != shapes.end() &&
        beginsWithInputs(*weight->second, *parameter->shape());
    facts.modules.insert(std::move(module));
  }
  return facts;
}

/// PEFT has whole numbers as such.
Json printNumber(double number) {
  return number == std::floor(number) ? Json(int64_t(number)) : Json(number);
}

} // namespace

bool runtime::hasAdapters(const fb::Plan &plan) {
  return plan::findAlpha(plan) > 0;
}

/// Whole names of modules: how one ends may also be the end of another's.
std::string runtime::makeAdapterConfig(const fb::Plan &plan,
                                       const std::string &origin) {
  Facts facts = findFacts(plan);
  std::error_code error;
  bool isFolder = std::filesystem::is_directory(origin, error);
  Json json = {{"peft_type", "LORA"},
               {"task_type", plan.config() ? Json("CAUSAL_LM") : Json()},
               {"base_model_name_or_path", isFolder ? Json(origin) : Json()},
               {"r", facts.rank},
               {"lora_alpha", printNumber(plan::findAlpha(plan))},
               {"lora_dropout", 0.0},
               {"bias", "none"},
               {"fan_in_fan_out", facts.isTransposed},
               {"init_lora_weights", true},
               {"inference_mode", true},
               {"target_modules", facts.modules}};
  return json.dump(2) + "\n";
}

/// Whether PEFT's adapters with this in a field are as without the field.
static bool saysNothing(const Json &value) {
  return value.is_null() || value == false || value == 0 || value == "none" ||
         (value.is_structured() && value.empty());
}

/// Fails where adapters are more than two matrices that all count as much, or
/// the model that they are added to is another one than in its files, as
/// PiSSA's is.
static Status checkKind(const Json &json, const std::string &path) {
  for (const char *name :
       {"alora_invocation_tokens", "alpha_pattern", "arrow_config", "bias",
        "kasa_config", "layer_replication", "loftq_config", "lora_bias",
        "modules_to_save", "monteclora_config", "rank_pattern",
        "target_parameters", "trainable_token_indices", "use_bdlora",
        "use_dora", "use_qalora", "velora_config"})
    if (auto found = json.find(name);
        found != json.end() && !saysNothing(*found))
      return fail("adapter '", path, "' has ", name, " ", found->dump(),
                  ", which no plan trains");
  auto init = json.find("init_lora_weights");
  if (init == json.end() || !init->is_string())
    return Status::success();
  std::string kind = init->get<std::string>();
  if (kind == "gaussian" || kind == "eva" || kind == "orthogonal")
    return Status::success();
  return fail("adapter '", path, "' has init_lora_weights ", init->dump(),
              ": it is of a model that was changed where it began, and not of "
              "its files");
}

/// Reads the settings of adapters, an object in the file at `path`.
static Result<Json> readConfig(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path, "adapter");
  if (!file.ok())
    return file.status();
  Result<Json> json = parseJson<Json>(file->bytes());
  if (!json.ok() || !json->is_object())
    return fail("adapter '", path, "' is no JSON object");
  return json;
}

double runtime::findAdapterDropout(const std::string &adapter) {
  Result<Json> json = readConfig(adapter + "/" + kAdapterConfig);
  if (!json.ok())
    return 0.0;
  auto found = json->find("lora_dropout");
  return found != json->end() && found->is_number() ? found->get<double>()
                                                    : 0.0;
}

/// Fails where adapters are multiplied by something else than alpha / rank of
/// the plan. Those of rsLoRA are by their own alpha / √rank (Kalajdzievski
/// 2023).
static Status checkAlpha(const Json &json, const std::string &path, double rank,
                         double expected) {
  // Older versions have fewer fields.
  auto found = json.find("lora_alpha"), stable = json.find("use_rslora");
  if (found == json.end())
    return Status::success();
  bool isStable = stable != json.end() && !saysNothing(*stable);
  double alpha = found->is_number()
                     ? found->get<double>() * std::sqrt(isStable ? rank : 1.0)
                     : NAN;
  // A root has more digits than a person writes.
  if (std::abs(alpha - expected) <= 1e-6 * expected)
    return Status::success();
  std::string as =
      isStable ? ", with use_rslora as " + printNumber(alpha).dump() : "";
  return fail("adapter '", path, "' has lora_alpha ", found->dump(), as,
              ", the plan ", printNumber(expected).dump());
}

/// Fails where the adapters of `folder` count otherwise than those of the plan.
static Status checkConfig(const fb::Plan &plan, const std::string &folder) {
  std::string path = folder + "/" + kAdapterConfig;
  Result<Json> json = readConfig(path);
  if (!json.ok())
    return json.status();
  double rank = double(findFacts(plan).rank), alpha = plan::findAlpha(plan);
  for (auto [name, expected] :
       {std::pair("peft_type", Json("LORA")), {"r", printNumber(rank)}}) {
    // Older versions have fewer fields.
    if (auto found = json->find(name);
        found != json->end() && *found != expected)
      return fail("adapter '", path, "' has ", name, " ", found->dump(),
                  ", the plan ", expected.dump());
  }
  PLAIT_RETURN_IF_ERROR(checkAlpha(*json, path, rank, alpha));
  return checkKind(*json, path);
}

/// Fails where `file` has other adapters than the plan.
static Status checkTensors(const fb::Plan &plan, const std::string &file) {
  Result<WeightFiles> files = WeightFiles::open(file);
  if (!files.ok())
    return files.status();
  Result<FileLayout> layout = FileLayout::of(plan);
  if (!layout.ok())
    return layout.status();
  std::set<const FileTensor *> used;
  for (const auto &[name, shape] : layout->tensors) {
    Result<const FileTensor *> found = files->find(name, shape);
    if (!found.ok())
      return found.status();
    used.insert(*found);
  }
  std::vector<std::string> others = files->findOthers(used);
  if (others.empty())
    return Status::success();
  return fail("adapter '", file, "' has '", others.front(), "'",
              others.size() > 1
                  ? " and " + std::to_string(others.size() - 1) + " more"
                  : "",
              ", for which the plan has no adapter");
}

Result<WeightFiles> runtime::openWithAdapter(const fb::Plan &plan,
                                             const std::string &weights,
                                             const std::string &adapter) {
  if (!hasAdapters(plan))
    return fail("adapter '", adapter, "' is given, but the plan trains none");
  std::string file = adapter + "/" + kAdapterFile;
  PLAIT_RETURN_IF_ERROR(checkConfig(plan, adapter));
  PLAIT_RETURN_IF_ERROR(checkTensors(plan, file));
  Result<WeightFiles> files = WeightFiles::open(weights);
  if (files.ok())
    PLAIT_RETURN_IF_ERROR(files->add(file));
  return files;
}
