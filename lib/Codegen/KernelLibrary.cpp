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
#include "plait/Dialect/Plan/IR/RowPitch.h"

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

/// Properties but what a call gives.
/// What the call gives is passed as a scalar, so that it may differ.
static void printStructure(Operation *op, llvm::raw_ostream &out) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  StringRef call = fusable ? fusable.getCallAttrName() : StringRef();
  auto properties =
      dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
  if (!properties)
    return;
  for (NamedAttribute attribute : properties)
    if (attribute.getName() != call)
      out << attribute.getName().getAsOpaquePointer() << ' '
          << attribute.getValue().getAsOpaquePointer() << ' ';
}

/// Equal for clusters that compute the same, whatever their operands are
/// called: the body, its values numbered.
/// It must tell apart all that changes the code: types and shapes of operands
/// and results, the pitch of rows in memory, what is sorted behind tokens,
/// every op with its properties, and how results accumulate. It takes time
/// linear in the cluster. Types and attributes are named by their addresses:
/// the context has each of them once.
static std::string describe(plan::ClusterOp cluster) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::DenseMap<Value, unsigned> numbers;
  auto define = [&](Value value) {
    unsigned number = numbers.size();
    numbers[value] = number;
    out << value.getType().getAsOpaquePointer() << ' ';
  };
  Block &body = cluster.getBody().front();
  llvm::for_each(body.getArguments(), define);
  for (Value stored :
       llvm::concat<Value>(llvm::to_vector_of<Value>(body.getArguments()),
                           llvm::to_vector_of<Value>(cluster.getResults())))
    out << plan::getRowPitch(stored) << ' ';
  for (BlockArgument argument : body.getArguments())
    out << plan::getSortedEntries(argument) << ' ';
  for (Operation &op : body) {
    out << op.getName().getAsOpaquePointer() << ' ';
    printStructure(&op, out);
    for (Value operand : op.getOperands())
      out << ' ' << numbers.lookup(operand);
    llvm::for_each(op.getResults(), define);
    out << '\n';
  }
  for (unsigned result = 0; result < cluster.getNumResults(); ++result)
    out << (cluster.getAccumulate() ? (*cluster.getAccumulate())[result] : 0);
  return text;
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
  auto [entry, inserted] = kernels.try_emplace(describe(cluster));
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
