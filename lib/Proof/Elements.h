//===- Elements.h - Naive evaluation of kernels' ops ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A second, naive meaning of the ops of a cluster: one element at a time, on
// demand, in double precision, as the ops' descriptions say. It shares nothing
// with the code that emits kernels.
//
// With each number goes a bound of how far a kernel in f32 may be from it: the
// running error analysis of Wilkinson (Higham, "Accuracy and Stability of
// Numerical Algorithms", 2nd ed., section 3.3). Each op adds its own rounding
// to what it makes of the errors of its operands. Numbers and sums that f32
// holds exactly have no error, so a term too many shows.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_ELEMENTS_H
#define PLAIT_LIB_PROOF_ELEMENTS_H

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <functional>
#include <limits>
#include <vector>

namespace plait::proof {

/// A number, and how far from it the one of a kernel may be. No bound: nothing
/// is known, as of a quotient by what may be zero.
struct Number {
  double value = 0, error = 0;

  bool isKnown() const {
    return error < std::numeric_limits<double>::infinity();
  }
  bool isExact() const { return error == 0; }
};

/// The elements of the values of one cluster, for inputs that do not change.
class Elements {
public:
  struct Inputs {
    /// An element of an argument of the cluster, by the row-major number of
    /// both.
    std::function<double(unsigned argument, int64_t element)> load;
    /// The rank's index along a mesh axis.
    std::function<int64_t(mlir::StringAttr axis)> getIndex;
  };
  Elements(plan::ClusterOp cluster, Inputs inputs);

  /// An element of a value of the body. Unknown if it takes an op that has no
  /// rule here, see getUnruled(), or once more steps were taken than allowed.
  Number get(mlir::Value value, int64_t element);

  /// Allows `count` steps from here on; a step is an op on one element.
  void allow(int64_t count) { left = count; }
  int64_t getLeft() const { return left; }
  /// The first op without a rule; null: there was none.
  mlir::Operation *getUnruled() const { return unruled; }

private:
  using Index = llvm::SmallVector<int64_t, 4>;
  Number evaluate(mlir::Value value, int64_t element);
  Number evaluateOp(mlir::Operation *op, int64_t element);
  // What each op defines one element of its result to be.
  Number define(nn::BroadcastOp op, int64_t element);
  Number define(nn::ReduceOp op, int64_t element);
  Number define(nn::EmbeddingOp op, int64_t element);
  Number define(nn::EmbeddingGradOp op, int64_t element);
  Number define(dist::SliceOp op, int64_t element);
  Number define(nn::IotaOp op, int64_t element);
  Number define(nn::PickOp op, int64_t element);
  Number define(nn::CausalMaskOp op, int64_t element);
  Number define(nn::MaskPaddingOp op, int64_t element);
  Number define(nn::DropoutOp op, int64_t element);
  Number define(nn::ReorderOp op, int64_t element);
  Number define(nn::RotateHalfOp op, int64_t element);
  Number define(nn::SliceOp op, int64_t element);
  Number define(nn::ChunkOp op, int64_t element);
  Number define(nn::UnpackBitsOp op, int64_t element);
  Number define(nn::OccupiedOp op, int64_t element);
  Number define(nn::KeepTopOp op, int64_t element);
  Number define(nn::CompactOp op, int64_t element);
  Number define(nn::ExpandOp op, int64_t element);
  Number define(nn::FindOp op, int64_t element);
  Number define(nn::MarkOp op, int64_t element);
  std::optional<llvm::SmallVector<int64_t>> findMarked(mlir::Value mask,
                                                       int64_t row);
  Number defineElementwise(mlir::Operation *op, int64_t element);
  Number reduceSum(mlir::Operation *op, llvm::ArrayRef<int64_t> terms);
  Number reduceMax(mlir::Operation *op, llvm::ArrayRef<int64_t> terms);
  llvm::SmallVector<int64_t> findTerms(nn::ReduceOp reduce, int64_t element);
  template <typename Op> int64_t findRow(Op op, int64_t id, int64_t rows);
  bool isKept(nn::DropoutOp dropout, int64_t element);
  int64_t getInteger(mlir::Value value, int64_t element);
  int64_t getIndex(mlir::StringAttr axis);
  int64_t getBegin(llvm::ArrayRef<RankTerm> terms);
  int64_t getPosition(nn::BeginAttr begin, int64_t index);

  /// What is remembered of a value: all elements that were asked for, or of
  /// those with one number, modulo kRecent, the last.
  class Memory {
  public:
    explicit Memory(bool keepsAll) : keepsAll(keepsAll) {}
    const Number *find(int64_t element) const;
    void store(int64_t element, Number number);

  private:
    bool keepsAll;
    llvm::DenseMap<int64_t, Number> all;
    std::vector<std::pair<int64_t, Number>> recent;
  };

  plan::ClusterOp cluster;
  Inputs inputs;
  llvm::SmallDenseMap<mlir::StringAttr, int64_t, 4> indices; // of the rank
  int64_t left = 0;
  mlir::Operation *unruled = nullptr;
  llvm::DenseMap<mlir::Value, Memory> known;
  /// Values that lie in memory as bf16: a kernel may read one of them again.
  llvm::DenseSet<mlir::Value> rounded;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_ELEMENTS_H
