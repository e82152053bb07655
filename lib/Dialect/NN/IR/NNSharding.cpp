//===- NNSharding.cpp - Factor rules and costs of nn ops --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rule of an op lists its factors and, for each dimension of operands and
// results, the factor it runs along (FactorRule.h). The partitioner knows
// nothing else of an op, and the verifier of shardings holds types against the
// same rule. Rules are made anew from the op's present types whenever they are
// asked for: they are cheap, and types change.
//
// Ops whose arithmetic takes an index of the whole tensor are told by
// localizeFactor() where a rank's block begins. Costs count a multiply-add as
// two operations.
//
//===----------------------------------------------------------------------===//

#include "Constraints.h"
#include "LetterRule.h"
#include "plait/Dialect/NN/IR/NN.h"

#include <array>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// Adds a factor for each dimension of `shape`, parallel but for the dimension
/// `whole`, and returns them.
static FactorRule::DimFactors addDims(FactorRule &rule, ArrayRef<int64_t> shape,
                                      int64_t whole = -1) {
  FactorRule::DimFactors dims;
  for (auto [index, extent] : llvm::enumerate(shape)) {
    bool isWhole = static_cast<int64_t>(index) == whole;
    dims.push_back(rule.add("d" + std::to_string(index),
                            isWhole ? FactorKind::Whole : FactorKind::Parallel,
                            extent));
  }
  return dims;
}

/// All operands have the shape of the result, and one factor per dimension.
FactorRule nn::elementwiseRule(Operation *op) {
  FactorRule rule;
  FactorRule::DimFactors dims = addDims(rule, shapeOf(op->getResult(0)));
  rule.operands.assign(op->getNumOperands(), dims);
  rule.results = {dims};
  return rule;
}

FactorRule nn::getLetterRule(ContractionOpInterface op,
                             ArrayRef<StringRef> operands) {
  FactorRule rule;
  StringRef result = op.getResultLetters();
  std::array<int, 256> factors; // by letter
  factors.fill(FactorRule::kNone);
  auto dimsOf = [&](StringRef letters) {
    FactorRule::DimFactors dims;
    for (char letter : letters) {
      int &factor = factors[static_cast<unsigned char>(letter)];
      if (factor == FactorRule::kNone)
        factor = rule.add(std::string(1, letter),
                          result.contains(letter) ? FactorKind::Parallel
                                                  : FactorKind::Sum,
                          op.getExtent(letter));
      dims.push_back(factor);
    }
    return dims;
  };
  for (StringRef letters : operands)
    rule.operands.push_back(dimsOf(letters));
  rule.results.push_back(dimsOf(result));
  return rule;
}

FactorRule MatmulOp::getFactorRule() {
  return getLetterRule(*this, {getLhsLetters(), getRhsLetters()});
}

/// The factors of a table lookup: v rows of h elements; ids index the rows.
static FactorRule lookupRule(Value table, Value ids, FactorKind rowKind,
                             FactorKind idKind) {
  FactorRule rule;
  int v = rule.add("row", rowKind, shapeOf(table)[0]);
  rule.factors[v].inOrder = rule.factors[v].isCounted = true; // by the ids
  int h = rule.add("column", FactorKind::Parallel, shapeOf(table)[1]);
  FactorRule::DimFactors idDims = addDims(rule, shapeOf(ids));
  for (int dim : idDims)
    rule.factors[dim].kind = idKind;
  FactorRule::DimFactors rowDims(idDims);
  rowDims.push_back(h);
  rule.operands = {{v, h}, idDims};
  rule.results = {rowDims};
  return rule;
}

/// A rank that has some rows of the table gives zeros for ids of other rows:
/// the sum over ranks is the lookup.
FactorRule EmbeddingOp::getFactorRule() {
  return lookupRule(getTable(), getIds(), FactorKind::Sum,
                    FactorKind::Parallel);
}

/// Backward the kinds change places: each row belongs to one rank, and ids on
/// different ranks add to the same rows. The first operand is what comes from
/// the result of the lookup, and the result has the shape of the table.
FactorRule EmbeddingGradOp::getFactorRule() {
  FactorRule rule =
      lookupRule(getResult(), getIds(), FactorKind::Parallel, FactorKind::Sum);
  std::swap(rule.operands[0], rule.results[0]);
  return rule;
}

/// Tells a lookup which rows of the table the rank has.
template <typename OpTy>
static void localizeRows(OpTy op, ArrayRef<RankTerm> begin, int64_t limit) {
  op.setBeginAttr(BeginAttr::get(op.getContext(), begin));
  op.setLimit(limit);
}

// Factor 0 is the rows, which lookupRule adds first.
void EmbeddingOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                                 int64_t limit) {
  if (factor == 0)
    localizeRows(*this, begin, limit);
}

void EmbeddingGradOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                                     int64_t limit) {
  if (factor == 0)
    localizeRows(*this, begin, limit);
}

/// A row is normalised by its own mean and variance, so the last dimension
/// stays whole; the two other results are of rows.
FactorRule LayerNormOp::getFactorRule() {
  FactorRule rule;
  ArrayRef<int64_t> shape = shapeOf(getInput());
  FactorRule::DimFactors dims = addDims(rule, shape, shape.size() - 1);
  FactorRule::DimFactors rows(ArrayRef(dims).drop_back());
  rule.operands = {dims, {dims.back()}, {dims.back()}};
  rule.results = {dims, rows, rows};
  return rule;
}

/// The rule is that of layer normalisation, without a mean.
FactorRule RMSNormOp::getFactorRule() {
  FactorRule rule;
  ArrayRef<int64_t> shape = shapeOf(getInput());
  FactorRule::DimFactors dims = addDims(rule, shape, shape.size() - 1);
  FactorRule::DimFactors rows(ArrayRef(dims).drop_back());
  rule.operands = {dims, {dims.back()}};
  rule.results = {dims, rows};
  return rule;
}

/// Pairs of elements along the last dimension are turned by an angle that
/// follows from the position, dimension 1, which may be split: see
/// localizeFactor().
FactorRule RopeOp::getFactorRule() {
  FactorRule rule;
  ArrayRef<int64_t> shape = shapeOf(getInput());
  FactorRule::DimFactors dims = addDims(rule, shape, shape.size() - 1);
  rule.factors[dims[1]].isCounted = true;
  rule.operands = {dims};
  rule.results = {dims};
  return rule;
}

void RopeOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                            int64_t limit) {
  localizePositions(*this, factor, begin, limit);
}

void RopeOp::orderFactor(int factor, ChunkOrder order) {
  orderPositions(*this, factor, order);
}

/// The operand and the result do not move together: they lie differently, and
/// both are whole.
FactorRule ReorderOp::getFactorRule() {
  FactorRule rule;
  FactorRule::DimFactors dims = addDims(rule, shapeOf(getResult()), getDim());
  rule.results = {dims};
  dims[getDim()] = rule.add("input", FactorKind::Whole, getOrder().extent);
  rule.operands = {dims};
  return rule;
}

bool ReorderOp::isLinear() { return true; }
int64_t ReorderOp::getFlops() { return 0; }

FactorRule GeluOp::getFactorRule() { return elementwiseRule(*this); }
FactorRule SiluOp::getFactorRule() { return elementwiseRule(*this); }
FactorRule GeluGradOp::getFactorRule() { return elementwiseRule(*this); }
FactorRule CastOp::getFactorRule() { return elementwiseRule(*this); }
/// But for the rounding of each part to bf16, which a collective does as well.
bool CastOp::isLinear() { return true; }
int64_t CastOp::getFlops() { return 0; }
FactorRule EqualOp::getFactorRule() { return elementwiseRule(*this); }
FactorRule GreaterOp::getFactorRule() { return elementwiseRule(*this); }
FactorRule ConvertOp::getFactorRule() { return elementwiseRule(*this); }
FactorRule FillOp::getFactorRule() { return elementwiseRule(*this); }
// Zeros are zeros as a partial sum, too.
bool FillOp::isLinear() { return getAmount().isZero(); }
FactorRule IotaOp::getFactorRule() {
  FactorRule rule = elementwiseRule(*this);
  rule.factors[getAlong()].isCounted = true;
  return rule;
}
FactorRule ValidOp::getFactorRule() { return elementwiseRule(*this); }

/// A rank counts from where its block begins.
void IotaOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                            int64_t limit) {
  if (factor == static_cast<int>(getAlong()))
    setBeginAttr(localize(getBeginAttr(), getContext(), begin, limit));
}

void IotaOp::orderFactor(int factor, ChunkOrder order) {
  if (factor == static_cast<int>(getAlong()))
    setBeginAttr(BeginAttr::get(getContext(), order));
}

/// The dimensions that the input lacks are factors of the result alone.
FactorRule BroadcastOp::getFactorRule() {
  FactorRule rule;
  FactorRule::DimFactors dims = addDims(rule, shapeOf(getResult()));
  FactorRule::DimFactors input;
  for (int64_t dim : getDims())
    input.push_back(dims[dim]);
  rule.operands = {input};
  rule.results = {dims};
  return rule;
}

/// A reduced dimension may be split: ranks then hold partial sums or maxima.
FactorRule ReduceOp::getFactorRule() {
  FactorRule rule;
  FactorRule::DimFactors dims = addDims(rule, shapeOf(getInput()));
  FactorRule::DimFactors kept;
  for (auto [index, factor] : llvm::enumerate(dims)) {
    if (!llvm::is_contained(getDims(), static_cast<int64_t>(index)))
      kept.push_back(factor);
    else
      rule.factors[factor].kind =
          getKind() == ReduceKind::Sum ? FactorKind::Sum : FactorKind::Max;
  }
  rule.operands = {dims};
  rule.results = {kept};
  return rule;
}

int64_t ReduceOp::getFlops() { return getInput().getType().getNumElements(); }

/// Indices count in the last dimension of the input, which they lack.
FactorRule PickOp::getFactorRule() {
  FactorRule rule;
  FactorRule::DimFactors dims = addDims(rule, shapeOf(getInput()));
  Factor &columns = rule.factors[dims.back()];
  columns.inOrder = columns.isCounted = true;
  rule.operands = {dims, FactorRule::DimFactors(ArrayRef(dims).drop_back())};
  rule.results = {dims};
  return rule;
}

/// The one of the ranks that split the row which has the index keeps its
/// element; all others have zeros.
void PickOp::localizeFactor(int factor, ArrayRef<RankTerm> begin,
                            int64_t limit) {
  if (factor == static_cast<int>(shapeOf(getInput()).size()) - 1)
    setBeginAttr(BeginAttr::get(getContext(), begin, limit));
}
