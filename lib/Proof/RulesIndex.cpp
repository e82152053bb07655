//===- RulesIndex.cpp - Rules of ops that compute with indices ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops whose result depends on where an element is in the whole tensor: lookups
// in tables and their gradients, one-hot selection, masks, dropout, positions.
// Each becomes a term that does not mention ranks. What a rank counts from is
// in the op (`#nn.begin`), and has to be where its slice begins; along a
// uniform dimension the op alone says which slice it is of (setCounted).
// Picking and dropping multiply by zeros, ones or scales: they are linear. The
// causal mask writes minus infinity, and is a function.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "plait/Interfaces/Padding.h"
#include "plait/Support/DropoutMask.h"

#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// None: the op counts from 0, as on a rank that has the whole.
static ArrayRef<RankTerm> getTerms(std::optional<nn::BeginAttr> begin) {
  return begin ? begin->getTerms() : ArrayRef<RankTerm>();
}

/// What an op takes a dimension for that it counts from `begin` on.
static void setBegin(const MeshSizes &mesh, Dimension &dim,
                     std::optional<nn::BeginAttr> begin) {
  dim.begin = mesh.simplify(getTerms(begin));
  dim.chunks = begin ? begin->getChunks() : 0;
}

/// That `op` counts along `dim` from where the slice of `form` begins, and,
/// where it says of how many elements, of as many. Axes with one rank do not
/// matter. The message says both as layouts.
static LogicalResult checkBegin(Rules &rules, Operation *op, const Form &form,
                                int64_t dim,
                                std::optional<nn::BeginAttr> begin) {
  Form counted;
  counted.dims.resize(dim + 1);
  counted.dims[dim].uniform = false;
  setBegin(rules.mesh, counted.dims[dim], begin);
  if (counted.dims[dim].liesAs(form.dims[dim])) {
    int64_t extent = begin ? begin->getExtent() : 0;
    if (extent == 0 || form.dims[dim].fitsAll() ||
        extent == form.getExtent(dim))
      return success();
    return rules.wrong(op) << "counts in a dimension " << dim << " of "
                           << extent << " elements, which has "
                           << form.getExtent(dim);
  }
  return rules.wrong(op) << "takes for dimension " << dim << " "
                         << printLayout(counted) << ", but has "
                         << printLayout(form);
}

/// A dimension that a rank counts `extent` elements of from `begin` on: where
/// the rank's slice begins, and how many elements there are in all. No operand
/// says so, hence the slices have to be all there is, and each element to be in
/// one of them.
///
/// Returns the extent of the global dimension: `limit` or, if it is 0, what
/// `begin` says. That is no more than all blocks have together, which is the
/// extent if nothing is said: right where the dimension is split evenly.
static FailureOr<int64_t> setCounted(Rules &rules, Operation *op,
                                     Dimension &dim,
                                     std::optional<nn::BeginAttr> begin,
                                     int64_t extent, int64_t limit = 0) {
  dim.uniform = false;
  setBegin(rules.mesh, dim, begin);
  if (!rules.mesh.tiles(dim.begin, extent)) {
    Form counted;
    counted.dims.push_back(dim);
    rules.wrong(op) << "counts blocks of " << extent
                    << " elements that do not lie side by side: "
                    << printLayout(counted);
    return failure();
  }
  int64_t all = extent * rules.mesh.countBlocks(dim.begin);
  for (int64_t said : {begin ? begin->getExtent() : 0, limit})
    if (said > all) {
      rules.wrong(op) << "counts " << said << " elements, of which all ranks "
                      << "have " << all;
      return failure();
    }
  if (limit)
    return limit;
  return begin && begin->getExtent() ? begin->getExtent() : all;
}

//===----------------------------------------------------------------------===//
// Rows of tables
//===----------------------------------------------------------------------===//

/// 1. Table and ids are whole values; the op begins at the table's slice, and
///    its limit is the table's number of rows. Of a table of equal rows the op
///    alone says which slice it takes.
/// 2. The result has the dimensions of the ids and the table's columns. A rank
///    that has a block of the rows gives zeros for all other ids, so the result
///    is partial over the axes that split them.
/// 3. In the term the rows are a letter that is reduced, and the columns the
///    result's last one. Of equal rows it is one of them where an id names any.
static FailureOr<Content> evaluateEmbedding(Rules &rules, Operation *op,
                                            Operands operands,
                                            RankedTensorType type) {
  auto embedding = cast<nn::EmbeddingOp>(op);
  const Content &table = operands[0], &ids = operands[1];
  // 1. Operands.
  if (failed(rules.requireWhole(op, table)) ||
      failed(rules.requireWhole(op, ids)))
    return failure();
  Dimension rows = table.form.dims[0];
  int64_t limit = embedding.getLimit(), count = 0;
  if (rows.fitsAll()) {
    FailureOr<int64_t> all = setCounted(rules, op, rows, embedding.getBegin(),
                                        table.type.getDimSize(0), limit);
    if (failed(all))
      return failure();
    count = *all;
  } else {
    count = table.form.getExtent(0);
    if (failed(checkBegin(rules, op, table.form, 0, embedding.getBegin())))
      return failure();
  }
  if (limit && limit != count) {
    rules.wrong(op) << "takes " << limit << " rows for a table of " << count;
    return failure();
  }
  // 2. The form.
  Form form = *rules.unify(op, pointTo(ids));
  Dimension &columns = form.dims.emplace_back(table.form.dims[1]);
  columns.padding = columns.padding.join(NumberRange::exactly(0));
  if (!columns.fitsAll())
    columns.extent = table.form.getExtent(1);
  // Of an id in another rank's block it gives zeros.
  if (failed(rules.addPartial(op, form, rows, dist::Reduction::Sum)))
    return failure();
  // 3. The term.
  int column = type.getRank() - 1;
  Argument names = ids.form.asArgument(), all = table.form.asArgument();
  Letters present = names.letters;
  if (table.form.dims[0].uniform) {
    auto counted =
        IntegerAttr::get(IntegerType::get(op->getContext(), 64), count);
    Expression named =
        rules.terms.apply("names a row", counted, names, present);
    all.letters.assign(all.letters.size(), column);
    form.setTerm(
        rules.terms.product({all, Argument{named.term, named.letters}}));
  } else {
    for (int &letter : all.letters)
      letter = letter == 0 ? column + 1 : column;
    if (!columns.uniform)
      present.push_back(column);
    form.setTerm(rules.terms.apply("nn.embedding", {}, {all, names}, present));
  }
  // Whatever id lies there, it gets a row of the table or zeros.
  for (Dimension &dim : MutableArrayRef(form.dims).drop_back())
    dim.padding = NumberRange::finite();
  simplify(form, type, rules.mesh);
  return Content{type, std::move(form), nullptr};
}

/// The transpose of a lookup: each position adds its row of the gradient to the
/// row of the table that its id names.
/// 1. The ids are whole; gradient and ids have the same slices of positions.
///    The gradient may be a partial sum, since the op is linear in it.
/// 2. The rows are what the op counts: no operand has them.
/// 3. All positions are summed over, so their padding has to be zero, equal
///    ones count as often as there are, and the axes that split them become
///    partial.
/// 4. In the term rows and columns are the letters 0 and 1, positions the ones
///    after.
static FailureOr<Content> evaluateEmbeddingGrad(Rules &rules, Operation *op,
                                                Operands operands,
                                                RankedTensorType type) {
  auto scatter = cast<nn::EmbeddingGradOp>(op);
  const Content &gradient = operands[0], &ids = operands[1];
  // 1. Operands.
  if (failed(rules.requireWhole(op, ids)))
    return failure();
  Content extended = ids;
  extended.form.dims.emplace_back();
  FailureOr<Form> positions = rules.unify(op, pointTo({gradient, extended}));
  if (failed(positions))
    return failure();
  Form form;
  form.partial = gradient.form.partial;
  form.reduction = gradient.form.reduction;
  if (form.reduction != dist::Reduction::Sum &&
      failed(rules.requireWhole(op, gradient)))
    return failure();
  // 2. Rows and columns.
  form.dims.resize(2);
  FailureOr<int64_t> rows =
      setCounted(rules, op, form.dims[0], scatter.getBegin(),
                 type.getDimSize(0), scatter.getLimit());
  if (failed(rows))
    return failure();
  const Dimension &columns = gradient.form.dims.back();
  form.dims[1] = positions->dims.back();
  form.dims[1].padding = columns.padding.sum();
  // 3. Positions.
  double repeated = 1;
  for (auto [index, dim] :
       llvm::enumerate(ArrayRef(positions->dims).drop_back())) {
    int64_t extent = gradient.type.getDimSize(index);
    repeated *= dim.countEqual(extent);
    // Ids are padded where the gradient may have equal numbers.
    const Dimension &own = gradient.form.dims[index];
    NumberRange padding = own.fitsAll() ? getUniform(gradient) : own.padding;
    if (isPadded(*positions, index, extent, rules.mesh) && !padding.is(0)) {
      rules.taken(op, padding, 0) << "adds up the padding of dimension "
                                  << index << " of " << print(gradient);
      return failure();
    }
    if (failed(rules.addPartial(op, form, dim, dist::Reduction::Sum)))
      return failure();
  }
  // 4. The term.
  Letters present{0};
  SmallVector<int64_t> extents{*rows};
  if (!form.dims[1].uniform) {
    present.push_back(1);
    extents.push_back(gradient.form.getExtent(gradient.type.getRank() - 1));
  }
  auto rename = [&](const Form &own) {
    Argument argument = own.asArgument();
    for (int &letter : argument.letters)
      letter = letter == gradient.type.getRank() - 1 ? 1 : letter + 2;
    return argument;
  };
  Expression sum = rules.terms.applyLinear(
      "nn.embedding_grad", {}, {rename(gradient.form), rename(ids.form)},
      present, extents);
  form.dims[0].extent = *rows;
  form.setTerm(rules.terms.sum(Argument{sum.term, sum.letters, repeated}));
  simplify(form, type, rules.mesh);
  return Content{type, std::move(form), nullptr};
}

//===----------------------------------------------------------------------===//
// Elements that are told apart by their index
//===----------------------------------------------------------------------===//

/// `input` times `factor`, which is whole: linear in the input. finish()
/// gets no operands, so the padding may be anything until the caller, which
/// knows the factor, says more.
static FailureOr<Content> choose(Rules &rules, Operation *op,
                                 const Content &input, const Content &factor,
                                 RankedTensorType type) {
  FailureOr<Form> form = rules.unify(op, pointTo({input, factor}));
  if (failed(form))
    return failure();
  form->partial = input.form.partial;
  form->reduction = input.form.reduction;
  if (form->reduction != dist::Reduction::Sum &&
      failed(rules.requireWhole(op, input)))
    return failure();
  Expression chosen =
      rules.terms.product({input.form.asArgument(), factor.form.asArgument()});
  return rules.finish(op, {}, *form, chosen, type);
}

/// 1. The classes are as the op counts them, which has to be how those of the
///    other operand are split.
/// 2. The term says only which ids and how many classes; the first class of a
///    rank is in the form.
/// 3. Zeros and ones. An id names no class beyond the last.
FailureOr<Content> proof::makeOneHot(Rules &rules, Operation *op,
                                     const Content &ids, RankedTensorType type,
                                     std::optional<nn::BeginAttr> begin,
                                     int64_t limit, const Content *other,
                                     int64_t classes) {
  if (failed(rules.requireWhole(op, ids)))
    return failure();
  // 1. Classes.
  Content code{type, ids.form, nullptr};
  int64_t last = type.getRank() - 1;
  for (Dimension &own : code.form.dims)
    own.padding = NumberRange::exactly(0).join(NumberRange::exactly(1));
  Dimension &dim = code.form.dims.emplace_back();
  FailureOr<int64_t> extent =
      setCounted(rules, op, dim, begin, type.getDimSize(last), limit);
  if (failed(extent))
    return failure();
  if (other && !other->form.dims[classes].fitsAll()) {
    if (failed(checkBegin(rules, op, other->form, classes, begin)))
      return failure();
    extent = other->form.getExtent(classes);
    if (limit && limit != *extent) {
      rules.wrong(op) << "counts " << limit << " classes of " << *extent;
      return failure();
    }
  }
  // 2. The term.
  Argument argument = ids.form.asArgument();
  Letters present = argument.letters;
  SmallVector<int64_t, 4> extents = ids.form.term->shape;
  present.push_back(last);
  extents.push_back(*extent);
  code.form.term =
      rules.terms.apply("one hot", {}, argument, present, extents).term;
  // 3. Padding.
  dim.padding = NumberRange::exactly(0);
  return code;
}

/// Multiplies by the one-hot code of the ids. Along the classes padding becomes
/// zero; along other dimensions it is what the input has there, or zero.
static FailureOr<Content> evaluatePick(Rules &rules, Operation *op,
                                       Operands operands,
                                       RankedTensorType type) {
  auto pick = cast<nn::PickOp>(op);
  const Content &input = operands[0], &ids = operands[1];
  int64_t last = type.getRank() - 1;
  FailureOr<Content> code = makeOneHot(rules, op, ids, type, pick.getBegin(),
                                       /*limit=*/0, &input, last);
  if (failed(code))
    return failure();
  FailureOr<Content> result = choose(rules, op, input, *code, type);
  if (failed(result))
    return failure();
  for (auto [index, own] : llvm::enumerate(result->form.dims)) {
    const Dimension &given = input.form.dims[index];
    own.padding = NumberRange::exactly(0);
    if (int64_t(index) != last)
      own.padding =
          own.padding.join(given.fitsAll() ? getUniform(input) : given.padding);
  }
  simplify(result->form, type, rules.mesh);
  return result;
}

/// Which slice of the queries, and of the keys, the mask is applied to.
///
/// Of equal scores the op alone says so: the form gets such dimensions, which
/// the scores themselves do not have.
static FailureOr<Form> makeScores(Rules &rules, nn::CausalMaskOp op,
                                  const Content &input) {
  int64_t key = input.type.getRank() - 1, query = key - 1;
  FailureOr<Form> scores = rules.unify(op, pointTo(input));
  for (auto [dim, begin] : {std::pair(query, op.getBegin()),
                            std::pair(key, std::optional<nn::BeginAttr>())}) {
    Dimension &own = scores->dims[dim];
    bool isCounted = own.fitsAll();
    FailureOr<int64_t> extent =
        isCounted
            ? setCounted(rules, op, own, begin, input.type.getDimSize(dim))
            : input.form.getExtent(dim);
    if (failed(extent) ||
        (!isCounted && failed(checkBegin(rules, op, input.form, dim, begin))))
      return failure();
    own.uniform = false;
    own.extent = *extent;
  }
  return scores;
}

/// Queries may be split, and the op counts from the slice's first one; a rank
/// needs all keys of its queries, counted from 0. `starts` are of the same
/// queries. Padding keeps its numbers or becomes minus infinity.
static FailureOr<Content> evaluateCausalMask(Rules &rules, Operation *op,
                                             Operands operands,
                                             RankedTensorType type) {
  auto mask = cast<nn::CausalMaskOp>(op);
  const Content &input = operands[0];
  if (failed(rules.requireWhole(op, input)))
    return failure();
  FailureOr<Form> form = makeScores(rules, mask, input);
  if (failed(form))
    return failure();
  SmallVector<Argument> arguments{input.form.asArgument()};
  if (mask.getStarts()) {
    Content starts = operands[1]; // the same for all keys of a query
    if (failed(rules.requireWhole(op, starts)))
      return failure();
    arguments.push_back(starts.form.asArgument());
    starts.form.dims.emplace_back();
    for (auto [index, dim] : llvm::enumerate(starts.form.dims))
      if (!dim.fitsAll() &&
          !form->dims[index].join(dim, starts.form.getExtent(index))) {
        rules.wrong(op, operands)
            << "takes " << print(input) << " together with " << print(starts)
            << ", which differ in dimension " << index;
        return failure();
      }
  }
  Letters letters;
  SmallVector<int64_t> extents;
  for (auto [index, dim] : llvm::enumerate(form->dims))
    if (!dim.uniform) {
      letters.push_back(index);
      extents.push_back(dim.extent);
    }
  Attribute sight = mask.getWindowAttr();
  if (mask.getBidirectional()) // another function
    sight = ArrayAttr::get(op->getContext(), {sight});
  FailureOr<Content> result = rules.finish(
      op, {}, *form,
      rules.terms.apply("nn.causal_mask", sight, arguments, letters, extents),
      type);
  for (auto [own, given] : llvm::zip_equal(result->form.dims, input.form.dims))
    own.padding = (given.fitsAll() ? getUniform(input) : given.padding)
                      .join(NumberRange::exactly(-INFINITY));
  simplify(result->form, type, rules.mesh);
  return result;
}

/// The numbers that dropout multiplies with: a tensor that follows from the
/// keys and from the place of each element in the whole tensor.
///
/// One dimension for each of the input's: sequences are those of the keys, all
/// others are counted by the op. Where the input has such a dimension, it has
/// to be the same slice. Probability and site are the term's attributes, so
/// masks of different sites differ.
static FailureOr<Form> makeMask(Rules &rules, nn::DropoutOp op,
                                const Content &input, const Content &keys) {
  Form mask;
  mask.dims.push_back(keys.form.dims[0]);
  Argument argument = keys.form.asArgument();
  Letters present = argument.letters;
  SmallVector<int64_t, 4> extents = keys.form.term->shape;
  for (int64_t dim = 1; dim < input.type.getRank(); ++dim) {
    std::optional<nn::BeginAttr> begin;
    if (nn::BeginAttr own = op.getBegin(dim))
      begin = own;
    Dimension &own = mask.dims.emplace_back();
    FailureOr<int64_t> extent =
        setCounted(rules, op, own, begin, input.type.getDimSize(dim));
    if (failed(extent))
      return failure();
    own.padding = NumberRange::any();
    bool isKnown = !input.form.dims[dim].fitsAll();
    if (isKnown && failed(checkBegin(rules, op, input.form, dim, begin)))
      return failure();
    present.push_back(dim);
    extents.push_back(isKnown ? input.form.getExtent(dim) : *extent);
  }
  auto attrs = ArrayAttr::get(op.getContext(),
                              {op.getProbabilityAttr(), op.getSiteAttr()});
  mask.term =
      rules.terms.apply("dropout mask", attrs, argument, present, extents).term;
  return mask;
}

/// Dropping is multiplying by the mask, so it is linear, and what is dropped
/// again in the backward pass is the same only if the mask is.
///
/// The mask also holds the scale 1 / (1 - p), hence each element of the padding
/// becomes zero or a multiple.
static FailureOr<Content> evaluateDropout(Rules &rules, Operation *op,
                                          Operands operands,
                                          RankedTensorType type) {
  auto dropout = cast<nn::DropoutOp>(op);
  const Content &input = operands[0], &keys = operands[1];
  double probability = dropout.getProbability().convertToDouble();
  if (getMaskThreshold(probability) > std::numeric_limits<uint32_t>::max())
    return input; // it keeps all
  if (failed(rules.requireWhole(op, keys)))
    return failure();
  FailureOr<Form> mask = makeMask(rules, dropout, input, keys);
  if (failed(mask))
    return failure();
  Content factor{type, std::move(*mask), nullptr};
  FailureOr<Content> result = choose(rules, op, input, factor, type);
  if (failed(result))
    return failure();
  NumberRange amount = NumberRange::exactly(0).join(
      NumberRange::exactly(getMaskScale(probability)));
  for (auto [own, given] : llvm::zip_equal(result->form.dims, input.form.dims))
    own.padding =
        (given.fitsAll() ? getUniform(input) : given.padding) * amount;
  simplify(result->form, type, rules.mesh);
  return result;
}

/// The global tensor stays the same; what lies beyond it is known. So equal
/// numbers become a slice of as many as the op says.
static FailureOr<Content> evaluateMaskPadding(Rules &rules, Operation *op,
                                              Operands operands,
                                              RankedTensorType type) {
  auto mask = cast<nn::MaskPaddingOp>(op);
  Content result = operands[0];
  Form &form = result.form;
  int64_t dim = mask.getDim();
  NumberRange amount = NumberRange::exactly(mask.getAmount().convertToDouble());
  // Each part would have the amount, and their sum a multiple of it; zeros add
  // up to zero.
  if (form.isPartial() && !amount.is(0)) {
    rules.wrong(op) << "overwrites padding of a partial sum by "
                    << mask.getAmountAttr();
    return failure();
  }
  if (Dimension &own = form.dims[dim]; own.fitsAll()) {
    if (failed(setCounted(rules, op, own, mask.getBegin(), type.getDimSize(dim),
                          mask.getLimit())))
      return failure();
    own.uniform = true;
    own.extent = mask.getLimit();
  }
  // Padding is counted where elements are stored, whatever their order.
  Form stored = form;
  stored.dims[dim].chunks = 0;
  if (failed(checkBegin(rules, op, stored, dim, mask.getBegin())))
    return failure();
  if (int64_t(mask.getLimit()) != form.getExtent(dim)) {
    rules.wrong(op) << "overwrites what lies from " << mask.getLimit()
                    << " on along dimension " << dim << ", which has "
                    << form.getExtent(dim) << " elements";
    return failure();
  }
  for (auto [index, own] : llvm::enumerate(form.dims))
    own.padding = int64_t(index) == dim ? amount : own.padding.join(amount);
  simplify(form, type, rules.mesh);
  return result;
}

//===----------------------------------------------------------------------===//
// Tables of numbers
//===----------------------------------------------------------------------===//

/// A tensor of numbers that follow from an index along `dim` alone, and are
/// repeated along all other dimensions.
static FailureOr<Content> generate(Rules &rules, Operation *op, Attribute attrs,
                                   int64_t dim,
                                   std::optional<nn::BeginAttr> begin,
                                   RankedTensorType type) {
  Form form;
  form.dims.resize(type.getRank());
  Letters letters{int(dim)};
  FailureOr<int64_t> extent =
      setCounted(rules, op, form.dims[dim], begin, type.getDimSize(dim));
  if (failed(extent))
    return failure();
  form.dims[dim].padding = NumberRange::any();
  form.term =
      rules.terms
          .apply(op->getName().getStringRef(), attrs, {}, letters, *extent)
          .term;
  return Content{type, std::move(form), nullptr};
}

/// Padding goes on counting, so it may be any number.
static FailureOr<Content> evaluateIota(Rules &rules, Operation *op, Operands,
                                       RankedTensorType type) {
  auto iota = cast<nn::IotaOp>(op);
  return generate(rules, op, {}, iota.getAlong(), iota.getBegin(), type);
}

/// A position for each row. All attributes say which table it is.
static FailureOr<Content> evaluateRopeTable(Rules &rules, Operation *op,
                                            Operands, RankedTensorType type) {
  auto table = cast<nn::RopeTableOp>(op);
  Builder builder(op->getContext());
  SmallVector<Attribute> attrs{table.getThetaAttr(),
                               builder.getBoolAttr(table.getSine())};
  for (StringRef name : {"scaling", "yarn", "rotated"})
    if (Attribute attr = op->getAttr(name))
      attrs.push_back(attr);
  FailureOr<Content> result = generate(rules, op, builder.getArrayAttr(attrs),
                                       0, table.getBegin(), type);
  if (failed(result))
    return failure();
  // Each column has a frequency of its own; positions go on in the padding.
  Form &form = result->form;
  form.dims[0].padding = NumberRange::finite();
  form.dims[1].uniform = false;
  SmallVector<int64_t> extents{form.term->shape[0], type.getDimSize(1)};
  form.term =
      rules.terms.apply(form.term->name, form.term->attrs, {}, {0, 1}, extents)
          .term;
  return result;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getIndexRules() {
  static const OpRule rules[] = {
      {"nn.embedding", evaluateEmbedding},
      {"nn.embedding_grad", evaluateEmbeddingGrad},
      {"nn.pick", evaluatePick},
      {"nn.causal_mask", evaluateCausalMask},
      {"nn.dropout", evaluateDropout},
      {"nn.mask_padding", evaluateMaskPadding},
      {"nn.iota", evaluateIota},
      {"nn.rope_table", evaluateRopeTable},
  };
  return rules;
}
