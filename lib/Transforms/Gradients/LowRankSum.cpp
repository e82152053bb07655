//===- LowRankSum.cpp - Sums of matrices as two factors -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PowerSGD (Vogels et al. 2019, Algorithm 1): one step of power iteration on
// the sum M of all replicas' matrices, from the factor Q that the step before
// has left,
//
//   P = M Q,   P orthonormal,   Q = Mᵀ P,   and P Qᵀ in place of M.
//
// Both products are linear in M, so that all-reduces add them up, and what
// replica i has sent of the sum is P (Mᵢᵀ P)ᵀ. All vectors of a factor are rows
// of a table here.
//
// Matrices have lower ranks than a factor at times: all of zeros in a step, or
// of a batch of few tokens. Vectors that then have nothing of their own are
// left out of P, as what rounding makes of them would count what others have
// sent a second time; their Q stays what it was.
//
//===----------------------------------------------------------------------===//

#include "LowRankSum.h"

using namespace mlir;
using namespace plait;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// Lists all dimensions but the first.
static SmallVector<int64_t> getInner(Value table) {
  return llvm::to_vector(llvm::seq<int64_t>(1, shapeOf(table).size()));
}

LowRankSum::LowRankSum(nn::NNBuilder &nn, ArrayRef<int64_t> shape, int64_t rank)
    : nn(nn), rank(rank) {
  size_t cut = getMatrixSides({shape.data(), shape.size()}).cut;
  rows.assign(shape.begin(), shape.begin() + cut);
  columns.assign(shape.begin() + cut, shape.end());
  char next = 'a';
  for (size_t dim = 0; dim < shape.size(); ++dim)
    (dim < cut ? rowLetters : columnLetters) += next++;
  rankLetter = next;
}

RankedTensorType LowRankSum::getKeptType() {
  SmallVector<int64_t> shape = {rank};
  llvm::append_range(shape, columns);
  return RankedTensorType::get(shape, nn.builder.getF32Type());
}

/// Repeats a number, or one of each row, for all elements of `like`.
Value LowRankSum::spread(Value numbers, Value like) {
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(numbers).size()));
  return nn.broadcast(numbers, shapeOf(like), dims);
}

/// Returns the row of a table where `mask` is 1.
Value LowRankSum::takeRow(Value table, Value mask) {
  return nn.reduce(nn.mul(table, spread(mask, table)), int64_t(0));
}

/// Returns the part of a vector within the span of orthonormal rows. Rows of
/// zeros take no part.
Value LowRankSum::project(Value vector, Value basis) {
  SmallVector<int64_t> inner = getInner(basis);
  Value repeated = nn.broadcast(vector, shapeOf(basis), inner);
  Value parts = nn.reduce(nn.mul(basis, repeated), inner);
  return takeRow(basis, parts);
}

/// Divides a vector by its largest magnitude, so that squares are neither too
/// small nor too large for their type; of zeros it is zeros.
Value LowRankSum::shrink(Value vector) {
  Value negated = nn.neg(vector);
  Value magnitude = nn.neg(nn.binary<nn::MinOp>(vector, negated));
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, shapeOf(vector).size()));
  Value largest = nn.reduce(magnitude, dims, nn::ReduceKind::Max);
  Value bound = nn.shift(largest, 0x1p-100);
  Value factor = nn.div(nn.fillLike(bound, 1), bound);
  return nn.mul(vector, spread(factor, vector));
}

Value LowRankSum::square(Value vector) {
  return nn.sumAll(nn.mul(vector, vector));
}

/// Gram and Schmidt, row by row, each from all before it at once. Twice is
/// enough (Giraud et al. 2005) if the second time changes little; where it
/// takes half of the length or more, the first time has left roundings, and the
/// row becomes zeros. `areKept` becomes 1 for all other rows.
Value LowRankSum::orthogonalize(Value vectors, Value &areKept) {
  auto integers = RankedTensorType::get({rank}, nn.builder.getI32Type());
  Value indices = nn::IotaOp::create(nn.builder, nn.loc, integers, /*along=*/0,
                                     nn::BeginAttr());
  Value numbers = nn::ConvertOp::create(
      nn.builder, nn.loc, integers.clone(nn.builder.getF32Type()), indices);
  Value basis;
  for (int64_t row = 0; row < rank; ++row) {
    Value mask = nn.unary<nn::IsZeroOp>(nn.shift(numbers, -double(row)));
    Value vector = shrink(takeRow(vectors, mask));
    if (basis)
      vector = shrink(nn.sub(vector, project(vector, basis)));
    Value before = square(vector), after = before;
    if (basis) {
      vector = nn.sub(vector, project(vector, basis));
      after = square(vector);
    }
    Value least = nn.scale(before, 0.25);
    Value isKept = nn::GreaterOp::create(nn.builder, nn.loc, after.getType(),
                                         after, least);
    // Not 0 where nothing is left.
    Value isLost = nn.shift(nn.neg(isKept), 1);
    Value length = nn.unary<nn::SqrtOp>(after);
    Value factor = nn.div(isKept, nn.add(length, isLost));
    Value unit = nn.mul(vector, spread(factor, vector));
    Value repeated = nn.broadcast(unit, shapeOf(vectors), getInner(vectors));
    Value own = nn.mul(repeated, spread(mask, repeated));
    Value ownKept = nn.mul(mask, spread(isKept, mask));
    basis = basis ? nn.add(basis, own) : own;
    areKept = areKept ? nn.add(areKept, ownKept) : ownKept;
  }
  return basis;
}

LowRankSum::Sums LowRankSum::apply(Value own, Value kept,
                                   function_ref<Value(Value)> sum) {
  std::string matrix = rowLetters + columnLetters;
  std::string left = rankLetter + rowLetters,
              right = rankLetter + columnLetters;
  Value product = nn.matmul(kept, own, right + "," + matrix + "->" + left);
  Value areKept;
  Value basis = orthogonalize(sum(product), areKept);
  Value ownRight = nn.matmul(basis, own, left + "," + matrix + "->" + right);
  Value allRight = sum(ownRight);
  auto multiply = [&](Value factor) {
    return nn.matmul(basis, factor, left + "," + right + "->" + matrix);
  };
  Value all = multiply(allRight);
  Value sent = ownRight == allRight ? all : multiply(ownRight);
  Value areLost = nn.shift(nn.neg(areKept), 1);
  Value before = nn.mul(kept, spread(areLost, kept));
  return {all, sent, nn.add(allRight, before)};
}
