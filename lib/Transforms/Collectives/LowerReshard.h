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
/// `from`, to where `to` wants it, with the cheapest collective for each axis. In this order,
/// so that as little as possible is moved:
///   replicated -> split    dist.slice, free
///   partial -> split       reduce_scatter
///   partial -> replicated  all_reduce
///   split -> other split   all_to_all
///   split -> replicated    all_gather
/// Fails with an error at `loc` where an axis would have to move past another
/// on one dimension, or blocks are uneven.
mlir::FailureOr<mlir::Value> lowerReshard(mlir::OpBuilder &builder,
                                          mlir::Location loc, mlir::Value block,
                                          mlir::RankedTensorType whole,
                                          dist::ShardingAttr from,
                                          dist::ShardingAttr to,
                                          dist::MeshOp mesh);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_COLLECTIVES_LOWERRESHARD_H
