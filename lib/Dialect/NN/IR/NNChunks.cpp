//===- NNChunks.cpp - Parts of tensors one after the other ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank computes some rows at a time is cut by nn.chunk and put together
// by nn.concat. A chunk is read where the whole lies, by whatever kernel takes
// it; a concatenation is no work at all, since operands are made where they
// belong (Lowering/PlaceValues.cpp).
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "plait/Dialect/NN/IR/NN.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

LogicalResult ChunkOp::verify() {
  SmallVector<int64_t> shape(shapeOf(getInput()));
  int64_t dim = getDim(), part = getPart(), parts = getParts();
  // (C1)
  if (dim < 0 || dim >= int64_t(shape.size()))
    return emitOpError("cuts dimension ")
           << dim << " of " << getInput().getType();
  // (C2)
  if (parts < 1 || part < 0 || part >= parts || shape[dim] % parts)
    return emitOpError("takes part ")
           << part << " of " << parts << " of " << getInput().getType()
           << " along dimension " << dim;
  // (C3)
  shape[dim] /= parts;
  auto wanted = cast<RankedTensorType>(getInput().getType()).clone(shape);
  if (getResult().getType() == wanted)
    return success();
  return emitOpError("has result ")
         << getResult().getType() << ", expected " << wanted;
}

FusionRole ChunkOp::getFusionRole() { return FusionRole::Reindex; }

IndexMap ChunkOp::getIndexMap() {
  int64_t own = shapeOf(getResult())[getDim()];
  return {int64_t(getDim()), {{own, int64_t(getPart()) * own}}};
}

Value ChunkOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}

LogicalResult ConcatOp::verify() {
  auto whole = cast<RankedTensorType>(getResult().getType());
  SmallVector<int64_t> shape(whole.getShape());
  int64_t dim = getDim(), parts = getInputs().size();
  // (C1)
  if (parts == 0)
    return emitOpError("has no operand");
  // (C2)
  if (dim < 0 || dim >= int64_t(shape.size()) ||
      ShapedType::getNumElements(ArrayRef(shape).take_front(dim)) != 1)
    return emitOpError("joins dimension ")
           << dim << " of " << whole
           << ", expected one with extents of 1 in front of it";
  // (C3)
  if (shape[dim] % parts)
    return emitOpError("has ")
           << parts << " operands for " << whole << " along dimension " << dim;
  shape[dim] /= parts;
  for (Value input : getInputs())
    if (input.getType() != whole.clone(shape))
      return emitOpError("has operand ")
             << input.getType() << ", expected " << whole.clone(shape);
  return success();
}
