//===- StepEnd.h - The functions that end a step ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Internal to BuildOptimizer.cpp, which says what it is, and to
// ReduceGradients.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_STEPEND_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_STEPEND_H

#include "StepUnits.h"
#include "Updates.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Transforms/StageFunctions.h"

#include <map>

namespace plait {

/// Holds what gradient and old momentum are multiplied by in the momentum of
/// the sums over all targets of a step.
struct MomentumFactors {
  mlir::Value ofGradient, ofMomentum;
};

/// Writes the functions of one rank of the pipeline, for all its stages.
class StepEnd {
public:
  StepEnd(mlir::ModuleOp module, dist::MeshOp mesh, int64_t rank,
          ParameterUses &uses, llvm::MutableArrayRef<StepUnit> units)
      : module(module), mesh(mesh), placement(getPlacement(module)), rank(rank),
        uses(uses), units(units),
        meshRef(mlir::FlatSymbolRefAttr::get(mesh.getSymNameAttr())),
        builder(module.getBodyRegion()), nn(builder, module.getLoc()),
        scalar(mlir::RankedTensorType::get({}, builder.getF32Type())),
        configuration(getConfiguration(module)),
        optimizer(**findOptimizer(configuration.optimizer)),
        reducedType(getReducedType(module)) {}

  /// Fails with an error where a parameter cannot be moved to where it is
  /// updated.
  mlir::LogicalResult buildReduce();
  mlir::LogicalResult buildOptimizer();
  /// None where all ranks update what they compute with.
  mlir::LogicalResult buildGather();

private:
  void beginFunction(pipe::ActionKind action);
  mlir::LogicalResult endFunction();
  mlir::Value move(mlir::Value block, mlir::RankedTensorType whole,
                   dist::ShardingAttr from, dist::ShardingAttr to);
  mlir::Value readSlot(StepUnit &unit, nn::Slot slot,
                       dist::ShardingAttr sharding);
  void writeSlot(mlir::Value value, StepUnit &unit, nn::Slot slot);
  mlir::Value read(StepUnit &unit, nn::Slot slot);
  mlir::Value takeRows(mlir::Value whole, StepUnit &unit);
  mlir::Value gatherRows(mlir::Value rows, StepUnit &unit);
  mlir::Value scatterRows(mlir::StringAttr axis, mlir::Value rows);
  void write(mlir::Value value, StepUnit &unit, nn::Slot slot);
  void writeUpdated(mlir::Value value, StepUnit &unit, nn::Slot slot);
  void writeHeld();
  mlir::Value step(llvm::StringRef name);
  mlir::Value total(llvm::StringRef name);
  mlir::Value sumOver(mlir::StringAttr axis, mlir::Value value,
                      llvm::ArrayRef<int64_t> members = {});
  mlir::Value sumOverRanks(mlir::Value value,
                           llvm::ArrayRef<int64_t> members = {});
  void reduceParameter(StepUnit &unit, llvm::ArrayRef<int64_t> holders);
  void reducePack(StepUnit &unit, llvm::ArrayRef<int64_t> holders);
  void reduceCompressed(StepUnit &unit, llvm::ArrayRef<int64_t> holders);
  void sumOverOthers(StepUnit &unit, llvm::ArrayRef<int64_t> holders);
  nn::ParameterOp getFactor(ParameterUse &use, mlir::RankedTensorType type);
  void reduceMatrix(ParameterUse &use, llvm::ArrayRef<int64_t> holders);
  void reduceMatrices(StepUnit &unit, llvm::ArrayRef<int64_t> holders);
  MomentumFactors readMomentumFactors();
  mlir::Value makeMomentum(StepUnit &unit, mlir::Value gradient,
                           dist::ShardingAttr sharding, int64_t replicas);
  void reduce(StepUnit &unit);
  mlir::Value sumSquares(StepUnit &unit);
  mlir::ArrayAttr getCountedAxes(StepUnit &unit);
  mlir::Value squaredNorm();
  bool isGathered(StepUnit &unit);
  mlir::RankedTensorType getPadded(ParameterUse &use);
  void update(StepUnit &unit, mlir::Value gradientScale);

  mlir::ModuleOp module;
  dist::MeshOp mesh;
  pipe::PlacementAttr placement;
  int64_t rank;
  ParameterUses &uses;
  llvm::MutableArrayRef<StepUnit>
      units; // those of the rank that have gradients
  mlir::FlatSymbolRefAttr meshRef;
  mlir::OpBuilder builder;
  nn::NNBuilder nn;
  mlir::RankedTensorType scalar;
  TrainingConfiguration configuration;
  const Optimizer &optimizer;
  MomentumFactors momentum; // where replicas send it
  mlir::Type reducedType; // of the elements of gradients while they are summed
  std::map<RuleKey, std::unique_ptr<UpdateRule>> rules;

  /// A block that has been updated and not been gathered.
  struct Held {
    mlir::Value block;
    StepUnit unit;
    nn::Slot slot;
  };
  llvm::SmallVector<Held> held;
  uint64_t heldBytes = 0; // of all blocks
  // False once a reshard could not be lowered; the error has been reported.
  // Asked at the end, so that the code that writes ops need not check each.
  bool canMove = true;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_STEPEND_H
