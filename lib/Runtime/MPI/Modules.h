//===- Modules.h - Modules that link libraries of messages ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_MPI_MODULES_H
#define PLAIT_LIB_RUNTIME_MPI_MODULES_H

#include "plait/Support/Status.h"

namespace plait::runtime {

/// Opens plait-NAME.so, beside the program or where it was installed, and
/// returns the function `symbol` of it. It stays open.
Result<void *> openModule(const std::string &name, const char *symbol);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_MPI_MODULES_H
