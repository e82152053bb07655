//===- Compile.cpp - Models, choices and plans for callers of C -----------===//
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
#include "Objects.h"

using namespace plait;
using namespace plait::capi;

namespace plait::capi {

struct ModelObject : OwnedObject {
  explicit ModelObject(std::shared_ptr<SessionObject> owner)
      : OwnedObject(std::move(owner)), compiler(this->owner->listener) {}
  const char *kind() const override { return "model"; }
  Result<std::string> describe() override {
    return std::string("{\"plannable\":") +
           (model->isPlannable() ? "true}" : "false}");
  }

  Session compiler;
  std::optional<Model> model;
};
template <> inline constexpr const char *kindOf<ModelObject> = "model";

} // namespace plait::capi

plait_error *plait_model_import(plait_session *session, const char *path,
                                const char *options, plait_model **model) {
  return call<SessionObject>(session, [&](auto &owner) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(path, "path"));
    PLAIT_CAPI_TRY(checkGiven(model, "model"));
    auto given = readModelOptions(path, options);
    PLAIT_CAPI_TRY(given.status());
    auto object = std::make_shared<ModelObject>(owner);
    Result<Model> imported = object->compiler.import(*given);
    if (!imported.ok())
      return owner->listener.makeError(imported.status());
    object->model = *imported;
    *model =
        static_cast<plait_model *>(addHandle(std::move(object), owner->handle));
    return nullptr;
  });
}

plait_error *plait_model_plan(plait_model *model, const char *options,
                              char **choice) {
  return call<ModelObject>(model, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(choice, "choice"));
    auto given = readCompileOptions(options);
    PLAIT_CAPI_TRY(given.status());
    if (given->cluster.empty())
      return makeError(fail(Code::InvalidOption,
                            "`cluster` has to say what the plan is for"));
    auto pins = readPins(*given);
    PLAIT_CAPI_TRY(pins.status());
    PlanningOptions planning;
    planning.pins = *pins;
    Result<Choice> chosen =
        object->compiler.plan(*object->model, *given, planning);
    if (!chosen.ok())
      return object->session().listener.makeError(chosen.status());
    *choice = copyText(
        "{\"options\":" + printCompileOptions(chosen->getOptions()) +
        ",\"prediction\":" + planner::toJson(chosen->describe()) + "}");
    return nullptr;
  });
}

plait_error *plait_model_compile(plait_model *model, const char *options,
                                 const char *path, plait_plan **plan) {
  return call<ModelObject>(model, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(path, "path"));
    PLAIT_CAPI_TRY(checkGiven(plan, "plan"));
    auto given = readCompileOptions(options);
    PLAIT_CAPI_TRY(given.status());
    Result<CompiledPlan> compiled =
        object->compiler.compile(*object->model, *given);
    if (!compiled.ok())
      return object->session().listener.makeError(compiled.status());
    PLAIT_CAPI_TRY(compiled->save(path));
    Result<plan::PlanFile> file = plan::PlanFile::open(path);
    PLAIT_CAPI_TRY(file.status());
    *plan = static_cast<plait_plan *>(addHandle(
        std::make_shared<PlanObject>(object->owner, std::move(*file), path),
        object->owner->handle));
    return nullptr;
  });
}
