//===- BatchedMatmuls.h - When several matmuls are one ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_BATCHEDMATMULS_H
#define PLAIT_TRANSFORMS_BATCHEDMATMULS_H

#include "mlir/IR/BuiltinOps.h"

namespace plait {

/// Whether matmuls of so many elements each gain by being one call: what they
/// gain is that one call fills a GPU's processors where each alone leaves some
/// of them idle in its last wave of tiles. Above 4 waves of 132 processors with
/// tiles of 128 x 128 (an H100) an eighth of a call at most is idle.
constexpr bool isWorthBatching(int64_t elements) {
  return elements <= 4 * 132 * 128 * 128;
}

/// Has steps of `module` that multiply the same matrix with others, which lie
/// one behind the other as what they make does, be one step with a batch. They
/// come where the last of them is; none that what lies between conflicts with.
mlir::LogicalResult batchMatmuls(mlir::ModuleOp module);

} // namespace plait

#endif // PLAIT_TRANSFORMS_BATCHEDMATMULS_H
