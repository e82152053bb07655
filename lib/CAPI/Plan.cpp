//===- Plan.cpp - Choices, and layouts of other programs ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A choice is no object of C but text: options that a compilation takes, which
// a program may keep, change and give again.
//
//===----------------------------------------------------------------------===//

#include "CompileOptions.h"
#include "ModelObject.h"
#include "plait/Driver/Jobs.h"
#include "plait/Support/Fields.h"

#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::capi;
using Json = nlohmann::ordered_json;

/// The best for `given` of what `framework` can run; only plait compiles.
/// Failures have been reported, as far as they are not of options.
static Result<Choice> choose(ModelObject &object, const CompileOptions &given,
                             const std::string &framework = "plait") {
  auto pins = getPins(given);
  if (!pins.ok())
    return pins.status();
  PlanningOptions planning;
  planning.pins = std::move(*pins);
  planning.framework = framework;
  planning.compiles = framework == "plait";
  return object.compiler.plan(*object.model, given, planning);
}

static Json printChoice(const Choice &choice) {
  return {{"options", Json::parse(printCompileOptions(choice.getOptions()))},
          {"prediction", Json::parse(planner::toJson(choice.describe()))}};
}

plait_error *plait_cluster_describe(plait_session *session, const char *name,
                                    char **json) {
  return call<SessionObject>(session, [&](auto &) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(name, "name"));
    PLAIT_CAPI_TRY(checkGiven(json, "json"));
    auto cluster = planner::parseCluster(name);
    if (!cluster.ok())
      return makeError(
          fail(Code::InvalidOption, "`cluster`: ", cluster.status().message()));
    Json content = {{"cluster", name},
                    {"name", cluster->name},
                    {"device", cluster->device.name},
                    {"nodes", cluster->nodes},
                    {"devices_per_node", cluster->devicesPerNode},
                    {"devices", cluster->devices()},
                    {"memory_limit_bytes", cluster->device.usableBytes()}};
    *json = copyText(content.dump());
    return nullptr;
  });
}

plait_error *plait_model_plan(plait_model *model, const char *options,
                              char **choice) {
  return call<ModelObject>(model, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(choice, "choice"));
    auto given = readPlanOptions(options);
    PLAIT_CAPI_TRY(given.status());
    Result<Choice> chosen = choose(*object, *given);
    if (!chosen.ok())
      return object->session().listener.makeError(chosen.status());
    *choice = copyText(printChoice(*chosen).dump());
    return nullptr;
  });
}

plait_error *plait_model_emit(plait_model *model, const char *options,
                              const char *program, char **emitted) {
  return call<ModelObject>(model, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(program, "program"));
    PLAIT_CAPI_TRY(checkGiven(emitted, "emitted"));
    auto known = planner::findProgram(program);
    PLAIT_CAPI_TRY(known.status());
    auto given = readPlanOptions(options);
    PLAIT_CAPI_TRY(given.status());
    Result<Choice> chosen = choose(*object, *given, (*known)->framework);
    if (!chosen.ok())
      return object->session().listener.makeError(chosen.status());
    auto written = emitChoice(program, *chosen);
    PLAIT_CAPI_TRY(written.status());
    Json content = printChoice(*chosen);
    content["text"] = written->text;
    content["notes"] = written->notes;
    *emitted = copyText(content.dump());
    return nullptr;
  });
}

namespace {

/// A job that is compared.
struct Audit {
  Choice job, best;
  planner::WhyNot comparison;
  std::vector<std::string> notes;
};

} // namespace

/// 1. The job, as what the planner is asked.
/// 2. Its model, if `object` has none.
/// 3. The job itself, and the best where nothing of it is pinned. Its training
///    stays: batch, sequence, precision.
static Result<Audit> audit(ModelObject &object, const planner::Program &program,
                           const char *text, CompileOptions given,
                           std::vector<std::string> ignored) {
  // 1. What it says.
  auto cluster = planner::parseCluster(given.cluster);
  if (!cluster.ok())
    return cluster.status();
  ModelOptions model;
  model.ignoredFields = std::move(ignored);
  if (object.model)
    model.model = "given";
  auto job = readJob(program, planner::splitShell(text), *cluster, model);
  if (!job.ok())
    return fail(Code::InvalidOption, program.name, ": ",
                job.status().message());
  CompileOptions pinned = given;
  PLAIT_RETURN_IF_ERROR(applyJob(*job, "", model, pinned));
  // 2. Its model.
  if (!object.model) {
    Result<Model> imported = object.compiler.import(model);
    if (!imported.ok())
      return imported.status();
    object.model = *imported;
  }
  // 3. Two searches.
  Result<Choice> found = choose(object, pinned, program.framework);
  if (!found.ok())
    return found.status();
  auto comparison = found->whyNot("");
  if (!comparison.ok())
    return comparison.status();
  CompileOptions free = pinned;
  free.mesh = given.mesh;
  static_cast<StrategyPins &>(free.pins) = given.pins;
  Result<Choice> best = choose(object, free, program.framework);
  if (!best.ok())
    return best.status();
  return Audit{*found, *best, *comparison, job->notes};
}

plait_error *plait_job_audit(plait_session *session, const char *program,
                             const char *job, plait_model *model,
                             const char *options, char **answer) {
  return call<SessionObject>(session, [&](auto &owner) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(program, "program"));
    PLAIT_CAPI_TRY(checkGiven(job, "job"));
    PLAIT_CAPI_TRY(checkGiven(answer, "audit"));
    auto known = planner::findProgram(program);
    PLAIT_CAPI_TRY(known.status());
    if (!(*known)->read)
      return makeError(fail(Code::InvalidOption, "no jobs of ", program,
                            " are read, expected megatron"));
    auto object = std::make_shared<ModelObject>(owner);
    if (model) {
      auto given = find<ModelObject>(model);
      PLAIT_CAPI_TRY(given.status());
      if ((*given)->owner != owner)
        return makeError(
            fail(Code::WrongCall, "the model is of another session"));
      object = *given;
    }
    std::vector<std::string> ignored;
    auto given = readPlanOptions(options, &ignored);
    PLAIT_CAPI_TRY(given.status());
    auto result = audit(*object, **known, job, *given, ignored);
    if (!result.ok())
      return owner->listener.makeError(result.status());
    Json content = printChoice(result->job);
    content["best"] = printChoice(result->best);
    content["notes"] = result->notes;
    content["config"] = result->job.getModel().getConfig();
    content["text"] = spellFields(
        planner::explainText(result->job.describe()) +
            planner::explainText(result->comparison, result->job.getResult()),
        "");
    *answer = copyText(content.dump());
    return nullptr;
  });
}
