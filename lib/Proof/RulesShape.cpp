//===- RulesShape.cpp - Rules of ops that change shapes ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops that add, remove or permute elements along a dimension. Repetition costs
// no term: a broadcast only marks new dimensions as uniform, and a reduction
// over them multiplies by their extent. The other dimensions of a reduction
// become partial over the axes of their slices, if padding does not count.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// New dimensions are uniform, the others go where the op puts them. Linear, so
/// a partial sum stays one.
static FailureOr<Content> evaluateBroadcast(Rules &rules, Operation *op,
                                            Operands operands,
                                            RankedTensorType type) {
  const Content &input = operands[0];
  if (input.pack)
    return broadcastView(rules, op, input, type);
  Form form = input.form;
  form.dims.assign(type.getRank(), Dimension());
  ArrayRef<int64_t> dims = cast<nn::BroadcastOp>(op).getDims();
  for (auto [index, dim] : llvm::enumerate(dims))
    form.dims[dim] = input.form.dims[index];
  // A term has its dimensions in the form's order.
  if (!llvm::is_sorted(dims)) {
    Argument argument = input.form.asArgument();
    for (int &letter : argument.letters)
      letter = int(dims[letter]);
    form.term = rules.terms.sum(argument).term;
  }
  return Content{type, std::move(form), nullptr};
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Whether padding changes nothing where it is reduced.
///
/// Zero for a sum. For a maximum nothing above minus infinity, and no NaN,
/// which would win.
static bool isNeutral(const NumberRange &padding, nn::ReduceKind kind) {
  return kind == nn::ReduceKind::Sum
             ? padding.is(0)
             : padding.high == -INFINITY && padding.special != NumberRange::NaN;
}

/// The sum over a pack is that of its members. It goes over columns first;
/// in between there is nothing to tell apart.
///
/// 1. Only sums, columns first: that is how the norm of all gradients is
///    computed.
/// 2. A sum over columns alone is noted on the pack, and done with its rows.
/// 3. What lies between members has to be zero, and so has the members' own
///    padding.
/// 4. Each member's sum is partial over the axes of its slices and, of a
///    divided pack, over the axis of the rows: a rank has added up only its
///    own.
static FailureOr<Content> reducePack(Rules &rules, Operation *op,
                                     const Content &input,
                                     RankedTensorType type) {
  auto reduce = cast<nn::ReduceOp>(op);
  const Pack &pack = *input.pack;
  bool columns = llvm::is_contained(reduce.getDims(), 1);
  bool rows = llvm::is_contained(reduce.getDims(), 0);
  // 1. Sums.
  if (reduce.getKind() != nn::ReduceKind::Sum ||
      (!columns && !pack.reducedColumns)) {
    rules.report.unproven(op)
        << "only sums over the columns of a pack, then over "
           "its rows, have a rule";
    return failure();
  }
  // 2. Columns.
  if (columns && !rows) {
    auto reduced = std::make_shared<Pack>(pack);
    reduced->reducedColumns = true;
    return Content{type, {}, std::move(reduced)};
  }
  // 3. Gaps and padding.
  if (!pack.gap.is(0)) {
    rules.wrong(op) << "adds up what lies between the members of "
                    << print(input);
    return failure();
  }
  Contents parts;
  for (const Pack::Member &member : pack.members) {
    for (int64_t dim = 0; dim < member.type.getRank(); ++dim)
      if (isPadded(member.form, dim, member.type.getDimSize(dim), rules.mesh) &&
          !member.form.dims[dim].padding.is(0)) {
        rules.taken(op, member.form.dims[dim].padding, 0)
            << "adds up the padding of " << member.name;
        return failure();
      }
    // 4. One number of each member.
    Content &part = parts.emplace_back(Content{type, member.form, nullptr});
    part.form.dims.clear();
    double repeated = 1;
    for (auto [index, dim] : llvm::enumerate(member.form.dims)) {
      repeated *= dim.countEqual(member.type.getDimSize(index));
      if (failed(rules.addPartial(op, part.form, dim, dist::Reduction::Sum)))
        return failure();
    }
    for (const RankTerm &term : pack.rows)
      part.form.partial.push_back(term.axis);
    if (failed(rules.checkAxes(op, part.form)))
      return failure();
    // A term without dimensions is repeated only, and has nothing to reduce.
    Expression sum = member.form.term->shape.empty()
                         ? Expression{member.form.term, {}}
                         : rules.terms.reduceSum(member.form.asArgument(), {});
    part.form.term = rules.terms.sum(Argument{sum.term, {}, repeated}).term;
  }
  return rules.addUp(op, parts, type);
}

/// 1. A partial sum may be summed further, a partial maximum maximised; nothing
///    else may see a part.
/// 2. Dimensions that stay keep their slice; of a sum, their padding adds up.
/// 3. A uniform dimension counts as often as it has elements, in a sum; a
///    maximum of equal numbers is that number.
/// 4. What is reduced needs neutral padding, and makes the result partial over
///    its axes.
/// 5. The term is reduced only if it has one of the dimensions.
FailureOr<Content> proof::reduceOver(Rules &rules, Operation *op,
                                     const Content &input,
                                     nn::ReduceKind reduction,
                                     ArrayRef<int64_t> dims,
                                     RankedTensorType type) {
  bool isSum = reduction == nn::ReduceKind::Sum;
  auto kind = isSum ? dist::Reduction::Sum : dist::Reduction::Max;
  // 1. Parts.
  if (input.form.isPartial() && input.form.reduction != kind &&
      failed(rules.requireWhole(op, input)))
    return failure();
  Form form = input.form;
  form.dims.clear();
  double repeated = 1;
  bool reducesTerm = false;
  // Letters are the result's dimensions first.
  Argument argument{input.form.term, {}};
  int next = type.getRank();
  Letters present;
  for (auto [index, dim] : llvm::enumerate(input.form.dims)) {
    // 2. Kept.
    if (!llvm::is_contained(dims, int64_t(index))) {
      Dimension &kept = form.dims.emplace_back(dim);
      if (!dim.fitsAll())
        kept.extent = input.form.getExtent(index);
      if (isSum)
        kept.padding = dim.padding.sum();
      if (!dim.uniform) {
        present.push_back(form.dims.size() - 1);
        argument.letters.push_back(form.dims.size() - 1);
      }
      continue;
    }
    // 3. Repeated.
    repeated *= dim.countEqual(input.type.getDimSize(index));
    // 4. Reduced.
    if (!dim.uniform)
      argument.letters.push_back(next++);
    reducesTerm |= !dim.uniform;
    if (isPadded(input.form, index, input.type.getDimSize(index), rules.mesh) &&
        !isNeutral(dim.padding, reduction)) {
      double neutral = isSum ? 0 : -std::numeric_limits<double>::infinity();
      rules.taken(op, dim.padding, neutral)
          << "reduces the padding of dimension " << index << " of "
          << print(input);
      return failure();
    }
    if (failed(rules.addPartial(op, form, dim, kind)))
      return failure();
  }
  // 5. The term.
  if (reducesTerm) {
    Expression reduced = isSum ? rules.terms.reduceSum(argument, present)
                               : rules.terms.reduceMaximum(argument, present);
    argument = {reduced.term, reduced.letters};
  }
  argument.factor = isSum ? repeated : 1;
  form.setTerm(rules.terms.sum(argument));
  simplify(form, type, rules.mesh);
  return Content{type, std::move(form), nullptr};
}

static FailureOr<Content> evaluateReduce(Rules &rules, Operation *op,
                                         Operands operands,
                                         RankedTensorType type) {
  auto reduce = cast<nn::ReduceOp>(op);
  const Content &input = operands[0];
  if (!input.pack)
    return reduceOver(rules, op, input, reduce.getKind(), reduce.getDims(),
                      type);
  return input.pack->view.isPlain() ? reducePack(rules, op, input, type)
                                    : reduceView(rules, op, input, type);
}

/// The result's first half is minus the operand's second, and its second half
/// the operand's first, so a rank needs the last dimension whole and without
/// padding, or equal numbers along it. Linear: a partial sum stays one. Padding
/// of other dimensions is moved and negated.
static FailureOr<Content> evaluateRotateHalf(Rules &rules, Operation *op,
                                             Operands operands,
                                             RankedTensorType type) {
  const Content &input = operands[0];
  int64_t last = type.getRank() - 1;
  if (!input.form.dims[last].begin.empty() ||
      isPadded(input.form, last, type.getDimSize(last), rules.mesh)) {
    rules.wrong(op) << "rotates " << print(input)
                    << ", of which it needs dimension " << last << " whole";
    return failure();
  }
  Form form = *rules.unify(op, pointTo(input));
  form.partial = input.form.partial;
  form.reduction = input.form.reduction;
  Letters present;
  SmallVector<int64_t> extents;
  for (auto [index, dim] : llvm::enumerate(form.dims)) {
    bool isLast = int64_t(index) == last;
    if (dim.uniform && !isLast)
      continue;
    present.push_back(index);
    extents.push_back(isLast ? type.getDimSize(last) : dim.extent);
  }
  FailureOr<Content> result = rules.finish(
      op, {}, form,
      rules.terms.applyLinear("nn.rotate_half", {}, input.form.asArgument(),
                              present, extents),
      type);
  for (auto [own, given] :
       llvm::zip_equal(result->form.dims, input.form.dims)) {
    NumberRange padding = given.fitsAll() ? getUniform(input) : given.padding;
    own.padding = padding.join(-padding);
  }
  simplify(result->form, type, rules.mesh);
  return result;
}

/// The global tensor stays the same.
static FailureOr<Content> evaluateReorder(Rules &rules, Operation *op,
                                          Operands operands,
                                          RankedTensorType type) {
  auto reorder = cast<nn::ReorderOp>(op);
  Content result = operands[0];
  int64_t dim = reorder.getDim(), chunks = reorder.getChunks();
  Dimension &own = result.form.dims[dim];
  if (own.fitsAll())
    return result;
  if (!own.begin.empty() ||
      type.getDimSize(dim) != result.form.getExtent(dim)) {
    rules.wrong(op) << "reorders " << print(result)
                    << ", of which it needs dimension " << dim << " whole";
    return failure();
  }
  if (own.chunks != (reorder.getInverse() ? chunks : 0)) {
    rules.wrong(op) << "brings dimension " << dim
                    << (reorder.getInverse() ? " out of" : " into")
                    << " zig-zag order of " << chunks << " chunks, but has "
                    << print(result);
    return failure();
  }
  own.chunks = reorder.getInverse() ? 0 : chunks;
  return result;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getShapeRules() {
  static const OpRule rules[] = {
      {"nn.broadcast", evaluateBroadcast, /*takesPacks=*/true},
      {"nn.reduce", evaluateReduce, /*takesPacks=*/true},
      {"nn.rotate_half", evaluateRotateHalf},
      {"nn.reorder", evaluateReorder},
  };
  return rules;
}
