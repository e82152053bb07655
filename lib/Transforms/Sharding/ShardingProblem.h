//===- ShardingProblem.h - Sharding along one axis --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The choice of shardings along one mesh axis, as a cost network.
//
//   variable             values
//   an op                the factor that the axis splits, or none
//   a value              the dimension along which its users find it split, or
//                        none: replicated; in the latter case also whether the
//                        users' gradients stay partial sums until they reach
//                        the op that makes the value
//
// Costs are seconds of one microbatch, forward and backward, at the rates of
// the module's cluster: of the collectives between an op's native result and
// the value, and between the value and what a user needs, and of arithmetic and
// memory traffic. To hold a byte costs as much as to send some. Layers whose
// ops are alike share their variables, so the network does not grow with depth.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_SHARDING_SHARDINGPROBLEM_H
#define PLAIT_LIB_TRANSFORMS_SHARDING_SHARDINGPROBLEM_H

#include "Eliminate.h"
#include "FactorAxes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "plait/Analysis/AlikeLayers.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/JSON.h"

#include <vector>

namespace plait {

/// "tp=8 does not divide the 4 key/value heads or 2 query heads of each of
/// nn.attention; possible are 1, 2, 4".
mlir::InFlightDiagnostic reportIndivisible(ShardableOpInterface op,
                                           mlir::StringRef axis, int64_t blocks,
                                           mlir::ArrayRef<Factor> factors);

class ShardingProblem {
public:
  static constexpr int kNone = -1;

  /// A rank has one of so many equal blocks of the dimensions of a class. What
  /// is computed with them, held and sent counts `share` times what it is of
  /// all blocks.
  struct Part {
    int64_t blocks = 1;
    double share = 1;
  };

  /// `axis` has `blocks` >= 2 ranks. `dataClasses` are the classes of the
  /// function's arguments, which the axis leaves alone; `parts` are of classes
  /// of which a rank does not have the whole. A layer of number i stands for
  /// `layerCounts[i]` that are like it; without them each is one. With
  /// `savesMemory` collectives cost what they move and nothing else: an
  /// all-gather and a reduce-scatter as much as the all-reduce they replace, so
  /// that what ranks no longer hold twice decides. `rates` are the devices',
  /// `link` is the axis's.
  ShardingProblem(mlir::func::FuncOp function, mlir::StringAttr axis,
                  int64_t blocks, FactorClasses &classes,
                  const llvm::DenseSet<int> &dataClasses,
                  llvm::SmallDenseMap<int, Part> parts,
                  mlir::ArrayRef<int64_t> layerCounts, bool savesMemory,
                  RatesAttr rates, LinkAttr link)
      : function(function), axis(axis), blocks(blocks), classes(classes),
        dataClasses(dataClasses), parts(std::move(parts)),
        layerCounts(layerCounts), savesMemory(savesMemory), rates(rates),
        link(link), layers(function) {}

  /// Fails with an error where a factor that must divide does not.
  mlir::LogicalResult solve();

  /// The network and its solution, once it is solved, as docs/Phases.md
  /// describes it.
  llvm::json::Value toJson() const;

  /// The factor of `op` that the axis splits, or kNone.
  int getFactor(mlir::Operation *op) const;
  /// The dimension of `value` that users find split, or kNone.
  int getDim(mlir::Value value) const;

private:
  struct Variable {
    int id = -1;
    llvm::SmallVector<int> choices; // factors, or dimensions; kNone first
  };
  /// How a value lies along the axis: split along a dimension, replicated
  /// (kNone) or partial. As a choice for a value: replicated, with partial
  /// gradients.
  static constexpr int kPartial = -2;
  // Finite, so that sums of it still compare, and beyond all seconds: a total
  // that reaches it has broken a rule.
  static constexpr double kImpossible = 1e30;
  /// Where the users of a value find it, and where its gradient is added up.
  static int foundAt(int choice) { return choice == kPartial ? kNone : choice; }

  mlir::LogicalResult checkDivisibility();
  void findDifferentiable();
  const Variable &variableOf(mlir::Operation *op) const;
  const Variable &variableOf(mlir::Value value) const;
  void addVariables();
  double countAlike(mlir::Operation *op) const;
  void addCost(const Variable &variable, llvm::function_ref<double(int)> cost);
  void addCost(const Variable &a, const Variable &b,
               llvm::function_ref<double(int, int)> cost);
  using CostKey = std::vector<int64_t>;
  CostKey describeCosts(ShardableOpInterface op) const;
  void addOpCosts(ShardableOpInterface op);
  void addResultCosts(mlir::Operation *op, const Variable &choice,
                      const FactorRule &rule);
  void addOperandCosts(mlir::Operation *op, const Variable &choice,
                       const FactorRule &rule);
  /// Fails where a parameter's sharding asks for what cannot be.
  mlir::LogicalResult addReadCosts(SlotOpInterface read);
  /// Whether the axis may split a dimension or a factor of class `root`.
  bool canSplit(int root, int64_t extent) const;
  int64_t extentIn(int root, int64_t extent) const;
  int nativeState(const FactorRule &rule, unsigned result, int factor) const;
  double conversionCost(mlir::Value value, int from, int to) const;
  double bytesOf(mlir::Value value) const;
  double getShare(mlir::ArrayRef<int> dims) const;
  double getWork(ShardableOpInterface op, const FactorRule &rule) const;
  /// Remarks on the choice for each op.
  void explain();
  /// Describe a factor or a state in words: "f (128)", "dimension 1".
  static std::string describeFactor(const FactorRule &rule, int factor);
  static std::string describeState(int state);
  llvm::json::Value describeVariable(ShardableOpInterface op,
                                     const Variable &variable) const;
  llvm::json::Value describeVariable(mlir::Value value,
                                     const Variable &variable) const;

  mlir::func::FuncOp function;
  mlir::StringAttr axis;
  int64_t blocks;
  FactorClasses &classes;
  const llvm::DenseSet<int> &dataClasses;
  llvm::SmallDenseMap<int, Part> parts;
  mlir::ArrayRef<int64_t> layerCounts;
  bool savesMemory;
  RatesAttr rates;
  LinkAttr link;

  mlir::SymbolTableCollection tables;
  CostNetwork network;
  double times = 1; // of what is added to it
  llvm::SmallVector<int> solution;
  double seconds = 0;              // of the solution
  llvm::DenseSet<int> evenClasses; // have a factor that must divide
  llvm::DenseSet<mlir::Value> differentiable;
  AlikeLayers layers;
  llvm::DenseMap<mlir::Operation *, Variable> opVariables;
  llvm::DenseMap<mlir::Value, Variable> valueVariables;
  llvm::DenseMap<mlir::StringAttr, mlir::Value> firstRead; // by parameter
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_SHARDING_SHARDINGPROBLEM_H
