//===- KernelLibrary.cpp - The kernels of a plan --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Kernel/Emitter.h"
#include "Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Registers a value: enough independent chains to hide an addition's latency,
/// few enough that a dozen values stay in registers.
static constexpr int64_t kRegisters = 4;

KernelLibrary::KernelLibrary(MLIRContext *context, TargetCPU target)
    : machine(createMachine(target)), target(std::move(target)) {
  context->loadDialect<arith::ArithDialect, func::FuncDialect,
                       LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                       vector::VectorDialect>();
  module = ModuleOp::create(UnknownLoc::get(context)).getOperation();
}

KernelLibrary::~KernelLibrary() = default;

/// Equal for clusters that compute the same, whatever their operands are
/// called: the body, its values numbered.
static std::string describe(plan::ClusterOp cluster) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::DenseMap<Value, unsigned> numbers;
  auto define = [&](Value value) {
    unsigned number = numbers.size();
    numbers[value] = number;
    out << value.getType() << ' ';
  };
  Block &body = cluster.getBody().front();
  llvm::for_each(body.getArguments(), define);
  for (Operation &op : body) {
    out << op.getName() << ' ' << op.getPropertiesAsAttribute();
    for (Value operand : op.getOperands())
      out << ' ' << numbers.lookup(operand);
    llvm::for_each(op.getResults(), define);
    out << '\n';
  }
  for (unsigned result = 0; result < cluster.getNumResults(); ++result)
    out << (cluster.getAccumulate() ? (*cluster.getAccumulate())[result] : 0);
  return text;
}

FailureOr<KernelInfo> KernelLibrary::add(plan::ClusterOp cluster) {
  if (!machine)
    return cluster.emitOpError("cannot be compiled: unknown processor '")
           << target.name << "'";
  int64_t width = getVectorWidth(*machine);
  if (width == 0)
    return cluster.emitOpError("cannot be compiled for '")
           << target.name << "': kernels need avx2 and fma";
  auto [entry, inserted] = kernels.try_emplace(describe(cluster));
  if (!inserted)
    return entry->second;
  KernelInfo info;
  info.symbol = "kernel_" + std::to_string(kernels.size() - 1);
  if (failed(emitKernel(cluster, cast<ModuleOp>(*module), kRegisters * width,
                        info))) {
    kernels.erase(entry);
    return failure();
  }
  return entry->second = std::move(info);
}

FailureOr<std::vector<char>> KernelLibrary::finish() {
  MLIRContext *context = module.get()->getContext();
  if (!machine)
    return emitError(UnknownLoc::get(context), "unknown processor '")
           << target.name << "'";
  FailureOr<llvm::SmallString<0>> object =
      compileModule(cast<ModuleOp>(*module), *machine);
  if (failed(object))
    return failure();
  return linkObject(*object, context);
}

std::vector<std::string> KernelLibrary::requiredFeatures() const {
  return machine ? listFeatures(*machine) : std::vector<std::string>();
}
