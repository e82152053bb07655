//===- Products.cpp - Contractions as strided matrix products ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Products.h"

#include "plait/Conversion/ElementType.h"
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
      stride *= shape[dim];
    }
  }
  int64_t operator[](char letter) const { return of.lookup(letter); }
};

/// One long dimension, and the letters that do not fit into it.
struct Group {
  int64_t extent = 1;
  char innermost = 0; // 0: the group is empty
  std::string outer;
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

  FailureOr<std::vector<std::unique_ptr<fb::GemmStepT>>>
  run(const fb::Ref &lhs, const fb::Ref &rhs, const fb::Ref &out,
      fb::Accumulate accumulate);

private:
  /// The letters of both strings, in the order of the first, but for those of
  /// `without` and those of extent 1.
  std::string common(StringRef first, StringRef second, StringRef without = "");
  Group collapse(StringRef letters, const Strides &x, const Strides &y);
  void addBatch(fb::GemmStepT &step, StringRef letters);
  LogicalResult setStrides(fb::GemmStepT &step, const Group &rows,
                           const Group &columns, const Group &summed);

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
  return group;
}

void Converter::addBatch(fb::GemmStepT &step, StringRef letters) {
  for (char letter : letters) {
    step.batch.push_back(op.getExtent(letter));
    step.a_batch.push_back(left.contains(letter) ? a[letter] : 0);
    step.b_batch.push_back(right.contains(letter) ? b[letter] : 0);
    step.c_batch.push_back(c[letter]);
  }
}

/// The strides of the two dimensions of an operand, one of which must be 1; a
/// dimension of extent 1 takes whatever fits the other.
static LogicalResult setPair(int64_t &row, int64_t &column, int64_t rowStride,
                             int64_t columnStride, int64_t rows,
                             int64_t columns) {
  row = rowStride;
  column = columnStride;
  if (columns == 1 && row != 1)
    column = 1;
  if (rows == 1)
    row = column == 1 ? columns : 1;
  return success(row == 1 || column == 1);
}

LogicalResult Converter::setStrides(fb::GemmStepT &step, const Group &rows,
                                    const Group &columns, const Group &summed) {
  step.m = rows.extent;
  step.n = columns.extent;
  step.k = summed.extent;
  step.c_row = rows.innermost ? c[rows.innermost] : columns.extent;
  bool fits =
      succeeded(setPair(step.a_row, step.a_col, a[rows.innermost],
                        a[summed.innermost], step.m, step.k)) &&
      succeeded(setPair(step.b_row, step.b_col, b[summed.innermost],
                        b[columns.innermost], step.k, step.n)) &&
      (!columns.innermost || c[columns.innermost] == 1);
  if (fits)
    return success();
  return op->emitError("no matrix product computes \"")
         << op.getSpec()
         << "\" in place: an operand's innermost dimension is a batch "
            "dimension";
}

FailureOr<std::vector<std::unique_ptr<fb::GemmStepT>>>
Converter::run(const fb::Ref &lhs, const fb::Ref &rhs, const fb::Ref &out,
               fb::Accumulate accumulate) {
  Group rows = collapse(common(result, left, right), c, a);
  Group columns = collapse(common(result, right, left), c, b);
  Group summed = collapse(common(left, right, result), a, b);
  auto first = std::make_unique<fb::GemmStepT>();
  std::string shared;
  for (char letter : result)
    if (left.contains(letter) && right.contains(letter) &&
        op.getExtent(letter) > 1)
      shared += letter;
  addBatch(*first, shared + rows.outer + columns.outer);
  if (failed(setStrides(*first, rows, columns, summed)))
    return failure();
  first->dtype = getElementDType(op->getOperand(0));
  first->c_dtype = getElementDType(op->getResult(0));

  // One product for every value of the outer summed letters.
  std::vector<std::unique_ptr<fb::GemmStepT>> steps;
  int64_t count = 1;
  for (char letter : summed.outer)
    count *= op.getExtent(letter);
  for (int64_t index = 0; index < count; ++index) {
    auto step = std::make_unique<fb::GemmStepT>(*first);
    int64_t rest = index, aOffset = 0, bOffset = 0;
    for (char letter : llvm::reverse(summed.outer)) {
      aOffset += rest % op.getExtent(letter) * a[letter];
      bOffset += rest % op.getExtent(letter) * b[letter];
      rest /= op.getExtent(letter);
    }
    int64_t bytes = elementBytes(first->dtype);
    step->a = std::make_unique<fb::Ref>(lhs.offset() + aOffset * bytes,
                                        lhs.slot());
    step->b = std::make_unique<fb::Ref>(rhs.offset() + bOffset * bytes,
                                        rhs.slot());
    step->c = std::make_unique<fb::Ref>(out);
    step->accumulate = index == 0 ? accumulate : fb::Accumulate::Add;
    steps.push_back(std::move(step));
  }
  return steps;
}

FailureOr<std::vector<std::unique_ptr<fb::GemmStepT>>>
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
