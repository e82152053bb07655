//===- Rules.cpp - Table of rules by op -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The dispatch of ops to rules, and what the rules of all files ask: whether a
// form is possible, whether a value is whole, and how an error is reported
// where it began. The algebra of sums is in RulesElementwise.cpp.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "RulesDraw.h"

#include "plait/Interfaces/Padding.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Null: it has none.
///
/// The table is built once in a process, from what the files of rules list.
static const OpRule *findRule(Operation *op) {
  static const auto rules = [] {
    llvm::StringMap<OpRule> table;
    for (ArrayRef<OpRule> some :
         {getElementwiseRules(), getShapeRules(), getContractionRules(),
          getIndexRules(), getChunkRules(), getCollectiveRules(),
          getCompressionRules(), getKeepRules(), getDrawRules()})
      for (const OpRule &rule : some)
        table[rule.op] = rule;
    return table;
  }();
  auto found = rules.find(op->getName().getStringRef());
  return found == rules.end() ? nullptr : &found->second;
}

//===----------------------------------------------------------------------===//
// Rows that belong to one rank each
//===----------------------------------------------------------------------===//

/// Other ranks have to have zero, which is added up with the row.
LogicalResult Rules::requireSum(Operation *op, const Content &operand) {
  if (operand.form.isDispatched()) {
    wrong(op, operand) << "takes " << print(operand)
                       << ", where it needs those of all";
    return failure();
  }
  if (!operand.form.owner || operand.form.elsewhere.is(0))
    return success();
  taken(op, operand.form.elsewhere, 0)
      << "adds up what ranks without the expert have for " << print(operand);
  return failure();
}

FailureOr<Content> Rules::addOwned(Operation *op, const Content &operand) {
  if (failed(requireSum(op, operand)))
    return failure();
  Content sum = operand;
  sum.form.owner.reset();
  return sum;
}

/// Whether `operand` has the same owner, or is the same on all ranks that an
/// owner is one of.
static bool fits(const Content &operand, const Owner &owner) {
  if (operand.form.isDispatched())
    return operand.form.owner->covers(owner);
  if (operand.form.owner)
    return *operand.form.owner == owner;
  return llvm::none_of(owner.begin, [&](const RankTerm &term) {
    return operand.form.isPartialOver(term.axis) ||
           operand.form.findDim(term.axis) >= 0;
  });
}

/// Whether `op` moves rows, or adds up parts of them, among ranks that have the
/// same experts.
static bool movesRows(Operation *op, const Owner &owner) {
  auto isOwners = [&](StringRef axis) {
    return llvm::any_of(owner.begin, [&](const RankTerm &term) {
      return term.axis.getValue() == axis;
    });
  };
  if (auto slice = dyn_cast<dist::SliceOp>(op))
    return llvm::none_of(slice.getAxes().getAsValueRange<StringAttr>(),
                         isOwners);
  auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
  return collective && !isOwners(collective.getAxis());
}

/// Returns what other ranks have of rows, of an op that takes `ranges`. What
/// moves rows adds it up, or has zeros beyond their end.
static NumberRange findElsewhere(Operation *op, ArrayRef<NumberRange> ranges) {
  if (op->hasTrait<OpTrait::Elementwise>())
    if (auto fusable = dyn_cast<FusableOpInterface>(op);
        fusable && ranges.size() == op->getNumOperands())
      return evaluateElement(fusable, ranges);
  bool isZero = !op->hasTrait<OpTrait::Elementwise>() &&
                llvm::all_of(ranges, [](const NumberRange &range) {
                  return range.is(0);
                });
  return isZero ? NumberRange::exactly(0) : NumberRange::any();
}

/// The owner of what `op` makes of rows that belong by `owner`: where they are
/// repeated dimensions are other ones.
static Owner moveOwner(Operation *op, Owner owner) {
  if (auto repeated = dyn_cast<nn::BroadcastOp>(op))
    for (int &dim : owner.dims)
      if (dim != Owner::kAny)
        dim = int(repeated.getDims()[dim]);
  return owner;
}

/// Asks the rule as if operands were whole: on the rank that has it, each row
/// is. What the others have of it follows from the arithmetic, as of padding.
FailureOr<Content> Rules::evaluateOwned(Operation *op, Operands operands,
                                        Rule rule, RankedTensorType type) {
  Contents whole(operands.begin(), operands.end());
  SmallVector<NumberRange> ranges;
  std::optional<Owner> owner;
  bool isDispatched = true; // all that belongs by ids
  for (Content &operand : whole) {
    Form &form = operand.form;
    ranges.push_back(form.owner ? form.elsewhere : getUniform(operand));
    if (!form.owner)
      continue;
    // Who has one row has the token.
    if (!owner || !form.isDispatched())
      owner = form.owner;
    isDispatched &= form.isDispatched();
    form.dropOwner();
  }
  FailureOr<Content> result = rule(*this, op, pointTo(whole), type);
  if (failed(result) || result->form.term->isZero())
    return result;
  Form &form = result->form;
  if (isDispatched && form.isPartial()) {
    report.unproven(op) << "partial sums of tokens of a rank's experts have no "
                           "rule";
    return failure();
  }
  if (form.isPartial() && form.reduction != dist::Reduction::Sum) {
    wrong(op) << "the result would be both rows of experts and a partial "
              << "maximum: " << printLayout(form);
    return failure();
  }
  for (const RankTerm &term : owner->begin)
    form.partial.push_back(term.axis);
  form.owner = moveOwner(op, *owner);
  form.elsewhere = findElsewhere(op, ranges);
  if (isDispatched)
    form.reduction = dist::Reduction::Owned;
  return result;
}

/// Leaves rows that belong to one rank each so in elementwise ops whose
/// operands agree on the rank, and where they are moved. Other ops take them as
/// sums.
FailureOr<Content> Rules::apply(Operation *op, Operands operands,
                                const OpRule &rule, RankedTensorType type) {
  auto isOwned = [](const Content &operand) {
    return operand.form.owner && !operand.form.isDispatched();
  };
  auto first = llvm::find_if(operands, isOwned);
  if (first == operands.end())
    first = llvm::find_if(operands, [](const Content &operand) {
      return operand.form.owner.has_value();
    });
  if (first == operands.end() || rule.takesOwned)
    return rule.rule(*this, op, operands, type);
  bool repeats = isa<nn::BroadcastOp>(op) && first->form.isDispatched();
  bool staysOwned =
      op->hasTrait<OpTrait::Elementwise>()
          ? llvm::all_of(operands,
                         [&](const Content &operand) {
                           return fits(operand, *first->form.owner);
                         })
          : repeats || movesRows(op, *first->form.owner);
  if (staysOwned)
    return evaluateOwned(op, operands, rule.rule, type);
  Contents sums;
  for (const Content &operand : operands) {
    FailureOr<Content> sum = addOwned(op, operand);
    if (failed(sum))
      return failure();
    sums.push_back(std::move(*sum));
  }
  return rule.rule(*this, op, pointTo(sums), type);
}

/// In this order:
/// 1. A fused matmul is what its parts are.
/// 2. An op with a rule is judged by it, also where it decomposes: a rule of
///    its own sees more.
/// 3. An op without one decomposes, or is not proven.
/// 4. Packs go to rules that take them; an elementwise op works on each member
///    by itself.
/// 5. The form of the result has to be possible on a mesh.
LogicalResult Rules::evaluate(Operation *op, Operands operands,
                              Contents &results) {
  // Errors look for the cause among the operands. Decomposition evaluates other
  // ops on the way, so the outer ones are restored.
  llvm::SaveAndRestore restore(current, operands);
  // 1. Parts.
  if (auto fused = dyn_cast<nn::FusedMatmulOp>(op))
    return evaluateFused(fused, operands, results);
  const OpRule *rule = findRule(op);
  // 2. and 3. A rule, or the parts again.
  if (!rule && isa<DecomposableOpInterface>(op))
    return decompose(op, operands, results);
  if (!rule || op->getNumResults() != 1) {
    report.unproven(op) << "op \"" << op->getName().getStringRef()
                        << "\" has no rule";
    return failure();
  }
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  // 4. Packs.
  bool isPacked = llvm::any_of(
      operands, [](const Content &operand) { return operand.pack != nullptr; });
  bool splitsPacks = op->hasTrait<OpTrait::Elementwise>();
  if (isPacked && !splitsPacks && !rule->takesPacks) {
    report.unproven(op) << "op \"" << op->getName().getStringRef()
                        << "\" has no rule for packs";
    return failure();
  }
  FailureOr<Content> result =
      isPacked && splitsPacks ? evaluatePacked(op, operands, rule->rule, type)
                              : apply(op, operands, *rule, type);
  if (failed(result))
    return failure();
  // 5. Members of packs were checked one by one.
  if (!result->pack && failed(checkAxes(op, result->form)))
    return failure();
  results.push_back(std::move(*result));
  return success();
}

//===----------------------------------------------------------------------===//
// What all rules ask
//===----------------------------------------------------------------------===//

/// Partial axes count too: a rank that has both its slice along an axis and its
/// share of a sum over the same axis has one block of a matrix of blocks, and
/// no collective makes a whole of those on the diagonal.
LogicalResult Rules::checkAxes(Operation *op, const Form &form) {
  llvm::SmallDenseSet<StringAttr, 4> seen;
  auto check = [&](StringAttr axis) -> LogicalResult {
    if (seen.insert(axis).second)
      return success();
    return wrong(op) << "the result depends on a rank's index along \""
                     << axis.getValue() << "\" twice (" << printLayout(form)
                     << "): each rank has one block of the diagonal";
  };
  for (const Dimension &dim : form.dims)
    for (const RankTerm &term : dim.begin)
      if (failed(check(term.axis)))
        return failure();
  for (StringAttr axis : form.partial)
    if (failed(check(axis)))
      return failure();
  return success();
}

/// For errors whose cause is probably not at `op` but where a slot was written.
InFlightDiagnostic Rules::wrong(Operation *op, Operands operands) {
  InFlightDiagnostic diag = wrong(op);
  for (const Content &operand : operands)
    if (operand.writer)
      diag.attachNote(operand.writer->getLoc())
          << "this has written what it takes";
  return diag;
}

/// The lowest id is what was computed first. Only terms that the claim does not
/// have are searched: a mixture in it would be the model's.
const Rules::Mixture *Rules::findMixture(const Term *term) const {
  const Mixture *first = nullptr;
  unsigned least = 0;
  findStrangers(term, [&](const Term *part) {
    auto known = mixtures.find(part);
    if (known == mixtures.end() || (first && part->id > least))
      return;
    first = &known->second;
    least = part->id;
  });
  return first;
}

/// The mixture is an error of its own, before that of the op, which may be no
/// more than its consequence.
InFlightDiagnostic Rules::wrong(Operation *op) {
  for (const Content &operand : current)
    if (const Mixture *mixture =
            operand.pack ? nullptr : findMixture(operand.form.term)) {
      wrong(*mixture);
      break;
    }
  return report.wrong(op);
}

InFlightDiagnostic Rules::wrong(const Mixture &mixture) {
  InFlightDiagnostic diag = report.wrong(mixture.op);
  diag << mixture.text;
  for (Location writer : mixture.writers)
    diag.attachNote(writer) << "this has written what it takes";
  return diag;
}

/// For ops that are not linear: f(a) + f(b) is not f(a + b).
LogicalResult Rules::requireWhole(Operation *op, const Content &operand) {
  if (!operand.form.isPartial())
    return success();
  return wrong(op, operand)
         << "takes " << print(operand) << ", which has to be combined before";
}

/// The ranks along those axes have reduced different slices each, so their
/// results are parts of the whole. Nothing happens where the dimension is not
/// split.
LogicalResult Rules::addPartial(Operation *op, Form &form, const Dimension &dim,
                                dist::Reduction kind) {
  if (dim.begin.empty())
    return success();
  if (form.isPartial() && form.reduction != kind)
    return wrong(op) << "the result would be both a partial sum and a partial "
                        "maximum: "
                     << printLayout(form);
  form.reduction = kind;
  for (const RankTerm &term : dim.begin)
    form.partial.push_back(term.axis);
  return success();
}

/// All blocks are equally large; where the extent does not divide, the last
/// ones end in padding. It is taken for zeros, which parameters start with and
/// which each step leaves there, as the comparison shows.
Content Rules::makeLeaf(StringRef name, RankedTensorType global,
                        ArrayRef<SmallVector<StringAttr>> axes) {
  Content content;
  SmallVector<int64_t> shape(global.getShape());
  content.form.term = terms.leaf(name, shape);
  for (auto [extent, own] : llvm::zip_equal(shape, axes)) {
    int64_t blocks = 1;
    for (StringAttr axis : own)
      blocks *= mesh.getSize(axis);
    extent = llvm::divideCeil(extent, blocks);
    Dimension &dim = content.form.dims.emplace_back();
    dim.uniform = false;
    dim.begin = mesh.split(own, extent);
  }
  content.type = RankedTensorType::get(shape, global.getElementType());
  return content;
}
