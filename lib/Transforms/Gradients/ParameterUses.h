//===- ParameterUses.h - Uses of parameters by rank -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What follows from the functions of all stages about the end of a step: which
// ranks of the pipeline have a parameter, how their microbatches leave its
// gradient, and so what is left to be done. Asked while values still have
// shardings.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_PARAMETERUSES_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_PARAMETERUSES_H

#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <set>

namespace plait {

/// By rank of the pipeline: how its microbatches leave what they add up, as
/// partial sums over some axes.
using Accumulated = std::map<int64_t, dist::ShardingAttr>;

/// A parameter, and what the stages do with it.
struct ParameterUse {
  nn::ParameterOp parameter;
  const Optimizer *optimizer; // that updates it
  /// Of the ranks that add to its gradient; none: it is frozen. The first one
  /// counts it in the norm.
  Accumulated gradients;
  /// The ranks that have it.
  std::set<int64_t> ranks;
  /// Whether there is a bf16 copy to compute with, and whether the value itself
  /// is read all the same.
  bool hasCopy = false, valueIsRead = false;

  bool isTrained() { return !gradients.empty(); }
  /// The dimensions that are columns of a matrix which is updated as a whole;
  /// empty: it is updated by elements.
  llvm::ArrayRef<int64_t> getColumns() {
    return parameter.getMatrix().value_or(llvm::ArrayRef<int64_t>());
  }
  bool isMatrix() { return !getColumns().empty(); }
  /// Of all ranks together.
  mlir::RankedTensorType getType() {
    return llvm::cast<mlir::RankedTensorType>(parameter.getType());
  }
  /// A rank's block of it by `sharding`, in f32.
  mlir::RankedTensorType getBlock(dist::MeshOp mesh,
                                  dist::ShardingAttr sharding) {
    return mesh.getLocalType(dist::withSharding(getType(), sharding));
  }
  /// How `slot` lies: a value of which there is a copy is the optimizer's own.
  dist::ShardingAttr getSharding(nn::Slot slot);
  /// How it lies where it is updated.
  dist::ShardingAttr getState() { return getSharding(nn::Slot::Gradient); }

  /// Whether replicas divide its values, and each has the whole gradient, which
  /// it compresses: a pack of it alone then has rows of either.
  bool isInBlocks(dist::MeshOp mesh);
  /// How that lies of which a pack has rows.
  dist::ShardingAttr getPacked(dist::MeshOp mesh);
  /// Whether all that a rank has of it is split in one way, and its gradients
  /// have only to be added up.
  bool isSplitOnce(dist::MeshOp mesh);
  /// The axes over which `rank` has partial sums of the gradient.
  llvm::SmallVector<mlir::StringAttr> getReducedAxes(dist::MeshOp mesh,
                                                     int64_t rank);
  /// The axes that it is split over where it is updated. Axes of one rank are
  /// in neither list.
  llvm::SmallVector<mlir::StringAttr> getSplitAxes(dist::MeshOp mesh);
  /// Whether the ranks along `axis` may each update some rows of its pack: all
  /// that hold it add its gradient up over the axis, and read nothing of what
  /// is divided, and an element is updated by itself.
  bool canDivide(llvm::StringRef axis, dist::MeshOp mesh);
};

/// The element type in which ranks sum gradients up.
mlir::Type getReducedType(mlir::ModuleOp module);

/// `gradient` of a microbatch under `sharding`, in f32; rounded to the type in
/// which ranks sum gradients where that is to be done now.
mlir::Value sumGradient(mlir::OpBuilder &builder, mlir::Value gradient,
                        dist::ShardingAttr sharding);

/// The gradient of `primal` under `sharding`: summed so if that is what is read
/// of a parameter.
mlir::Value moveGradient(mlir::OpBuilder &builder, mlir::Value primal,
                         mlir::Value gradient, dist::ShardingAttr sharding);

/// Whether `rank` reduces, counts and updates both in the same way.
bool endAlike(ParameterUse &a, ParameterUse &b, int64_t rank,
              dist::MeshOp mesh);

struct ParameterUses {
  std::vector<ParameterUse> parameters; // in the order of the module
  /// Of parameters and accumulators, by symbol.
  llvm::MapVector<mlir::Attribute, Accumulated> accumulated;

  /// Fails with an error where something is added up by no stage, or without a
  /// sharding.
  static mlir::FailureOr<ParameterUses> find(mlir::ModuleOp module);
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_PARAMETERUSES_H
