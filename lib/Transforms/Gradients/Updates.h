//===- Updates.h - Update rules of optimizers -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_UPDATES_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_UPDATES_H

#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"

#include <memory>

namespace plait {

/// Reads a number that a step is given, by its name in
/// plait/Configuration/Optimizers.h.
using ScalarReader = llvm::function_ref<mlir::Value(llvm::StringRef)>;

/// One parameter, for an update that is written in nn ops.
struct UpdatedParameter {
  llvm::ArrayRef<int64_t> shape; // of what the rank updates of it
  /// Of the mean loss, clipped; of 1-bit Adam the new momentum of it.
  mlir::Value gradient;
  bool decays;
  /// Reads the parameter's value or state before the step.
  llvm::function_ref<mlir::Value(nn::Slot)> read;
  llvm::ArrayRef<int64_t> whole; // shape of all of it
  /// The dimensions that are columns, for rules of matrices.
  llvm::ArrayRef<int64_t> columns;
  /// Of a matrix: makes the whole tensor of what the rank has, with the padding
  /// of uneven parts, and the reverse.
  llvm::function_ref<mlir::Value(mlir::Value)> gather, scatter;
};

/// The result of an update, all in f32 and of the parameter's shape.
struct Update {
  mlir::Value value;
  /// Holds what the optimizer keeps, in its order; what is left out at the end
  /// stays as it is.
  llvm::SmallVector<mlir::Value, 2> state;
};

/// An optimizer in nn ops. But for those of matrices it is elementwise, so that
/// parameters can be updated together, in pieces of any size. Where value,
/// gradient and state are zero it leaves zeros, since padding is updated with
/// the rest: the proof refuses one that does not (lib/Proof/Compare.cpp).
/// Divisors are kept from zero by Epsilon (plait/Plan/Scalars.h).
class UpdateRule {
public:
  virtual ~UpdateRule() = default;
  virtual Update apply(const UpdatedParameter &parameter) = 0;
};

/// Tells rules of a training by `main` apart by what a parameter says: those
/// with equal keys share one.
struct RuleKey {
  RuleKey(nn::ParameterOp parameter, const Optimizer &main);
  auto operator<=>(const RuleKey &) const = default;

  const Optimizer *optimizer; // that updates it, unless it has a `balance`
  /// Whether the parameter has a `balance`, which `number` then is; else that
  /// is what the learning rate is multiplied by.
  bool isBalance;
  double number;
};

/// The rule of parameters with this key. Creates the numbers that all
/// parameters share with `readScalar`; they are those of the key's optimizer in
/// a training by `main`. `nn` must outlive the rule.
/// `takesMomentum`: replicas have made the momentum, and the variance is frozen
/// (plait/Configuration/CompressionFacts.h).
std::unique_ptr<UpdateRule> createUpdateRule(const Optimizer &main,
                                             nn::NNBuilder &nn,
                                             ScalarReader readScalar,
                                             RuleKey key, bool takesMomentum);

/// -1, 0 or 1.
mlir::Value sign(nn::NNBuilder &nn, mlir::Value x);

/// AdamW of a momentum that is given and a variance that stays as it is.
std::unique_ptr<UpdateRule> createFrozenAdamW(nn::NNBuilder &nn,
                                              ScalarReader readScalar);

/// min(1, limit / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_ has it, or 1
/// if the limit is 0.
mlir::Value clipFactor(nn::NNBuilder &nn, mlir::Value norm, mlir::Value limit);

/// 1 - `scalar`.
mlir::Value complement(nn::NNBuilder &nn, mlir::Value scalar);
/// `scalar` in the shape of the parameter.
mlir::Value spread(nn::NNBuilder &nn, mlir::Value scalar,
                   const UpdatedParameter &parameter);
/// `value` times a number that all parameters share.
mlir::Value times(nn::NNBuilder &nn, mlir::Value value, mlir::Value scalar,
                  const UpdatedParameter &parameter);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_UPDATES_H
