//===- Index.cpp - The index of a checkpoint ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// index.json: printing, parsing, and what of it is verified. The text ends with
// a checksum of all that is before it, so that an index that was cut off or
// changed is known as such. It is for people to read, too: one line a tensor.
//
// The format is described in docs/Checkpoints.md; what is changed here without
// a new `version` breaks checkpoints that exist.
//
//===----------------------------------------------------------------------===//

#include "Index.h"

#include "plait/Plan/Adapters.h"
#include "plait/Plan/CompileSettings.h"
#include "plait/Plan/Json.h"
#include "plait/Plan/Profile.h"

#include <cinttypes>
#include <cstdio>
#include <set>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::ordered_json;

std::string runtime::printHash(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

namespace {

constexpr char format[] = "plait-checkpoint";
constexpr int version = 1;

/// `body`, which a closing brace is missing of, with its checksum.
std::string seal(std::string_view body) {
  return std::string(body) + ",\n\"checksum\": \"" +
         printHash(XXH3_64bits(body.data(), body.size())) + "\"\n}\n";
}

/// Settings are an object of the run's own, kept as text elsewhere, and empty
/// where there are none.
Json printRun(const RunRecord &run) {
  Json settings = Json::object();
  if (!run.settings.empty())
    settings = parsePrintedJson<Json>(run.settings);
  return {{"step", run.step},
          {"updates", run.updates},
          {"samples", run.samples},
          {"tokens", run.tokens},
          {"seed", run.seed},
          {"data", run.data},
          {"settings", std::move(settings)}};
}

RunRecord parseRun(const Json &json) {
  RunRecord run;
  json.at("step").get_to(run.step);
  json.at("updates").get_to(run.updates);
  json.at("samples").get_to(run.samples);
  json.at("tokens").get_to(run.tokens);
  json.at("seed").get_to(run.seed);
  json.at("data").get_to(run.data);
  // An empty object and no settings print the same, and are read as the latter.
  const Json &settings = json.at("settings");
  run.settings = settings.empty() ? "" : settings.dump();
  return run;
}

/// {"shape": [4, 6], "slots": {"weight": [[file, begin, shape], …]}}.
Json printTensor(const StoredTensor &tensor) {
  Json slots = Json::object();
  for (const auto &[name, slot] : tensor.slots) {
    Json list = Json::array();
    for (size_t i = 0; i < slot.boxes.size(); ++i)
      list.push_back({slot.files[i], slot.boxes[i].begin, slot.boxes[i].shape});
    slots[name] = std::move(list);
  }
  return {{"shape", tensor.shape}, {"slots", std::move(slots)}};
}

/// The inverse of printTensor. Throws the JSON library's exceptions, which
/// CheckpointIndex::parse turns into a status.
StoredTensor parseTensor(const Json &json) {
  StoredTensor tensor;
  json.at("shape").get_to(tensor.shape);
  for (const auto &[name, list] : json.at("slots").items()) {
    StoredTensor::Slot &slot = tensor.slots[name];
    for (const Json &entry : list) {
      slot.files.push_back(entry.at(0).get<uint32_t>());
      slot.boxes.push_back(
          {entry.at(1).get<Shape>(), entry.at(2).get<Shape>()});
    }
  }
  return tensor;
}

/// Whether the elements can be counted and addressed.
/// In bytes, since readers multiply by the size of an element; the numbers come
/// from a file and may be anything.
bool isPossible(const Shape &shape) {
  int64_t bytes = sizeof(float);
  for (int64_t size : shape)
    if (size < 1 || __builtin_mul_overflow(bytes, size, &bytes))
      return false;
  return true;
}

/// Checks what readers rely on without looking again: file names stay inside of
/// the checkpoint's folder, shapes do not overflow, file numbers are in range.
/// The boxes themselves are checked by BoxMap.
Status check(const CheckpointIndex &index) {
  for (const StoredFile &file : index.files)
    if (file.name.empty() || file.name.find('/') != std::string::npos)
      return fail("names a file '", file.name, "' that is not in its folder");
  for (const auto &[name, tensor] : index.tensors) {
    if (!isPossible(tensor.shape))
      return fail("gives tensor '", name, "' an impossible shape");
    for (const auto &[slotName, slot] : tensor.slots)
      for (uint32_t file : slot.files)
        if (file >= index.files.size())
          return fail("has '", name, "' in file ", file, " of ",
                      index.files.size());
  }
  return Status::success();
}

} // namespace

PlanIdentity PlanIdentity::of(const fb::Plan &plan, uint64_t hash) {
  PlanIdentity identity = {plan::identify(hash), "", "adamw"};
  for (const fb::MeshAxis *axis : *plan.mesh())
    if (axis->size() > 1)
      identity.mesh += (identity.mesh.empty() ? "" : ",") +
                       axis->name()->str() + "=" + std::to_string(axis->size());
  if (identity.mesh.empty())
    identity.mesh = "1";
  if (plan.optimizer())
    identity.optimizer = plan.optimizer()->str();
  identity.alpha = plan::findAlpha(plan);
  for (const fb::Parameter *parameter : *plan.parameters()) {
    std::string name = parameter->name()->str();
    if (parameter->rate() != 1)
      identity.rates[name] = parameter->rate();
    if (parameter->optimizer())
      identity.optimizers[name] = parameter->optimizer()->str();
  }
  return identity;
}

std::string PlanIdentity::nameOptimizers() const {
  std::set<std::string> others;
  for (const auto &[name, own] : optimizers)
    others.insert(own);
  std::string text = optimizer;
  for (auto own = others.begin(); own != others.end(); ++own)
    text += (own == others.begin()            ? " with "
             : std::next(own) == others.end() ? " and "
                                              : ", ") +
            *own;
  return text;
}

/// One entry per line, in a fixed order: equal checkpoints have equal indices,
/// byte by byte, which the checksum at the end covers.
std::string CheckpointIndex::print() const {
  std::string text = "{\n";
  auto line = [&](const std::string &name, const Json &value) {
    text += (text.size() > 2 ? ",\n" : "") + Json(name).dump() + ": " +
            value.dump();
  };
  line("format", format);
  line("version", version);
  line("run", printRun(run));
  Json identity = {
      {"hash", plan.hash}, {"mesh", plan.mesh}, {"optimizer", plan.optimizer}};
  if (!plan.rates.empty())
    identity["rates"] = plan.rates;
  if (!plan.optimizers.empty())
    identity["optimizers"] = plan.optimizers;
  if (plan.alpha > 0)
    identity[plan::kAlphaEntry] = plan.alpha;
  line("plan", identity);
  Json list = Json::array();
  for (const StoredFile &file : files)
    list.push_back({{"name", file.name},
                    {"bytes", file.bytes},
                    {"xxh3", printHash(file.hash)}});
  line("files", list);
  std::string separator = ",\n\"tensors\": {\n";
  for (const auto &[name, tensor] : tensors) {
    text += separator + Json(name).dump() + ": " + printTensor(tensor).dump();
    separator = ",\n";
  }
  return seal(text + "}");
}

Result<CheckpointIndex>
CheckpointIndex::parse(std::span<const uint8_t> bytes) try {
  std::string_view text(reinterpret_cast<const char *>(bytes.data()),
                        bytes.size());
  // The checksum is verified over the raw bytes before anything is parsed: its
  // line has one length, so that the body is found without a parser.
  size_t tail = seal("").size();
  if (text.size() < tail || seal(text.substr(0, text.size() - tail)) != text)
    return Status::failure("is damaged, or no index of a checkpoint: its "
                           "checksum does not hold");
  Result<Json> json = parseJson<Json>(bytes);
  if (!json.ok())
    return json.status();
  if (json->at("format") != format || json->at("version") != version)
    return fail("has format ", json->at("format").dump(), " version ",
                json->at("version").dump(), ", this program reads \"", format,
                "\" version ", version);
  CheckpointIndex index;
  index.run = parseRun(json->at("run"));
  const Json &plan = json->at("plan");
  plan.at("hash").get_to(index.plan.hash);
  plan.at("mesh").get_to(index.plan.mesh);
  plan.at("optimizer").get_to(index.plan.optimizer);
  if (plan.contains("rates"))
    plan["rates"].get_to(index.plan.rates);
  if (plan.contains("optimizers"))
    plan["optimizers"].get_to(index.plan.optimizers);
  if (plan.contains(plan::kAlphaEntry))
    plan[plan::kAlphaEntry].get_to(index.plan.alpha);
  for (const Json &file : json->at("files"))
    index.files.push_back(
        {file.at("name").get<std::string>(), file.at("bytes").get<uint64_t>(),
         std::stoull(file.at("xxh3").get<std::string>(), nullptr, 16)});
  for (const auto &[name, tensor] : json->at("tensors").items())
    index.tensors.emplace(name, parseTensor(tensor));
  PLAIT_RETURN_IF_ERROR(check(index));
  return index;
} catch (const std::exception &error) { // of the JSON library, or of stoull
  return fail("is malformed: ", error.what());
}
