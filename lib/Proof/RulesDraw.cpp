//===- RulesDraw.cpp - Rules of random numbers of compressors -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random numbers are opaque: the same ones where the op, the parameter's key
// and the step are the same, and elements are at the same place. For that a
// rank has to count chunks as they are numbered in the whole parameter.
//
//===----------------------------------------------------------------------===//

#include "RulesDraw.h"

#include "plait/Dialect/NN/IR/NNDraw.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

namespace {
/// The place of the chunks of one parameter, as the form has it: runs of
/// neighbours from the innermost dimension on that is split.
struct Run {
  int64_t chunks, whole;
  SmallVector<RankTerm, 2> begin;
  bool isSplitTwice = false;
};
} // namespace

static Run findRun(const Content &member, int64_t block) {
  int64_t inner = 1;
  Run run{};
  ArrayRef<int64_t> shape = member.type.getShape();
  for (int64_t dim = shape.size(); --dim > 0;) {
    const Dimension &own = member.form.dims[dim];
    bool isSplit = !own.begin.empty();
    if (run.chunks) {
      run.isSplitTwice |= isSplit;
    } else if (isSplit) {
      run.chunks = shape[dim] * inner / block;
      run.whole = member.form.getExtent(dim) * inner / block;
      for (const RankTerm &term : own.begin)
        run.begin.push_back({term.axis, term.scale * inner / block});
    }
    inner *= shape[dim];
  }
  if (!run.chunks)
    run.chunks = llvm::divideCeil(inner, block);
  return run;
}

/// Checks that a rank counts as the whole is numbered.
static LogicalResult checkRun(Rules &rules, nn::DrawOp op, size_t index,
                              const Content &member, StringRef name) {
  Run run = findRun(member, op.getBlock());
  if (run.isSplitTwice) {
    rules.report.unproven(op)
        << "random numbers of " << name
        << ", which is split along two dimensions, have no rule";
    return failure();
  }
  auto begin = dyn_cast<nn::BeginAttr>(op.getBegins()[index]);
  bool fits =
      op.getRuns()[index] == run.chunks && bool(begin) == !run.begin.empty();
  if (begin)
    fits &= begin.getExtent() == run.whole && !begin.isReordered() &&
            rules.mesh.simplify(begin.getTerms()) == run.begin;
  if (fits)
    return success();
  return rules.wrong(op) << "counts chunks of " << name << " in runs of "
                         << op.getRuns()[index] << " from "
                         << op.getBegins()[index] << " on, of which a rank has "
                         << run.chunks << " of "
                         << (run.begin.empty() ? run.chunks : run.whole);
}

/// The first dimension is of the replicas, of which a rank has one.
static LogicalResult checkReplica(Rules &rules, nn::DrawOp op,
                                  const Content &member) {
  SmallVector<RankTerm, 2> own;
  if (op.getReplica())
    own = rules.mesh.simplify(op.getReplica()->getTerms());
  if (op.getShared() || own == member.form.dims[0].begin)
    return success();
  return rules.wrong(op) << "takes replicas for others than those of the input";
}

/// Numbers of all letters of a member, but of its first where all replicas
/// draw the same.
static FailureOr<Form> drawMember(Rules &rules, nn::DrawOp op, size_t index,
                                  const Content &member, StringRef name,
                                  const Content &step) {
  if (failed(rules.requireWhole(op, member)) ||
      failed(checkChunks(rules, op, member, name, op.getBlock())) ||
      failed(checkRun(rules, op, index, member, name)) ||
      failed(checkReplica(rules, op, member)))
    return failure();
  if (!op.getShared() && member.form.dims[0].fitsAll()) {
    rules.report.unproven(op) << "random numbers of equal parts have no rule";
    return failure();
  }
  Form form = member.form;
  form.partial.clear();
  form.owner.reset();
  Letters letters;
  SmallVector<int64_t> extents;
  for (int64_t dim = 0; dim < int64_t(form.dims.size()); ++dim) {
    Dimension &own = form.dims[dim];
    own.padding = NumberRange::any();
    if (dim == 0 && op.getShared()) {
      own = Dimension();
      continue;
    }
    letters.push_back(dim);
    extents.push_back(member.form.getExtent(dim));
  }
  Builder builder(op.getContext());
  auto attrs =
      builder.getArrayAttr({op.getSeedAttr(), op.getBlockAttr(),
                            builder.getI64IntegerAttr(op.getKeys()[index])});
  form.setTerm(rules.terms.apply("nn.draw", attrs, step.form.asArgument(),
                                 letters, extents));
  return form;
}

/// The members are those that the op lists, in rows of their own.
static FailureOr<Content> drawPack(Rules &rules, nn::DrawOp op,
                                   const Content &input, const Content &step,
                                   RankedTensorType type) {
  if (!areParts(input) || !input.pack->rows.empty() ||
      type.getShape().back() != int64_t(op.getBlock()))
    return failView(rules, op, input);
  auto pack = std::make_shared<Pack>(*input.pack);
  int64_t block = op.getBlock(), next = 0;
  bool fits = pack->members.size() == op.getElements().size();
  for (size_t index = 0; fits && index < pack->members.size(); ++index) {
    Pack::Member &member = pack->members[index];
    int64_t elements = op.getElements()[index];
    fits = member.offset == next && member.type.getNumElements() == elements &&
           nn::getDrawKey(member.name) == op.getKeys()[index];
    next += llvm::alignTo(elements, block);
    if (!fits)
      break;
    FailureOr<Form> form =
        drawMember(rules, op, index, {member.type, member.form, nullptr},
                   member.name, step);
    if (failed(form))
      return failure();
    member.form = std::move(*form);
  }
  if (!fits) {
    rules.wrong(op) << "draws for tensors of " << op.getElementsAttr()
                    << " elements with keys " << op.getKeysAttr() << " in "
                    << print(input);
    return failure();
  }
  pack->gap = {0, 1};
  return Content{type, {}, std::move(pack)};
}

static FailureOr<Content> evaluateDraw(Rules &rules, Operation *op,
                                       Operands operands,
                                       RankedTensorType type) {
  auto draw = cast<nn::DrawOp>(op);
  const Content &input = operands[0], &step = operands[1];
  bool isScalar =
      !step.pack && llvm::all_of(step.form.dims,
                                 [](const auto &dim) { return dim.fitsAll(); });
  if (!isScalar)
    return failView(rules, op, step);
  if (failed(rules.requireWhole(op, step)))
    return failure();
  if (input.pack)
    return drawPack(rules, draw, input, step, type);
  FailureOr<Form> form =
      drawMember(rules, draw, 0, input, "the parameter", step);
  if (failed(form))
    return failure();
  return Content{type, std::move(*form), nullptr};
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getDrawRules() {
  static const OpRule rules[] = {
      {"nn.draw", evaluateDraw, /*takesPacks=*/true},
  };
  return rules;
}
