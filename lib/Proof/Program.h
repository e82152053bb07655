//===- Program.h - Check of programs' calls ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions of stages are interpreted for any microbatch (Step.h). This
// shows that programs call each function once for every microbatch, that what a
// call is given is what the function of the same or the neighbouring stage made
// for that microbatch, unchanged on its way through buffers and messages, and
// that the end of the step comes after all of them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_PROGRAM_H
#define PLAIT_LIB_PROOF_PROGRAM_H

#include "Report.h"

namespace plait::proof {

/// Shows it for a step of `microbatches`. Succeeds where the module has no
/// programs yet.
llvm::LogicalResult checkPrograms(mlir::ModuleOp module, int64_t microbatches,
                                  Report &report);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_PROGRAM_H
