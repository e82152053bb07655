//===- Compare.cpp - Comparison of two steps ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Terms are in normal form, so equal ones are one. Where two differ, the
// message is about the first op that computes something which the claim does
// not compute from the same things: all that it takes is right, and it is not.
//
// Compared is, for each rank of the pipeline, what outlives the step: the slots
// of the parameters that the rank touches, and the metrics. Each has to be the
// claim's term and to lie as its parameter is declared to. What a rank computes
// on the way is not compared.
// The search for the op to blame has no influence on the verdict; it only runs
// once two terms have turned out to differ.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"

#include "plait/Dialect/Plan/IR/PlanIR.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using nn::Slot;

namespace {
/// Two terms that differ, of which one is part of the plan's value and the
/// other one of the claim's.
struct Difference {
  const Term *found, *expected;
};

/// Holds the state of all ranks of the plan against the one rank of the claim.
class Comparison {
public:
  Comparison(Step &claim, Step &plan, Rules &rules, ModuleOp module)
      : claim(claim.getRanks()[0]), plan(plan), rules(rules), module(module) {}
  LogicalResult run();

private:
  LogicalResult compareRank(int64_t rank, RankState &state);
  LogicalResult compareSlot(int64_t rank, RankState &state,
                            nn::ParameterOp parameter, Slot slot,
                            const RankState::Stored &expected);
  LogicalResult requireZeroPadding(const std::string &what,
                                   const RankState::Stored &stored,
                                   const Form &declared);
  LogicalResult compareGathered(int64_t rank, RankState &state,
                                nn::ParameterOp parameter,
                                const RankState::Stored &own);
  LogicalResult compareLayout(const std::string &what, RankState &state,
                              nn::ParameterOp parameter, Slot slot,
                              const RankState::Stored &own);
  void forEachPair(llvm::function_ref<void(const Term *, const Term *)> visit);
  const Term *findFirstStranger();
  /// The error is at the op to blame, or at `fallback` if none is known; `what`
  /// names the value in the message.
  LogicalResult compareTerms(const std::string &what, Operation *fallback,
                             const Term *found, const Term *expected);
  /// The op that has written a slot; the module if none has.
  Operation *locate(const RankState::Stored &stored) {
    return stored.writer ? stored.writer : module.getOperation();
  }

  RankState &claim;
  Step &plan;
  Rules &rules;
  ModuleOp module;
};
} // namespace

//===----------------------------------------------------------------------===//
// What differs
//===----------------------------------------------------------------------===//

/// The term created first of those that `term` is made of and the claim does
/// not have.
///
/// A *stranger* is a term that the claim does not compute (Term::inClaim). Ids
/// ascend in the order of creation and arguments are created before what is
/// made of them, so the one with the lowest id consists of terms of the claim
/// only: all that its op takes is right.
static const Term *findStranger(const Term *term) {
  const Term *first = nullptr;
  findStrangers(term, [&](const Term *part) {
    if (part->origin && (!first || part->id < first->id))
      first = part;
  });
  return first;
}

/// The op whose result `value` is, or that puts what a kernel takes as `value`
/// into its place.
///
/// Clusters are looked through in both directions, so what a fusion pass has
/// put into a kernel does not change what is reported. Null for the argument of
/// a function.
static Operation *findMaker(Value value) {
  while (auto argument = dyn_cast<BlockArgument>(value)) {
    auto cluster =
        dyn_cast<plan::ClusterOp>(argument.getOwner()->getParentOp());
    if (!cluster)
      return nullptr;
    value = cluster.getInputs()[argument.getArgNumber()];
  }
  if (auto cluster = value.getDefiningOp<plan::ClusterOp>())
    value = cluster.getBody().front().getTerminator()->getOperand(
        cast<OpResult>(value).getResultNumber());
  return value.getDefiningOp();
}

/// Sums forget what they were added up from, so the first stranger may be a sum
/// with one that came before in the function: takes the first of which that is
/// not so. Sums of several terms are passed by, since the claim may add up in
/// another order.
///
/// Walks back from the stranger's op over all ops that it depends on, each
/// once: linear in the ops of the function and in all terms.
static const Term *findEarlier(const Term *stranger, const Terms &terms) {
  auto strangers = terms.findStrangers();
  llvm::DenseSet<Operation *> seen;
  SmallVector<Operation *> left{stranger->origin};
  while (!left.empty()) {
    Operation *op = left.pop_back_val();
    for (Value operand : op->getOperands()) {
      Operation *maker = findMaker(operand);
      if (!maker || !seen.insert(maker).second)
        continue;
      left.push_back(maker);
      for (const Term *term : strangers.lookup(maker))
        if (term->id < stranger->id &&
            (term->kind != Term::Sum || term->arguments.size() == 1))
          stranger = term;
    }
  }
  return stranger;
}

/// The arguments of `a` that `b` does not have.
///
/// Takes the product of the numbers of arguments, which are few; it only runs
/// for messages.
static SmallVector<Argument> subtract(const Term *a, const Term *b) {
  SmallVector<Argument> left;
  for (const Argument &argument : a->arguments)
    if (llvm::none_of(b->arguments, [&](const Argument &other) {
          return other.term == argument.term &&
                 other.factor == argument.factor &&
                 other.letters == argument.letters;
        }))
      left.push_back(argument);
  return left;
}

/// Follows the only argument that differs, as deep as there is one.
///
/// Where more than one argument differs, neither is more to blame than the
/// other, so the two terms themselves are shown. Ends, since terms have no
/// cycles.
static Difference narrow(Difference difference) {
  while (true) {
    const Term *a = difference.found, *b = difference.expected;
    if (a->kind != b->kind || a->name != b->name || a->attrs != b->attrs)
      return difference;
    auto onlyA = subtract(a, b), onlyB = subtract(b, a);
    if (onlyA.size() != 1 || onlyB.size() != 1 ||
        onlyA[0].factor != onlyB[0].factor ||
        onlyA[0].letters != onlyB[0].letters)
      return difference;
    difference = {onlyA[0].term, onlyB[0].term};
  }
}

/// Equal terms have equal addresses, so the check itself is one comparison.
/// After a difference the error is placed as closely as possible:
/// 1. A sum of partial sums and wholes (Rules::Mixture) that the value contains
///    comes first: what follows from it is only its consequence.
/// 2. Else it is the op of the first stranger of all values that differ, not of
///    this one alone: the parameter that happens to be compared first need not
///    show the cause.
/// 3. Else all parts are terms of the claim and are only combined in another
///    way: the error is at `fallback`, where the value is written.
LogicalResult Comparison::compareTerms(const std::string &what,
                                       Operation *fallback, const Term *found,
                                       const Term *expected) {
  if (found == expected)
    return success();
  const Term *stranger = findFirstStranger();
  // 1.
  if (const Rules::Mixture *mixture = rules.findMixture(found))
    return rules.wrong(*mixture);
  if (stranger)
    stranger = findEarlier(stranger, rules.terms); // 2.
  // 3. is what remains where there is no stranger.
  Difference difference = narrow({found, expected});
  Operation *op = stranger ? stranger->origin : fallback;
  InFlightDiagnostic diag = rules.report.wrong(op);
  if (stranger)
    diag << "here is " << print(stranger)
         << ", which the unpartitioned step does not compute";
  else
    diag << what << " is " << print(found);
  diag.attachNote(fallback->getLoc())
      << what << " has " << print(difference.found, 4) << " where "
      << print(difference.expected, 4) << " is asked for";
  return diag;
}

//===----------------------------------------------------------------------===//
// What is compared
//===----------------------------------------------------------------------===//

/// Calls `visit` with each term of the plan that should be the claim's: what
/// outlives the step, and before it what is added up over microbatches (what
/// several stages add to is not complete then).
void Comparison::forEachPair(
    llvm::function_ref<void(const Term *, const Term *)> visit) {
  auto holders = [&](const RankState::Key &key) {
    return llvm::count_if(plan.getRanks(), [&](RankState &other) {
      return other.getWritten().count(key);
    });
  };
  for (RankState &state : plan.getRanks()) {
    for (auto &[key, own] : state.getWritten()) {
      auto expected = claim.getWritten().find(key);
      // A gradient is compared if one rank only adds to it. That of a tied
      // parameter is the sum over several stages, which is made after.
      bool isAdded = nn::getSlotAccess(own.writer) == nn::SlotAccess::Add;
      if (expected != claim.getWritten().end() &&
          (isAdded ? holders(key) == 1 : outlivesStep(key.second)))
        visit(own.content.form.term, expected->second.content.form.term);
    }
    for (auto &[name, own] : state.metrics)
      if (auto expected = claim.metrics.find(name);
          expected != claim.metrics.end())
        visit(own.content.form.term, expected->second.content.form.term);
  }
}

/// Of all that differs, what was computed first is what went wrong.
///
/// Null if all values consist of terms of the claim.
const Term *Comparison::findFirstStranger() {
  const Term *first = nullptr;
  forEachPair([&](const Term *found, const Term *expected) {
    const Term *own = found == expected ? nullptr : findStranger(found);
    if (own && (!first || own->id < first->id))
      first = own;
  });
  return first;
}

/// Compares one slot of a parameter that the rank holds:
/// 1. It is written at all. The note shows what else is written of the
///    parameter, since a write to the wrong slot is the likely cause.
/// 2. It is the claim's term.
/// 3. It lies as the declaration says, which is how the next step reads it.
/// 4. Its padding is zero, which the next step takes it for (Rules::makeLeaf).
LogicalResult Comparison::compareSlot(int64_t rank, RankState &state,
                                      nn::ParameterOp parameter, Slot slot,
                                      const RankState::Stored &expected) {
  std::string what = ("the new " + slot.getName() + " of @" +
                      parameter.getSymName() + " on stage " + Twine(rank))
                         .str();
  // 1.
  const RankState::Stored *known =
      state.findWritten({parameter.getSymName(), slot});
  if (!known) {
    InFlightDiagnostic diag = rules.report.wrong(parameter);
    diag << what << " is not written: it should be "
         << print(expected.content.form.term);
    for (auto &[key, other] : state.getWritten())
      if (key.first == parameter.getSymName() && outlivesStep(key.second) &&
          other.writer)
        diag.attachNote(other.writer->getLoc())
            << "its " << key.second.getName() << " is written here";
    return diag;
  }
  // 2.
  const RankState::Stored &own = *known;
  if (failed(compareTerms(what, locate(own), own.content.form.term,
                          expected.content.form.term)))
    return failure();
  // 3.
  return compareLayout(what, state, parameter, slot, own);
}

/// What a gather writes has to be what any step begins with: the value,
/// rounded. So it is what the claim computes with, as that rounds the value at
/// the end of each step.
LogicalResult Comparison::compareGathered(int64_t rank, RankState &state,
                                          nn::ParameterOp parameter,
                                          const RankState::Stored &own) {
  std::string what =
      ("the copy of @" + parameter.getSymName() + " on stage " + Twine(rank))
          .str();
  Type element = own.content.type.getElementType();
  const Content &value = state.getInitial(parameter, Slot::Value);
  const Term *expected =
      rules.terms.cast(value.form.asArgument(), TypeAttr::get(element)).term;
  if (failed(compareTerms(what, locate(own), own.content.form.term, expected)))
    return failure();
  return compareLayout(what, state, parameter, Slot::Compute, own);
}

/// A dimension that fits all is as good as the declared one.
LogicalResult Comparison::compareLayout(const std::string &what,
                                        RankState &state,
                                        nn::ParameterOp parameter, Slot slot,
                                        const RankState::Stored &own) {
  const Content &declared = state.getInitial(parameter, slot);
  bool isSame = own.content.form.partial == declared.form.partial &&
                own.content.type.getShape() == declared.type.getShape();
  for (auto [index, want] : llvm::enumerate(declared.form.dims)) {
    const Form &form = own.content.form;
    isSame =
        isSame && (form.dims[index].fitsAll() ||
                   (form.dims[index].liesAs(want) &&
                    form.getExtent(index) == declared.form.getExtent(index)));
  }
  if (!isSame)
    return rules.report.wrong(locate(own))
           << what << " lies otherwise than declared: it is "
           << printLayout(own.content.form) << ", declared is "
           << printLayout(declared.form);
  // 4.
  return requireZeroPadding(what, own, declared.form);
}

/// A dimension that fits all has the same number there.
LogicalResult Comparison::requireZeroPadding(const std::string &what,
                                             const RankState::Stored &stored,
                                             const Form &declared) {
  const Content &own = stored.content;
  for (auto [index, dim] : llvm::enumerate(own.form.dims)) {
    int64_t extent = own.type.getDimSize(index);
    NumberRange padding = dim.fitsAll() ? getUniform(own) : dim.padding;
    if (padding.is(0) || !isPadded(declared, index, extent, rules.mesh))
      continue;
    rules.taken(locate(stored), padding, 0)
        << what << " is not zero in the padding of dimension " << index;
    return failure();
  }
  return success();
}

/// In both directions: all that the claim writes of the rank's parameters is
/// written (1), and nothing else is (2). A copy that is gathered at the
/// beginning (0) is not written at the end. Every rank reports each metric of
/// the claim, and each as a whole (3).
LogicalResult Comparison::compareRank(int64_t rank, RankState &state) {
  // 0.
  for (auto &[name, own] : state.getGathered())
    if (failed(compareGathered(rank, state,
                               plan.getSymbols().findParameter(name), own)))
      return failure();
  // 1.
  for (auto &[key, expected] : claim.getWritten()) {
    nn::ParameterOp parameter = plan.getSymbols().findParameter(key.first);
    if (!outlivesStep(key.second) || !parameter ||
        !state.getTouched().contains(key.first) ||
        (key.second == Slot::Compute && state.getGathered().count(key.first)))
      continue;
    if (failed(compareSlot(rank, state, parameter, key.second, expected)))
      return failure();
  }
  // 2.
  for (auto &[key, own] : state.getWritten())
    if (outlivesStep(key.second) &&
        plan.getSymbols().findParameter(key.first) && !claim.findWritten(key))
      return rules.report.wrong(locate(own))
             << "@" << key.first << " is changed, and should stay as it is";
  // 3.
  for (auto &[name, expected] : claim.metrics) {
    auto known = state.metrics.find(name);
    if (known == state.metrics.end())
      return rules.report.wrong(module)
             << "stage " << rank << " does not report " << name;
    const Form &form = known->second.content.form;
    if (form.isPartial())
      return rules.report.wrong(locate(known->second))
             << name << " is " << printLayout(form);
    if (failed(compareTerms(name, locate(known->second), form.term,
                            expected.content.form.term)))
      return failure();
  }
  return success();
}

/// A rank that never touches a parameter does not hold it, and compareRank()
/// passes it by. So first each parameter has to have a holder, or one that no
/// stage computes with would not be missed.
LogicalResult Comparison::run() {
  for (auto &[key, expected] : claim.getWritten()) {
    if (!outlivesStep(key.second) ||
        !plan.getSymbols().findParameter(key.first))
      continue;
    if (llvm::none_of(plan.getRanks(), [&, name = key.first](RankState &state) {
          return state.getTouched().contains(name);
        }))
      return rules.report.wrong(plan.getSymbols().findParameter(key.first))
             << "no stage has @" << key.first;
  }
  for (auto [rank, state] : llvm::enumerate(plan.getRanks()))
    if (failed(compareRank(rank, state)))
      return failure();
  return success();
}

LogicalResult plait::proof::compareSteps(Step &claim, Step &plan, Rules &rules,
                                         ModuleOp module) {
  return Comparison(claim, plan, rules, module).run();
}
