//===- KernelRows.cpp - Some rows of a kernel -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which dimension of a value the rows are is told from the results back to the
// operands, op by op. What has no rows, as a weight that is the same for all of
// them, is read whole by every part. Ops that know where in a tensor they are,
// dropout or a mask, have no rule, and nor has a sum over rows.
//
//===----------------------------------------------------------------------===//

#include "KernelRows.h"

#include "plait/Analysis/KernelTraffic.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "llvm/ADT/TypeSwitch.h"

#include <numeric>

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// Finds for each value of a cluster the dimension that the rows are; `whole`:
/// it has none.
class RowFinder {
public:
  static constexpr int64_t whole = -1;

  explicit RowFinder(ClusterOp cluster) : body(cluster.getBody().front()) {}

  /// Whether everything is computed row by row.
  bool run();
  int64_t getExtent() const { return extent; }
  const llvm::DenseMap<Value, int64_t> &getDims() const { return dims; }

private:
  bool assign(Value value, int64_t dim);
  bool visit(Operation *op, int64_t dim);

  Block &body;
  llvm::DenseMap<Value, int64_t> dims;
  int64_t extent = 1;
};

} // namespace

/// The outermost dimension that has more than one index; `whole`: none has.
static int64_t findOutermost(Value value) {
  ArrayRef<int64_t> shape = cast<ShapedType>(value.getType()).getShape();
  const auto *outermost =
      llvm::find_if(shape, [](int64_t extent) { return extent > 1; });
  return outermost == shape.end() ? RowFinder::whole
                                  : outermost - shape.begin();
}

bool RowFinder::assign(Value value, int64_t dim) {
  return dims.try_emplace(value, dim).first->second == dim;
}

/// Says what `op` needs of its operands where rows are dimension `dim` of its
/// result.
bool RowFinder::visit(Operation *op, int64_t dim) {
  RoleFacts facts = getFacts(op);
  ArrayRef<int64_t> dims;
  if (facts.repeats || facts.reduces)
    dims = cast<FusableOpInterface>(op).getDims();
  if (facts.repeats) {
    const auto *from = llvm::find(dims, dim);
    return assign(op->getOperand(0),
                  from == dims.end() ? whole : from - dims.begin());
  }
  if (facts.reduces) {
    for (int64_t reduced : dims) // ascending
      dim += reduced <= dim;
    return dim != whole && assign(op->getOperand(0), dim);
  }
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](nn::FillOp) { return true; })
      .Case([&](nn::RotateHalfOp op) {
        return dim + 1 != op.getType().getRank() && assign(op.getInput(), dim);
      })
      .Default([&](Operation *op) {
        return op->hasTrait<OpTrait::Elementwise>() &&
               llvm::all_of(op->getOperands(), [&](Value operand) {
                 return assign(operand, dim);
               });
      });
}

bool RowFinder::run() {
  for (Value result : body.getTerminator()->getOperands()) {
    int64_t dim = findOutermost(result);
    if (dim == whole || !assign(result, dim))
      return false;
    int64_t own = cast<ShapedType>(result.getType()).getDimSize(dim);
    if (extent != 1 && own != extent)
      return false;
    extent = own;
  }
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    auto dim =
        op.getNumResults() == 1 ? dims.find(op.getResult(0)) : dims.end();
    if (dim == dims.end() || !visit(&op, dim->second))
      return false;
  }
  // Rows of an operand lie one behind the other.
  return llvm::all_of(body.getArguments(), [&](Value argument) {
    auto dim = dims.find(argument);
    return dim == dims.end() || dim->second == whole ||
           dim->second == findOutermost(argument);
  });
}

/// Gives all values of a cluster that have rows `parts` times fewer of them.
static void divideRows(const llvm::DenseMap<Value, int64_t> &dims,
                       int64_t parts) {
  for (auto [value, dim] : dims) {
    if (dim == RowFinder::whole)
      continue;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] /= parts;
    Value(value).setType(type.clone(shape));
  }
}

/// Returns the memory of a part of each value that has rows; null where that of
/// one is no run of bytes that may be a kernel's.
static ArrayAttr getParts(ArrayAttr memories, ValueRange values,
                          const llvm::DenseMap<Value, int64_t> &dims,
                          int64_t part, int64_t parts) {
  SmallVector<Attribute> own;
  for (auto [attribute, value] : llvm::zip_equal(memories, values)) {
    auto memory = cast<MemoryAttr>(attribute);
    auto dim = dims.find(value);
    if (dim == dims.end() || dim->second == RowFinder::whole) {
      own.push_back(memory);
      continue;
    }
    auto type = cast<RankedTensorType>(value.getType());
    int64_t bytes = memory.getBytes() / parts;
    if (memory.getBytes() !=
            type.getNumElements() * type.getElementTypeBitWidth() / 8 ||
        bytes % kAlignment)
      return {};
    own.push_back(memory.getPart(part * bytes, bytes));
  }
  return ArrayAttr::get(memories.getContext(), own);
}

/// Has `kernel` compute part `part` of its rows alone; false, and it is as
/// before, where it cannot.
static bool keepRows(KernelOp kernel, int64_t part, int64_t parts) {
  ClusterOp cluster = kernel.getCluster();
  Block &inner = cluster.getBody().front();
  RowFinder finder(cluster);
  if (!finder.run() || finder.getExtent() % parts)
    return false;
  const auto &dims = finder.getDims();
  ValueRange results = inner.getTerminator()->getOperands();
  ArrayAttr inputs =
      getParts(kernel.getInputs(), inner.getArguments(), dims, part, parts);
  ArrayAttr outputs = getParts(kernel.getOutputs(), results, dims, part, parts);
  if (!inputs || !outputs)
    return false;
  divideRows(dims, parts);
  for (auto [outer, own] : llvm::zip_equal(
           kernel.getBody().front().getArguments(), inner.getArguments()))
    outer.setType(own.getType());
  for (auto [outer, own] : llvm::zip_equal(cluster.getResults(), results))
    outer.setType(own.getType());
  kernel.setInputsAttr(inputs);
  kernel.setOutputsAttr(outputs);
  kernel.setFlops(int64_t(getKernelFlops(cluster)));
  kernel.setTraffic(int64_t(getKernelTraffic(cluster)));
  return true;
}

bool plait::hasRows(KernelOp kernel) {
  return !kernel->hasAttr(kPitchAttr) && !kernel->hasAttr(kSortedAttr) &&
         RowFinder(kernel.getCluster()).run();
}

/// Parts of an outer dimension's indices are cut between the next one's.
KernelOp plait::createRows(OpBuilder &builder, KernelOp whole, int64_t part,
                           int64_t parts) {
  if (!hasRows(whole))
    return {};
  auto own = cast<KernelOp>(builder.clone(*whole));
  while (parts > 1) {
    RowFinder finder(own.getCluster());
    int64_t outer = finder.run() ? std::gcd(finder.getExtent(), parts) : 1;
    int64_t inner = parts / outer;
    if (outer == 1 || !keepRows(own, part / inner, outer)) {
      own->erase();
      return {};
    }
    part %= inner;
    parts = inner;
  }
  return own;
}
