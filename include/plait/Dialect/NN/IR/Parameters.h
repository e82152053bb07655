//===- Parameters.h - The parameter behind a read ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An `nn.read` names its parameter by symbol. Looking a symbol up walks the
// module; `tables` remembers what it has seen, so one that lives as long as a
// pass over the reads keeps it linear. The symbols must stay while it does.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_PARAMETERS_H
#define PLAIT_DIALECT_NN_IR_PARAMETERS_H

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/NN/IR/Names.h"

namespace plait::nn {

/// The discardable unit attribute of a parameter that is none of the model's:
/// what the exchange of gradients keeps from step to step, and no file of
/// weights has.
inline constexpr llvm::StringLiteral kUnsavedAttr = "nn.unsaved";

/// The parameter that `op` reads or stores; null where that is an accumulator
/// or a pack.
inline ParameterOp findParameter(SlotOpInterface op,
                                 mlir::SymbolTableCollection &tables) {
  return tables.lookupNearestSymbolFrom<ParameterOp>(op, op.getSymbolAttr());
}

/// The entry of `plait.model` with the shapes that files have of tensors, by
/// name, where boxes of parameters have a dimension of them as several.
inline constexpr llvm::StringLiteral kShapesEntry = "shapes";

/// Returns the shape that files have of the parameter's tensor, where
/// `plait.model` says so; else nothing.
llvm::ArrayRef<int64_t> findSavedShape(ParameterOp parameter);

/// Counts the dimensions that files give a parameter: a bias whose heads are a
/// dimension of their own here is still a vector.
inline size_t countDims(ParameterOp parameter) {
  if (llvm::ArrayRef<int64_t> shape = findSavedShape(parameter); !shape.empty())
    return shape.size();
  if (FileAttr file = parameter.getFileAttr())
    return file.getBox().size();
  return llvm::cast<mlir::ShapedType>(parameter.getType()).getRank();
}

/// Returns what updates `parameter` in a training by `main`: its own optimizer,
/// or else `main`, which may leave what is no matrix to another. Before
/// nn-assign-matrices nothing is one.
const Optimizer &findOptimizer(ParameterOp parameter, const Optimizer &main);

/// Returns what a run may set where `main` trains the parameters of `module`.
std::vector<TrainingOption> getTrainingOptions(mlir::ModuleOp module,
                                               const Optimizer &main);

/// How `parameter` lies in the mesh; null where that is not said (yet), or
/// where there is no parameter.
inline dist::ShardingAttr getSharding(ParameterOp parameter) {
  return parameter ? llvm::dyn_cast_or_null<dist::ShardingAttr>(
                         parameter.getShardingAttr())
                   : dist::ShardingAttr();
}

/// `sharding`, which may be null, with nothing split over `axis`.
inline dist::ShardingAttr withoutAxis(dist::ShardingAttr sharding,
                                      llvm::StringRef axis) {
  for (size_t dim = 0; sharding && dim < sharding.getDims().size(); ++dim) {
    llvm::SmallVector<mlir::Attribute> left(sharding.getDims()[dim].getValue());
    llvm::erase_if(left, [&](mlir::Attribute own) {
      return llvm::cast<mlir::StringAttr>(own) == axis;
    });
    sharding = sharding.withDim(
        dim, mlir::ArrayAttr::get(sharding.getContext(), left));
  }
  return sharding;
}

/// How `slot` of `parameter` lies, as above. Where there is a copy to compute
/// with, the value is part of the optimizer's state: ask for the gradient's.
/// What each replica has of its own is not divided between them.
inline dist::ShardingAttr getSharding(ParameterOp parameter, Slot slot) {
  if (isOwnState(slot.getName()))
    return withoutAxis(getSharding(parameter), kDataAxis);
  bool isState = slot != Slot::Value && slot != Slot::Compute;
  if (parameter && isState && parameter.getStateAttr())
    return llvm::cast<dist::ShardingAttr>(parameter.getStateAttr());
  return getSharding(parameter);
}

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_PARAMETERS_H
