//===- Buffers.h - Names of a program's buffers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names and offsets that placing buffers, writing the plan file and the proof
// agree on.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_BUFFERS_H
#define PLAIT_DIALECT_PLAN_IR_BUFFERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "llvm/ADT/StringMap.h"
#include <string>

namespace plait {

/// The rows of all microbatches of a batch. Each is called as its port is,
/// those of float inputs "features 0" and so on.
inline constexpr llvm::StringLiteral kTokensBuffer = "tokens";
inline constexpr llvm::StringLiteral kTargetsBuffer = "targets";
inline constexpr llvm::StringLiteral kScalarsBuffer = "scalars";
inline constexpr llvm::StringLiteral kMetricsBuffer = "metrics";
/// The buffer, in plans for GPUs, that libraries may use during the whole step.
inline constexpr llvm::StringLiteral kLibraryWorkspaceBuffer =
    "library workspace";

using plan::kAccumulateAttr;
using plan::kPlaceAttr;
using plan::kSlotBytesAttr;
using plan::kSlotNamesAttr;

/// The buffer of a parameter's value, gradient or moment, or of an accumulator.
inline std::string bufferName(llvm::StringRef symbol, nn::Slot slot) {
  return (symbol + " " + slot.getName()).str();
}

/// The packs of one rank of the pipeline (`nn.pack`), and so where its
/// parameters lie. The module must outlive it and keep its packs.
class ParameterPacks {
public:
  ParameterPacks(mlir::ModuleOp module, int64_t rank);

  struct Place {
    std::string buffer;
    int64_t offset; // bytes from its beginning
  };
  /// Returns where the tensor `slot` of a parameter, a pack or an accumulator
  /// lies: in the buffer of its pack, or in one of its own. Of a slot that is
  /// divided, the beginning: where a parameter lies there depends on the rank.
  Place locate(llvm::StringRef symbol, nn::Slot slot) const;
  /// The pack that holds, or is, `symbol`; null: it is alone.
  nn::PackOp find(llvm::StringRef symbol) const;

private:
  struct Member {
    nn::PackOp pack;
    int64_t offset; // elements
  };
  llvm::StringMap<Member> members;
};

/// The buffer of a compile-time constant: equal constants share one.
std::string constantName(mlir::Operation *op);

/// Bytes of a tensor.
inline int64_t byteSize(mlir::Type type) {
  auto tensor = mlir::cast<mlir::RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
}

/// The index of a metric: in enum Metric of the plan file, behind which come
/// the named losses of `module` (plait/Dialect/NN/IR/NamedLosses.h). -1: none.
int findMetric(mlir::ModuleOp module, llvm::StringRef name);

} // namespace plait

#endif // PLAIT_DIALECT_PLAN_IR_BUFFERS_H
