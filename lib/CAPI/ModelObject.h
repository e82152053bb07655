//===- ModelObject.h - A model of a caller of C -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CAPI_MODELOBJECT_H
#define PLAIT_LIB_CAPI_MODELOBJECT_H

#include "Objects.h"
#include "plait/Driver/Session.h"

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

#endif // PLAIT_LIB_CAPI_MODELOBJECT_H
