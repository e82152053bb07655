//===- RulesChunks.cpp - Rules of chunks ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank computes one chunk after the other. A chunk is a slice along an
// axis of its own, so that the rules of all other ops hold for it as they are:
// operands have to be of the same chunk, and a sum over a dimension of which
// there is a chunk is partial. Here chunks begin and end: joined in their order
// they are the whole, and so is the sum of what all of them have summed up, in
// any order.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Leaves out what is padded: a chunk of it may be all padding.
static FailureOr<Content> evaluateChunk(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  auto chunk = cast<nn::ChunkOp>(op);
  int64_t dim = chunk.getDim(), part = chunk.getPart();
  Content result = operands[0];
  Dimension &own = result.form.dims[dim];
  int64_t given = result.type.getDimSize(dim);
  result.type = type;
  if (own.fitsAll() || int64_t(chunk.getParts()) == 1)
    return result;
  if (own.uniform || own.rounds > 1 ||
      isPadded(result.form, dim, given, rules.mesh)) {
    rules.report.unproven(op)
        << "a chunk of what is padded, or dealt out in rounds, has no rule";
    return failure();
  }
  Chunks axis = Chunks::one(dim, part, chunk.getParts());
  own.begin.push_back({axis.getAxis(op->getContext()), type.getDimSize(dim)});
  return result;
}

/// Takes `chunk` of the dimension for the whole; false: it is another slice.
static bool dropChunk(Form &form, int64_t dim, const Chunks &chunk,
                      MLIRContext *context) {
  Dimension &own = form.dims[dim];
  if (own.fitsAll())
    return true;
  StringAttr axis = chunk.getAxis(context);
  auto *found = llvm::find_if(
      own.begin, [&](const RankTerm &term) { return term.axis == axis; });
  if (found == own.begin.end())
    return false;
  own.begin.erase(found);
  return true;
}

/// Whether both are the same slices of the same tensor, and have to be added up
/// over the same axes.
static bool areSame(const Form &a, const Form &b) {
  return a.term == b.term && a.reduction == b.reduction &&
         a.partial == b.partial &&
         llvm::equal(a.dims, b.dims,
                     [](const Dimension &x, const Dimension &y) {
                       return x.uniform == y.uniform && x.extent == y.extent &&
                              x.liesAs(y);
                     });
}

static FailureOr<Content> evaluateConcat(Rules &rules, Operation *op,
                                         Operands operands,
                                         RankedTensorType type) {
  int64_t dim = cast<nn::ConcatOp>(op).getDim();
  // Dimensions are numbered as when the chunk was cut: one in front may be gone
  // since, or new.
  std::optional<Chunks> first;
  for (const RankTerm &term : operands[0].form.dims[dim].begin)
    if (auto chunks = Chunks::parse(term.axis))
      first = chunks;
  Content result{type, operands[0].form, nullptr};
  for (auto [index, operand] : llvm::enumerate(operands)) {
    int64_t part = index, parts = operands.size();
    Chunks wanted = Chunks::one(first ? first->dim : dim, part, parts);
    Form form = operand.form;
    bool fits = parts == 1 || dropChunk(form, dim, wanted, op->getContext());
    if (index == 0)
      result.form = form;
    if (!fits || !areSame(form, result.form)) {
      rules.wrong(op, operands)
          << "joins " << print(operand) << " as chunk " << part << " of "
          << parts << " of " << print(result);
      return failure();
    }
    for (auto [own, other] : llvm::zip_equal(result.form.dims, form.dims))
      own.padding = own.padding.join(other.padding);
  }
  return result;
}

std::optional<Content> proof::uniteChunks(const Content &first,
                                          const Content &second) {
  if (first.form.partial.size() != second.form.partial.size())
    return std::nullopt;
  Content sum = first;
  Form other = second.form;
  for (auto [own, axis] : llvm::zip_equal(sum.form.partial, other.partial)) {
    std::optional<Chunks> chunks = Chunks::parse(own),
                          others = Chunks::parse(axis);
    if (!chunks || !others || !chunks->add(*others))
      continue;
    own = axis = chunks->getAxis(own.getContext());
    if (!areSame(sum.form, other))
      return std::nullopt;
    if (chunks->areAll())
      llvm::erase(sum.form.partial, axis);
    return sum;
  }
  return std::nullopt;
}

ArrayRef<OpRule> proof::getChunkRules() {
  static const OpRule rules[] = {
      {"nn.chunk", evaluateChunk},
      {"nn.concat", evaluateConcat},
  };
  return rules;
}
