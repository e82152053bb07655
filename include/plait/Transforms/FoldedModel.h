//===- FoldedModel.h - What a folded model stands for -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A profile is of a model with one layer of each kind left, for a batch of its
// own. Which shardings are cheapest depends on how many layers there are and on
// the tokens of a rank: `@loss` says for which it is asked.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_FOLDEDMODEL_H
#define PLAIT_TRANSFORMS_FOLDEDMODEL_H

#include "llvm/ADT/StringRef.h"

namespace plait {

/// The layers that each number of `nn.layer` stands for, as an array of i64.
inline constexpr llvm::StringLiteral kLayerCountsAttr = "nn.layer_counts";
/// The sequences that a rank has of a microbatch, also a part of one, as an
/// f64; the module's own batch says nothing about that then.
inline constexpr llvm::StringLiteral kSequencesAttr = "nn.sequences";
/// Marks a module whose layers keep what they compute although a backward
/// kernel could make it again of what it reads, as programs do that run
/// operation by operation.
inline constexpr llvm::StringLiteral kKeepsEachResultAttr =
    "nn.keeps_each_result";
/// Marks a module, which has no target, whose sums over many rows are made in
/// two steps and whose tokens are sorted, as for GPUs.
inline constexpr llvm::StringLiteral kSplitsColumnSumsAttr =
    "nn.splits_column_sums";

} // namespace plait

#endif // PLAIT_TRANSFORMS_FOLDEDMODEL_H
