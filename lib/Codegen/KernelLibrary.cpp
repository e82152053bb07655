//===- KernelLibrary.cpp - The kernels of a plan
//------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collects kernels, one for all clusters that compute the same: the layers of a
// model have equal clusters, and a plan of any depth has as many kernels as one
// of few layers. What is equal is decided by a text of the cluster's structure.
// How a kernel is emitted is left to the machines' libraries.
//
//===----------------------------------------------------------------------===//

#include "CPU/CPULibrary.h"
#include "NVPTX/NVPTXLibrary.h"

#include "plait/Analysis/ClusterStructure.h"
#include "plait/Analysis/IterationSpace.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

KernelLibrary::KernelLibrary(MLIRContext *context) {
  // Ops of these are built by hand, without a pass that would declare them.
  context->loadDialect<arith::ArithDialect, func::FuncDialect,
                       LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                       vector::VectorDialect>();
  module = ModuleOp::create(UnknownLoc::get(context)).getOperation();
}

KernelLibrary::~KernelLibrary() = default;

/// One class a kind of machine; who calls add() and finish() need not know
/// which.
std::unique_ptr<KernelLibrary> KernelLibrary::create(MLIRContext *context,
                                                     const Target &target) {
  if (auto *gpu = std::get_if<TargetGPU>(&target))
    return std::make_unique<NVPTXLibrary>(context, *gpu);
  return std::make_unique<CPULibrary>(context, std::get<TargetCPU>(target));
}

/// The same kernel for `cluster`, whose ops have numbers of their own.
/// Only the scalars that belong to an op differ: their values are this
/// cluster's.
static KernelInfo callFor(plan::ClusterOp cluster, KernelInfo info) {
  auto ops = cluster.getBody().front().without_terminator();
  for (RankScalar &scalar : info.scalars)
    if (scalar.op >= 0)
      scalar.bias = getCallValue(&*std::next(ops.begin(), scalar.op));
  return info;
}

/// Symbols are numbered in the order in which kernels first occur, so that
/// equal plans have equal code. A cluster that fails leaves no entry, or the
/// next one of its structure would get a kernel that is not there.
FailureOr<KernelInfo> KernelLibrary::add(plan::ClusterOp cluster) {
  auto [entry, inserted] = kernels.try_emplace(describeStructure(cluster));
  if (!inserted)
    return callFor(cluster, entry->second);
  KernelInfo info;
  info.symbol = "kernel_" + std::to_string(kernels.size() - 1);
  if (failed(emit(cluster, info))) {
    kernels.erase(entry);
    return failure();
  }
  return entry->second = std::move(info);
}
