//===- LowerReshard.h - Reshards as collectives ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_COLLECTIVES_LOWERRESHARD_H
#define PLAIT_LIB_TRANSFORMS_COLLECTIVES_LOWERRESHARD_H

#include "mlir/IR/Builders.h"
#include "plait/Dialect/Dist/IR/Dist.h"

namespace plait {

/// Brings `block`, a rank's block of a tensor of type `whole` that lies as
/// `from`, to where `to` wants it. Axes are taken off a dimension from the
/// innermost on and added in the order of `to`. Of what can be done, the first
/// of these is, and so on, so that as little as possible is moved:
///   replicated -> split    dist.slice, free
///   partial -> split       reduce_scatter
///   partial -> replicated  all_reduce
///   split -> other split   all_to_all
///   split -> replicated    all_gather
/// An axis that stays but changes its place among others is gathered and cut
/// out again. Fails with an error at `loc`, naming the dimension and the sizes,
/// where a collective would have to move unequal blocks.
mlir::FailureOr<mlir::Value>
lowerReshard(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value block,
             mlir::RankedTensorType whole, dist::ShardingAttr from,
             dist::ShardingAttr to, dist::MeshOp mesh);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_COLLECTIVES_LOWERRESHARD_H
