//===- Compile.cpp - Models and plans for callers of C --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CompileOptions.h"
#include "ModelObject.h"

using namespace plait;
using namespace plait::capi;

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
