//===- WriteSteps.h - Functions of steps in the plan file -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_WRITESTEPS_H
#define PLAIT_LIB_CONVERSION_TOPLAN_WRITESTEPS_H

#include "plait/Codegen/Kernel.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Transforms/Steps.h"

#include "llvm/ADT/StringMap.h"

namespace plait {

/// The kernels of a plan, each once.
class KernelTable {
public:
  /// `emitted`, if given, become the kernels in the plan's order.
  KernelTable(codegen::KernelLibrary &library, plan::fb::PlanT &plan,
              std::vector<codegen::EmittedKernel> *emitted)
      : library(library), plan(plan), emitted(emitted) {}
  /// Writes what the plan says of `kernel`, still without arguments.
  mlir::FailureOr<plan::fb::KernelStepT> write(plan::KernelOp kernel);

private:
  codegen::KernelLibrary &library;
  plan::fb::PlanT &plan;
  std::vector<codegen::EmittedKernel> *emitted;
  llvm::StringMap<uint32_t> indices;
};

/// `function` as the plan has it; `memory` is that of the program that calls
/// it.
mlir::FailureOr<std::unique_ptr<plan::fb::FunctionT>>
writeFunction(plan::FunctionOp function, const ProgramMemory &memory,
              KernelTable &kernels, plan::fb::PlanT &plan);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_WRITESTEPS_H
