//===- Passes.h - All passes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_PASSES_H
#define PLAIT_TRANSFORMS_PASSES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

#define GEN_PASS_DECL
#include "plait/Transforms/Passes.h.inc"

/// Registers every pass and every phase pipeline for the command line.
void registerAllPasses();

} // namespace plait

#endif // PLAIT_TRANSFORMS_PASSES_H
