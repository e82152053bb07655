//===- CompressedSum.cpp - Sums of compressed gradients -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A replica sends integers of a few bits and numbers of each chunk to all
// others, and each adds up what all have sent: Σ decode(encode(gᵢ + eᵢ)), where
// eᵢ is what replica i has not sent so far (Stich et al. 2018, "Sparsified SGD
// with memory"). Codes are no numbers that a collective could add up, hence an
// all-gather and a sum on each rank, in the order of the replicas. Where
// replicas update other rows, each is sent its own ones only: an all-to-all. So
// it is where sums are compressed as well; they then come back by an
// all-gather.
//
// The arithmetic of a compressor is in a file of Compressors. What is said of
// whole parameters, which is what a step is held against, is the same but for
// what is sent.
//
//===----------------------------------------------------------------------===//

#include "CompressedSum.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Dialect/NN/IR/NNDraw.h"
#include "plait/Dialect/NN/IR/Names.h"

using namespace mlir;
using namespace plait;
using nn::NNBuilder;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// Puts a dimension of so many replicas in front.
static Value stack(NNBuilder &nn, Value own, int64_t replicas) {
  SmallVector<int64_t> shape = {replicas};
  llvm::append_range(shape, typeOf(own).getShape());
  auto dims = llvm::to_vector(llvm::seq<int64_t>(1, shape.size()));
  return nn.broadcast(own, shape, dims);
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

Value Chunks::reduce(Value x, nn::ReduceKind kind) {
  RankedTensorType type = typeOf(x);
  if (isTable)
    return nn.reduce(x, type.getRank() - 1, kind);
  int64_t elements = ShapedType::getNumElements(type.getShape().drop_front());
  auto numbers = type.clone(
      {type.getDimSize(0), int64_t(llvm::divideCeil(elements, block))});
  return nn::ChunkReduceOp::create(nn.builder, nn.loc, numbers, kind, x, block);
}

Value Chunks::spread(Value numbers, Value like) {
  if (isTable)
    return nn.broadcastRows(numbers, like);
  return nn::ChunkSpreadOp::create(nn.builder, nn.loc, like.getType(), numbers,
                                   block);
}

/// Counts in the whole table, where places are known.
Value Chunks::occupied(Value like) {
  if (!hasAllRows(like))
    return fitMask(occupied(whole), like);
  auto elements = llvm::map_to_vector(
      places, [](const TensorPlace &place) { return place.elements; });
  return nn::OccupiedOp::create(nn.builder, nn.loc, like.getType(), like,
                                elements);
}

/// Only rows of tables are ever divided.
bool Chunks::hasAllRows(Value like) {
  auto countRows = [](Value value) {
    return typeOf(value).getShape().end()[-2];
  };
  return !isTable || countRows(like) == countRows(whole);
}

/// Kernels that move elements read masks from memory, where bits are less.
Value Chunks::fitMask(Value mask, Value like) {
  RankedTensorType type = typeOf(like);
  bool isStacked = type.getRank() > typeOf(mask).getRank();
  if (hasAllRows(like) && !isStacked)
    return mask;
  Value words = takeRowsOf(packWords(nn, mask, 1), like);
  return unpackWords(
      nn, isStacked ? stack(nn, words, type.getDimSize(0)) : words, 1);
}

Value Chunks::takeRowsOf(Value all, Value like) {
  return hasAllRows(like) ? all : takeRows(all, added);
}

Value Chunks::takeRows(Value all, ArrayRef<StringAttr> axes) {
  if (axes.empty())
    return all;
  RankedTensorType type = typeOf(all);
  SmallVector<int64_t> shape(type.getShape());
  for (StringAttr axis : axes)
    shape[0] /= mesh.getAxisSize(axis);
  Builder &at = nn.builder;
  SmallVector<Attribute> names(axes.begin(), axes.end());
  return dist::SliceOp::create(nn.builder, nn.loc, type.clone(shape), all,
                               FlatSymbolRefAttr::get(mesh.getSymNameAttr()),
                               at.getArrayAttr(names), at.getI64IntegerAttr(0));
}

/// The step is the same for all elements, which costs nothing in a kernel.
Value Chunks::draw(bool shared) {
  Value like = whole;
  Builder &at = nn.builder;
  SmallVector<int64_t> elements, keys, runs;
  SmallVector<Attribute> begins;
  for (const TensorPlace &place : places) {
    elements.push_back(place.elements);
    keys.push_back(place.key);
    runs.push_back(place.run);
    begins.push_back(place.begin);
  }
  auto scalar = RankedTensorType::get({}, at.getF32Type());
  Value step =
      nn::StepScalarOp::create(nn.builder, nn.loc, scalar, kStepNumber);
  Value steps = nn.broadcast(step, typeOf(like).getShape(), {});
  nn::BeginAttr replica;
  shared |= alone;
  if (!shared && isTable && mesh.getAxisSize(Axis::DP) > 1)
    replica = nn::BeginAttr::get(at.getContext(),
                                 RankTerm{at.getStringAttr(kDataAxis), 1});
  return nn::DrawOp::create(nn.builder, nn.loc, like.getType(), like, steps,
                            block, /*seed=*/round, elements, keys, runs,
                            at.getArrayAttr(begins), replica, shared);
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

namespace plait {
#define PLAIT_COMPRESSOR(rule, ...)                                            \
  std::unique_ptr<CompressionRule> create##rule(Chunks &chunks,                \
                                                const Compression &);
#include "plait/Configuration/Compressors.def"
} // namespace plait

std::unique_ptr<CompressionRule>
plait::createCompressionRule(const Compression &compression, Chunks &chunks) {
#define PLAIT_COMPRESSOR(rule, name, ...)                                      \
  if (compression.scheme == name)                                              \
    return create##rule(chunks, compression);
#include "plait/Configuration/Compressors.def"
  llvm_unreachable("the name has been checked when it was parsed");
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

CompressedSum::CompressedSum(NNBuilder &nn, dist::MeshOp mesh,
                             const Compression &compression, bool isTable,
                             ArrayRef<TensorPlace> places,
                             ArrayRef<StringAttr> dividing)
    : nn(nn), mesh(mesh), compression(compression), isTable(isTable),
      sends(isTable && mesh.getAxisSize(Axis::DP) > 1), rest(dividing),
      chunks(nn, mesh, compression.block, isTable, places),
      rule(createCompressionRule(compression, chunks)) {
  auto found = llvm::find(dividing, kDataAxis);
  if (compression.both && sends)
    added.push_back(nn.builder.getStringAttr(kDataAxis));
  else if (found != dividing.end())
    llvm::append_range(added, ArrayRef(dividing.begin(), found + 1));
  if (!dividing.empty())
    rest = dividing.drop_front(added.size());
  chunks.added = added;
}

/// A rank has one of the parts, and needs no dimension to count them.
RankedTensorType CompressedSum::getPartsType(RankedTensorType type) {
  if (isTable)
    return type;
  SmallVector<int64_t> shape = {chunks.alone ? 1 : compression.replicas};
  llvm::append_range(shape, type.getShape());
  return type.clone(shape);
}

Value CompressedSum::unite(Value parts, RankedTensorType type) {
  return nn::UniteOp::create(nn.builder, nn.loc, type, parts,
                             nn.builder.getStringAttr(kDataAxis));
}

/// Brings the rows that this rank adds up of all replicas together: those that
/// it has along axes outside of theirs, and of these one block for each.
Value CompressedSum::scatter(Value own) {
  Value one = stack(nn, chunks.takeRows(own, chunks.added.drop_back()), 1);
  int64_t replicas = mesh.getAxisSize(Axis::DP);
  SmallVector<int64_t> shape(typeOf(one).getShape());
  shape[0] = replicas;
  shape[1] /= replicas;
  return dist::AllToAllOp::create(
      nn.builder, nn.loc, typeOf(own).clone(shape), one,
      FlatSymbolRefAttr::get(mesh.getSymNameAttr()),
      nn.builder.getStringAttr(kDataAxis), nn.builder.getI64IntegerAttr(1),
      nn.builder.getI64IntegerAttr(0));
}

/// Brings what all replicas have together, in the order of their indices along
/// a new first dimension.
Value CompressedSum::gather(Value own) {
  if (!chunks.added.empty())
    return scatter(own);
  Value one = stack(nn, own, 1);
  SmallVector<int64_t> shape(typeOf(one).getShape());
  shape[0] = mesh.getAxisSize(Axis::DP);
  return dist::AllGatherOp::create(
      nn.builder, nn.loc, typeOf(own).clone(shape), one,
      FlatSymbolRefAttr::get(mesh.getSymNameAttr()),
      nn.builder.getStringAttr(kDataAxis), nn.builder.getI64IntegerAttr(0));
}

/// Integer j of part i of a row is in word j, see nn.pack_bits.
Value plait::packWords(NNBuilder &nn, Value codes, int64_t bits) {
  int64_t parts = 32 / bits;
  RankedTensorType type = typeOf(codes);
  SmallVector<int64_t> shape(type.getShape());
  shape.back() /= parts;
  SmallVector<Value> slices;
  for (int64_t part = 0; part < parts; ++part)
    slices.push_back(nn::SliceOp::create(nn.builder, nn.loc, type.clone(shape),
                                         codes, part, parts));
  Type integer = nn.builder.getI32Type();
  return nn::PackBitsOp::create(
      nn.builder, nn.loc, RankedTensorType::get(shape, integer), slices, bits);
}

Value plait::unpackWords(NNBuilder &nn, Value words, int64_t bits) {
  SmallVector<int64_t> shape(typeOf(words).getShape());
  shape.back() *= 32 / bits;
  Type number = nn.builder.getF32Type();
  return nn::UnpackBitsOp::create(
      nn.builder, nn.loc, RankedTensorType::get(shape, number), words, bits);
}

/// Brings the rows together that ranks have added up.
Value CompressedSum::gatherRows(Value rows) {
  SmallVector<int64_t> shape(typeOf(rows).getShape());
  shape[0] *= mesh.getAxisSize(Axis::DP);
  return dist::AllGatherOp::create(
      nn.builder, nn.loc, typeOf(rows).clone(shape), rows,
      FlatSymbolRefAttr::get(mesh.getSymNameAttr()),
      nn.builder.getStringAttr(kDataAxis), nn.builder.getI64IntegerAttr(0));
}

/// Numbers of chunks have a message of their own. `own` is what this rank has
/// made of its part.
Value CompressedSum::exchange(const Message &own) {
  Message sent = rule->send(own);
  auto bring = [&](Value part) {
    return chunks.alone ? gatherRows(part) : gather(part);
  };
  int64_t bits = compression.getMessage().bits;
  Value words = sent.codes ? bring(packWords(nn, sent.codes, bits)) : Value();
  Value numbers = bring(sent.numbers);
  Value codes = words ? unpackWords(nn, words, bits) : Value();
  Value all = rule->receive({codes, numbers}, own);
  return chunks.alone ? unite(all, typeOf(all)) : nn.reduce(all, int64_t(0));
}

/// A rank has some rows of a sum, and `whole` stays that of its part.
CompressedSum::Sent CompressedSum::send(Value wanted) {
  RankedTensorType type = typeOf(wanted);
  Value parts =
      nn::PartsOp::create(nn.builder, nn.loc, getPartsType(type), wanted,
                          nn.builder.getStringAttr(kDataAxis),
                          chunks.alone ? nn.builder.getUnitAttr() : UnitAttr());
  if (!chunks.alone || !sends)
    chunks.whole = parts;
  Message message = rule->encode(parts);
  Value decoded = rule->decode(message);
  return {message, unite(decoded, type)};
}

/// Sends `left` in rounds, each of what those before it leave (Huang et al.
/// 2022, "Lower bounds and nearly optimal algorithms in distributed learning
/// with communication compression"). Returns what comes of them; `left` becomes
/// what all of them leave, if that is kept.
Value CompressedSum::sendRounds(Value &left, bool isKept) {
  Value sum;
  for (int64_t round = 0; round < compression.rounds; ++round, ++chunks.round) {
    Sent sent = send(left);
    if (isKept || round + 1 < compression.rounds)
      left = nn.sub(left, sent.value);
    Value total = sends ? exchange(sent.message) : sent.value;
    sum = sum ? nn.add(sum, total) : total;
  }
  return sum;
}

/// Sends the sum as replicas have sent their parts of it, with an error of its
/// own (Tang et al. 2019, "DoubleSqueeze", Algorithm 1). Its random numbers are
/// those of further rounds.
Value CompressedSum::compressSum(Value sum, const Kept &kept) {
  auto error = nn::Slot::getState(kSumErrorState);
  Value left = compression.feedback ? nn.add(sum, kept.read(error)) : sum;
  chunks.alone = true;
  chunks.round = kMostRounds;
  Value all = sendRounds(left, compression.feedback);
  if (compression.feedback)
    kept.write(left, error);
  return all;
}

/// The difference of a gradient from what all others know of it is sent, and
/// they know that much more from now on. Returns what all know of all.
Value CompressedSum::sendDifference(function_ref<Value()> readGradient,
                                    const Kept &kept) {
  auto own = nn::Slot::getState(kEstimateState);
  auto all = nn::Slot::getState(kEstimateSumState);
  Value known = kept.read(own);
  Value gradient = readGradient();
  Sent sent = send(nn.sub(gradient, known));
  Value after = nn.add(known, sent.value);
  Value sum = sends ? exchange(sent.message) : sent.value;
  kept.write(after, own);
  Value updated = chunks.takeRows(sum, rest);
  Value total = nn.add(kept.read(all), updated);
  kept.write(total, all);
  return total;
}

/// A replica would send its gradient and what is left of earlier ones, had it
/// as many bits as it wanted.
Value CompressedSum::apply(function_ref<Value()> readGradient,
                           const Kept &kept) {
  if (sendsDifferences(compression))
    return sendDifference(readGradient, kept);
  auto error = nn::Slot::getState(kErrorState);
  Value known = compression.feedback ? kept.read(error) : Value();
  Value gradient = kept.hasGradient ? Value() : readGradient();
  Value left = !gradient ? known : known ? nn.add(gradient, known) : gradient;
  Value sum = sendRounds(left, compression.feedback);
  if (known)
    kept.write(left, error);
  if (compression.both)
    sum = compressSum(sum, kept);
  return chunks.takeRows(sum, rest);
}
