//===- NNContractions.cpp - Verification of contractions ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A contraction names its dimensions by letters, as einsum does: letters of
// both operands that the result lacks are summed over. Verifiers of nn.matmul
// and nn.fused_matmul, which share (C1) to (C3), and what passes ask of either:
// its shape as work, and whether it is one matmul of two matrices, which is
// what a library can extend by an epilogue.
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// Letters are checked tensor by tensor, in the order of the spec, so that the
/// message names the first that is wrong.
LogicalResult nn::verifyLetters(ContractionOpInterface op) {
  std::tuple<StringRef, Value, const char *> tensors[] = {
      {op.getLhsLetters(), op->getOperand(0), "the first operand"},
      {op.getRhsLetters(), op->getOperand(1), "the second operand"},
      {op.getResultLetters(), op->getResult(0), "the result"}};
  for (auto [letters, value, name] : tensors) {
    // (C1)
    if (letters.size() != shapeOf(value).size())
      return op->emitOpError("spec \"")
             << op.getSpec() << "\" gives " << name << " " << letters.size()
             << " dimensions, but it has " << shapeOf(value).size();
    llvm::SmallDenseSet<char> seen;
    for (auto [index, letter] : llvm::enumerate(letters)) {
      if (letter < 'a' || letter > 'z' || !seen.insert(letter).second)
        return op->emitOpError("spec \"")
               << op.getSpec() << "\" has '" << letter
               << "' twice in one tensor, or it is no letter";
      // (C2)
      if (shapeOf(value)[index] != op.getExtent(letter))
        return op->emitOpError("has extents ")
               << op.getExtent(letter) << " and " << shapeOf(value)[index]
               << " for '" << letter << "'";
    }
  }
  return success();
}

LogicalResult nn::verifyContraction(ContractionOpInterface op) {
  if (failed(verifyLetters(op)))
    return failure();
  // In order of appearance: of several errors the same one is reported in every
  // run.
  llvm::MapVector<char, int> uses;
  for (StringRef letters :
       {op.getLhsLetters(), op.getRhsLetters(), op.getResultLetters()})
    for (char letter : letters)
      ++uses[letter];
  // (C3)
  // A letter of one operand alone would be a sum over that operand, which is
  // nn.reduce.
  for (auto [letter, count] : uses)
    if (count < 2)
      return op->emitOpError("has '") << letter << "' in one tensor only";
  return success();
}

/// Dimensions of extent 1 lie anywhere without moving an element, and are left
/// out first. What is left has to be rows and columns in the result, in this
/// order, and both operands have to be matrices of two of the three groups as
/// they stand in memory; transposed is fine, interleaved is not.
std::optional<PlainMatmul> nn::getPlainMatmul(ContractionOpInterface op) {
  // By name: whatever its extents, which rows count is said by its ids.
  if (isa<GroupedMatmulOp>(op.getOperation()))
    return std::nullopt;
  auto longer = [&](StringRef letters) {
    std::string kept;
    for (char letter : letters)
      if (op.getExtent(letter) > 1)
        kept += letter;
    return kept;
  };
  std::string lhs = longer(op.getLhsLetters());
  std::string rhs = longer(op.getRhsLetters());
  std::string result = longer(op.getResultLetters());
  PlainMatmul matmul;
  for (char letter : result)
    (StringRef(rhs).contains(letter) ? matmul.columns : matmul.rows) += letter;
  for (char letter : lhs)
    if (!StringRef(result).contains(letter))
      matmul.summed += letter;
  // Without rows it is still a matmul, of one row; without columns or a sum a
  // library has nothing to do.
  const auto &[rows, columns, summed] = matmul;
  bool plain = !columns.empty() && !summed.empty() &&
               result == rows + columns &&
               (lhs == rows + summed || lhs == summed + rows) &&
               (rhs == summed + columns || rhs == columns + summed);
  return plain ? std::optional(matmul) : std::nullopt;
}

/// Each letter counts once, for the group that it is of: extents of a group are
/// multiplied.
static WorkShape findWorkShape(ContractionOpInterface op) {
  WorkShape shape;
  shape.kind = WorkShape::Contraction;
  llvm::SmallDenseSet<char> seen;
  StringRef lhs = op.getLhsLetters(), rhs = op.getRhsLetters();
  for (char letter : (lhs + rhs).str()) {
    if (!seen.insert(letter).second)
      continue;
    int64_t &extent = !op.getResultLetters().contains(letter) ? shape.k
                      : !rhs.contains(letter)                 ? shape.m
                      : !lhs.contains(letter)                 ? shape.n
                                                              : shape.batch;
    extent *= op.getExtent(letter);
  }
  return shape;
}

static int64_t countFlops(ContractionOpInterface op) {
  WorkShape shape = findWorkShape(op);
  return 2 * shape.batch * shape.m * shape.n * shape.k;
}

WorkShape MatmulOp::getWorkShape() { return findWorkShape(*this); }
int64_t MatmulOp::getFlops() { return countFlops(*this); }
WorkShape FusedMatmulOp::getWorkShape() { return findWorkShape(*this); }
int64_t FusedMatmulOp::getFlops() { return countFlops(*this); }

bool nn::isFusable(ContractionOpInterface op) {
  return getElementTypeOrSelf(op->getOperand(0)) ==
             getElementTypeOrSelf(op->getResult(0)) &&
         getPlainMatmul(op);
}

/// (C7)
static LogicalResult verifyBias(FusedMatmulOp op, const PlainMatmul &matmul) {
  Value bias = op.getBias();
  int64_t columns = 1;
  for (char letter : matmul.columns)
    columns *= op.getExtent(letter);
  ArrayRef<int64_t> shape = shapeOf(bias), result = shapeOf(op.getResult());
  // The bias has the last dimensions of the result, those of the columns: a
  // library adds it along the rows of memory.
  if (shape.size() <= result.size() &&
      result.take_back(shape.size()) == shape &&
      ShapedType::getNumElements(shape) == columns &&
      getElementTypeOrSelf(bias) == getElementTypeOrSelf(op.getResult()))
    return success();
  return op.emitOpError("has bias ")
         << bias.getType() << " for a result " << op.getResult().getType()
         << " with " << columns << " columns";
}

/// (C8)
static LogicalResult verifyTypes(FusedMatmulOp op) {
  if (op.getPreactivation() && !op.getGelu())
    return op.emitOpError("has a second result without gelu");
  if (op.getAddend() && op.getAddend().getType() != op.getResult().getType())
    return op.emitOpError("adds to ")
           << op.getAddend().getType() << ", but has a result "
           << op.getResult().getType();
  for (Value value : {Value(op.getPreactivation()), Value(op.getGeluInput())})
    if (value && value.getType() != op.getResult().getType())
      return op.emitOpError("takes GELU of ")
             << value.getType() << ", but has a result "
             << op.getResult().getType();
  return success();
}

LogicalResult FusedMatmulOp::verify() {
  // (C1) to (C3); the operands' types are those of (C4)
  if (failed(verifyContraction(*this)))
    return failure();
  // (C5)
  std::optional<PlainMatmul> matmul = getPlainMatmul(*this);
  if (!matmul)
    return emitOpError("has spec \"")
           << getSpec() << "\", which is not one matmul of two matrices";
  // (C6)
  // What libraries have: bias and GELU may come together, each of the others
  // alone.
  int kinds = (getBias() || getGelu()) + (getGeluInput() != nullptr) +
              (getAddend() != nullptr);
  if (kinds != 1)
    return emitOpError("expected bias or gelu, or one of gelu_grad and add and "
                       "neither of them");
  if (getBias() && failed(verifyBias(*this, *matmul)))
    return failure();
  return verifyTypes(*this);
}
