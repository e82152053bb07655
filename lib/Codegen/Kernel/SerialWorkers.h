//===- SerialWorkers.h - Loops of a single thread ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A processor's kernel: one thread computes the parallel indices from `begin`
// to `end`, which the caller gives.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_KERNEL_SERIALWORKERS_H
#define PLAIT_LIB_CODEGEN_KERNEL_SERIALWORKERS_H

#include "Workers.h"

namespace plait::codegen {

class SerialWorkers : public Workers {
public:
  SerialWorkers(Emitter &emitter, mlir::Value begin, mlir::Value end)
      : Workers(emitter), begin(begin), end(end) {}

  void forIndices(int64_t count, llvm::ArrayRef<FusionRole> roles,
                  llvm::SmallVectorImpl<mlir::Value> &carried,
                  llvm::function_ref<void(mlir::Value)> body) override;
  void forMatches(int64_t count,
                  llvm::function_ref<mlir::Value(mlir::Value)> test,
                  llvm::function_ref<void(mlir::Value)> body) override;

private:
  mlir::Value begin, end;
};

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_KERNEL_SERIALWORKERS_H
