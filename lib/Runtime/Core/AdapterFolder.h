//===- AdapterFolder.h - Adapters as PEFT saves them ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_ADAPTERFOLDER_H
#define PLAIT_LIB_RUNTIME_CORE_ADAPTERFOLDER_H

#include "plait/Plan/Plan_generated.h"

#include <string>

namespace plait::runtime {

namespace fb = plan::fb;

/// Names that PEFT looks for in a folder.
inline constexpr char kAdapterFile[] = "adapter_model.safetensors";
inline constexpr char kAdapterConfig[] = "adapter_config.json";

/// Whether the plan trains adapters and nothing else.
bool hasAdapters(const fb::Plan &plan);

/// Returns the adapter_config.json of a plan with adapters of the weights at
/// `origin`: it names the model if that is a folder.
std::string makeAdapterConfig(const fb::Plan &plan, const std::string &origin);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_ADAPTERFOLDER_H
