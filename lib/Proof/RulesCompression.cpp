//===- RulesCompression.cpp - Rules of compressed sums --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of a partial sum over replicas `nn.parts` makes the tensor of their parts,
// one behind the other. Which parts they are no rule tells: they are opaque,
// and what is known is their sum. But no rule moves a part from one replica to
// another, so that they are what the replicas' own samples have given, and from
// there on all is shown as of any other tensor: claim and plan do the same to
// the same parts. A sum that is compressed once more is one part, with all that
// is known of it.
//
// A number of each chunk of a parameter has the parameter's dimensions, and is
// the same for all elements of a chunk: then it does not matter in which order
// a rank has the chunks. It has whole ones, or there is an error: chunks are
// neighbours in the whole parameter.
//
// On a rank chunks are the rows of a pack. What becomes of these is a view of
// the pack (PackView), whose members stay what they are. That codes fit the
// bits that they are packed in follows from the compressor, and is not shown.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"
#include "plait/Dialect/NN/IR/Names.h"

#include <cfloat>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// The element type stays; `member` is asked without what it belongs to.
FailureOr<Content>
proof::mapMembers(Rules &rules, Operation *op, const Content &input,
                  RankedTensorType type, PackView view,
                  function_ref<FailureOr<Content>(const Content &)> rule) {
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view = view;
  for (Pack::Member &member : pack->members) {
    FailureOr<Content> result =
        rule(Content{member.type, member.form, nullptr});
    if (failed(result) || failed(rules.checkAxes(op, result->form)))
      return failure();
    member.form = std::move(result->form);
    member.type = result->type;
  }
  return Content{type, {}, std::move(pack)};
}

FailureOr<Content> proof::failView(Rules &rules, Operation *op,
                                   const Content &input) {
  rules.report.unproven(op)
      << "this of " << print(input)
      << " has no rule, which is on its way to be compressed or from there";
  return failure();
}

/// Whether it is a pack of a replica's parts, each with all of its elements.
bool proof::areParts(const Content &input) {
  return input.pack && input.pack->view.replicas &&
         input.pack->view == PackView{.replicas = input.pack->view.replicas};
}

/// Whether it is one of the columns of those elements that a mask has.
static bool areColumns(const Content &input) {
  return input.pack && input.pack->view.replicas &&
         input.pack->view == PackView{.replicas = input.pack->view.replicas,
                                      .kept = input.pack->view.kept,
                                      .areColumns = true};
}

//===----------------------------------------------------------------------===//
// Replicas
//===----------------------------------------------------------------------===//

/// 1. The sum is over these replicas alone: what is left to be added up over
///    other axes would be compressed in parts as well.
/// 2. The opaque parts, of which a rank has one. All other dimensions stay.
static FailureOr<Content> makeParts(Rules &rules, nn::PartsOp op,
                                    const Content &input, int64_t replicas) {
  StringAttr axis = op.getAxisAttr();
  int64_t ranks = rules.mesh.getSize(axis);
  // 1.
  Form form = input.form;
  llvm::erase(form.partial, axis);
  bool hasParts =
      ranks == 1 || input.form.isPartialOver(axis) || input.form.term->isZero();
  if (form.isPartial() || form.reduction != dist::Reduction::Sum || !hasParts) {
    rules.wrong(op) << "takes " << print(input)
                    << ", expected a partial sum over " << axis.getValue()
                    << " alone";
    return failure();
  }
  // 2.
  Argument whole{input.form.term, {}};
  Letters present{0};
  SmallVector<int64_t> extents{replicas}, shape{replicas / ranks};
  for (auto [index, dim] : llvm::enumerate(input.form.dims)) {
    if (dim.uniform)
      continue;
    whole.letters.push_back(index + 1);
    present.push_back(index + 1);
    extents.push_back(input.form.getExtent(index));
  }
  llvm::append_range(shape, input.type.getShape());
  Dimension first;
  first.begin = rules.mesh.split(axis, 1);
  form.dims.insert(form.dims.begin(), first);
  form.setTerm(rules.terms.apply("nn.parts", axis, whole, present, extents));
  return Content{input.type.clone(shape), std::move(form), nullptr};
}

/// Makes one part of what is alone, which is whole already.
static FailureOr<Content> makeOne(Rules &rules, nn::PartsOp op,
                                  const Content &input) {
  if (failed(rules.requireWhole(op, input)))
    return failure();
  if (input.form.findDim(op.getAxis()) >= 0) {
    rules.wrong(op) << "takes for one what differs over " << op.getAxis()
                    << ": " << print(input);
    return failure();
  }
  Content result = input;
  result.form.dims.insert(result.form.dims.begin(), Dimension());
  SmallVector<int64_t> shape = {1};
  llvm::append_range(shape, input.type.getShape());
  result.type = input.type.clone(shape);
  return result;
}

/// The number of replicas is that of the op's dimension of them on each rank;
/// in a pack, which has none, a rank has one of them. Some rows of a sum are as
/// good as all.
static FailureOr<Content> evaluateParts(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  auto parts = cast<nn::PartsOp>(op);
  const Content &input = operands[0];
  int64_t ranks = rules.mesh.getSize(parts.getAxis());
  bool isStacked = type.getRank() > input.type.getRank();
  bool isAlone = parts.getAlone();
  auto make = [&](const Content &part, int64_t replicas) {
    return isAlone ? makeOne(rules, parts, part)
                   : makeParts(rules, parts, part, replicas);
  };
  if (!input.pack && isStacked)
    return make(input, type.getDimSize(0) * ranks);
  if (!input.pack || isStacked || !input.pack->view.isPlain() ||
      !(isAlone || input.pack->rows.empty()) || input.pack->reducedColumns)
    return failView(rules, op, input);
  return mapMembers(rules, op, input, type, {.replicas = parts.getAxisAttr()},
                    [&](const Content &member) { return make(member, ranks); });
}

/// `input` without its first dimension, which is added up.
static FailureOr<Content> addReplicas(Rules &rules, Operation *op,
                                      const Content &input) {
  auto type = input.type.clone(input.type.getShape().drop_front());
  return reduceOver(rules, op, input, nn::ReduceKind::Sum, int64_t(0), type);
}

static FailureOr<Content> evaluateUnite(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  const Content &input = operands[0];
  if (!input.pack && type.getRank() < input.type.getRank())
    return addReplicas(rules, op, input);
  if (!areParts(input))
    return failView(rules, op, input);
  StringAttr axis = cast<nn::UniteOp>(op).getAxisAttr();
  if (input.pack->view.replicas != axis) {
    rules.wrong(op) << "unites parts of " << axis << ", which are those of "
                    << input.pack->view.replicas;
    return failure();
  }
  return mapMembers(rules, op, input, type, {}, [&](const Content &member) {
    return addReplicas(rules, op, member);
  });
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

/// A rank has runs of neighbours of a parameter, from the innermost dimension
/// on that is split. They begin at multiples of their length, so that chunks
/// are whole where a run is some of them.
LogicalResult proof::checkChunks(Rules &rules, Operation *op,
                                 const Content &member, StringRef name,
                                 int64_t block) {
  int64_t run = 1;
  bool isSplit = false;
  for (int64_t dim = member.type.getRank() - 1; dim > 0; --dim) {
    const Dimension &own = member.form.dims[dim];
    if (own.fitsAll()) {
      rules.report.unproven(op)
          << "chunks of equal numbers have no rule: " << print(member);
      return failure();
    }
    int64_t extent = member.type.getDimSize(dim);
    bool isWhole = own.begin.empty();
    if (isPadded(member.form, dim, extent, rules.mesh) || own.chunks ||
        own.rounds > 1)
      return rules.wrong(op) << "takes chunks of what is padded or in another "
                                "order: "
                             << print(member);
    if (isSplit)
      continue;
    run *= extent;
    isSplit = !isWhole;
  }
  if (!isSplit || run % block == 0)
    return success();
  return rules.wrong(op) << "takes chunks of " << block << " elements of "
                         << name << ", of which a rank has runs of " << run;
}

/// The number of its chunk for each element.
static FailureOr<Content> reduceChunks(Rules &rules, Operation *op,
                                       const Content &member, StringRef name,
                                       nn::ReduceKind kind, int64_t block) {
  if (failed(rules.requireWhole(op, member)) ||
      failed(checkChunks(rules, op, member, name, block)))
    return failure();
  Content result = member;
  // Also of equal numbers the last chunk has fewer.
  Letters letters;
  SmallVector<int64_t> extents;
  for (int64_t dim = 0; dim < int64_t(member.form.dims.size()); ++dim)
    if (!member.form.dims[dim].fitsAll()) {
      letters.push_back(dim);
      extents.push_back(member.form.getExtent(dim));
    }
  result.form.setTerm(rules.terms.apply(
      kind == nn::ReduceKind::Sum ? "sum of the chunk" : "maximum of the chunk",
      IntegerAttr::get(IndexType::get(op->getContext()), block),
      member.form.asArgument(), letters, extents));
  return result;
}

/// The rest of a member's last chunk are zeros, so that its maximum is at least
/// zero. It is finite where the member is: what is not finite ends up in the
/// member itself.
static FailureOr<Content> reduceRows(Rules &rules, Operation *op,
                                     const Content &input, nn::ReduceKind kind,
                                     int64_t block, RankedTensorType type) {
  if (!input.pack->gap.is(0)) {
    rules.wrong(op) << "takes what lies between the members of "
                    << print(input);
    return failure();
  }
  PackView view = input.pack->view;
  view.isByRow = true;
  // Two members never share a row.
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view = view;
  bool isMaximum = kind == nn::ReduceKind::Max;
  pack->gap = {isMaximum ? 0 : -FLT_MAX, FLT_MAX};
  for (Pack::Member &member : pack->members) {
    if (member.offset % block)
      return rules.wrong(op)
             << "takes rows of " << block << " elements, but " << member.name
             << " begins at element " << member.offset;
    FailureOr<Content> result =
        reduceChunks(rules, op, Content{member.type, member.form, nullptr},
                     member.name, kind, block);
    if (failed(result))
      return failure();
    member.form = std::move(result->form);
  }
  return Content{type, {}, std::move(pack)};
}

/// A whole parameter is a pack of one, in the claim.
static FailureOr<Content> evaluateChunkReduce(Rules &rules, Operation *op,
                                              Operands operands,
                                              RankedTensorType type) {
  auto reduce = cast<nn::ChunkReduceOp>(op);
  Content input = operands[0];
  if (input.pack)
    return failView(rules, op, input);
  auto pack = std::make_shared<Pack>();
  pack->elements = input.type.getNumElements();
  pack->view.replicas = StringAttr::get(op->getContext(), kDataAxis);
  pack->members.push_back({0, "the parameter", input.type, input.form});
  input.pack = std::move(pack);
  return reduceRows(rules, op, input, reduce.getKind(), reduce.getBlock(),
                    type);
}

static FailureOr<Content> evaluateChunkSpread(Rules &rules, Operation *op,
                                              Operands operands,
                                              RankedTensorType type) {
  const Content &input = operands[0];
  if (!input.pack ||
      input.pack->view !=
          PackView{.replicas = input.pack->view.replicas, .isByRow = true} ||
      input.pack->members.size() != 1 ||
      input.pack->members[0].type.getShape() != type.getShape())
    return failView(rules, op, input);
  return Content{type, input.pack->members[0].form, nullptr};
}

//===----------------------------------------------------------------------===//
// Views of packs
//===----------------------------------------------------------------------===//

/// The columns of all rows, or the parts of all replicas.
FailureOr<Content> proof::reduceView(Rules &rules, Operation *op,
                                     const Content &input,
                                     RankedTensorType type) {
  auto reduce = cast<nn::ReduceOp>(op);
  const PackView &view = input.pack->view;
  int64_t last = input.type.getRank() - 1;
  if (areParts(input) && reduce.getDims() == ArrayRef(last))
    return reduceRows(rules, op, input, reduce.getKind(),
                      input.type.getDimSize(last), type);
  if (view != PackView{.replicas = view.replicas, .isStacked = true} ||
      reduce.getDims() != ArrayRef(int64_t(0)) ||
      reduce.getKind() != nn::ReduceKind::Sum)
    return failView(rules, op, input);
  FailureOr<Content> sum =
      mapMembers(rules, op, input, type, {}, [&](const Content &member) {
        return addReplicas(rules, op, member);
      });
  if (failed(sum))
    return failure();
  auto pack = std::make_shared<Pack>(*sum->pack);
  pack->gap = pack->gap.sum();
  sum->pack = std::move(pack);
  return sum;
}

/// Makes room for what each of so many replicas has of each member.
static void stackReplicas(Pack &pack, int64_t replicas) {
  pack.view.isStacked = true;
  for (Pack::Member &member : pack.members) {
    member.form.dims[0].begin.clear();
    SmallVector<int64_t> shape(member.type.getShape());
    shape[0] = replicas;
    member.type = member.type.clone(shape);
  }
}

/// Whether all replicas have the same of all members.
static bool isSameOnReplicas(const Pack &pack) {
  return llvm::all_of(pack.members, [](const Pack::Member &member) {
    return member.form.dims[0].uniform;
  });
}

int64_t proof::countElements(Rules &rules, const Pack &pack) {
  return pack.elements / rules.mesh.countBlocks(pack.rows);
}

/// 1. A dimension in front, for what all replicas have.
/// 2. The number of a row for all its elements.
/// 3. What all replicas have, once more for each of them.
FailureOr<Content> proof::broadcastView(Rules &rules, Operation *op,
                                        const Content &input,
                                        RankedTensorType type) {
  ArrayRef<int64_t> dims = cast<nn::BroadcastOp>(op).getDims();
  auto pack = std::make_shared<Pack>(*input.pack);
  int64_t rank = input.type.getRank();
  auto areFrom = [&](int64_t first) {
    return llvm::equal(dims, llvm::seq<int64_t>(first, first + rank));
  };
  PackView &view = pack->view;
  // Each rank has one of the replicas, or all of them.
  int64_t replicas = view.isStacked ? type.getDimSize(0) : 1;
  bool stacks = view.replicas && !view.isStacked && areFrom(1) &&
                type.getRank() == rank + 1;
  if (stacks && type.getDimSize(0) == 1)
    view.isStacked = true; // 1.
  else if (stacks && isSameOnReplicas(*pack) &&
           type.getDimSize(0) == rules.mesh.getSize(view.replicas))
    stackReplicas(*pack, type.getDimSize(0)); // 3.
  else if (view.isByRow && areFrom(0) && type.getRank() == rank + 1 &&
           type.getNumElements() == countElements(rules, *pack) * replicas)
    view.isByRow = false; // 2.
  else
    return failView(rules, op, input);
  return Content{type, {}, std::move(pack)};
}

static FailureOr<Content> evaluateSlice(Rules &rules, Operation *op,
                                        Operands operands,
                                        RankedTensorType type) {
  auto slice = cast<nn::SliceOp>(op);
  const Content &input = operands[0];
  if (!areParts(input) && !areColumns(input))
    return failView(rules, op, input);
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view.part = slice.getPart();
  pack->view.parts = slice.getParts();
  return Content{type, {}, std::move(pack)};
}

/// Whether both are the same elements of the same members.
static bool areAlike(const Pack &a, const Pack &b) {
  return a.elements == b.elements &&
         llvm::equal(a.members, b.members,
                     [](const Pack::Member &x, const Pack::Member &y) {
                       return x.offset == y.offset && x.type == y.type &&
                              x.form.term == y.form.term &&
                              llvm::equal(x.form.dims, y.form.dims,
                                          [](const Dimension &own,
                                             const Dimension &other) {
                                            return own.liesAs(other);
                                          });
                     });
}

/// All parts of a row, in their order: then words have all of it.
static FailureOr<Content> evaluatePackBits(Rules &rules, Operation *op,
                                           Operands operands,
                                           RankedTensorType type) {
  int64_t bits = cast<nn::PackBitsOp>(op).getBits();
  for (auto [index, operand] : llvm::enumerate(operands)) {
    if (!operand.pack)
      return failView(rules, op, operand);
    PackView expected{.replicas = operand.pack->view.replicas,
                      .part = int64_t(index),
                      .parts = int64_t(operands.size()),
                      .kept = operands[0].pack->view.kept,
                      .areColumns = operands[0].pack->view.areColumns};
    if (operand.pack->view != expected ||
        !areAlike(*operand.pack, *operands[0].pack)) {
      rules.wrong(op) << "packs " << print(operand) << " as part " << index
                      << " of " << operands.size() << ", which it is not";
      return failure();
    }
  }
  auto pack = std::make_shared<Pack>(*operands[0].pack);
  pack->view.part = 0;
  pack->view.parts = 1;
  pack->view.bits = bits;
  return Content{type, {}, std::move(pack)};
}

static FailureOr<Content> evaluateUnpackBits(Rules &rules, Operation *op,
                                             Operands operands,
                                             RankedTensorType type) {
  int64_t bits = cast<nn::UnpackBitsOp>(op).getBits();
  const Content &input = operands[0];
  if (!input.pack || input.pack->view.bits == 0)
    return failView(rules, op, input);
  if (input.pack->view.bits != bits) {
    rules.wrong(op) << "reads integers of " << bits << " bits from words of "
                    << input.pack->view.bits << " bits each";
    return failure();
  }
  auto pack = std::make_shared<Pack>(*input.pack);
  pack->view.bits = 0;
  return Content{type, {}, std::move(pack)};
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

ArrayRef<OpRule> proof::getCompressionRules() {
  static const OpRule rules[] = {
      {"nn.parts", evaluateParts, /*takesPacks=*/true},
      {"nn.unite", evaluateUnite, /*takesPacks=*/true},
      {"nn.chunk_reduce", evaluateChunkReduce, /*takesPacks=*/true},
      {"nn.chunk_spread", evaluateChunkSpread, /*takesPacks=*/true},
      {"nn.slice", evaluateSlice, /*takesPacks=*/true},
      {"nn.pack_bits", evaluatePackBits, /*takesPacks=*/true},
      {"nn.unpack_bits", evaluateUnpackBits, /*takesPacks=*/true},
  };
  return rules;
}
