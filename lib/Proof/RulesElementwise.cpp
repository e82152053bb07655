//===- RulesElementwise.cpp - Rules of ops on single elements ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "plait/Interfaces/Padding.h"

#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Dimensions of which all operands that have them have the same slice.
FailureOr<Form> Rules::unify(Operation *op, Operands operands) {
  Form form;
  if (operands.empty())
    return form;
  form.dims.resize(operands[0].form.dims.size());
  SmallVector<const Content *> owners(form.dims.size());
  for (const Content &operand : operands)
    for (auto [index, dim] : llvm::enumerate(operand.form.dims)) {
      if (dim.uniform)
        continue;
      const Content *&owner = owners[index];
      if (!owner) {
        owner = &operand;
        form.dims[index] = dim;
        continue;
      }
      if (form.dims[index].begin == dim.begin &&
          owner->form.getExtent(index) == operand.form.getExtent(index))
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
void Rules::derivePadding(Operation *op, Operands operands, Form &form,
                          RankedTensorType type) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  for (int64_t dim = 0; dim < int64_t(form.dims.size()); ++dim) {
    if (!isPadded(form, dim, type.getDimSize(dim), mesh))
      continue;
    SmallVector<NumberRange> ranges;
    for (const Content &operand : operands)
      ranges.push_back(operand.form.dims[dim].uniform
                           ? getUnpadded(operand.type)
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

FailureOr<Content> Rules::finish(Operation *op, Operands operands, Form form,
                                 Expression expression, RankedTensorType type) {
  form.term = expression.term;
  for (auto [index, dim] : llvm::enumerate(form.dims))
    if (!llvm::is_contained(expression.letters, int(index)))
      dim = Dimension();
  // Zero is whole, however it came about.
  if (form.term->isZero())
    form.partial.clear();
  derivePadding(op, operands, form, type);
  return Content{type, std::move(form), nullptr};
}

//===----------------------------------------------------------------------===//
// Linear ops
//===----------------------------------------------------------------------===//

/// Over which axes summands are added up: those of all of them. One that is the
/// same on all ranks of an axis is a part of as many of it. (What each rank has
/// added up of its slice of equal elements is the same on all of them, and one
/// that is counted too often shows where it is used.)
static SmallVector<StringAttr, 2>
joinPartial(ArrayRef<Content> numbers, MutableArrayRef<Argument> summands,
            const Mesh &mesh) {
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

FailureOr<Content> Rules::sum(Operation *op, Operands operands,
                              ArrayRef<double> factors, RankedTensorType type) {
  FailureOr<Form> form = unify(op, operands);
  if (failed(form))
    return failure();
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
    if (operand.form.reduction != dist::Reduction::Sum &&
        failed(requireWhole(op, operand)))
      return failure();
  if (first)
    form->partial = joinPartial(operands, arguments, mesh);
  Expression total = terms.sum(arguments);
  if (isMixed && type.getRank() != 0)
    noteMixture(op, operands, total.term);
  return finish(op, operands, *form, total, type);
}

void Rules::noteMixture(Operation *op, Operands operands, const Term *sum) {
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

FailureOr<Content> Rules::add(Operation *op, const Content &a,
                              const Content &b) {
  if (a.pack && b.pack)
    return evaluatePacked(op, {a, b}, evaluateAdd, a.type);
  return sum(op, {a, b}, {1, 1}, a.type);
}

FailureOr<Content> Rules::addUp(Operation *op, Operands summands,
                                RankedTensorType type) {
  llvm::SaveAndRestore restore(current, summands);
  FailureOr<Content> total =
      sum(op, summands, SmallVector<double>(summands.size(), 1), type);
  if (failed(total) || failed(checkAxes(op, total->form)))
    return failure();
  return total;
}

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
  const Form &form = operands[0].form;
  if (failed(rules.requireWhole(op, operands[0])))
    return failure();
  double amount = cast<nn::ShiftOp>(op).getAmount().convertToDouble();
  Argument number{rules.terms.one(), {}, amount};
  return rules.finish(op, operands, form,
                      rules.terms.sum({form.asArgument(), number}), type);
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
  const Form &form = operands[0].form;
  Argument argument = form.asArgument();
  bool isSame = operands[0].type.getElementType() == type.getElementType();
  Expression result =
      isSame ? rules.terms.sum(argument)
             : rules.terms.cast(argument, TypeAttr::get(type.getElementType()));
  return rules.finish(op, operands, form, result, type);
}

//===----------------------------------------------------------------------===//
// Products and nonlinear ops
//===----------------------------------------------------------------------===//

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
  Argument divisor = operands[1].form.asArgument();
  Expression inverse =
      rules.terms.apply("inverse", {}, divisor, divisor.letters);
  Expression product = rules.terms.product(
      {operands[0].form.asArgument(), Argument{inverse.term, inverse.letters}});
  return rules.finish(op, operands, *form, product, type);
}

/// What `op` gives for numbers, where that is exact: tanh(0) is 0.
static std::optional<double> computeNumber(Operation *op,
                                           ArrayRef<Content> operands) {
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

static FailureOr<Content> evaluateElementwise(Rules &rules, Operation *op,
                                              Operands operands,
                                              RankedTensorType type) {
  for (const Content &operand : operands)
    if (failed(rules.requireWhole(op, operand)))
      return failure();
  FailureOr<Form> form = rules.unify(op, operands);
  if (failed(form))
    return failure();
  if (std::optional<double> number = computeNumber(op, operands))
    return rules.finish(
        op, operands, *form,
        rules.terms.sum(Argument{rules.terms.one(), {}, *number}), type);
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
static bool isAligned(const Pack &a, const Pack &b) {
  return a.rows == b.rows && a.reducedColumns == b.reducedColumns &&
         a.elements == b.elements &&
         llvm::equal(a.members, b.members,
                     [](const Pack::Member &x, const Pack::Member &y) {
                       return x.offset == y.offset &&
                              x.type.getShape() == y.type.getShape();
                     });
}

FailureOr<Content> Rules::evaluatePacked(Operation *op, Operands operands,
                                         Rule rule, RankedTensorType type) {
  const Content *owner = nullptr;
  for (const Content &operand : operands) {
    if (owner && operand.pack && !isAligned(*owner->pack, *operand.pack)) {
      wrong(op) << "takes " << print(*owner) << " together with "
                << print(operand) << ", whose members lie elsewhere";
      return failure();
    }
    bool isUniform = llvm::all_of(
        operand.form.dims, [](const Dimension &dim) { return dim.uniform; });
    if (!operand.pack && !isUniform) {
      wrong(op) << "takes a pack together with " << print(operand);
      return failure();
    }
    if (operand.pack)
      owner = &operand;
  }
  auto pack = std::make_shared<Pack>(*owner->pack);
  for (auto [index, member] : llvm::enumerate(pack->members)) {
    Contents own;
    for (const Content &operand : operands) {
      Content &part = own.emplace_back(operand);
      part.type = member.type.clone(operand.type.getElementType());
      part.form.dims.resize(member.type.getRank());
      if (operand.pack)
        part.form = operand.pack->members[index].form;
      part.pack = nullptr;
    }
    FailureOr<Content> result =
        rule(*this, op, own, member.type.clone(type.getElementType()));
    if (failed(result) || failed(checkAxes(op, result->form)))
      return failure();
    member.form = std::move(result->form);
    member.type = result->type;
  }
  SmallVector<NumberRange> gaps;
  for (const Content &operand : operands)
    gaps.push_back(operand.pack ? operand.pack->gap
                                : getUnpadded(operand.type));
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
      {"nn.log", evaluateElementwise},
      {"nn.tanh", evaluateElementwise},
      {"nn.erf", evaluateElementwise},
      {"nn.sqrt", evaluateElementwise},
      {"nn.rsqrt", evaluateElementwise},
      {"nn.sigmoid", evaluateElementwise},
      {"nn.is_zero", evaluateElementwise},
      {"nn.min", evaluateElementwise},
      {"nn.equal", evaluateElementwise},
      {"nn.valid", evaluateElementwise},
      {"nn.step_scalar", evaluateScalar},
  };
  return rules;
}
