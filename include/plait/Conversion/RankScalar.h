//===- RankScalar.h - Numbers that depend on the rank -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONVERSION_RANKSCALAR_H
#define PLAIT_CONVERSION_RANKSCALAR_H

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Plan/Plan_generated.h"

namespace plait {

/// The plan's form of bias + scale * (index of the rank along `axis`), which
/// `op` computes with; a null axis gives bias. Fails with an error on `op`
/// where the mesh does not have the axis.
inline mlir::FailureOr<plan::fb::RankScalar>
convertRankScalar(mlir::Operation *op, mlir::StringAttr axis, int64_t scale,
                  int64_t bias, bool firstMicrobatch = false) {
  dist::MeshOp mesh = dist::MeshOp::find(op);
  int32_t index = axis && mesh ? mesh.getAxisIndex(axis.getValue()) : -1;
  if (axis && index < 0) // -1 is what tells that there is none
    return op->emitError("computes with the rank along axis ")
           << axis << ", which the mesh does not have";
  return plan::fb::RankScalar(bias, scale, index, firstMicrobatch);
}

/// Appends the plan's form of `unit` times the sum of `terms` to `scalars`.
inline mlir::LogicalResult
convertRankTerms(mlir::Operation *op, llvm::ArrayRef<RankTerm> terms,
                 int64_t unit, std::vector<plan::fb::RankScalar> &scalars) {
  for (const RankTerm &term : terms) {
    auto scalar = convertRankScalar(op, term.axis, unit * term.scale, 0);
    if (failed(scalar))
      return mlir::failure();
    scalars.push_back(*scalar);
  }
  return mlir::success();
}

} // namespace plait

#endif // PLAIT_CONVERSION_RANKSCALAR_H
