//===- EmitRowOp.cpp - Kernels of ops that emit rows ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for row: whatever the op does with it
//
// On a GPU a thread has a row, as on a processor: what such an op does depends
// on the order of the row.
//
//===----------------------------------------------------------------------===//

#include "EmitKernel.h"
#include "Workers.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

namespace {

/// One row: offsets count from the beginning of each tensor's own.
class EmittedRow : public RowContext {
public:
  EmittedRow(Emitter &emitter, Operation *op, Value row)
      : RowContext(emitter.builder, op->getLoc()), emitter(emitter), op(op),
        row(row) {}

  int64_t getLanes() const override { return emitter.lanes; }

  Value load(unsigned operand, Value column, int64_t lanes) override {
    Value tensor = op->getOperand(operand);
    unsigned argument = cast<BlockArgument>(tensor).getArgNumber();
    Value pointer = emitter.function.pointers[argument];
    Value offset = find(plan::getRowPitch(tensor), column);
    Type element = getElementTypeOrSelf(tensor);
    return lanes == 1 ? emitter.loadScalar(pointer, element, offset)
                      : emitter.loadLanes(pointer, element, offset);
  }

  void store(Value elements, Value column) override {
    Value result = op->getResult(0);
    Value stored = emitter.cluster.getResult(0);
    emitter.store(emitter.getResultPointer(0), getElementTypeOrSelf(result),
                  elements, find(plan::getRowPitch(stored), column));
  }

private:
  Value find(int64_t pitch, Value column) {
    return emitter.add(emitter.mul(row, pitch), column);
  }

  Emitter &emitter;
  Operation *op;
  Value row;
};

} // namespace

void codegen::emitRowOp(Emitter &emitter, Workers &workers,
                        const RowOpShape &shape, KernelInfo &info) {
  auto type = cast<RankedTensorType>(shape.op->getResult(0).getType());
  int64_t most = type.getShape().back();
  for (Value operand : shape.op->getOperands())
    most = std::max(
        most, cast<RankedTensorType>(operand.getType()).getShape().back());
  info.extent = ShapedType::getNumElements(type.getShape().drop_back());
  info.grain = std::max<int64_t>(1, kGrainElements / most);
  SmallVector<Value> none;
  workers.forIndices(info.extent, {}, none, [&](Value row) {
    EmittedRow context(emitter, shape.op, row);
    cast<FusableOpInterface>(shape.op).emitRow(context);
  });
}
