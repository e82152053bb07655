//===- Names.h - Attributes and symbols that passes share ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_NAMES_H
#define PLAIT_TRANSFORMS_NAMES_H

#include "llvm/ADT/StringRef.h"

namespace plait {

/// The accumulators of a step.
inline constexpr llvm::StringLiteral kLossSum = "loss_sum";
inline constexpr llvm::StringLiteral kTokenCount = "token_count";

/// The mesh axes with a meaning: pipeline stages, data parallelism (splits the
/// batch), context parallelism (splits the sequence), tensor parallelism
/// (whatever is cheapest).
inline constexpr llvm::StringLiteral kPipelineAxis = "pp";
inline constexpr llvm::StringLiteral kDataAxis = "dp";
inline constexpr llvm::StringLiteral kContextAxis = "cp";
inline constexpr llvm::StringLiteral kTensorAxis = "tp";
/// Those that split the tokens, in the order of the dimensions of tokens and
/// targets. All of their ranks hold the whole parameters, and add up gradients
/// at the end of a step.
inline constexpr llvm::StringLiteral kTokenAxes[] = {kDataAxis, kContextAxis};

} // namespace plait

#endif // PLAIT_TRANSFORMS_NAMES_H
