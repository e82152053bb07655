//===- Passes.h - The proof as a pass ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PROOF_PASSES_H
#define PLAIT_PROOF_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace plait::proof {

#define GEN_PASS_DECL
#include "plait/Proof/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "plait/Proof/Passes.h.inc"

} // namespace plait::proof

#endif // PLAIT_PROOF_PASSES_H
