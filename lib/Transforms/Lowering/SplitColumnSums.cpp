//===- SplitColumnSums.cpp - Column sums in two steps ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradients of biases, and of the factors of norms, add up all rows of a
// batch. A kernel for that has a block of threads for some columns, which walks
// all rows: 48 blocks for 768 columns of bf16, each of the 32 bytes that memory
// moves at least, where a GPU has 132 multiprocessors. So every sequence is
// added up by itself, and a second kernel adds up the sequences:
//
//   reduce sum x dims [0, 1]  ->  reduce sum (reduce sum x dims [1]) dims [0]
//
// What the steps read besides is one row of f32 for each sequence. Both add in
// one fixed order, like all kernels: the same bits in every run.
//
//===----------------------------------------------------------------------===//

#include "Fusion.h"

#include "plait/Analysis/KernelShape.h"

using namespace mlir;
using namespace plait;

/// Columns from which a single kernel has a block of threads, 256 bytes wide,
/// for each multiprocessor: 2 bytes a column, and up to 148 of them.
static constexpr int64_t kManyColumns = 148 * 128;

/// Rows that the first step adds up at least: what it writes is then, at 4
/// bytes a number for 2 that were read, a few percent of its traffic.
static constexpr int64_t kLeastRows = 64;

static ArrayRef<int64_t> getDims(Operation *op) {
  return cast<FusableOpInterface>(op).getDims();
}

static bool areFrom(int64_t first, ArrayRef<int64_t> dims) {
  return llvm::equal(dims, llvm::seq<int64_t>(first, first + dims.size()));
}

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Reduces all leading dimensions but the first, which its only user reduces.
static bool isFirstStep(Operation *op) {
  Value result = op->getResult(0);
  if (!areFrom(1, getDims(op)) || typeOf(result).getRank() < 2 ||
      !result.hasOneUse())
    return false;
  Operation *user = *result.user_begin();
  return isReduction(user) && getDims(user).size() == 1 &&
         getDims(user).front() == 0;
}

bool plait::isColumnReduction(Operation *op) {
  return isReduction(op) && typeOf(op->getResult(0)).getRank() > 0 &&
         (areFrom(0, getDims(op)) || isFirstStep(op));
}

/// Tells whether `op` is worth two kernels. Partial sums have the type of what
/// is added up, which must not round them.
static bool hasFewBlocks(Operation *op) {
  ArrayRef<int64_t> dims = getDims(op);
  if (!getFacts(op).adds || dims.size() < 2 || !areFrom(0, dims))
    return false;
  RankedTensorType type = typeOf(op->getOperand(0));
  int64_t columns = typeOf(op->getResult(0)).getNumElements(), rows = 1;
  for (int64_t dim : dims.drop_front())
    rows *= type.getDimSize(dim);
  return type.getElementType().isF32() && columns > 1 &&
         columns < kManyColumns && type.getDimSize(0) > 1 && rows >= kLeastRows;
}

void plait::splitColumnSums(Block &body) {
  for (Operation &op : llvm::make_early_inc_range(body)) {
    if (!isReduction(&op) || !hasFewBlocks(&op))
      continue;
    OpBuilder builder(&op);
    Operation *first =
        reduceOver(builder, &op, op.getOperand(0), getDims(&op).drop_front());
    Operation *second = reduceOver(builder, &op, first->getResult(0),
                                   getDims(&op).take_front());
    op.replaceAllUsesWith(second);
    op.erase();
  }
}
