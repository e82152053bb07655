//===- RulesElementwise.cpp - Rules of ops on single elements ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elementwise ops, and with them sums, which all other rules use. An op that is
// linear keeps partial sums: addition, negation, scaling, casts (up to
// rounding), multiplication by a whole, division by a whole. Every other op has
// to take whole operands. All operands have to have the same slices.
// The result's term has only the dimensions that an operand's term has; along
// all others it is uniform. What lies in its padding follows from the
// arithmetic that kernels emit, evaluated over ranges of numbers
// (plait/Interfaces/Padding.h).
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "plait/Interfaces/Padding.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Dimensions of which all operands that have them have the same slice.
///
/// Each dimension is that of the first operand that has it; the others have to
/// begin at the same elements of a dimension of the same extent, which the form
/// says: it has no term, and is not partial yet. All operands have as many
/// dimensions.
FailureOr<Form> Rules::unify(Operation *op, Operands operands) {
  Form form;
  if (operands.empty())
    return form;
  form.dims.resize(operands[0].form.dims.size());
  // Who has the dimension, for the message.
  SmallVector<const Content *> owners(form.dims.size());
  for (const Content &operand : operands)
    for (auto [index, dim] : llvm::enumerate(operand.form.dims)) {
      if (dim.fitsAll())
        continue;
      const Content *&owner = owners[index];
      if (!owner)
        owner = &operand;
      if (form.dims[index].join(dim, operand.form.getExtent(index)))
        continue;
      wrong(op, operands) << "takes " << print(*owner) << " together with "
                          << print(operand) << ", which differ in dimension "
                          << index;
      return failure();
    }
  return form;
}

/// What lies in the padding of the result follows from the arithmetic. What is
/// not emitted for kernels adds.
///
/// Only where there is padding, since ranges are evaluated from emitted
/// arithmetic, which takes a while. An operand that does not run along the
/// dimension has an ordinary number there. What is not fusable has no
/// arithmetic to evaluate: as it adds, zeros give zero, and anything else may
/// be anything. Callers that know better overwrite the range, and pass no
/// operands.
void Rules::derivePadding(Operation *op, Operands operands, Form &form,
                          RankedTensorType type) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  for (int64_t dim = 0; dim < int64_t(form.dims.size()); ++dim) {
    if (!isPadded(form, dim, type.getDimSize(dim), mesh))
      continue;
    SmallVector<NumberRange> ranges;
    for (const Content &operand : operands)
      ranges.push_back(operand.form.dims[dim].fitsAll()
                           ? getUniform(operand)
                           : operand.form.dims[dim].padding);
    NumberRange &padding = form.dims[dim].padding;
    bool isZero = !ranges.empty() && llvm::all_of(ranges, [](NumberRange own) {
      return own.is(0);
    });
    if (fusable && ranges.size() == op->getNumOperands())
      padding = evaluateElement(fusable, ranges);
    else
      padding = isZero ? NumberRange::exactly(0) : NumberRange::any();
  }
}

/// Gives `form` the term, and makes uniform what the term does not have: normal
/// form may have lost a dimension, as x - x or 0·x do. That says nothing of the
/// padding: 0 times what is not finite is not zero.
FailureOr<Content> Rules::finish(Operation *op, Operands operands, Form form,
                                 Expression expression, RankedTensorType type) {
  form.setTerm(expression);
  derivePadding(op, operands, form, type);
  simplify(form, type, mesh);
  return Content{type, std::move(form), nullptr};
}

//===----------------------------------------------------------------------===//
// Linear ops
//===----------------------------------------------------------------------===//

/// Over which axes summands are added up: those of all of them. One that is the
/// same on all ranks of an axis is a part of as many of it. (What each rank has
/// added up of its slice of equal elements is the same on all of them, and one
/// that is counted too often shows where it is used.)
///
/// Factors of `summands` change: what is the same on n ranks counts n times
/// once ranks are added up.
static SmallVector<StringAttr, 2>
joinPartial(Operands numbers, MutableArrayRef<Argument> summands,
            const MeshSizes &mesh) {
  SmallVector<StringAttr, 2> joined;
  for (const Content &number : numbers)
    for (StringAttr axis : number.form.partial)
      if (!llvm::is_contained(joined, axis))
        joined.push_back(axis);
  for (auto [number, summand] : llvm::zip_equal(numbers, summands))
    for (StringAttr axis : joined)
      if (!number.form.isPartialOver(axis))
        summand.factor *= double(mesh.getSize(axis));
  return joined;
}

/// The sum of factor · operand:
/// 1. Operands have the same slices. Sums over other chunks are one over all of
///    them.
/// 2. Zeros fit everything. All others should be partial over the same axes; if
///    not, the sum is that of all axes, and what follows is known
///    (joinPartial).
/// 3. Maxima cannot be added.
/// 4. A mixture is remembered with its term, for a message in case the plan
///    turns out to be wrong. Among numbers it is common and right, as in the
///    norm, which adds up what some ranks share and others do not.
FailureOr<Content> Rules::sum(Operation *op, Operands operands,
                              ArrayRef<double> factors, RankedTensorType type) {
  // 1. Slices.
  FailureOr<Form> form = unify(op, operands);
  if (failed(form))
    return failure();
  if (operands.size() == 2 && factors[0] == 1 && factors[1] == 1)
    if (std::optional<Content> sum = uniteChunks(operands[0], operands[1]))
      return *sum;
  // 2. Parts.
  const Content *first = nullptr;
  bool isMixed = false;
  SmallVector<Argument> arguments;
  for (auto [operand, factor] : llvm::zip_equal(operands, factors)) {
    Argument &argument = arguments.emplace_back(operand.form.asArgument());
    argument.factor = factor;
    // Zero is a partial sum over any axes.
    if (operand.form.term->isZero())
      continue;
    if (!first) {
      first = &operand;
      form->partial = operand.form.partial;
      form->reduction = operand.form.reduction;
      continue;
    }
    bool isSame = form->partial.size() == operand.form.partial.size() &&
                  llvm::all_of(form->partial, [&](StringAttr axis) {
                    return operand.form.isPartialOver(axis);
                  });
    isMixed |= !isSame;
  }
  for (const Content &operand : operands)
    // 3. Maxima, and what is no sum for another reason.
    if ((operand.form.reduction != dist::Reduction::Sum &&
         failed(requireWhole(op, operand))) ||
        failed(requireSum(op, operand)))
      return failure();
  if (first)
    form->partial = joinPartial(operands, arguments, mesh);
  Expression total = terms.sum(arguments);
  // 4. Mixtures.
  if (isMixed && type.getRank() != 0)
    noteMixture(op, operands, total.term);
  return finish(op, operands, *form, total, type);
}

/// The text is written at once, since operands are not kept. A term that the
/// claim has is right, however it came about.
void Rules::noteMixture(Operation *op, Operands operands, const Term *sum) {
  hasMixed = true;
  if (sum->inClaim)
    return;
  Mixture &mixture = mixtures[sum];
  mixture = {op,
             "adds " + print(operands[0]) + " and " + print(operands[1]) +
                 ": one of them is counted more often than the other",
             {}};
  for (const Content &operand : operands)
    if (operand.writer)
      mixture.writers.push_back(operand.writer->getLoc());
}

static FailureOr<Content> evaluateAdd(Rules &rules, Operation *op,
                                      Operands operands,
                                      RankedTensorType type) {
  return rules.sum(op, operands, {1, 1}, type);
}

static FailureOr<Content> evaluateSub(Rules &rules, Operation *op,
                                      Operands operands,
                                      RankedTensorType type) {
  return rules.sum(op, operands, {1, -1}, type);
}

static FailureOr<Content> evaluateNeg(Rules &rules, Operation *op,
                                      Operands operands,
                                      RankedTensorType type) {
  return rules.sum(op, operands, {-1}, type);
}

static FailureOr<Content> evaluateScale(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  double amount = cast<nn::ScaleOp>(op).getAmount().convertToDouble();
  return rules.sum(op, operands, {amount}, type);
}

/// For sums that no op of the program makes: contributions to one slot, and
/// sums along the pipeline.
FailureOr<Content> Rules::add(Operation *op, const Content &a,
                              const Content &b) {
  const Content *both[] = {&a, &b};
  if (a.pack && b.pack)
    return evaluatePacked(op, ArrayRef(both), evaluateAdd, a.type);
  return sum(op, ArrayRef(both), {1, 1}, a.type);
}

/// One sum of all instead of a chain, which would make a term for each prefix.
/// Called without evaluate(), so it does itself what that does around a rule.
FailureOr<Content> Rules::addUp(Operation *op, ArrayRef<Content> summands,
                                RankedTensorType type) {
  auto operands = pointTo(summands);
  llvm::SaveAndRestore<Operands> restore(current, operands);
  FailureOr<Content> total =
      sum(op, operands, SmallVector<double>(summands.size(), 1), type);
  if (failed(total) || failed(checkAxes(op, total->form)))
    return failure();
  return total;
}

/// A number times one, repeated along all dimensions.
static FailureOr<Content> evaluateFill(Rules &rules, Operation *op, Operands,
                                       RankedTensorType type) {
  double amount = cast<nn::FillOp>(op).getAmount().convertToDouble();
  Form form;
  form.dims.resize(type.getRank());
  return rules.finish(op, {}, form,
                      rules.terms.sum(Argument{rules.terms.one(), {}, amount}),
                      type);
}

/// Adding a number to each of some partial sums adds it several times.
static FailureOr<Content> evaluateShift(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  if (failed(rules.requireWhole(op, operands[0])))
    return failure();
  double amount = cast<nn::ShiftOp>(op).getAmount().convertToDouble();
  Argument number{rules.terms.one(), {}, amount};
  return rules.finish(op, operands, *rules.unify(op, operands),
                      rules.terms.sum({operands[0].form.asArgument(), number}),
                      type);
}

/// What a gradient is taken of is settled: both steps are differentiated.
static FailureOr<Content> evaluateStop(Rules &, Operation *, Operands operands,
                                       RankedTensorType) {
  return operands[0];
}

/// Rounding is named, so that it cannot be lost, and linear up to rounding.
static FailureOr<Content> evaluateCast(Rules &rules, Operation *op,
                                       Operands operands,
                                       RankedTensorType type) {
  Form form = *rules.unify(op, operands);
  form.partial = operands[0].form.partial;
  form.reduction = operands[0].form.reduction;
  Argument argument = operands[0].form.asArgument();
  bool isSame = operands[0].type.getElementType() == type.getElementType();
  Expression result =
      isSame ? rules.terms.sum(argument)
             : rules.terms.cast(argument, TypeAttr::get(type.getElementType()));
  return rules.finish(op, operands, form, result, type);
}

//===----------------------------------------------------------------------===//
// Products and nonlinear ops
//===----------------------------------------------------------------------===//

/// Two partial factors are refused: what each rank multiplies is one block of
/// the diagonal of all products.
static FailureOr<Content> evaluateMul(Rules &rules, Operation *op,
                                      Operands operands,
                                      RankedTensorType type) {
  FailureOr<Form> form = rules.unify(op, operands);
  if (failed(form))
    return failure();
  const Content &lhs = operands[0], &rhs = operands[1];
  // Linear in one operand while the other one is the same on all ranks.
  if (lhs.form.isPartial() && failed(rules.requireWhole(op, rhs)))
    return failure();
  const Form &partial = lhs.form.isPartial() ? lhs.form : rhs.form;
  form->partial = partial.partial;
  form->reduction = partial.reduction;
  if (form->reduction != dist::Reduction::Sum &&
      failed(rules.requireWhole(op, lhs.form.isPartial() ? lhs : rhs)))
    return failure();
  Expression product =
      rules.terms.product({lhs.form.asArgument(), rhs.form.asArgument()});
  return rules.finish(op, operands, *form, product, type);
}

/// Linear in the dividend only.
static FailureOr<Content> evaluateDiv(Rules &rules, Operation *op,
                                      Operands operands,
                                      RankedTensorType type) {
  FailureOr<Form> form = rules.unify(op, operands);
  if (failed(form) || failed(rules.requireWhole(op, operands[1])))
    return failure();
  form->partial = operands[0].form.partial;
  form->reduction = operands[0].form.reduction;
  if (form->reduction != dist::Reduction::Sum &&
      failed(rules.requireWhole(op, operands[0])))
    return failure();
  // a / b is a · (1 / b).
  // So quotients need no rules of their own in the normal form.
  Argument divisor = operands[1].form.asArgument();
  Expression inverse =
      rules.terms.apply("inverse", {}, divisor, divisor.letters);
  Expression product = rules.terms.product(
      {operands[0].form.asArgument(), Argument{inverse.term, inverse.letters}});
  return rules.finish(op, operands, *form, product, type);
}

/// What `op` gives for numbers, where that is exact: tanh(0) is 0.
///
/// None: an operand is no number, or the result is not one for certain. So a
/// function of zeros may be zero, which sums leave out.
static std::optional<double> computeNumber(Operation *op, Operands operands) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  if (!fusable || op->getNumOperands() != operands.size())
    return std::nullopt;
  SmallVector<NumberRange> ranges;
  for (const Content &operand : operands) {
    std::optional<double> number = operand.form.term->getNumber();
    if (!number)
      return std::nullopt;
    ranges.push_back(NumberRange::exactly(*number));
  }
  NumberRange result = evaluateElement(fusable, ranges);
  return result.isFinite() && result.is(result.low) ? std::optional(result.low)
                                                    : std::nullopt;
}

/// Any function of whole operands: 1. of numbers it is a number, where that is
/// exact; 2. else it is applied by its name, with the attributes that belong to
/// its meaning.
static FailureOr<Content> evaluateElementwise(Rules &rules, Operation *op,
                                              Operands operands,
                                              RankedTensorType type) {
  for (const Content &operand : operands)
    if (failed(rules.requireWhole(op, operand)))
      return failure();
  FailureOr<Form> form = rules.unify(op, operands);
  if (failed(form))
    return failure();
  // 1. A number.
  if (std::optional<double> number = computeNumber(op, operands))
    return rules.finish(
        op, operands, *form,
        rules.terms.sum(Argument{rules.terms.one(), {}, *number}), type);
  // 2. A term.
  SmallVector<Argument> arguments;
  Letters present;
  for (const Content &operand : operands)
    arguments.push_back(operand.form.asArgument());
  for (auto [index, dim] : llvm::enumerate(form->dims))
    if (!dim.uniform)
      present.push_back(index);
  Attribute attrs;
  if (auto valid = dyn_cast<nn::ValidOp>(op))
    attrs = valid.getIgnoreAttr();
  return rules.finish(op, operands, *form,
                      rules.terms.apply(op->getName().getStringRef(), attrs,
                                        arguments, present),
                      type);
}

/// What the trainer sets, like the learning rate: a leaf that all ranks share.
static FailureOr<Content> evaluateScalar(Rules &rules, Operation *op, Operands,
                                         RankedTensorType type) {
  Form form;
  form.term = rules.terms.leaf(cast<nn::StepScalarOp>(op).getName(), {});
  return Content{type, form, nullptr};
}

//===----------------------------------------------------------------------===//
// Packs
//===----------------------------------------------------------------------===//

/// Whether members of both lie at the same elements of a rank's memory.
///
/// Then an op on the tensors is an op on each pair of members, and no element
/// meets one of another parameter.
static bool isAligned(const Pack &a, const Pack &b) {
  return a.rows == b.rows && a.reducedColumns == b.reducedColumns &&
         a.view == b.view && a.elements == b.elements &&
         llvm::equal(a.members, b.members,
                     [](const Pack::Member &x, const Pack::Member &y) {
                       return x.offset == y.offset && x.mask == y.mask &&
                              x.type.getShape() == y.type.getShape();
                     });
}

/// Asks the context only where the type is another one.
static RankedTensorType withElements(RankedTensorType type, Type element) {
  return type.getElementType() == element ? type : type.clone(element);
}

/// 1. All packs have the same layout, and whatever is no pack is one number
///    repeated.
/// 2. `rule` is asked for each member by itself, with the type that the member
///    has in the operand's element type.
/// 3. What lies between members follows from the arithmetic, as padding does.
/// The result has the layout of its operands.
FailureOr<Content> Rules::evaluatePacked(Operation *op, Operands operands,
                                         Rule rule, RankedTensorType type) {
  // 1. Layouts.
  const Content *owner = nullptr;
  for (const Content &operand : operands) {
    // A column is no element, and arithmetic on it none on the mask.
    if (operand.pack && operand.pack->view.areColumns) {
      report.unproven(op) << "arithmetic on columns has no rule";
      return failure();
    }
    if (owner && operand.pack && !isAligned(*owner->pack, *operand.pack)) {
      wrong(op) << "takes " << print(*owner) << " together with "
                << print(operand) << ", whose members lie elsewhere";
      return failure();
    }
    bool isUniform = llvm::all_of(
        operand.form.dims, [](const Dimension &dim) { return dim.fitsAll(); });
    if (!operand.pack && !isUniform) {
      wrong(op) << "takes a pack together with " << print(operand);
      return failure();
    }
    if (operand.pack)
      owner = &operand;
  }
  // 2. Members.
  auto pack = std::make_shared<Pack>(*owner->pack);
  for (auto [index, member] : llvm::enumerate(pack->members)) {
    Contents own;
    for (const Content &operand : operands) {
      Content &part = own.emplace_back();
      part.type = withElements(member.type, operand.type.getElementType());
      part.form =
          operand.pack ? operand.pack->members[index].form : operand.form;
      if (!operand.pack)
        part.form.dims.resize(member.type.getRank());
      part.writer = operand.writer;
    }
    FailureOr<Content> result =
        rule(*this, op, pointTo(own),
             withElements(member.type, type.getElementType()));
    if (failed(result) || failed(checkAxes(op, result->form)))
      return failure();
    member.form = std::move(result->form);
    member.type = result->type;
  }
  // 3. Gaps.
  SmallVector<NumberRange> gaps;
  for (const Content &operand : operands)
    gaps.push_back(operand.pack ? operand.pack->gap : getUniform(operand));
  auto fusable = dyn_cast<FusableOpInterface>(op);
  bool isZero =
      llvm::all_of(gaps, [](const NumberRange &gap) { return gap.is(0); });
  pack->gap = fusable  ? evaluateElement(fusable, gaps)
              : isZero ? NumberRange::exactly(0)
                       : NumberRange::any();
  return Content{type, {}, std::move(pack)};
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getElementwiseRules() {
  static const OpRule rules[] = {
      {"nn.add", evaluateAdd},
      {"nn.sub", evaluateSub},
      {"nn.neg", evaluateNeg},
      {"nn.scale", evaluateScale},
      {"nn.shift", evaluateShift},
      {"nn.mul", evaluateMul},
      {"nn.div", evaluateDiv},
      {"nn.fill", evaluateFill},
      {"nn.stop_gradient", evaluateStop},
      {"nn.cast", evaluateCast},
      {"nn.exp", evaluateElementwise},
      {"nn.cos", evaluateElementwise},
      {"nn.sin", evaluateElementwise},
      {"nn.log", evaluateElementwise},
      {"nn.tanh", evaluateElementwise},
      {"nn.erf", evaluateElementwise},
      {"nn.sqrt", evaluateElementwise},
      {"nn.rsqrt", evaluateElementwise},
      {"nn.sigmoid", evaluateElementwise},
      {"nn.is_zero", evaluateElementwise},
      {"nn.min", evaluateElementwise},
      {"nn.round", evaluateElementwise},
      {"nn.equal", evaluateElementwise},
      {"nn.greater", evaluateElementwise},
      {"nn.convert", evaluateElementwise},
      {"nn.valid", evaluateElementwise},
      {"nn.step_scalar", evaluateScalar},
  };
  return rules;
}
