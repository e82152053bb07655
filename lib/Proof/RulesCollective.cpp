//===- RulesCollective.cpp - Rules of collectives ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives leave the global tensor as it is and change how it lies. One over
// an axis with one rank does nothing; those over the axis of the pipeline are
// no matter of one program (see StepEnd.cpp).
//
// An all-reduce takes an axis out of those a form is partial over, an
// all-gather takes one out of a dimension, a slice puts one there, and the
// others are compositions: reduce-scatter is a sum and a slice, all-to-all a
// gather of one dimension and a slice of another. None of them makes a new
// term, unless something is added up too often.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Takes `axis` from those that `form` is partial over.
///
/// 1. The form is partial over the axis: that is what the collective is for.
/// 2. A dimension is split over it: ranks have different elements of the global
///    tensor, which nothing adds to each other.
/// 3. Ranks have the same: a maximum of equal numbers changes nothing, a sum is
///    a multiple.
/// Padding is added up as well, hence its range is that of a sum.
static LogicalResult combine(Rules &rules, Operation *op, Form &form,
                             StringAttr axis, dist::Reduction kind) {
  // 1. Parts.
  if (form.isPartialOver(axis)) {
    if (form.reduction != kind)
      return rules.wrong(op) << "combines by " << dist::stringifyReduction(kind)
                             << " what is " << printLayout(form);
    llvm::erase(form.partial, axis);
    if (!form.isPartial())
      form.reduction = dist::Reduction::Sum;
    if (kind == dist::Reduction::Sum)
      for (Dimension &dim : form.dims)
        dim.padding = dim.padding.sum();
    return success();
  }
  // 2. Slices.
  if (form.findDim(axis) >= 0)
    return rules.wrong(op) << "combines different slices: the ranks along \""
                           << axis.getValue() << "\" have "
                           << print(Content{{}, form, nullptr});
  // 3. Copies.
  if (kind != dist::Reduction::Sum)
    return success();
  // As often as there are ranks. What each has added up of its slice of equal
  // elements becomes the whole; of anything else that is too much, as the
  // comparison will show.
  Argument each = form.asArgument();
  each.factor *= double(rules.mesh.getSize(axis));
  form.term = rules.terms.sum(each).term;
  for (Dimension &dim : form.dims)
    dim.padding = dim.padding.sum();
  return success();
}

//===----------------------------------------------------------------------===//
// Packs
//===----------------------------------------------------------------------===//

/// Combines each member; the rows of all of them are divided alike.
static FailureOr<Content> evaluateOnPack(Rules &rules, Operation *op,
                                         const Content &input,
                                         RankedTensorType type) {
  const PackView &view = input.pack->view;
  bool movesRows = isa<dist::SliceOp, dist::AllGatherOp>(op);
  if (!view.isPlain() && (view.isStacked || !movesRows)) {
    rules.report.unproven(op)
        << "of what replicas compress only slices and all-gathers along "
           "dimension 0, and of what is stacked also what brings them all to "
           "the ranks of their rows, have a rule";
    return failure();
  }
  auto pack = std::make_shared<Pack>(*input.pack);
  if (auto rounds = op->getAttrOfType<IntegerAttr>("rounds");
      rounds && rounds.getInt() > 1) {
    rules.report.unproven(op) << "dealing out a pack in rounds has no rule";
    return failure();
  }
  StringAttr axis;
  // Rows only: nothing divides packs otherwise (`nn.pack`, ZeRO). Rows that are
  // divided once may be divided further, each rank's by itself.
  auto divide = [&](int64_t dim, ArrayRef<StringAttr> axes) -> LogicalResult {
    if (dim != 0 || pack->reducedColumns)
      return rules.wrong(op)
             << "divides " << print(input) << " along dimension " << dim;
    for (const RankTerm &term : rules.mesh.split(axes, type.getDimSize(0)))
      if (llvm::any_of(pack->rows, [&](const RankTerm &own) {
            return own.axis == term.axis;
          }))
        return rules.wrong(op) << "divides " << print(input) << " over \""
                               << term.axis.getValue() << "\" twice";
      else
        pack->rows.push_back(term);
    return success();
  };
  auto combineAll = [&](dist::Reduction kind) -> LogicalResult {
    for (Pack::Member &member : pack->members)
      if (failed(combine(rules, op, member.form, axis, kind)))
        return failure();
    // What lies between members is added up as well; zeros stay zeros.
    if (!pack->gap.is(0))
      pack->gap = NumberRange::any();
    return success();
  };
  if (auto reduce = dyn_cast<dist::AllReduceOp>(op)) {
    axis = reduce.getAxisAttr();
    if (failed(combineAll(reduce.getReduction())))
      return failure();
  } else if (auto scatter = dyn_cast<dist::ReduceScatterOp>(op)) {
    axis = scatter.getAxisAttr();
    if (failed(combineAll(scatter.getReduction())) ||
        failed(divide(scatter.getDim(), axis)))
      return failure();
  } else if (auto slice = dyn_cast<dist::SliceOp>(op)) {
    if (failed(divide(slice.getDim(), dist::getAxes(slice.getAxes()))))
      return failure();
  } else {
    auto all = cast<dist::AllGatherOp>(op);
    RankTerm rows{all.getAxisAttr(), input.type.getDimSize(0)};
    if (all.getDim() != 0 || pack->rows.empty() || pack->rows.back() != rows) {
      rules.wrong(op) << "gathers dimension " << all.getDim() << " of "
                      << print(input);
      return failure();
    }
    axis = all.getAxisAttr();
    for (const Pack::Member &member : pack->members)
      if (member.form.isPartialOver(axis) || member.form.findDim(axis) >= 0)
        return rules.wrong(op)
               << "gathers rows over \"" << axis.getValue()
               << "\", of which ranks have different ones: " << print(input);
    pack->rows.pop_back();
  }
  return Content{type, {}, std::move(pack)};
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// All ranks along the axis have to take part: `members` names some of them
/// only along the pipeline, where StepEnd.cpp handles it.
static FailureOr<Content> evaluateAllReduce(Rules &rules, Operation *op,
                                            Operands operands,
                                            RankedTensorType type) {
  auto reduce = cast<dist::AllReduceOp>(op);
  Content result = operands[0];
  result.type = type;
  if (rules.mesh.getSize(reduce.getAxis()) == 1)
    return result;
  if (auto members = reduce.getMembers();
      members &&
      int64_t(members->size()) != rules.mesh.getSize(reduce.getAxis())) {
    rules.wrong(op) << "combines the values of " << members->size() << " of "
                    << rules.mesh.getSize(reduce.getAxis()) << " ranks along \""
                    << reduce.getAxis() << "\"";
    return failure();
  }
  if (result.pack)
    return evaluateOnPack(rules, op, result, type);
  if (failed(combine(rules, op, result.form, reduce.getAxisAttr(),
                     reduce.getReduction())))
    return failure();
  return result;
}

/// Takes `axis`, along which blocks of `extent` elements lie, from those that
/// split `dim`.
///
/// Only the minor axis of a dimension can be gathered alone: the blocks along
/// it are neighbours. The block's size, and in how many rounds it was dealt
/// out, has to be that of the op, or the blocks would be put together in
/// another order than they lie in. A uniform dimension may be gathered as it
/// is, if it has nothing to do with the axis: repeated numbers stay repeated.
static LogicalResult gather(Rules &rules, Operation *op, Form &form,
                            int64_t dim, StringAttr axis, int64_t extent,
                            int64_t rounds = 1) {
  Dimension &own = form.dims[dim];
  if (own.fitsAll() && form.findDim(axis) < 0 && !form.isPartialOver(axis))
    return success();
  if (!own.begin.empty() && own.rounds == rounds &&
      own.begin.back() == RankTerm{axis, extent / rounds}) {
    own.begin.pop_back();
    own.rounds = 1;
    return success();
  }
  InFlightDiagnostic diag = rules.wrong(op)
                            << "gathers blocks of " << extent
                            << " elements along dimension " << dim << " over \""
                            << axis.getValue() << '"';
  if (rounds > 1)
    diag << " in " << rounds << " rounds";
  return diag << ", but has " << print(Content{{}, form, nullptr});
}

/// Gathers the members of all replicas along the dimension in front.
template <typename OpTy>
static FailureOr<Content>
gatherReplicas(Rules &rules, OpTy all, const Content &input,
               RankedTensorType type, int64_t rounds = 1) {
  return mapMembers(rules, all, input, type, input.pack->view,
                    [&](const Content &member) -> FailureOr<Content> {
                      Content result = member;
                      SmallVector<int64_t> shape(member.type.getShape());
                      if (failed(gather(rules, all, result.form, 0,
                                        all.getAxisAttr(), shape[0], rounds)))
                        return failure();
                      shape[0] *= rules.mesh.getSize(all.getAxis());
                      result.type = member.type.clone(shape);
                      return result;
                    });
}

static FailureOr<Content> evaluateAllGather(Rules &rules, Operation *op,
                                            Operands operands,
                                            RankedTensorType type) {
  auto all = cast<dist::AllGatherOp>(op);
  Content result = operands[0];
  if (rules.mesh.getSize(all.getAxis()) > 1) {
    if (result.pack && result.pack->view.isStacked && all.getDim() == 0)
      return gatherReplicas(rules, all, result, type, all.getRounds());
    if (result.pack)
      return evaluateOnPack(rules, op, result, type);
    int64_t extent = result.type.getDimSize(all.getDim());
    if (failed(gather(rules, op, result.form, all.getDim(), all.getAxisAttr(),
                      extent, all.getRounds())))
      return failure();
  }
  result.type = type;
  simplify(result.form, type, rules.mesh);
  return result;
}

/// Each rank along `axis` keeps `extent` elements along `dim`, as many of each
/// of the `rounds`.
///
/// The axis becomes the minor one. Blocks along a uniform dimension are all
/// equal, so nothing changes. What has been dealt out has no neighbours that
/// could be dealt out once more.
static LogicalResult divide(Rules &rules, Operation *op, Form &form,
                            int64_t dim, StringAttr axis, int64_t extent,
                            int64_t rounds = 1) {
  Dimension &own = form.dims[dim];
  if (own.fitsAll())
    return success();
  if (own.rounds > 1) {
    rules.report.unproven(op)
        << "blocks of what is dealt out in rounds have no rule";
    return failure();
  }
  own.begin.push_back({axis, extent / rounds});
  own.rounds = rounds;
  return success();
}

/// As an all-reduce and a slice of its result.
static FailureOr<Content> evaluateReduceScatter(Rules &rules, Operation *op,
                                                Operands operands,
                                                RankedTensorType type) {
  auto scatter = cast<dist::ReduceScatterOp>(op);
  Content result = operands[0];
  if (rules.mesh.getSize(scatter.getAxis()) > 1) {
    if (result.pack)
      return evaluateOnPack(rules, op, result, type);
    if (failed(combine(rules, op, result.form, scatter.getAxisAttr(),
                       scatter.getReduction())) ||
        failed(divide(rules, op, result.form, scatter.getDim(),
                      scatter.getAxisAttr(), type.getDimSize(scatter.getDim()),
                      scatter.getRounds())))
      return failure();
  }
  result.type = type;
  return result;
}

/// Brings rows of the members of all replicas to the ranks that have them:
/// behind the replicas' dimension is that of the rows.
static FailureOr<Content> exchangeReplicas(Rules &rules, dist::AllToAllOp op,
                                           const Content &input,
                                           RankedTensorType type) {
  StringAttr axis = op.getAxisAttr();
  bool isDivided = llvm::any_of(
      input.pack->rows, [&](const RankTerm &own) { return own.axis == axis; });
  if (op.getConcat() != 0 || op.getSplit() != 1 || isDivided) {
    rules.wrong(op) << "moves the split over \"" << axis.getValue()
                    << "\" from dimension " << op.getConcat() << " to "
                    << op.getSplit() << " of " << print(input);
    return failure();
  }
  FailureOr<Content> all = gatherReplicas(rules, op, input, type);
  if (failed(all))
    return failure();
  auto pack = std::make_shared<Pack>(*all->pack);
  llvm::append_range(pack->rows, rules.mesh.split(axis, type.getDimSize(1)));
  return Content{type, {}, std::move(pack)};
}

/// As an all-gather of `concat` and a slice of `split`, which in between no
/// rank has in memory. Packs have a rule where they are stacked alone.
static FailureOr<Content> evaluateAllToAll(Rules &rules, Operation *op,
                                           Operands operands,
                                           RankedTensorType type) {
  auto exchange = cast<dist::AllToAllOp>(op);
  Content result = operands[0];
  if (result.pack && !result.pack->view.isStacked) {
    rules.report.unproven(op) << "packs have no rule: " << print(result);
    return failure();
  }
  if (rules.mesh.getSize(exchange.getAxis()) > 1) {
    int64_t split = exchange.getSplit(), concat = exchange.getConcat();
    if (result.pack)
      return exchangeReplicas(rules, exchange, result, type);
    if (failed(gather(rules, op, result.form, concat, exchange.getAxisAttr(),
                      result.type.getDimSize(concat))) ||
        failed(divide(rules, op, result.form, split, exchange.getAxisAttr(),
                      type.getDimSize(split))))
      return failure();
  }
  result.type = type;
  simplify(result.form, type, rules.mesh);
  return result;
}

//===----------------------------------------------------------------------===//
// Rows of experts
//===----------------------------------------------------------------------===//

/// Finds by what the rows of `value` belong to ranks: `ids`, of which all ranks
/// along the axis have the same ones, or they would not count alike. Its first
/// dimensions are those of the ids, but for the last one where tokens have
/// several; they have to lie where those do.
template <typename OpTy>
static std::optional<Owner> findRows(Rules &rules, OpTy op,
                                     const Content &value, const Content &ids,
                                     bool areTokens) {
  StringAttr axis = op.getAxisAttr();
  if (ids.form.isPartial() || ids.form.findDim(axis) >= 0) {
    rules.wrong(op) << "counts rows by " << print(ids)
                    << ", of which the ranks along \"" << axis.getValue()
                    << "\" have different ones";
    return std::nullopt;
  }
  Argument argument = ids.form.asArgument();
  Owner owner{argument.term,
              argument.letters,
              {{axis, int64_t(op.getExperts())}},
              int64_t(op.getExperts())};
  int last = ids.form.dims.size() - 1;
  for (int &dim : owner.dims) {
    if (areTokens && dim == last) {
      dim = Owner::kAny;
      continue;
    }
    Dimension own = value.form.dims[dim];
    if (own.uniform || !own.liesAs(ids.form.dims[dim])) {
      rules.wrong(op) << "moves rows of " << print(value) << " by "
                      << print(ids) << ", which differ in dimension " << dim;
      return std::nullopt;
    }
  }
  return owner;
}

/// Gathers blocks, of which each rank has the rows of its experts.
static FailureOr<Content> evaluateDispatch(Rules &rules, Operation *op,
                                           Operands operands,
                                           RankedTensorType type) {
  auto dispatch = cast<dist::DispatchOp>(op);
  Content result = operands[0];
  result.type = type;
  if (rules.mesh.getSize(dispatch.getAxis()) == 1 || result.form.term->isZero())
    return result;
  if (failed(rules.requireWhole(op, result)) ||
      failed(gather(rules, op, result.form, 0, dispatch.getAxisAttr(),
                    operands[0].type.getDimSize(0))))
    return failure();
  std::optional<Owner> owner =
      findRows(rules, dispatch, result, operands[1], /*areTokens=*/true);
  if (!owner)
    return failure();
  result.form.partial.push_back(dispatch.getAxisAttr());
  result.form.reduction = dist::Reduction::Owned;
  result.form.owner = owner;
  result.form.elsewhere = NumberRange::any();
  return result;
}

/// Reads each row of a scatter on the rank that has it. The ids have to be
/// those that rows belong by.
static FailureOr<Content> evaluateCombine(Rules &rules, Operation *op,
                                          Operands operands,
                                          RankedTensorType type) {
  auto combine = cast<dist::CombineOp>(op);
  Content result = operands[0];
  result.type = type;
  if (rules.mesh.getSize(combine.getAxis()) == 1 || result.form.term->isZero())
    return result;
  std::optional<Owner> owner =
      findRows(rules, combine, result, operands[1], /*areTokens=*/false);
  if (!owner)
    return failure();
  if (result.form.isDispatched() || result.form.owner != owner) {
    rules.wrong(op, operands[0])
        << "takes each row of " << print(operands[0])
        << " from the rank that has its expert, by other ids or experts than "
           "it belongs by";
    return failure();
  }
  result.form.dropOwner();
  if (failed(divide(rules, op, result.form, 0, combine.getAxisAttr(),
                    type.getDimSize(0))))
    return failure();
  return result;
}

/// A slice communicates nothing. Its blocks may be uneven, so that the last
/// ones reach beyond what the operand has; the op fills those with zeros. What
/// else is padding comes from the operand's own, which isPadded() tells of.
static FailureOr<Content> evaluateSlice(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  auto slice = cast<dist::SliceOp>(op);
  Content result = operands[0];
  if (result.pack)
    return evaluateOnPack(rules, op, result, type);
  int64_t dim = slice.getDim(), extent = type.getDimSize(dim);
  if (slice.getRounds() > 1 || result.form.dims[dim].rounds > 1) {
    // In rounds there is one axis, and nothing is padded. What is dealt out
    // already only axes of one rank may slice, of which there may be any
    // number.
    result.type = type;
    for (auto axis : slice.getAxes().getAsRange<StringAttr>())
      if (rules.mesh.getSize(axis) > 1 &&
          failed(divide(rules, op, result.form, dim, axis, extent,
                        slice.getRounds())))
        return failure();
    return result;
  }
  // Over several axes at once, major to minor, as mesh.split() wants them.
  SmallVector<StringAttr> axes(slice.getAxes().getAsRange<StringAttr>());
  auto begin = rules.mesh.split(axes, extent);
  Dimension &own = result.form.dims[dim];
  int64_t given = result.type.getDimSize(dim);
  result.type = type;
  if (own.fitsAll()) {
    own.begin = begin;
    own.extent = given;
    own.padding = NumberRange::exactly(0);
    simplify(result.form, type, rules.mesh);
    return result;
  }
  // A slice of a slice that is padded, or is padded itself, may have padding
  // in its middle.
  bool isUneven = extent * rules.mesh.countBlocks(begin) != given;
  if (isUneven && !own.begin.empty()) {
    rules.report.unproven(op) << "uneven slices of slices have no rule";
    return failure();
  }
  if (isUneven && !isPadded(operands[0].form, dim, given, rules.mesh))
    own.padding = NumberRange::exactly(0);
  else if (isUneven)
    own.padding = own.padding.join(NumberRange::exactly(0));
  llvm::append_range(own.begin, begin);
  return result;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getCollectiveRules() {
  static const OpRule rules[] = {
      {"dist.all_reduce", evaluateAllReduce, /*takesPacks=*/true},
      {"dist.all_gather", evaluateAllGather, /*takesPacks=*/true},
      {"dist.reduce_scatter", evaluateReduceScatter, /*takesPacks=*/true},
      {"dist.all_to_all", evaluateAllToAll, /*takesPacks=*/true},
      {"dist.slice", evaluateSlice, /*takesPacks=*/true},
      {"dist.dispatch", evaluateDispatch},
      {"dist.combine", evaluateCombine, /*takesPacks=*/false,
       /*takesOwned=*/true},
  };
  return rules;
}
