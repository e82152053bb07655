//===- InitAll.h - Everything that a tool registers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For tools that read any of plait's IR. A tool that reads less registers less.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_INITALL_H
#define PLAIT_INITALL_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// plait's dialects and those of MLIR that its modules are written in.
inline void registerAllDialects(mlir::DialectRegistry &registry) {
  registry.insert<PlaitDialect, nn::NNDialect, dist::DistDialect,
                  pipe::PipeDialect, plan::PlanDialect, mlir::func::FuncDialect,
                  mlir::arith::ArithDialect>();
}

} // namespace plait

#endif // PLAIT_INITALL_H
