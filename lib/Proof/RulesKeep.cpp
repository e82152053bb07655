//===- RulesKeep.cpp - Rules of chunks of which some elements are kept ----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A mask has the elements of what it was made of, and is opaque: which elements
// it has is told by the op and its input. What a rank sends of them is seen as
// the whole, with the mask beside it (Pack::Member::mask), and becomes the
// product of both where it is expanded again, by the same mask. For that it
// has to have room for all that the mask has, as nn.keep_top says of a mask.
//
// Where a table of chunks has no element is not told by the chunks, but by
// nn.occupied: it has to list what the table consists of. In the elements
// themselves it is the number 1.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

//===----------------------------------------------------------------------===//
// Ends of tensors
//===----------------------------------------------------------------------===//

/// Ones, that are counted: of a chunk there are as many as it has elements.
/// They are those of any replica.
static Form makeOnes(Rules &rules, const Form &like) {
  Form form = like;
  form.dims[0] = Dimension();
  for (auto [index, dim] : llvm::enumerate(form.dims)) {
    if (dim.fitsAll())
      continue;
    int64_t extent = like.getExtent(index);
    dim.uniform = true;
    dim.extent = extent;
  }
  form.partial.clear();
  form.owner.reset();
  form.term = rules.terms.one();
  return form;
}

/// The members are those that the op lists, where it counts them.
static LogicalResult checkOccupied(Rules &rules, nn::OccupiedOp op,
                                   const Content &input) {
  ArrayRef<int64_t> elements = op.getElements();
  int64_t columns = input.type.getShape().back(), next = 0;
  bool fits = elements.size() == input.pack->members.size();
  for (size_t index = 0; fits && index < elements.size(); ++index) {
    const Pack::Member &member = input.pack->members[index];
    ArrayRef<int64_t> shape = member.type.getShape();
    // The first dimension is of the replicas.
    fits = member.offset == next &&
           ShapedType::getNumElements(shape.drop_front()) == elements[index];
    next += llvm::alignTo(elements[index], columns);
  }
  if (fits)
    return success();
  return rules.wrong(op) << "tells of tensors of " << op.getElementsAttr()
                         << " elements in " << print(input);
}

static FailureOr<Content> evaluateOccupied(Rules &rules, Operation *op,
                                           Operands operands,
                                           RankedTensorType type) {
  const Content &input = operands[0];
  if (!input.pack)
    return Content{type, makeOnes(rules, input.form), nullptr};
  PackView view{.replicas = input.pack->view.replicas,
                .isStacked = input.pack->view.isStacked};
  if (!view.replicas || input.pack->view != view || !input.pack->rows.empty())
    return failView(rules, op, input);
  if (failed(checkOccupied(rules, cast<nn::OccupiedOp>(op), input)))
    return failure();
  auto pack = std::make_shared<Pack>(*input.pack);
  for (Pack::Member &member : pack->members)
    member.form = makeOnes(rules, member.form);
  pack->gap = NumberRange::exactly(0);
  return Content{type, {}, std::move(pack)};
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

static constexpr StringLiteral kMask = "nn.keep_top";

static FailureOr<Content> maskTop(Rules &rules, nn::KeepTopOp op,
                                  const Content &member, StringRef name) {
  if (failed(rules.requireWhole(op, member)) ||
      failed(checkChunks(rules, op, member, name, op.getBlock())))
    return failure();
  Content result = member;
  Argument elements = member.form.asArgument();
  Builder builder(op.getContext());
  result.form.setTerm(rules.terms.apply(
      kMask, builder.getArrayAttr({op.getKeepAttr(), op.getBlockAttr()}),
      elements, elements.letters));
  return result;
}

/// Between members there are zeros, of which some are marked.
static FailureOr<Content> evaluateKeepTop(Rules &rules, Operation *op,
                                          Operands operands,
                                          RankedTensorType type) {
  auto keep = cast<nn::KeepTopOp>(op);
  const Content &input = operands[0];
  if (!input.pack)
    return maskTop(rules, keep, input, "the parameter");
  if (!areParts(input) ||
      input.type.getShape().back() != int64_t(keep.getBlock()))
    return failView(rules, op, input);
  if (!input.pack->gap.is(0)) {
    rules.wrong(op) << "takes what lies between the members of "
                    << print(input);
    return failure();
  }
  auto pack = std::make_shared<Pack>(*input.pack);
  for (Pack::Member &member : pack->members) {
    if (member.offset % int64_t(keep.getBlock())) {
      rules.wrong(op) << "takes rows of " << int64_t(keep.getBlock())
                      << " elements, but " << member.name
                      << " begins at element " << member.offset;
      return failure();
    }
    FailureOr<Content> result =
        maskTop(rules, keep, {member.type, member.form, nullptr}, member.name);
    if (failed(result))
      return failure();
    member.form = std::move(result->form);
  }
  pack->gap = {0, 1};
  return Content{type, {}, std::move(pack)};
}

/// Whether all members of `mask` are masks of at most `columns` elements of
/// each chunk.
static bool areMasks(const Pack &mask, int64_t columns) {
  return llvm::all_of(mask.members, [&](const Pack::Member &member) {
    const Term *term = member.form.term;
    if (term->kind != Term::Apply || term->name != kMask)
      return false;
    auto keep = cast<IntegerAttr>(cast<ArrayAttr>(term->attrs)[0]);
    return keep.getInt() <= columns;
  });
}

/// Whether elements of both lie at the same places of a rank's memory.
static bool lieAlike(const Pack &a, const Pack &b) {
  auto liesAlike = [](const Pack::Member &x, const Pack::Member &y) {
    return x.offset == y.offset && x.type == y.type &&
           llvm::equal(x.form.dims, y.form.dims,
                       [](const Dimension &own, const Dimension &other) {
                         return own.liesAs(other) || own.fitsAll() ||
                                other.fitsAll();
                       });
  };
  return a.elements == b.elements && a.rows == b.rows &&
         llvm::equal(a.members, b.members, liesAlike);
}

static FailureOr<Content> failMask(Rules &rules, Operation *op,
                                   const Content &mask) {
  rules.wrong(op) << "takes " << print(mask)
                  << ", which is no mask of as few elements of each chunk";
  return failure();
}

static FailureOr<Content> evaluateCompact(Rules &rules, Operation *op,
                                          Operands operands,
                                          RankedTensorType type) {
  const Content &input = operands[0], &mask = operands[1];
  if (!areParts(input) || !areParts(mask))
    return failView(rules, op, input);
  int64_t columns = type.getShape().back();
  if (!lieAlike(*input.pack, *mask.pack) || !areMasks(*mask.pack, columns))
    return failMask(rules, op, mask);
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view.kept = columns;
  for (auto [own, other] : llvm::zip_equal(pack->members, mask.pack->members))
    own.mask = other.form.term;
  return Content{type, {}, std::move(pack)};
}

/// Makes the whole times the mask of what is at the places of the mask.
static FailureOr<Content> evaluateExpand(Rules &rules, Operation *op,
                                         Operands operands,
                                         RankedTensorType type) {
  const Content &input = operands[0], &mask = operands[1];
  if (!input.pack || !mask.pack)
    return failView(rules, op, input);
  PackView view{.replicas = mask.pack->view.replicas,
                .isStacked = mask.pack->view.isStacked};
  PackView wanted = view;
  wanted.kept = input.type.getShape().back();
  if (mask.pack->view != view || input.pack->view != wanted)
    return failView(rules, op, input);
  bool fits = lieAlike(*input.pack, *mask.pack);
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view = view;
  for (size_t index = 0; fits && index < pack->members.size(); ++index) {
    Pack::Member &own = pack->members[index];
    const Form &other = mask.pack->members[index].form;
    fits = own.mask == other.term;
    own.mask = nullptr;
    own.form.setTerm(
        rules.terms.product({own.form.asArgument(), other.asArgument()}));
  }
  if (!fits) {
    rules.wrong(op) << "expands " << print(input)
                    << " by another mask: " << print(mask);
    return failure();
  }
  if (!pack->gap.is(0))
    pack->gap = NumberRange::any();
  return Content{type, {}, std::move(pack)};
}

static FailureOr<Content> evaluateFind(Rules &rules, Operation *op,
                                       Operands operands,
                                       RankedTensorType type) {
  const Content &mask = operands[0];
  if (!areParts(mask))
    return failView(rules, op, mask);
  int64_t columns = type.getShape().back();
  if (!areMasks(*mask.pack, columns))
    return failMask(rules, op, mask);
  auto pack = std::make_shared<Pack>(*mask.pack);
  pack->view.kept = columns;
  pack->view.areColumns = true;
  return Content{type, {}, std::move(pack)};
}

static FailureOr<Content> evaluateMark(Rules &rules, Operation *op,
                                       Operands operands,
                                       RankedTensorType type) {
  const Content &input = operands[0];
  if (!input.pack)
    return failView(rules, op, input);
  PackView view{.replicas = input.pack->view.replicas,
                .isStacked = input.pack->view.isStacked};
  PackView wanted = view;
  wanted.kept = input.type.getShape().back();
  wanted.areColumns = true;
  int64_t copies = view.isStacked ? type.getDimSize(0) : 1;
  if (input.pack->view != wanted ||
      type.getNumElements() != countElements(rules, *input.pack) * copies)
    return failView(rules, op, input);
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view = view;
  return Content{type, {}, std::move(pack)};
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getKeepRules() {
  static const OpRule rules[] = {
      {"nn.occupied", evaluateOccupied, /*takesPacks=*/true},
      {"nn.keep_top", evaluateKeepTop, /*takesPacks=*/true},
      {"nn.compact", evaluateCompact, /*takesPacks=*/true},
      {"nn.expand", evaluateExpand, /*takesPacks=*/true},
      {"nn.find", evaluateFind, /*takesPacks=*/true},
      {"nn.mark", evaluateMark, /*takesPacks=*/true},
  };
  return rules;
}
