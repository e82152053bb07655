//===- ModelFolder.h - Where a model's files are ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_MODELFOLDER_H
#define PLAIT_PLAN_MODELFOLDER_H

#include <string>

namespace plait {

/// The folder that has the files of the model in `folder`: itself, or, where it
/// is a model of the cache of Hugging Face (`models--OWNER--MODEL`), the
/// snapshot that its refs/main names.
std::string findModelFolder(const std::string &folder);

} // namespace plait

#endif // PLAIT_PLAN_MODELFOLDER_H
