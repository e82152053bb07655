//===- LibraryWorkspace.h - Memory for libraries ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_LIBRARYWORKSPACE_H
#define PLAIT_LIB_TRANSFORMS_STEPS_LIBRARYWORKSPACE_H

#include "plait/Transforms/Steps.h"

namespace plait {

/// Appends the memory that a GPU's libraries use during the whole step to the
/// arena of `program`, whose functions are still in value form.
void addLibraryWorkspace(plan::ProgramOp program);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_LIBRARYWORKSPACE_H
