//===- RulesContraction.cpp - Rules of products and named ops ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matmuls, as einsum contractions, those that take a matrix for each row, and
// the two ways in which an op is judged by other ops: a fused matmul by the ops
// that define it, and an op without a rule by what it decomposes into. A
// contraction asks of each letter that all operands which have it have the same
// slice. A letter of the result keeps its slice; a reduced one makes the result
// partial over the axes of its slice. Padding of a reduced letter must multiply
// to zero. Factors of equal numbers along a reduced letter count as often as
// there are elements.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "mlir/IR/IRMapping.h"
#include "plait/Interfaces/Padding.h"
#include "llvm/ADT/MapVector.h"

#include <deque>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

namespace {
/// What the operands of a contraction have along each of its letters.
struct Contraction {
  struct Letter {
    /// In the term: the result's letters come first, in its order, then those
    /// that are reduced, as they are met.
    int number = 0;
    bool isReduced = false;
    bool isPadded = false;
    int64_t extent = 0; // of a rank
    Dimension dim;      // uniform: neither operand has it
  };

  Contraction(ArrayRef<StringRef> letters, StringRef result)
      : letters(letters), result(result) {
    for (auto [index, letter] : llvm::enumerate(result))
      table[letter].number = index;
  }
  /// References stay valid only until the next call.
  Letter &add(char letter) {
    auto [it, isNew] = table.insert({letter, Letter()});
    if (isNew) {
      it->second.number = table.size() - 1;
      it->second.isReduced = true;
    }
    return it->second;
  }
  /// What the operand of number `side` has beyond the end of a padded
  /// dimension; one that fits all, what any element may be.
  NumberRange getPadding(const Content &operand, size_t side,
                         char letter) const {
    size_t index = letters[side].find(letter);
    if (index == StringRef::npos || operand.form.dims[index].fitsAll())
      return getUniform(operand);
    return operand.form.dims[index].padding;
  }
  /// The product of all of these.
  NumberRange getPadding(Operands operands, char letter) const {
    NumberRange product = NumberRange::exactly(1);
    for (auto [side, operand] : llvm::enumerate(operands))
      product = product * getPadding(operand, side, letter);
    return product;
  }

  SmallVector<StringRef, 3> letters; // of each operand
  StringRef result;
  llvm::MapVector<char, Letter> table; // those of the result first, in order
};
} // namespace

/// Fills the table from all operands, and refuses letters in which they differ.
static LogicalResult collect(Rules &rules, Operation *op, Operands operands,
                             Contraction &contraction) {
  for (auto [side, operand] : llvm::enumerate(operands))
    for (auto [index, letter] : llvm::enumerate(contraction.letters[side])) {
      Contraction::Letter &own = contraction.add(letter);
      const Dimension &dim = operand.form.dims[index];
      own.extent = operand.type.getDimSize(index);
      if (dim.fitsAll())
        continue;
      if (!own.dim.join(dim, operand.form.getExtent(index)))
        return rules.wrong(op)
               << "multiplies " << print(operands[0]) << " with "
               << print(operands[1]) << ", which differ in '" << letter << "'";
      own.isPadded = isPadded(operand.form, index, own.extent, rules.mesh);
    }
  return success();
}

/// Sums over the letters that the result does not have. Returns how often equal
/// products are added up.
///
/// For each letter:
/// 1. Equal products of a reduced letter are counted instead of summed: no term
///    has that dimension.
/// 2. What lies in the padding is the sum of products of both paddings.
/// 3. A letter of the result keeps its dimension.
/// 4. Of a reduced letter padding has to be zero, and its axes become partial.
static FailureOr<double> contract(Rules &rules, Operation *op,
                                  Operands operands, Contraction &contraction,
                                  Form &form) {
  double repeated = 1;
  form.dims.resize(contraction.result.size());
  for (auto &[letter, own] : contraction.table) {
    // 1. Repeated.
    if (own.isReduced)
      repeated *= own.dim.countEqual(own.extent);
    // 2. Padding.
    if (own.isPadded)
      own.dim.padding = contraction.getPadding(operands, letter).sum();
    // 3. Kept.
    if (!own.isReduced) {
      form.dims[own.number] = own.dim;
      continue;
    }
    // 4. Reduced.
    if (own.isPadded && !own.dim.padding.is(0)) {
      rules.taken(op, own.dim.padding, 0)
          << "sums over the padding of '" << letter << "' in "
          << print(operands[0]) << " and " << print(operands[1]);
      return failure();
    }
    if (failed(rules.addPartial(op, form, own.dim, dist::Reduction::Sum)))
      return failure();
  }
  return repeated;
}

/// 1. Collect the letters.
/// 2. A partial operand stays partial, which needs the others whole: (a +
///    b)·c = a·c + b·c, but (a + b)·(c + d) is not a·c + b·d. A maximum is not
///    linear at all.
/// 3. Contract.
/// 4. Make the term, with the letters by their number, and the element type: a
///    contraction into bf16 rounds, and is another one than into f32.
/// A zero product is the term zero, and whole.
static FailureOr<Content> multiply(Rules &rules, Operation *op,
                                   Operands operands, Contraction &contraction,
                                   RankedTensorType type) {
  // 1. Letters.
  if (failed(collect(rules, op, operands, contraction)))
    return failure();
  // 2. What is partial.
  // Linear in one operand while the others are the same on all ranks.
  auto partial = llvm::find_if(
      operands, [](const Content &own) { return own.form.isPartial(); });
  if (partial == operands.end())
    partial = operands.begin();
  Form form;
  form.partial = partial->form.partial;
  form.reduction = partial->form.reduction;
  for (const Content &operand : operands)
    if (&operand != &*partial && partial->form.isPartial() &&
        failed(rules.requireWhole(op, operand)))
      return failure();
  if (form.reduction != dist::Reduction::Sum &&
      failed(rules.requireWhole(op, *partial)))
    return failure();
  // 3. Contract.
  FailureOr<double> repeated = contract(rules, op, operands, contraction, form);
  if (failed(repeated))
    return failure();
  // 4. The term.
  SmallVector<Argument> arguments;
  for (auto [side, operand] : llvm::enumerate(operands)) {
    Argument &argument = arguments.emplace_back(operand.form.asArgument());
    for (int &index : argument.letters)
      index = contraction.table[contraction.letters[side][index]].number;
  }
  Letters present;
  for (auto [index, dim] : llvm::enumerate(form.dims))
    if (!dim.uniform)
      present.push_back(index);
  Expression product = rules.terms.applyLinear(
      "nn.matmul", TypeAttr::get(type.getElementType()), arguments, present);
  form.setTerm(
      rules.terms.sum(Argument{product.term, product.letters, *repeated}));
  simplify(form, type, rules.mesh);
  return Content{type, std::move(form), nullptr};
}

static FailureOr<Content> evaluateMatmul(Rules &rules, Operation *op,
                                         Operands operands,
                                         RankedTensorType type) {
  auto matmul = cast<ContractionOpInterface>(op);
  Contraction contraction({matmul.getLhsLetters(), matmul.getRhsLetters()},
                          matmul.getResultLetters());
  return multiply(rules, op, operands, contraction, type);
}

/// Finds by what rows belong to one rank each, if the op counts a rank's
/// experts.
static std::optional<Owner> findOwner(const Content &ids, const Content &code,
                                      int64_t extent) {
  const Dimension &experts = code.form.dims.back();
  if (experts.begin.empty())
    return std::nullopt;
  Argument argument = ids.form.asArgument();
  return Owner{argument.term, argument.letters, experts.begin, extent};
}

/// Takes `operand` as it is on the rank that has the expert, where that is the
/// one which the op counts; else as a partial sum.
static FailureOr<Content> takeRows(Rules &rules, Operation *op,
                                   const Content &operand,
                                   const std::optional<Owner> &owner) {
  bool isThere =
      owner && operand.form.owner &&
      (operand.form.isDispatched() ? operand.form.owner->covers(*owner)
                                   : operand.form.owner == owner);
  if (!isThere)
    return rules.addOwned(op, operand);
  Content rows = operand;
  rows.form.dropOwner();
  return rows;
}

/// A contraction of three: rows, matrices or other rows, and the one-hot code
/// of the ids, by which each row is of one expert.
///
/// The code counts experts as the op does, so that of matrices that are split
/// each rank has to count from its own ones, and of a gradient it has those
/// which it counts. In which order rows are computed is no part of it. Rows of
/// other ranks' experts meet no matrix: so they may hold anything, and are
/// zeros in the result.
static FailureOr<Content> evaluateGrouped(Rules &rules, Operation *op,
                                          Operands operands,
                                          RankedTensorType type) {
  auto grouped = cast<nn::GroupedMatmulOp>(op);
  const Content &ids = operands[2];
  SmallVector<int64_t> shape(ids.type.getShape());
  shape.push_back(grouped.countExperts());
  FailureOr<Content> code = makeOneHot(
      rules, op, ids, RankedTensorType::get(shape, type.getElementType()),
      grouped.getBegin(), grouped.getLimit(),
      grouped.makesMatrices() ? nullptr : &operands[1], /*classes=*/0);
  if (failed(code))
    return failure();
  std::string letters = grouped.getIdLetters().str();
  letters += grouped.getMatrixLetters().front();
  Contraction contraction(
      {grouped.getLhsLetters(), grouped.getRhsLetters(), letters},
      grouped.getResultLetters());
  std::optional<Owner> owner = findOwner(ids, *code, grouped.countExperts());
  FailureOr<Content> lhs = takeRows(rules, op, operands[0], owner),
                     rhs = takeRows(rules, op, operands[1], owner);
  if (failed(lhs) || failed(rhs))
    return failure();
  const Content *all[] = {&*lhs, &*rhs, &*code};
  FailureOr<Content> result =
      multiply(rules, op, ArrayRef(all), contraction, type);
  if (succeeded(result) && !grouped.makesMatrices() && owner &&
      llvm::all_of(owner->begin, [&](const RankTerm &term) {
        return result->form.isPartialOver(term.axis);
      }))
    result->form.owner = owner;
  return result;
}

//===----------------------------------------------------------------------===//
// Named ops
//===----------------------------------------------------------------------===//

/// Ops that are built to be interpreted, and then forgotten.
namespace {
/// A block outside of any function, with what is known of its values.
class Scratch {
public:
  explicit Scratch(Operation *op) : builder(op->getContext()) {
    builder.setInsertionPointToEnd(&block);
  }
  /// A block argument that stands for `content`, which is kept elsewhere.
  Value add(const Content &content, Location loc) {
    Value value = block.addArgument(content.type, loc);
    contents[value] = &content;
    return value;
  }
  const Content &get(Value value) const { return *contents.lookup(value); }

  Block block;
  OpBuilder builder;
  llvm::DenseMap<Value, const Content *> contents;
  std::deque<Contents> kept; // of ops
};
} // namespace

/// Interprets all ops of `scratch` but `skipped`.
///
/// In the order of the block, with the contents that are known so far.
static LogicalResult interpret(Scratch &scratch, Operation *skipped,
                               Rules &rules) {
  for (Operation &op : scratch.block) {
    if (&op == skipped)
      continue;
    SmallVector<const Content *, 4> operands;
    for (Value operand : op.getOperands())
      operands.push_back(&scratch.get(operand));
    Contents &results = scratch.kept.emplace_back();
    if (failed(rules.evaluate(&op, operands, results)))
      return failure();
    for (auto [value, content] : llvm::zip_equal(op.getResults(), results))
      scratch.contents[value] = &content;
  }
  return success();
}

/// Decomposes a copy, so the module stays as it is. That the decomposition is
/// the op's meaning is not checked here: the claim's ops decompose by the same
/// code. Null values are results that nothing replaces.
LogicalResult Rules::decompose(Operation *op, Operands operands,
                               Contents &results) {
  Scratch scratch(op);
  IRMapping mapping;
  for (auto [value, content] : llvm::zip_equal(op->getOperands(), operands))
    mapping.map(value, scratch.add(content, op->getLoc()));
  Operation *copy = scratch.builder.clone(*op, mapping);
  scratch.builder.setInsertionPoint(copy);
  SmallVector<Value> values =
      cast<DecomposableOpInterface>(copy).decompose(scratch.builder);
  if (failed(interpret(scratch, copy, *this)))
    return failure();
  for (Value value : values)
    results.push_back(value ? scratch.get(value) : Content());
  return success();
}

/// The matmul as any other, then an op for each part of the epilogue, in the
/// order of the op's description: bias, GELU or its gradient, addend. So the
/// result is the same term as that of the ops which were fused, and a partial
/// sum under a GELU is refused.
LogicalResult Rules::evaluateFused(nn::FusedMatmulOp op, Operands operands,
                                   Contents &results) {
  auto type = cast<RankedTensorType>(op.getResult().getType());
  FailureOr<Content> product =
      evaluateMatmul(*this, op, operands.take_front(2), type);
  if (failed(product))
    return failure();
  // The parts of the definition, in its order.
  Scratch scratch(op);
  Location loc = op.getLoc();
  OpBuilder &builder = scratch.builder;
  Value value = scratch.add(*product, loc);
  // A GELU's input and an addend are never given both (C6), so each is the
  // operand that comes next.
  size_t next = 2;
  if (op.getBias()) {
    const Content &bias = operands[next++];
    // The bias has the last dimensions of the result (C7).
    SmallVector<int64_t> dims;
    for (int64_t i = type.getRank() - bias.type.getRank(); i < type.getRank();
         ++i)
      dims.push_back(i);
    Value repeated = nn::BroadcastOp::create(builder, loc, type,
                                             scratch.add(bias, loc), dims);
    value = nn::AddOp::create(builder, loc, type, value, repeated);
  }
  Value preactivation = value;
  if (op.getGelu())
    value = nn::GeluOp::create(builder, loc, type, value, /*approximate=*/true);
  if (op.getGeluInput())
    value = nn::GeluGradOp::create(builder, loc, type, value,
                                   scratch.add(operands[next], loc),
                                   /*approximate=*/true);
  if (op.getAddend())
    value = nn::AddOp::create(builder, loc, type,
                              scratch.add(operands[next], loc), value);
  if (failed(interpret(scratch, nullptr, *this)))
    return failure();
  results.push_back(scratch.get(value));
  if (op.getPreactivation())
    results.push_back(scratch.get(preactivation));
  return success();
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getContractionRules() {
  static const OpRule rules[] = {
      {"nn.matmul", evaluateMatmul},
      {"nn.grouped_matmul", evaluateGrouped, /*takesPacks=*/false,
       /*takesOwned=*/true},
  };
  return rules;
}
