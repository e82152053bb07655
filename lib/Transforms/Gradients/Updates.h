//===- Updates.h - Update rules of optimizers -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_UPDATES_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_UPDATES_H

#include "plait/Dialect/NN/IR/NNBuilder.h"

#include <memory>

namespace plait {

/// One parameter, for an update that is written in nn ops.
struct UpdatedParameter {
  llvm::ArrayRef<int64_t> shape;
  /// Of the mean loss, clipped.
  mlir::Value gradient;
  bool decays;
  /// Reads the parameter's value or state before the step.
  llvm::function_ref<mlir::Value(nn::Slot)> read;
};

/// What an update leaves, all in f32 and of the parameter's shape.
struct Update {
  mlir::Value value;
  llvm::SmallVector<mlir::Value, 2> state; // of each of the optimizer's slots
};

/// An optimizer in nn ops: elementwise, so that parameters can be updated
/// together, in pieces of any size. Where value, gradient and state are zero it
/// leaves zeros, since padding is updated with the rest: the proof refuses one
/// that does not (lib/Proof/Compare.cpp). Divisors are kept from zero by
/// Epsilon (plait/Plan/Scalars.h).
class UpdateRule {
public:
  virtual ~UpdateRule() = default;
  virtual Update apply(const UpdatedParameter &parameter) = 0;
};

/// The rule of an optimizer that plait/Configuration/Optimizers.h lists.
/// Creates the numbers that all parameters share with `readScalar`, which takes
/// names of enum Scalar in lib/Plan/Plan.fbs. `nn` must outlive the rule.
std::unique_ptr<UpdateRule>
createUpdateRule(llvm::StringRef optimizer, nn::NNBuilder &nn,
                 llvm::function_ref<mlir::Value(llvm::StringRef)> readScalar);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_UPDATES_H
