//===- Dist.h - The dist dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Meshes, shardings and collectives; the contracts are in DistOps.td.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_DIST_IR_DIST_H
#define PLAIT_DIALECT_DIST_IR_DIST_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "plait/Configuration/Mesh.h"
#include "plait/Interfaces/OpInterfaces.h"
#include "plait/Support/Collectives.h"

#include <string>

#include "plait/Dialect/Dist/IR/DistDialect.h.inc"
#include "plait/Dialect/Dist/IR/DistEnums.h.inc"

namespace plait::dist {

/// The blocks that a collective's tensors consist of, in elements, as
/// CollectiveStep in Plan.fbs explains them.
struct CollectiveBlocks {
  int64_t outer = 1, middle = 1, chunk = 1;
  bool splitsInner = false;
};

/// Which rows of a gather or scatter move, as RowSelection in Plan.fbs explains
/// them.
struct RowSelection {
  mlir::Value ids; // of the rows of all ranks
  int64_t width = 1, choices = 1, experts = 1;
};

/// A kind by its word in IR, "all_reduce".
mlir::FailureOr<CollectiveKind> parseKind(mlir::AsmParser &parser);
std::string stringifyKind(CollectiveKind kind);

} // namespace plait::dist

#include "plait/Dialect/Dist/IR/DistInterfaces.h.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Dist/IR/DistAttrs.h.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Dist/IR/DistOps.h.inc"

namespace plait::dist {

/// `type` with `sharding` as its encoding (null: a plain type).
mlir::RankedTensorType withSharding(mlir::Type type, ShardingAttr sharding);

/// The axes that split a dimension with this entry in a sharding, major to
/// minor.
llvm::SmallVector<mlir::StringAttr, 2> getAxes(mlir::ArrayAttr entry);

/// Returns in how many rounds the last of those deals the dimension out.
int64_t getRounds(mlir::ArrayAttr entry);

/// The entry of a dimension that is split over those of `entry` and then, in
/// `rounds`, over `axis`.
mlir::ArrayAttr addAxis(mlir::ArrayAttr entry, mlir::StringAttr axis,
                        int64_t rounds = 1);

/// The global type without any sharding.
inline mlir::RankedTensorType plainType(mlir::Type type) {
  return withSharding(type, ShardingAttr());
}

/// Fails with an error on `op` unless `sharding` is on the mesh of the module
/// around `op` and that mesh has all of its axes (C3 of the attribute).
mlir::LogicalResult verifyAxes(mlir::Operation *op, ShardingAttr sharding);

} // namespace plait::dist

#endif // PLAIT_DIALECT_DIST_IR_DIST_H
