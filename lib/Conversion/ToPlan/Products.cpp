//===- Products.cpp - Contractions as strided matrix products ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Products.h"

#include "plait/Conversion/ElementType.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Plan/Check.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// The row-major strides of a tensor by letter.
struct Strides {
  llvm::DenseMap<char, int64_t> of;
  Strides(StringRef letters, Value value) {
    auto shape = cast<RankedTensorType>(value.getType()).getShape();
    int64_t stride = 1;
    for (int64_t dim = letters.size() - 1; dim >= 0; --dim) {
      of[letters[dim]] = stride;
      bool isRow = dim + 1 == static_cast<int64_t>(letters.size());
      stride *= isRow ? getRowPitch(value) : shape[dim];
    }
  }
  int64_t operator[](char letter) const { return of.lookup(letter); }
};

/// One long dimension, its letters, and those that do not fit into it.
struct Group {
  int64_t extent = 1;
  char innermost = 0; // 0: the group is empty
  std::string inner, outer;
};

/// One contraction on its way to products.
class Converter {
public:
  Converter(ContractionOpInterface op, bool swapped)
      : op(op), left(swapped ? op.getRhsLetters() : op.getLhsLetters()),
        right(swapped ? op.getLhsLetters() : op.getRhsLetters()),
        result(op.getResultLetters()), a(left, op->getOperand(swapped ? 1 : 0)),
        b(right, op->getOperand(swapped ? 0 : 1)), c(result, op->getResult(0)) {
  }

  std::vector<std::unique_ptr<fb::GemmStepT>> run(const fb::Ref &lhs,
                                                  const fb::Ref &rhs,
                                                  const fb::Ref &out,
                                                  fb::Accumulate accumulate);

private:
  /// The letters of both strings, in the order of the first, but for those of
  /// `without` and those of extent 1.
  std::string common(StringRef first, StringRef second, StringRef without = "");
  Group collapse(StringRef letters, const Strides &x, const Strides &y);
  void addBatch(fb::GemmStepT &step, StringRef letters);
  bool setStrides(fb::GemmStepT &step, const Group &rows, const Group &columns,
                  const Group &summed);
  fb::GemmStepT makeProduct(Group rows, Group columns, const Group &summed);

  ContractionOpInterface op;
  StringRef left, right, result;
  Strides a, b, c;
};

} // namespace

std::string Converter::common(StringRef first, StringRef second,
                              StringRef without) {
  std::string letters;
  for (char letter : first)
    if (second.contains(letter) && !without.contains(letter) &&
        op.getExtent(letter) > 1)
      letters += letter;
  return letters;
}

/// Joins letters from the innermost outwards as long as each lies directly
/// around the one before, in both tensors.
Group Converter::collapse(StringRef letters, const Strides &x,
                          const Strides &y) {
  Group group;
  int64_t index = letters.size() - 1;
  if (index < 0)
    return group;
  group.innermost = letters[index];
  group.extent = op.getExtent(letters[index]);
  for (--index; index >= 0; --index) {
    char letter = letters[index];
    if (x[letter] != x[group.innermost] * group.extent ||
        y[letter] != y[group.innermost] * group.extent)
      break;
    group.extent *= op.getExtent(letter);
  }
  group.outer = letters.take_front(index + 1).str();
  group.inner = letters.drop_front(index + 1).str();
  return group;
}

/// Letters that lie around each other in all three tensors are one dimension.
void Converter::addBatch(fb::GemmStepT &step, StringRef letters) {
  auto isAround = [](const std::vector<int64_t> &strides, int64_t stride,
                     int64_t extent) {
    return strides.back() == stride * extent;
  };
  for (char letter : letters) {
    int64_t extent = op.getExtent(letter);
    int64_t x = left.contains(letter) ? a[letter] : 0;
    int64_t y = right.contains(letter) ? b[letter] : 0;
    int64_t z = c[letter];
    if (!step.batch.empty() && isAround(step.a_batch, x, extent) &&
        isAround(step.b_batch, y, extent) &&
        isAround(step.c_batch, z, extent)) {
      step.batch.back() *= extent;
      step.a_batch.back() = x;
      step.b_batch.back() = y;
      step.c_batch.back() = z;
      continue;
    }
    step.batch.push_back(extent);
    step.a_batch.push_back(x);
    step.b_batch.push_back(y);
    step.c_batch.push_back(z);
  }
}

/// The strides of the two dimensions of an operand, one of which must be 1; a
/// dimension of extent 1 takes whatever fits the other.
static bool setPair(int64_t &row, int64_t &column, int64_t rowStride,
                    int64_t columnStride, int64_t rows, int64_t columns) {
  row = rowStride;
  column = columnStride;
  if (columns == 1 && row != 1)
    column = 1;
  if (rows == 1)
    row = column == 1 ? columns : 1;
  return row == 1 || column == 1;
}

/// Whether matrices of these rows and columns lie in memory as a library wants
/// them.
bool Converter::setStrides(fb::GemmStepT &step, const Group &rows,
                           const Group &columns, const Group &summed) {
  step.m = rows.extent;
  step.n = columns.extent;
  step.k = summed.extent;
  step.c_row = rows.innermost ? c[rows.innermost] : columns.extent;
  return setPair(step.a_row, step.a_col, a[rows.innermost], a[summed.innermost],
                 step.m, step.k) &&
         setPair(step.b_row, step.b_col, b[summed.innermost],
                 b[columns.innermost], step.k, step.n) &&
         (!columns.innermost || c[columns.innermost] == 1);
}

/// The matrices, and the batch around them. Where a batch letter is innermost,
/// as in "bsh,h->bsh", a matrix has no dimension of stride 1: the columns
/// become a part of the batch, and where that is not enough the rows as well.
/// What is left then, a row times a column, always has one.
fb::GemmStepT Converter::makeProduct(Group rows, Group columns,
                                     const Group &summed) {
  fb::GemmStepT step;
  std::string batch;
  for (char letter : common(result, left))
    if (right.contains(letter))
      batch += letter;
  batch += rows.outer + columns.outer;
  for (Group *group : {&columns, &rows}) {
    if (setStrides(step, rows, columns, summed))
      break;
    batch += group->inner;
    *group = Group();
  }
  (void)setStrides(step, rows, columns, summed);
  addBatch(step, batch);
  return step;
}

std::vector<std::unique_ptr<fb::GemmStepT>>
Converter::run(const fb::Ref &lhs, const fb::Ref &rhs, const fb::Ref &out,
               fb::Accumulate accumulate) {
  Group rows = collapse(common(result, left, right), c, a);
  Group columns = collapse(common(result, right, left), c, b);
  Group summed = collapse(common(left, right, result), a, b);
  fb::GemmStepT first = makeProduct(rows, columns, summed);
  first.dtype = getElementDType(op->getOperand(0));
  first.c_dtype = getElementDType(op->getResult(0));

  // One product for every value of the outer summed letters.
  std::vector<std::unique_ptr<fb::GemmStepT>> steps;
  int64_t count = 1;
  for (char letter : summed.outer)
    count *= op.getExtent(letter);
  for (int64_t index = 0; index < count; ++index) {
    auto step = std::make_unique<fb::GemmStepT>(first);
    int64_t rest = index, aOffset = 0, bOffset = 0;
    for (char letter : llvm::reverse(summed.outer)) {
      aOffset += rest % op.getExtent(letter) * a[letter];
      bOffset += rest % op.getExtent(letter) * b[letter];
      rest /= op.getExtent(letter);
    }
    int64_t bytes = elementBytes(first.dtype);
    step->a =
        std::make_unique<fb::Ref>(lhs.offset() + aOffset * bytes, lhs.slot());
    step->b =
        std::make_unique<fb::Ref>(rhs.offset() + bOffset * bytes, rhs.slot());
    step->c = std::make_unique<fb::Ref>(out);
    step->accumulate = index == 0 ? accumulate : fb::Accumulate::Add;
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<std::unique_ptr<fb::GemmStepT>>
plait::convertContraction(ContractionOpInterface op, const fb::Ref &lhs,
                          const fb::Ref &rhs, const fb::Ref &result,
                          fb::Accumulate accumulate) {
  // The result's innermost letter (of those longer than 1) must be a column:
  // exchange the operands if only the left one has it.
  bool swapped = false;
  for (char letter : llvm::reverse(op.getResultLetters()))
    if (op.getExtent(letter) > 1) {
      swapped = !op.getRhsLetters().contains(letter);
      break;
    }
  Converter converter(op, swapped);
  return swapped ? converter.run(rhs, lhs, result, accumulate)
                 : converter.run(lhs, rhs, result, accumulate);
}
