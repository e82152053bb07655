//===- FactorRule.h - Sharding rules by factors -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The central idea of plait's partitioner.
//
// An op is described by *factors*: independent loops of its iteration space.
// Every dimension of every operand and result runs along one factor. The
// matmul `bsh,hf->bsf` has four, b, s, h and f; its first operand runs along
// b, s and h. Splitting a factor over a mesh axis splits all dimensions that
// run along it, and nothing else: that is all the partitioner needs to know.
//
//   kind       what happens to the results when the factor is split
//   Parallel   they are split along it
//   Sum, Max   those that do not run along it are partial on each rank, and
//              have to be added up (or maximised) over the axis; those that do
//              are split along it
//   Whole      it cannot be split
//
// Example: splitting f of `bsh,hf->bsf` over "tp" is Megatron's column-parallel
// linear layer: the weight and the output are split, the input is not, and no
// rank waits for another. Splitting h is the row-parallel layer: input and
// weight are split, the output is a partial sum. Neither has a name here.
//
// Gradients follow: where the operand of an op is not split by an axis that
// splits the op, its gradient is a partial sum over that axis.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_INTERFACES_FACTORRULE_H
#define PLAIT_INTERFACES_FACTORRULE_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <string>

namespace plait {

enum class FactorKind { Parallel, Sum, Max, Whole };

struct Factor {
  /// The name that messages call it by: "b", "head", "vocab".
  std::string name;
  FactorKind kind;
  /// The number of elements along it.
  int64_t size;
  /// Only split into equal parts, never padded (attention heads). Where none of
  /// an op's factors of this kind divides, that is an error the user sees.
  bool mustDivide = false;
  /// Equal parts are equal work. Along what is uneven, such as the queries of
  /// causal attention, no cost that counts equal parts may choose a split.
  bool isBalanced = true;
  /// The op needs the elements along it in their own order: it computes with
  /// their indices, or with all of them at once.
  bool inOrder = false;
  /// Each row is of one element along it, which its id names: split, a row is
  /// whole on one rank, and zero on the others.
  bool ownsRows = false;
  /// The op counts along it from where a rank's block begins
  /// (ShardableOpInterface::localizeFactor).
  bool isCounted = false;
};

/// The factors of one op, and for each dimension of each operand and result
/// the index of the factor that it runs along (or kNone).
struct FactorRule {
  static constexpr int kNone = -1;
  using DimFactors = llvm::SmallVector<int, 4>;

  llvm::SmallVector<Factor, 6> factors;
  llvm::SmallVector<DimFactors, 3> operands;
  llvm::SmallVector<DimFactors, 2> results;

  /// Adds a factor and returns its index.
  int add(std::string name, FactorKind kind, int64_t size,
          bool mustDivide = false) {
    factors.push_back({std::move(name), kind, size, mustDivide});
    factors.back().inOrder = kind == FactorKind::Whole;
    return factors.size() - 1;
  }

  /// Whether a result whose dimensions run along `dims` is partial where
  /// `factor` is split.
  bool isReducedIn(int factor, const DimFactors &dims) const {
    FactorKind kind = factors[factor].kind;
    return (kind == FactorKind::Sum || kind == FactorKind::Max) &&
           !llvm::is_contained(dims, factor);
  }

  /// Whether each element of the results is made of the same one of all
  /// operands.
  bool isElementwise() const {
    auto isSame = [&](const DimFactors &dims) {
      return dims == results.front();
    };
    return !results.empty() && llvm::all_of(operands, isSame) &&
           llvm::all_of(results, isSame) &&
           llvm::all_of(factors, [](const Factor &factor) {
             return factor.kind == FactorKind::Parallel;
           });
  }
};

} // namespace plait

#endif // PLAIT_INTERFACES_FACTORRULE_H
