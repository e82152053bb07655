//===- Chunks.h - Chunks of what replicas compress --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chunks are neighbours in a whole parameter. A split that cuts one would make
// what is trained depend on the mesh: plans are refused for it, and the planner
// looks for no such split.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_CHUNKS_H
#define PLAIT_TRANSFORMS_CHUNKS_H

#include "plait/Configuration/Compressors.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

namespace plait {

/// Fails with an error at `parameter` where a rank that has its block by
/// `sharding` has parts of chunks. `compression` is on.
mlir::LogicalResult checkChunks(nn::ParameterOp parameter,
                                dist::ShardingAttr sharding, dist::MeshOp mesh,
                                const Compression &compression);

/// Divides what a rank has of a tensor by `sharding` over replicas, so that
/// their parts are equal, each of whole chunks of `block` elements, and one
/// behind the other: along its first dimension of several elements. As it is
/// where that cannot be.
dist::ShardingAttr divideRows(mlir::RankedTensorType whole,
                              dist::ShardingAttr sharding, dist::MeshOp mesh,
                              int64_t block);

} // namespace plait

#endif // PLAIT_TRANSFORMS_CHUNKS_H
