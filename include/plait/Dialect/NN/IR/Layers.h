//===- Layers.h - The layer that an op belongs to ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Recomputation, stages and kernels go by layers. So what a pass creates
// belongs to that of the op for which it is created. A profile is made of a
// model with blocks: layers of which alike ones are one, and what is in none.
// While it is sharded, passes go by blocks.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_LAYERS_H
#define PLAIT_DIALECT_NN_IR_LAYERS_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// The discardable attribute with the index of the block of an op.
inline constexpr llvm::StringLiteral kBlockAttr = "nn.block";

/// Returns the number that ops of one block have in common, or of one layer in
/// a model without blocks; null where `op` is of none.
inline mlir::IntegerAttr getLayerAttr(mlir::Operation *op) {
  auto block = op->getAttrOfType<mlir::IntegerAttr>(kBlockAttr);
  return block ? block : op->getAttrOfType<mlir::IntegerAttr>(kLayerAttr);
}

/// Returns the same as a number.
inline std::optional<int64_t> getLayer(mlir::Operation *op) {
  mlir::IntegerAttr layer = getLayerAttr(op);
  return layer ? std::optional(layer.getInt()) : std::nullopt;
}

/// Has `op` belong to the layer and the block of `source`, which may be null,
/// if that is of any.
inline void inheritLayer(mlir::Operation *op, mlir::Operation *source) {
  for (llvm::StringRef name : {kLayerAttr, kBlockAttr})
    if (mlir::Attribute own = source ? source->getAttr(name) : nullptr)
      op->setAttr(name, own);
}

/// Has what a builder creates belong to the layer of one op.
class LayerListener : public mlir::OpBuilder::Listener {
public:
  explicit LayerListener(mlir::Operation *source) : source(source) {}
  void notifyOperationInserted(mlir::Operation *op,
                               mlir::OpBuilder::InsertPoint) override {
    inheritLayer(op, source);
  }

private:
  mlir::Operation *source;
};

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_LAYERS_H
