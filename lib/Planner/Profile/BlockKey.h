//===- BlockKey.h - What a block's measure depends on -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Several ways to split a model differ in few of its blocks, and layers of one
// kind may stand behind several others. A block is measured once for each
// function that is made of it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_BLOCKKEY_H
#define PLAIT_LIB_PLANNER_PROFILE_BLOCKKEY_H

#include "Parameters.h"

#include <cstdint>
#include <vector>

namespace plait {

/// The words of a function: what is unique in a context by its address.
using BlockKey = std::vector<uintptr_t>;

/// Describes the joint functions of a module, by block: two with the same key
/// have the same forward and backward pass on the same mesh, of parameters that
/// are alike, whatever these are called. `sums` are the module's. Keys are
/// worth something as long as the context.
std::vector<BlockKey> describeBlocks(mlir::ModuleOp module, const Sums &sums,
                                     int64_t blocks);

/// Erases the functions of all stages but `blocks`.
void keepBlocks(mlir::ModuleOp module, llvm::ArrayRef<int64_t> blocks);

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_BLOCKKEY_H
