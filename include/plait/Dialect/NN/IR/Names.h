//===- Names.h - Attributes and symbols that passes share ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NAMES_H
#define PLAIT_DIALECT_NN_IR_NAMES_H

#include "plait/Configuration/Mesh.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"

#include "llvm/ADT/StringRef.h"

namespace plait {

/// The accumulators of a step.
inline constexpr llvm::StringLiteral kLossSum = "loss_sum";
inline constexpr llvm::StringLiteral kTokenCount = "token_count";

/// Returns the symbols of all accumulators of a step whose loss names the
/// losses `named`, in the order of the results of `@loss`.
inline llvm::SmallVector<std::string>
getAccumulators(llvm::ArrayRef<llvm::StringRef> named) {
  llvm::SmallVector<std::string> symbols{kLossSum.str(), kTokenCount.str()};
  for (llvm::StringRef name : named)
    symbols.push_back(nn::getNamedLossSymbol(name));
  return symbols;
}

/// Names of axes (plait/Configuration/Mesh.h).
inline constexpr llvm::StringRef kPipelineAxis = getFacts(Axis::PP).name;
inline constexpr llvm::StringRef kDataAxis = getFacts(Axis::DP).name;
inline constexpr llvm::StringRef kContextAxis = getFacts(Axis::CP).name;
inline constexpr llvm::StringRef kTensorAxis = getFacts(Axis::TP).name;

} // namespace plait

#endif // PLAIT_DIALECT_NN_IR_NAMES_H
