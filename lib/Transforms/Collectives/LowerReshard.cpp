//===- LowerReshard.cpp - Reshards as collectives ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowerReshard.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::dist;

namespace {

/// The way of one tensor from one sharding to another.
class Mover {
public:
  Mover(OpBuilder &builder, Location loc, Value block, RankedTensorType whole,
        ShardingAttr from, ShardingAttr to, MeshOp mesh)
      : builder(builder), loc(loc), block(block), whole(whole), from(from),
        to(to), mesh(mesh), meshRef(FlatSymbolRefAttr::get(mesh.getSymNameAttr())) {}

  FailureOr<Value> run();

private:
  LogicalResult moveAxis(StringAttr axis, int step);
  LogicalResult checkAlone(StringAttr axis, int64_t dim);
  RankedTensorType scaled(ArrayRef<std::pair<int64_t, int64_t>> multiply,
                          ArrayRef<std::pair<int64_t, int64_t>> divide);
  LogicalResult checkEven(int64_t dim, int64_t blocks);

  OpBuilder &builder;
  Location loc;
  Value block;
  RankedTensorType whole;
  ShardingAttr from, to;
  MeshOp mesh;
  FlatSymbolRefAttr meshRef;
};

} // namespace

/// The block's type with some extents multiplied and some divided, up.
RankedTensorType
Mover::scaled(ArrayRef<std::pair<int64_t, int64_t>> multiply,
              ArrayRef<std::pair<int64_t, int64_t>> divide) {
  auto type = cast<RankedTensorType>(block.getType());
  SmallVector<int64_t> shape(type.getShape());
  for (auto [dim, factor] : multiply)
    shape[dim] *= factor;
  for (auto [dim, factor] : divide)
    shape[dim] = llvm::divideCeil(shape[dim], factor);
  return RankedTensorType::get(shape, type.getElementType());
}

/// Blocks of one axis lie among those of another in an order that a collective
/// over one of them does not respect.
LogicalResult Mover::checkAlone(StringAttr axis, int64_t dim) {
  auto isAlone = [&](ShardingAttr sharding) {
    return llvm::none_of(
        sharding.getDims()[dim].getAsRange<StringAttr>(),
        [&](StringAttr other) {
          return other != axis && mesh.getAxisSize(other.getValue()) > 1;
        });
  };
  if (isAlone(from) && isAlone(to))
    return success();
  return emitError(loc) << "cannot move axis \"" << axis.getValue()
                        << "\" of dimension " << dim
                        << " past the other axes that split it";
}

LogicalResult Mover::checkEven(int64_t dim, int64_t blocks) {
  int64_t extent = whole.getDimSize(dim);
  if (extent % blocks == 0)
    return success();
  return emitError(loc) << "cannot move " << extent << " elements of dimension "
                        << dim << " in " << blocks << " equal blocks";
}

/// Does the work of `axis` that belongs to `step` (the order above).
LogicalResult Mover::moveAxis(StringAttr axis, int step) {
  int64_t blocks = mesh.getAxisSize(axis.getValue());
  int64_t source = from.findDim(axis), target = to.findDim(axis);
  bool partial = from.isPartialOver(axis) && !to.isPartialOver(axis);
  if (blocks <= 1 || (source == target && !partial))
    return success();
  int kind = partial ? (target >= 0 ? 1 : 2)
                     : (source < 0 ? 0 : (target >= 0 ? 3 : 4));
  if (kind != step)
    return success();
  if ((source >= 0 && failed(checkAlone(axis, source))) ||
      (target >= 0 && failed(checkAlone(axis, target))))
    return failure();
  // A slice pads; collectives move equal blocks.
  if (kind != 0 && ((source >= 0 && failed(checkEven(source, blocks))) ||
                    (target >= 0 && failed(checkEven(target, blocks)))))
    return failure();
  auto reduction = ReductionAttr::get(builder.getContext(), from.getReduction());
  auto attr = [&](int64_t dim) { return builder.getI64IntegerAttr(dim); };
  switch (kind) {
  case 0:
    block = SliceOp::create(builder, loc, scaled({}, {{target, blocks}}), block,
                            meshRef, axis, attr(target));
    return success();
  case 1:
    block = ReduceScatterOp::create(builder, loc,
                                    scaled({}, {{target, blocks}}), block,
                                    meshRef, axis, reduction, attr(target));
    return success();
  case 2:
    block = AllReduceOp::create(builder, loc, block.getType(), block, meshRef,
                                axis, reduction, DenseI64ArrayAttr(), UnitAttr());
    return success();
  case 3:
    block = AllToAllOp::create(
        builder, loc, scaled({{source, blocks}}, {{target, blocks}}), block,
        meshRef, axis, attr(target), attr(source));
    return success();
  default:
    block = AllGatherOp::create(builder, loc, scaled({{source, blocks}}, {}),
                                block, meshRef, axis, attr(source));
    return success();
  }
}

FailureOr<Value> Mover::run() {
  for (int step = 0; step < 5; ++step)
    for (auto axis : mesh.getAxes().getAsRange<StringAttr>())
      if (failed(moveAxis(axis, step)))
        return failure();
  return block;
}

FailureOr<Value> plait::lowerReshard(OpBuilder &builder, Location loc,
                                     Value block, RankedTensorType whole,
                                     ShardingAttr from, ShardingAttr to,
                                     MeshOp mesh) {
  return Mover(builder, loc, block, whole, from, to, mesh).run();
}
