//===- Rules.cpp - Which op has which rule ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Null: it has none.
static const OpRule *findRule(Operation *op) {
  static const auto rules = [] {
    llvm::StringMap<OpRule> table;
    for (ArrayRef<OpRule> some :
         {getElementwiseRules(), getShapeRules(), getContractionRules(),
          getIndexRules(), getCollectiveRules()})
      for (const OpRule &rule : some)
        table[rule.op] = rule;
    return table;
  }();
  auto found = rules.find(op->getName().getStringRef());
  return found == rules.end() ? nullptr : &found->second;
}

FailureOr<Contents> Rules::evaluate(Operation *op, Operands operands) {
  llvm::SaveAndRestore restore(current, operands);
  if (auto fused = dyn_cast<nn::FusedMatmulOp>(op))
    return evaluateFused(fused, operands);
  const OpRule *rule = findRule(op);
  if (!rule && isa<DecomposableOpInterface>(op))
    return decompose(op, operands);
  if (!rule || op->getNumResults() != 1) {
    report.unproven(op) << "op \"" << op->getName().getStringRef()
                        << "\" has no rule";
    return failure();
  }
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
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
                              : rule->rule(*this, op, operands, type);
  if (failed(result))
    return failure();
  if (!result->pack && failed(checkAxes(op, result->form)))
    return failure();
  return Contents{std::move(*result)};
}

//===----------------------------------------------------------------------===//
// What all rules ask
//===----------------------------------------------------------------------===//

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

InFlightDiagnostic Rules::wrong(Operation *op, Operands operands) {
  InFlightDiagnostic diag = wrong(op);
  for (const Content &operand : operands)
    if (operand.writer)
      diag.attachNote(operand.writer->getLoc())
          << "this has written what it takes";
  return diag;
}

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

LogicalResult Rules::requireWhole(Operation *op, const Content &operand) {
  if (!operand.form.isPartial())
    return success();
  return wrong(op, operand)
         << "takes " << print(operand) << ", which has to be combined before";
}

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
