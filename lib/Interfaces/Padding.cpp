//===- Padding.cpp - Values in the padding of results ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One padded factor of one op at a time: given what the operands that run along
// it hold in their padding, what do the results? In the order in which ops are
// asked: fusable ones by the arithmetic they emit and their role, contractions
// as sums of products, named ones through what they decompose into. An op that
// does none of these may leave anything. Nothing is looked up by an op's name,
// so that ops of other dialects have their padding derived as well.
//
//===----------------------------------------------------------------------===//

#include "plait/Interfaces/Padding.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace plait;

using Ranges = SmallVector<NumberRange>;

NumberRange plait::getUnpadded(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type)) ? NumberRange::finite()
                                                    : NumberRange::any();
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

namespace {
/// Emits scalars into a block of its own. What depends on the place of the
/// element is an argument of the block.
class ScratchContext : public ElementContext {
public:
  ScratchContext(OpBuilder &builder, Location loc, Block &block)
      : ElementContext(builder, loc), block(block) {}

  int64_t getLanes() const override { return 1; }
  Value getIndex(int64_t) override {
    return block.addArgument(builder.getI32Type(), loc);
  }
  Value getConstant(Attribute scalar) override {
    return arith::ConstantOp::create(builder, loc, cast<TypedAttr>(scalar));
  }
  Value getRankValue(ArrayRef<RankTerm>) override { return getIndex(0); }
  Value getCallValue() override { return getIndex(0); }

private:
  Block &block;
};
} // namespace

/// Interval arithmetic (Moore 1966) over the arith ops of one element.
NumberRange plait::evaluateElement(FusableOpInterface op,
                                   ArrayRef<NumberRange> operands) {
  // The block and all that is emitted into it goes when the function returns.
  Block block;
  OpBuilder builder(op->getContext());
  builder.setInsertionPointToEnd(&block);
  // Numbers are in f32 between the ops of a kernel, however they are stored.
  for (Value operand : op->getOperands())
    block.addArgument(isa<FloatType>(getElementTypeOrSelf(operand))
                          ? Type(builder.getF32Type())
                          : builder.getI32Type(),
                      op.getLoc());
  llvm::DenseMap<Value, NumberRange> ranges;
  SmallVector<Value> elements(block.getArguments());
  for (auto [element, range] : llvm::zip_equal(elements, operands))
    ranges.insert({element, range});
  // The op emits its arithmetic as it would into a kernel, into a block that
  // nobody runs, and intervals are carried through that: a new op needs no
  // rule here.
  ScratchContext context(builder, op.getLoc(), block);
  Value result = op.emitElement(context, elements);
  auto lookup = [&](Value value) {
    // Indices and what a rank or a call is given are not in the table.
    auto known = ranges.find(value);
    return known == ranges.end() ? NumberRange::any() : known->second;
  };
  for (Operation &emitted : block)
    if (emitted.getNumResults() == 1)
      ranges.insert({emitted.getResult(0),
                     evaluate(&emitted, llvm::map_to_vector(
                                            emitted.getOperands(), lookup))});
  return lookup(result);
}

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

static bool isReduced(const Factor &factor) {
  return factor.kind == FactorKind::Sum || factor.kind == FactorKind::Max;
}

/// Derives what an op reads of `operand` by its index map: it needs the map's
/// dimension whole, so padding is along others, where it stays in its place.
static NumberRange deriveRead(FusableOpInterface op,
                              const NumberRange &operand) {
  IndexMap map = op.getIndexMap();
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  // An index map reads one of several pieces: the result may be any of them.
  std::optional<NumberRange> read;
  auto add = [&](const NumberRange &range) {
    read = read ? read->join(range) : range;
  };
  for (const IndexMap::Piece &piece : map.pieces)
    add(piece.negated ? -operand : operand);
  // Beyond the operand, kernels read zeros.
  if (!map.covers(type.getDimSize(map.dim)))
    add(NumberRange::exactly(0));
  return *read;
}

/// Derives the padding of a fusable op. `reduced`: along the factor in
/// question.
static NumberRange deriveByRole(FusableOpInterface op, bool reduced, bool isRow,
                                ArrayRef<NumberRange> operands) {
  switch (op.getFusionRole()) {
  case FusionRole::Elementwise:
  case FusionRole::Broadcast:
  case FusionRole::ReduceMax:
    return evaluateElement(op, operands);
  case FusionRole::Reindex: {
    Ranges read(operands);
    read[0] = deriveRead(op, operands[0]);
    return evaluateElement(op, read);
  }
  // Along the padded factor each element adds what it is; along others the sum
  // of padding is a sum of such elements.
  case FusionRole::ReduceSum: {
    NumberRange summand = evaluateElement(op, operands);
    return reduced ? summand : summand.sum();
  }
  case FusionRole::Gather:
    // Padding rows are fetched by no id but those that the table does not have,
    // if at all.
    return operands[0].join(NumberRange::exactly(0));
  case FusionRole::ScatterAdd:
    // No id names a row of padding.
    if (isRow)
      return NumberRange::exactly(0);
    return reduced ? operands[0]
                   : operands[0].sum().join(NumberRange::exactly(0));
  case FusionRole::Rows:
    return NumberRange::any();
  }
  llvm_unreachable("unknown role");
}

/// Each element is a sum of products over dimensions which padding does not
/// reach, unless it is the summed factor itself: then a product is what padding
/// adds.
///
/// Integers select which matrices meet: a product counts, or does not.
static Ranges deriveContraction(ContractionOpInterface op, bool reduced,
                                ArrayRef<NumberRange> operands) {
  NumberRange product = operands[0] * operands[1];
  bool selects = llvm::any_of(op->getOperandTypes(), [](Type type) {
    return getElementTypeOrSelf(type).isInteger();
  });
  if (selects)
    product = product.join(NumberRange::exactly(0));
  return {reduced ? product : product.sum()};
}

//===----------------------------------------------------------------------===//
// Decompositions
//===----------------------------------------------------------------------===//

namespace {
/// Follows one padded factor through the ops that an op decomposes into.
class PartsWalker {
public:
  /// The numbers that one dimension of a value, or none (-1), has in its
  /// padding.
  struct Known {
    int64_t dim;
    NumberRange range;
  };

  PartsWalker(Operation *op, const FactorRule &rule, int factor)
      : op(op), rule(rule), factor(factor) {}

  Ranges run(ArrayRef<NumberRange> operands);

private:
  bool visit(Operation *part);
  /// A value that was not noted does not run along the factor: its elements are
  /// no padding.
  Known lookup(Value value) {
    auto known = values.find(value);
    return known == values.end() ? Known{-1, getUnpadded(value.getType())}
                                 : known->second;
  }

  Operation *op;
  const FactorRule &rule;
  int factor;
  llvm::DenseMap<Value, Known> values;
};
} // namespace

static int64_t findDim(const FactorRule::DimFactors &dims, int factor) {
  const int *found = llvm::find(dims, factor);
  return found == dims.end() ? -1 : found - dims.begin();
}

static Type withoutEncoding(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType());
}

/// Notes what `part` makes of the factor; false if it reduces it, or if its
/// operands run along it in different ways.
bool PartsWalker::visit(Operation *part) {
  SmallVector<Known> known = llvm::map_to_vector(
      part->getOperands(), [&](Value value) { return lookup(value); });
  Ranges ranges = llvm::map_to_vector(
      known, [](const Known &operand) { return operand.range; });
  auto own = dyn_cast<ShardableOpInterface>(part);
  auto fusable = dyn_cast<FusableOpInterface>(part);
  // An op without a rule cannot be sharded, and appears only in decompositions
  // that run late.
  if (!own) {
    // The factor runs along the same dimension of all tensors: a whole
    // dimension is what such ops mix up.
    int64_t dim = -1;
    for (const Known &operand : known)
      dim = std::max(dim, operand.dim);
    if (fusable)
      values[part->getResult(0)] = {
          dim, deriveByRole(fusable, false, false, ranges)};
    return fusable || dim < 0;
  }
  FactorRule partRule = own.getFactorRule();
  int along = FactorRule::kNone;
  for (auto [index, operand] : llvm::enumerate(known)) {
    if (operand.dim < 0)
      continue;
    int found = partRule.operands[index][operand.dim];
    if (found == FactorRule::kNone || (along >= 0 && along != found))
      return false;
    along = found;
  }
  // A part that reduces the factor would need masks of its own: the op as a
  // whole cannot be derived.
  if (along >= 0 && isReduced(partRule.factors[along]))
    return false;
  Ranges results = derivePadding(own, along, ranges);
  for (auto [result, range, dims] :
       llvm::zip_equal(part->getResults(), results, partRule.results))
    values[result] = {along < 0 ? -1 : findDim(dims, along), range};
  return true;
}

/// Decomposes a copy in a block that nobody runs, with plain types, and walks
/// the parts in order. All results are unknown if one part is.
Ranges PartsWalker::run(ArrayRef<NumberRange> operands) {
  Ranges unknown(op->getNumResults(), NumberRange::any());
  Block block;
  IRMapping arguments;
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    Value argument =
        block.addArgument(withoutEncoding(operand.getType()), op->getLoc());
    arguments.map(operand, argument);
    values[argument] = {findDim(rule.operands[index], factor), operands[index]};
  }
  OpBuilder builder(op->getContext());
  builder.setInsertionPointToEnd(&block);
  Operation *copy = builder.clone(*op, arguments);
  for (Value result : copy->getResults())
    result.setType(withoutEncoding(result.getType()));
  SmallVector<Value> parts =
      cast<DecomposableOpInterface>(copy).decompose(builder);
  for (Operation &part : block)
    if (&part != copy && !visit(&part))
      return unknown;
  Ranges results;
  // A result has to run along the factor where the op's rule says that it does.
  for (auto [value, dims] : llvm::zip_equal(parts, rule.results)) {
    Known known = lookup(value);
    results.push_back(known.dim == findDim(dims, factor) ? known.range
                                                         : NumberRange::any());
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

static Ranges derive(ShardableOpInterface op, int factor,
                     ArrayRef<NumberRange> operands) {
  FactorRule rule = op.getFactorRule();
  bool reduced = factor >= 0 && isReduced(rule.factors[factor]);
  if (auto fusable = dyn_cast<FusableOpInterface>(op.getOperation())) {
    // Rows of a table do not run along any dimension of what is looked up.
    bool isRow = factor >= 0 && !reduced &&
                 llvm::none_of(rule.operands, [&](const auto &dims) {
                   return llvm::is_contained(dims, factor);
                 });
    return {deriveByRole(fusable, reduced, isRow, operands)};
  }
  auto contraction = dyn_cast<ContractionOpInterface>(op.getOperation());
  auto isFloat = [](Value operand) {
    return isa<FloatType>(getElementTypeOrSelf(operand));
  };
  // What is fused to a contraction changes the product.
  if (contraction && llvm::count_if(op->getOperands(), isFloat) == 2 &&
      op->getNumResults() == 1)
    return deriveContraction(contraction, reduced, operands);
  if (isa<DecomposableOpInterface>(op.getOperation()))
    return PartsWalker(op, rule, factor).run(operands);
  return Ranges(op->getNumResults(), NumberRange::any());
}

/// Results in bf16 may have been rounded where they are stored, or be used in a
/// register before.
Ranges plait::derivePadding(ShardableOpInterface op, int factor,
                            ArrayRef<NumberRange> operands) {
  Ranges ranges = derive(op, factor, operands);
  for (auto [result, range] : llvm::zip_equal(op->getResults(), ranges))
    if (getElementTypeOrSelf(result).isBF16())
      range = range.maybeRounded();
  return ranges;
}
