//===- FunctionConverter.h - Functions as lists of steps ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_FUNCTIONCONVERTER_H
#define PLAIT_LIB_CONVERSION_TOPLAN_FUNCTIONCONVERTER_H

#include "plait/Codegen/Kernel.h"
#include "plait/Plan/Plan_generated.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace plait {

/// The kernels of a plan, each once.
class KernelTable {
public:
  KernelTable(codegen::KernelLibrary &library, plan::fb::PlanT &plan)
      : library(library), plan(plan) {}
  /// The step that runs `cluster`, still without arguments.
  mlir::FailureOr<std::unique_ptr<plan::fb::KernelStepT>>
  convert(plan::ClusterOp cluster);

private:
  codegen::KernelLibrary &library;
  plan::fb::PlanT &plan;
  llvm::StringMap<uint32_t> indices;
};

/// The steps of `function`, whose values have places. `offsets` gives the arena
/// offset of every buffer of the program.
mlir::FailureOr<std::unique_ptr<plan::fb::FunctionT>>
convertFunction(mlir::func::FuncOp function,
                const llvm::StringMap<uint64_t> &offsets, KernelTable &kernels,
                plan::fb::PlanT &plan);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_FUNCTIONCONVERTER_H
