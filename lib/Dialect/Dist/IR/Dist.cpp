//===- Dist.cpp - The dist dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Meshes, shardings and collectives: what TableGen cannot write. Contracts are
// in DistOps.td; each check is tagged with its constraint. That shardings in an
// op's types agree with its factor rule is checked for all ops in one place
// (ShardingVerifier.cpp).
//
// What a kind of collective reads, writes and combines is a row of
// plait/Support/Collectives.h. The ops here add what is a question of shapes:
// how their tensors are cut into blocks.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Dist/IR/Dist.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::dist;

#include "plait/Dialect/Dist/IR/DistDialect.cpp.inc"
#include "plait/Dialect/Dist/IR/DistEnums.cpp.inc"
#include "plait/Dialect/Dist/IR/DistInterfaces.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/Dist/IR/DistAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "plait/Dialect/Dist/IR/DistOps.cpp.inc"

void DistDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "plait/Dialect/Dist/IR/DistAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/Dist/IR/DistOps.cpp.inc"
      >();
}

RankedTensorType dist::withSharding(Type type, ShardingAttr sharding) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType(),
                               sharding);
}

//===----------------------------------------------------------------------===//
// ShardingAttr
//===----------------------------------------------------------------------===//

/// Parses `{"a", "b"}`.
static ParseResult parseAxes(AsmParser &parser,
                             SmallVectorImpl<Attribute> &axes) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Braces, [&] {
    StringAttr axis;
    if (parser.parseAttribute(axis))
      return failure();
    axes.push_back(axis);
    return success();
  });
}

static void printAxes(AsmPrinter &printer, ArrayRef<StringAttr> axes) {
  printer << '{';
  llvm::interleaveComma(axes, printer, [&](StringAttr axis) {
    printer.printAttributeWithoutType(axis);
  });
  printer << '}';
}

/// `<@mesh, [{"dp"}, {}], partial = {"tp"} max>`: the mesh, axes for each
/// dimension, and what is partial, if anything. A sum is the rule, so that only
/// a maximum is written.
Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<ArrayAttr> dims;
  SmallVector<Attribute> partial;
  Reduction reduction = Reduction::Sum;
  auto parseDim = [&]() -> ParseResult {
    SmallVector<Attribute> axes;
    if (parseAxes(parser, axes))
      return failure();
    dims.push_back(ArrayAttr::get(parser.getContext(), axes));
    return success();
  };
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseAttribute(mesh) ||
      parser.parseComma() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDim))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseKeyword("partial") || parser.parseEqual() ||
        parseAxes(parser, partial))
      return {};
    if (succeeded(parser.parseOptionalKeyword("max")))
      reduction = Reduction::Max;
  }
  if (parser.parseGreater())
    return {};
  SmallVector<StringAttr> partialAxes = llvm::map_to_vector(
      partial, [](Attribute axis) { return cast<StringAttr>(axis); });
  return parser.getChecked<ShardingAttr>(loc, parser.getContext(), mesh, dims,
                                         partialAxes, reduction);
}

void ShardingAttr::print(AsmPrinter &printer) const {
  printer << '<' << getMesh() << ", [";
  llvm::interleaveComma(getDims(), printer, [&](ArrayAttr dim) {
    printAxes(printer, llvm::to_vector(dim.getAsRange<StringAttr>()));
  });
  printer << ']';
  if (isPartial()) {
    printer << ", partial = ";
    printAxes(printer, getPartial());
    if (getReduction() == Reduction::Max)
      printer << " max";
  }
  printer << '>';
}

/// An axis that split two dimensions would cut a tensor along its diagonal:
/// most of the blocks would be on no rank. One that splits and is partial would
/// sum up different blocks.
LogicalResult ShardingAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   FlatSymbolRefAttr, ArrayRef<ArrayAttr> dims,
                                   ArrayRef<StringAttr> partial, Reduction) {
  // (C2)
  llvm::StringSet<> seen;
  auto insert = [&](StringAttr axis) -> LogicalResult {
    if (!seen.insert(axis.getValue()).second)
      return emitError() << "sharding names axis \"" << axis.getValue()
                         << "\" twice";
    return success();
  };
  for (ArrayAttr dim : dims)
    for (auto axis : dim.getAsRange<StringAttr>())
      if (failed(insert(axis)))
        return failure();
  for (StringAttr axis : partial)
    if (failed(insert(axis)))
      return failure();
  return success();
}

/// Asked by a ranked tensor type that is parsed; one that a pass builds is
/// checked with the ops that have it (ShardingVerifier.cpp, S1).
LogicalResult ShardingAttr::verifyEncoding(
    ArrayRef<int64_t> shape, Type,
    function_ref<InFlightDiagnostic()> emitError) const {
  // (C1)
  if (getDims().size() != shape.size())
    return emitError() << "sharding of " << getDims().size()
                       << " dimensions on a tensor of rank " << shape.size();
  return success();
}

ShardingAttr ShardingAttr::getReplicated(FlatSymbolRefAttr mesh, int64_t rank) {
  SmallVector<ArrayAttr> dims(rank, ArrayAttr::get(mesh.getContext(), {}));
  return get(mesh.getContext(), mesh, dims, {}, Reduction::Sum);
}

/// Null for what is no tensor, too: ops may have other operands.
ShardingAttr ShardingAttr::of(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? dyn_cast_or_null<ShardingAttr>(tensor.getEncoding())
                : ShardingAttr();
}

bool ShardingAttr::isPartialOver(StringAttr axis) const {
  return llvm::is_contained(getPartial(), axis);
}

int64_t ShardingAttr::findDim(StringAttr axis) const {
  for (auto [index, dim] : llvm::enumerate(getDims()))
    if (llvm::is_contained(dim, axis))
      return index;
  return -1;
}

ShardingAttr ShardingAttr::withoutPartial() const {
  return get(getContext(), getMesh(), getDims(), {}, Reduction::Sum);
}

/// In place of the axes that it is partial over, not beside them.
ShardingAttr ShardingAttr::withPartial(ArrayRef<StringAttr> axes,
                                       Reduction reduction) const {
  return get(getContext(), getMesh(), getDims(), axes, reduction);
}

ShardingAttr ShardingAttr::withDim(int64_t dim, ArrayAttr axes) const {
  SmallVector<ArrayAttr> dims(getDims());
  dims[dim] = axes;
  return get(getContext(), getMesh(), dims, getPartial(), getReduction());
}

//===----------------------------------------------------------------------===//
// MeshOp
//===----------------------------------------------------------------------===//

LogicalResult MeshOp::verify() {
  // (C1)
  if (getAxes().empty() || getAxes().size() != getSizes().size())
    return emitOpError("has ") << getAxes().size() << " axis names and "
                               << getSizes().size() << " sizes";
  // More than any cluster has; products of sizes and extents stay far from
  // overflow.
  constexpr int64_t most = int64_t(1) << 24;
  int64_t ranks = 1;
  llvm::StringSet<> seen;
  for (auto [axis, size] :
       llvm::zip_equal(getAxes().getAsRange<StringAttr>(), getSizes())) {
    // (C2)
    if (axis.getValue().empty() || !seen.insert(axis.getValue()).second)
      return emitOpError("names axis \"")
             << axis.getValue() << "\" twice or not at all";
    // (C3)
    if (size < 1)
      return emitOpError("gives axis \"")
             << axis.getValue() << "\" the size " << size << ", less than 1";
    // (C4)
    if (size > most / ranks)
      return emitOpError("has more than ") << most << " ranks";
    ranks *= size;
  }
  // (C5) Whoever asks for the mesh takes the first.
  MeshOp first = find(*this);
  if (first && first != *this) {
    InFlightDiagnostic diag = emitOpError("is a second mesh of its module");
    diag.attachNote(first.getLoc()) << "the first one";
    return diag;
  }
  return success();
}

std::string MeshOp::getText() {
  std::string text;
  for (auto [name, size] :
       llvm::zip_equal(getAxes().getAsRange<StringAttr>(), getSizes()))
    text += (text.empty() ? "" : ",") + name.str() + "=" + std::to_string(size);
  return text;
}

int64_t MeshOp::getAxisIndex(StringRef axis) {
  for (auto [index, name] : llvm::enumerate(getAxes().getAsRange<StringAttr>()))
    if (name.getValue() == axis)
      return index;
  return -1;
}

/// 0 and not 1 for an unknown axis: whoever means that it is one rank has to
/// say so.
int64_t MeshOp::getAxisSize(StringRef axis) {
  int64_t index = getAxisIndex(axis);
  return index < 0 ? 0 : getSizes()[index];
}

/// Axes have been checked: one that the mesh lacks would make it 0.
int64_t MeshOp::getBlocks(ArrayAttr axes) {
  int64_t blocks = 1;
  for (auto axis : axes.getAsRange<StringAttr>())
    blocks *= getAxisSize(axis.getValue());
  return blocks;
}

/// The innermost axis steps by a chunk, each further one by all that is inside
/// of it. Axes of one rank add nothing and are left out; the terms are in the
/// order of `axes`.
SmallVector<RankTerm> MeshOp::getBegin(ArrayAttr axes, int64_t chunk) {
  SmallVector<RankTerm> terms;
  for (Attribute axis : llvm::reverse(axes)) {
    auto name = cast<StringAttr>(axis);
    int64_t size = getAxisSize(name.getValue());
    if (size > 1)
      terms.push_back({name, chunk});
    chunk *= size;
  }
  std::reverse(terms.begin(), terms.end());
  return terms;
}

/// The first one: there is one mesh a module.
MeshOp MeshOp::find(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  if (!module)
    return {};
  auto meshes = module.getOps<MeshOp>();
  return meshes.empty() ? MeshOp() : *meshes.begin();
}

/// Rounded up: all ranks have blocks of one type, the last ones with padding.
RankedTensorType MeshOp::getLocalType(RankedTensorType type) {
  ShardingAttr sharding = ShardingAttr::of(type);
  if (!sharding)
    return type;
  SmallVector<int64_t> shape(type.getShape());
  for (auto [extent, axes] : llvm::zip_equal(shape, sharding.getDims()))
    extent = llvm::divideCeil(extent, getBlocks(axes));
  return RankedTensorType::get(shape, type.getElementType());
}

//===----------------------------------------------------------------------===//
// ReshardOp
//===----------------------------------------------------------------------===//

/// A value that is whole cannot become a partial sum: which rank would hold it,
/// and which ones zeros, is nowhere said.
LogicalResult ReshardOp::verify() {
  ShardingAttr from = ShardingAttr::of(getInput());
  ShardingAttr to = ShardingAttr::of(getResult());
  // (C1)
  if (!from || !to || from.getMesh() != to.getMesh())
    return emitOpError("needs shardings on one mesh, got ")
           << getInput().getType() << " and " << getResult().getType();
  // (C2)
  for (StringAttr axis : to.getPartial())
    if (!from.isPartialOver(axis))
      return emitOpError("makes a partial value over \"")
             << axis.getValue() << "\" of one that is not";
  if (failed(verifyAxes(*this, from)))
    return failure();
  return verifyAxes(*this, to);
}

OpFoldResult ReshardOp::fold(FoldAdaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  return {};
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

std::string dist::stringifyKind(CollectiveKind kind) {
  std::string word(getFacts(kind).name);
  llvm::replace(word, '-', '_');
  return word;
}

/// The words are the table's, with underscores for hyphens.
FailureOr<CollectiveKind> dist::parseKind(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseKeyword(&word))
    return failure();
  std::string known;
  for (size_t kind = 0; kind < std::size(collectives); ++kind) {
    std::string own = stringifyKind(CollectiveKind(kind));
    if (word == own)
      return CollectiveKind(kind);
    known += (known.empty() ? "" : ", ") + own;
  }
  return parser.emitError(loc)
         << "'" << word << "' is no collective, expected one of " << known;
}

/// The number of ranks along `axis`, or failure with an error on `op` (C1).
static FailureOr<int64_t> countRanks(Operation *op, FlatSymbolRefAttr meshName,
                                     StringRef axis) {
  auto mesh = SymbolTable::lookupNearestSymbolFrom<MeshOp>(op, meshName);
  if (!mesh)
    return op->emitOpError("is on ") << meshName << ", which is no mesh";
  int64_t size = mesh.getAxisSize(axis);
  if (size == 0)
    return op->emitOpError("is on axis \"")
           << axis << "\", which mesh " << meshName << " does not have";
  return size;
}

/// Checks that `dim` exists and that all other extents agree (C2).
static LogicalResult verifyOtherDims(Operation *op, Value input, Value result,
                                     ArrayRef<int64_t> dims) {
  auto from = cast<RankedTensorType>(input.getType());
  auto to = cast<RankedTensorType>(result.getType());
  // First that the dimensions exist: extent() of another would read past the
  // shape.
  for (int64_t dim : dims)
    if (dim < 0 || dim >= from.getRank())
      return op->emitOpError("works on dimension ")
             << dim << " of a tensor of rank " << from.getRank();
  if (from.getRank() != to.getRank() ||
      from.getElementType() != to.getElementType())
    return op->emitOpError("changes ") << from << " to " << to;
  for (int64_t dim = 0; dim < from.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim) &&
        from.getDimSize(dim) != to.getDimSize(dim))
      return op->emitOpError("changes dimension ")
             << dim << " from " << from.getDimSize(dim) << " to "
             << to.getDimSize(dim);
  return success();
}

static int64_t extent(Value value, int64_t dim) {
  return cast<RankedTensorType>(value.getType()).getDimSize(dim);
}

static LogicalResult emitExtentError(Operation *op, int64_t dim, int64_t from,
                                     int64_t to, int64_t blocks) {
  return op->emitOpError("turns ")
         << from << " elements of dimension " << dim << " into " << to
         << " over " << blocks << " ranks";
}

LogicalResult AllReduceOp::verify() {
  // (C1)
  FailureOr<int64_t> size = countRanks(*this, getMeshAttr(), getAxis());
  if (failed(size))
    return failure();
  // (C2)
  if (getInput().getType() != getResult().getType())
    return emitOpError("changes ")
           << getInput().getType() << " to " << getResult().getType();
  // (C3)
  int64_t last = -1;
  for (int64_t member : getMembers().value_or(ArrayRef<int64_t>())) {
    if (member <= last || member >= *size)
      return emitOpError("has member ")
             << member << " after " << last << " on an axis of " << *size;
    last = member;
  }
  return success();
}

/// A write to nothing in particular, so that neither CSE nor dead code
/// elimination touches an ordered sum: other programs take part, and wait for
/// it.
void AllReduceOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (getOrdered())
    effects.emplace_back(MemoryEffects::Write::get());
}

CollectiveKind AllReduceOp::getKind() { return CollectiveKind::AllReduce; }

// How the elements are grouped does not matter to a sum: one block.
CollectiveBlocks AllReduceOp::getBlocks() {
  return {1, 1, getResult().getType().getNumElements()};
}

LogicalResult AllGatherOp::verify() {
  // (C1)
  FailureOr<int64_t> blocks = countRanks(*this, getMeshAttr(), getAxis());
  if (failed(blocks))
    return failure();
  // (C2)
  int64_t dim = getDim();
  if (failed(verifyOtherDims(*this, getInput(), getResult(), {dim})))
    return failure();
  // (C3)
  int64_t from = extent(getInput(), dim), to = extent(getResult(), dim);
  if (to != from * *blocks)
    return emitExtentError(*this, dim, from, to, *blocks);
  return success();
}

/// The product of the extents of `type` in [begin, end).
static int64_t extents(RankedTensorType type, int64_t begin, int64_t end) {
  int64_t product = 1;
  for (int64_t dim = begin; dim < end; ++dim)
    product *= type.getDimSize(dim);
  return product;
}

/// Blocks of type `block` that lie side by side along `dim` of a tensor.
static CollectiveBlocks blocksAlong(Value block, int64_t dim) {
  auto type = cast<RankedTensorType>(block.getType());
  return {extents(type, 0, dim), 1, extents(type, dim, type.getRank())};
}

CollectiveKind AllGatherOp::getKind() { return CollectiveKind::AllGather; }

CollectiveBlocks AllGatherOp::getBlocks() {
  return blocksAlong(getInput(), getDim());
}

/// The mirror image of an all-gather: the input is the whole tensor.
LogicalResult ReduceScatterOp::verify() {
  // (C1)
  FailureOr<int64_t> blocks = countRanks(*this, getMeshAttr(), getAxis());
  if (failed(blocks))
    return failure();
  // (C2)
  int64_t dim = getDim();
  if (failed(verifyOtherDims(*this, getInput(), getResult(), {dim})))
    return failure();
  // (C3)
  int64_t from = extent(getInput(), dim), to = extent(getResult(), dim);
  if (from != to * *blocks)
    return emitExtentError(*this, dim, from, to, *blocks);
  return success();
}

CollectiveKind ReduceScatterOp::getKind() {
  return CollectiveKind::ReduceScatter;
}

CollectiveBlocks ReduceScatterOp::getBlocks() {
  return blocksAlong(getResult(), getDim());
}

/// What one dimension loses the other one gains, by the number of ranks.
LogicalResult AllToAllOp::verify() {
  // (C1)
  FailureOr<int64_t> blocks = countRanks(*this, getMeshAttr(), getAxis());
  if (failed(blocks))
    return failure();
  // (C2)
  int64_t split = getSplit(), concat = getConcat();
  if (split == concat)
    return emitOpError("splits and concatenates dimension ") << split;
  if (failed(verifyOtherDims(*this, getInput(), getResult(), {split, concat})))
    return failure();
  // (C3)
  // Multiplied rather than divided, so that an extent that does not divide is
  // an error and not rounded.
  for (auto [dim, up, down] :
       {std::tuple(split, int64_t(1), *blocks), {concat, *blocks, 1}}) {
    int64_t from = extent(getInput(), dim), to = extent(getResult(), dim);
    if (from * up != to * down)
      return emitExtentError(*this, dim, from, to, *blocks);
  }
  return success();
}

CollectiveKind AllToAllOp::getKind() { return CollectiveKind::AllToAll; }

/// A block is [outer, middle, chunk]: the extents before the first of the two
/// dimensions, from it to the second, and from the second on. In one tensor the
/// blocks lie along the first dimension, in the other one along the second.
CollectiveBlocks AllToAllOp::getBlocks() {
  int64_t split = getSplit(), concat = getConcat();
  // Of one block, all extents are the smaller ones.
  SmallVector<int64_t> shape(getInput().getType().getShape());
  shape[split] = getResult().getType().getDimSize(split);
  auto block =
      RankedTensorType::get(shape, getInput().getType().getElementType());
  auto [first, last] = std::minmax(split, concat);
  return {extents(block, 0, first), extents(block, first, last),
          extents(block, last, block.getRank()), split > concat};
}

/// Unlike collectives, which move equal blocks, a slice may have a last block
/// with padding: it is only cut out.
LogicalResult SliceOp::verify() {
  // (C1)
  int64_t blocks = 1;
  llvm::StringSet<> named;
  for (auto axis : getAxes().getAsRange<StringAttr>()) {
    FailureOr<int64_t> ranks = countRanks(*this, getMeshAttr(), axis);
    if (failed(ranks))
      return failure();
    if (!named.insert(axis.getValue()).second)
      return emitOpError("names axis ") << axis << " twice";
    blocks *= *ranks;
  }
  // (C2)
  int64_t dim = getDim();
  if (failed(verifyOtherDims(*this, getInput(), getResult(), {dim})))
    return failure();
  // (C3)
  int64_t from = extent(getInput(), dim), to = extent(getResult(), dim);
  if (to != static_cast<int64_t>(llvm::divideCeil(from, blocks)))
    return emitExtentError(*this, dim, from, to, blocks);
  return success();
}

FusionRole SliceOp::getFusionRole() { return FusionRole::Reindex; }

/// Element i of the rank is element begin + i of the whole; beyond the extent
/// it is zero. As a map it fuses into whatever kernel reads the block.
IndexMap SliceOp::getIndexMap() {
  int64_t dim = getDim();
  return {dim, {{extent(getInput(), dim), 0}}, /*countsFromWhole=*/true};
}

SmallVector<RankTerm> SliceOp::getRankBegin() {
  auto mesh =
      SymbolTable::lookupNearestSymbolFrom<MeshOp>(*this, getMeshAttr());
  return mesh.getBegin(getAxes(), extent(getResult(), getDim()));
}

Value SliceOp::emitElement(ElementContext &, ValueRange operands) {
  return operands.front();
}
