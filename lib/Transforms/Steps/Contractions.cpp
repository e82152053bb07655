//===- Contractions.cpp - Contractions as strided GEMMs ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How an einsum over tensors of any rank becomes GEMMs of strided matrices is
// explained at createGemms(). Strides are what makes it work without copies: a
// dimension is addressed by its stride, so that a transpose, a head or a batch
// dimension between others costs nothing but another number. Libraries want one
// stride of each matrix to be 1, and take one batch dimension at no cost; most
// of the file sees to these two.
//
//===----------------------------------------------------------------------===//

#include "LibrarySteps.h"

#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/IR/TypeUtilities.h"

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
      // Rows may lie further apart than they are long (RowPitch.h); all outer
      // dimensions follow from the pitch.
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
  std::string outer;
};

/// A GEMM before it has addresses: sizes, and strides in elements.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  int64_t aRow = 0, aColumn = 0, bRow = 0, bColumn = 0, cRow = 0;
  SmallVector<int64_t> batch, aBatch, bBatch, cBatch;
};

/// One contraction on its way to GEMMs.
class Converter {
public:
  Converter(ContractionOpInterface op, bool swapped)
      : op(op), left(swapped ? op.getRhsLetters() : op.getLhsLetters()),
        right(swapped ? op.getLhsLetters() : op.getRhsLetters()),
        result(op.getResultLetters()), a(left, op->getOperand(swapped ? 1 : 0)),
        b(right, op->getOperand(swapped ? 0 : 1)), c(result, op->getResult(0)) {
  }

  SmallVector<GemmOp> run(OpBuilder &builder, Location loc, MemoryAttr lhs,
                          MemoryAttr rhs, MemoryAttr out,
                          Accumulate accumulate);

private:
  /// The letters of both strings, in the order of the first, but for those of
  /// `without` and those of extent 1.
  std::string common(StringRef first, StringRef second, StringRef without = "");
  Group collapse(StringRef letters, int64_t innermost, const Strides &x,
                 const Strides &y);
  SmallVector<Group> collapseAll(StringRef letters, const Strides &x,
                                 const Strides &y);
  void addBatch(Gemm &gemm, StringRef letters);
  bool setStrides(Gemm &gemm);
  bool pick(Gemm &gemm, ArrayRef<Group> allRows, ArrayRef<Group> allSummed);
  Gemm makeGemm();

  ContractionOpInterface op;
  StringRef left, right, result;
  Strides a, b, c;
  Group rows, columns, summed;
};

} // namespace

/// Letters of extent 1 are left out everywhere: their strides mean nothing and
/// would only keep others from being joined.
std::string Converter::common(StringRef first, StringRef second,
                              StringRef without) {
  std::string letters;
  for (char letter : first)
    if (second.contains(letter) && !without.contains(letter) &&
        op.getExtent(letter) > 1)
      letters += letter;
  return letters;
}

/// Joins letters from the one at `innermost` outwards as long as each lies
/// directly around the one before, in both tensors.
Group Converter::collapse(StringRef letters, int64_t innermost,
                          const Strides &x, const Strides &y) {
  Group group;
  group.innermost = letters[innermost];
  group.extent = op.getExtent(group.innermost);
  int64_t index = innermost - 1;
  for (; index >= 0; --index) {
    char letter = letters[index];
    if (x[letter] != x[group.innermost] * group.extent ||
        y[letter] != y[group.innermost] * group.extent)
      break;
    group.extent *= op.getExtent(letter);
  }
  group.outer =
      (letters.take_front(index + 1) + letters.drop_front(innermost + 1)).str();
  return group;
}

/// Returns the groups that letters begin, the longest first and of those the
/// innermost: a library is fast with large matrices, and slow with a large
/// batch of small ones. Without letters an empty group.
SmallVector<Group> Converter::collapseAll(StringRef letters, const Strides &x,
                                          const Strides &y) {
  SmallVector<Group> groups;
  for (int64_t index = letters.size() - 1; index >= 0; --index)
    groups.push_back(collapse(letters, index, x, y));
  if (groups.empty())
    groups.emplace_back();
  llvm::stable_sort(groups, [](const Group &first, const Group &second) {
    return first.extent > second.extent;
  });
  return groups;
}

/// Letters that lie around each other in all three tensors are one dimension.
void Converter::addBatch(Gemm &gemm, StringRef letters) {
  // The letter around the last one, in every tensor: a library strides over
  // one batch dimension by itself, and each further one is a loop of calls.
  auto isAround = [](ArrayRef<int64_t> strides, int64_t stride,
                     int64_t extent) {
    return strides.back() == stride * extent;
  };
  // A tensor without the letter is the same for all of its values: stride 0.
  for (char letter : letters) {
    int64_t extent = op.getExtent(letter);
    int64_t x = left.contains(letter) ? a[letter] : 0;
    int64_t y = right.contains(letter) ? b[letter] : 0;
    int64_t z = c[letter];
    if (!gemm.batch.empty() && isAround(gemm.aBatch, x, extent) &&
        isAround(gemm.bBatch, y, extent) && isAround(gemm.cBatch, z, extent)) {
      gemm.batch.back() *= extent;
      gemm.aBatch.back() = x;
      gemm.bBatch.back() = y;
      gemm.cBatch.back() = z;
      continue;
    }
    gemm.batch.push_back(extent);
    gemm.aBatch.push_back(x);
    gemm.bBatch.push_back(y);
    gemm.cBatch.push_back(z);
  }
}

/// The strides of the two dimensions of an operand, one of which must be 1; a
/// dimension of extent 1 takes whatever fits the other.
static bool setPair(int64_t &row, int64_t &column, int64_t rowStride,
                    int64_t columnStride, int64_t rows, int64_t columns) {
  row = rowStride;
  column = columnStride;
  // A vector has one stride that counts; the other is set to what libraries
  // accept as a leading dimension.
  if (columns == 1 && row != 1)
    column = 1;
  if (rows == 1)
    row = column == 1 ? columns : 1;
  return row == 1 || column == 1;
}

/// Whether matrices of these rows and columns lie in memory as a library wants
/// them.
bool Converter::setStrides(Gemm &gemm) {
  gemm.m = rows.extent;
  gemm.n = columns.extent;
  gemm.k = summed.extent;
  // One row lies as if others followed it.
  gemm.cRow = rows.innermost ? c[rows.innermost] : columns.extent;
  return setPair(gemm.aRow, gemm.aColumn, a[rows.innermost],
                 a[summed.innermost], gemm.m, gemm.k) &&
         setPair(gemm.bRow, gemm.bColumn, b[summed.innermost],
                 b[columns.innermost], gemm.k, gemm.n) &&
         (!columns.innermost || c[columns.innermost] == 1);
}

/// Sets rows and summed letters to the first of those given, and `gemm` to
/// their strides, with which the matrices lie as a library wants them.
bool Converter::pick(Gemm &gemm, ArrayRef<Group> allRows,
                     ArrayRef<Group> allSummed) {
  for (const Group &someRows : allRows)
    for (const Group &someSummed : allSummed) {
      rows = someRows;
      summed = someSummed;
      if (setStrides(gemm))
        return true;
    }
  return false;
}

/// The matrices, and the batch around them. Where a batch letter is innermost,
/// as in "bsh,h->bsh", a matrix has no dimension of stride 1: the columns
/// become a part of the batch, and where that is not enough the rows as well.
/// What is left then, a row times a column, always has one.
Gemm Converter::makeGemm() {
  std::string rowLetters = common(result, left, right);
  std::string columnLetters = common(result, right, left);
  SmallVector<Group> allRows = collapseAll(rowLetters, c, a);
  SmallVector<Group> allSummed = collapseAll(common(left, right, result), a, b);
  // Of the result only the innermost letter can have a stride of 1.
  if (!columnLetters.empty())
    columns = collapse(columnLetters, columnLetters.size() - 1, c, b);
  Gemm gemm;
  // Columns are given up first: a GEMM of one column still reads whole rows of
  // its left operand.
  if (!pick(gemm, allRows, allSummed)) {
    columns = Group();
    columns.outer = columnLetters;
    Group none;
    none.outer = rowLetters;
    allRows.push_back(none);
    (void)pick(gemm, allRows, allSummed);
  }
  // In the order of the result, whose batch dimensions then lie around each
  // other as far as they can.
  std::string batch;
  for (char letter : common(result, left))
    if (right.contains(letter))
      batch += letter;
  addBatch(gemm, batch + rows.outer + columns.outer);
  return gemm;
}

/// Returns what the plan computes with: bf16 or, for all others, f32.
static Type getArithmeticType(Value value) {
  Type type = getElementTypeOrSelf(value);
  return type.isBF16() ? type : Float32Type::get(type.getContext());
}

static SmallVector<int64_t> join(std::initializer_list<int64_t> matrix,
                                 ArrayRef<int64_t> batch) {
  SmallVector<int64_t> all(matrix);
  all.append(batch.begin(), batch.end());
  return all;
}

/// The part of an operand that begins `offset` elements further on and ends
/// with the last element of the strided box.
static MemoryAttr getPart(MemoryAttr memory, int64_t offset,
                          ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides,
                          Type type) {
  int64_t unit = type.getIntOrFloatBitWidth() / 8;
  return memory.getPart(offset * unit, countSpan(sizes, strides) * unit);
}

/// 1. Sorts the letters into rows, columns and summed ones, each joined as far
///    as both of its tensors allow.
/// 2. Finds the matrices and the batch around them.
/// 3. Writes a GEMM for every value of the summed letters that could not be
///    joined, the first with `accumulate`.
SmallVector<GemmOp> Converter::run(OpBuilder &builder, Location loc,
                                   MemoryAttr lhs, MemoryAttr rhs,
                                   MemoryAttr out, Accumulate accumulate) {
  // 1. and 2. Sizes before addresses: all GEMMs of a contraction are the same
  // but for where their operands begin.
  Gemm gemm = makeGemm();
  Type type = getArithmeticType(op->getOperand(0));
  Type resultType = getArithmeticType(op->getResult(0));
  auto aStrides = join({gemm.aRow, gemm.aColumn}, gemm.aBatch);
  auto bStrides = join({gemm.bRow, gemm.bColumn}, gemm.bBatch);
  auto cSizes = join({gemm.m, gemm.n}, gemm.batch);
  MemoryAttr written =
      getPart(out, 0, cSizes, join({gemm.cRow, 1}, gemm.cBatch), resultType);

  // 3. The first begins the sum, as the op is told to; all others add to it.
  // One GEMM for every value of the outer summed letters.
  SmallVector<GemmOp> gemms;
  int64_t count = 1;
  for (char letter : summed.outer)
    count *= op.getExtent(letter);
  for (int64_t index = 0; index < count; ++index) {
    // The index in mixed radix, the last letter fastest: GEMMs walk through
    // memory in order.
    int64_t rest = index, aOffset = 0, bOffset = 0;
    for (char letter : llvm::reverse(summed.outer)) {
      aOffset += rest % op.getExtent(letter) * a[letter];
      bOffset += rest % op.getExtent(letter) * b[letter];
      rest /= op.getExtent(letter);
    }
    gemms.push_back(GemmOp::create(
        builder, loc, gemm.m, gemm.n, gemm.k,
        gemm.batch.empty() ? DenseI64ArrayAttr()
                           : builder.getDenseI64ArrayAttr(gemm.batch),
        type,
        getPart(lhs, aOffset, join({gemm.m, gemm.k}, gemm.batch), aStrides,
                type),
        aStrides,
        getPart(rhs, bOffset, join({gemm.k, gemm.n}, gemm.batch), bStrides,
                type),
        bStrides, written, join({gemm.cRow}, gemm.cBatch), resultType,
        index == 0 ? accumulate : Accumulate::Add, Epilogue::None,
        /*bias=*/MemoryAttr(), /*gelu_input=*/MemoryAttr()));
  }
  return gemms;
}

SmallVector<GemmOp> plait::createGemms(OpBuilder &builder, Location loc,
                                       ContractionOpInterface op,
                                       MemoryAttr lhs, MemoryAttr rhs,
                                       MemoryAttr result,
                                       Accumulate accumulate) {
  // The result's innermost letter (of those longer than 1) must be a column:
  // exchange the operands if only the left one has it.
  bool swapped = false;
  for (char letter : llvm::reverse(op.getResultLetters()))
    if (op.getExtent(letter) > 1) {
      swapped = !op.getRhsLetters().contains(letter);
      break;
    }
  if (swapped)
    std::swap(lhs, rhs);
  return Converter(op, swapped).run(builder, loc, lhs, rhs, result, accumulate);
}
