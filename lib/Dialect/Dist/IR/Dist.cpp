//===- Dist.cpp - The dist dialect ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Meshes and shardings: what TableGen cannot write. Contracts are in
// DistOps.td; each check is tagged with its constraint. That shardings in an
// op's types agree with its factor rule is checked for all ops in one place
// (ShardingVerifier.cpp).
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

SmallVector<StringAttr, 2> dist::getAxes(ArrayAttr entry) {
  SmallVector<StringAttr, 2> axes;
  for (Attribute part : entry)
    if (auto axis = dyn_cast<StringAttr>(part))
      axes.push_back(axis);
  return axes;
}

/// The attribute's verifier leaves one number at most (C4).
int64_t dist::getRounds(ArrayAttr entry) {
  for (Attribute part : entry)
    if (auto rounds = dyn_cast<IntegerAttr>(part))
      return rounds.getInt();
  return 1;
}

ArrayAttr dist::addAxis(ArrayAttr entry, StringAttr axis, int64_t rounds) {
  SmallVector<Attribute> parts(entry.getValue());
  if (rounds > 1)
    parts.push_back(
        IntegerAttr::get(IntegerType::get(axis.getContext(), 64), rounds));
  parts.push_back(axis);
  return ArrayAttr::get(axis.getContext(), parts);
}

/// Parses `{"a", "b"}`, or `{"a", 4, "b"}` where there may be rounds.
static ParseResult parseAxes(AsmParser &parser,
                             SmallVectorImpl<Attribute> &axes,
                             bool mayHaveRounds) {
  return parser.parseCommaSeparatedList(
      AsmParser::Delimiter::Braces, [&]() -> ParseResult {
        int64_t rounds = 0;
        OptionalParseResult number = mayHaveRounds
                                         ? parser.parseOptionalInteger(rounds)
                                         : OptionalParseResult();
        if (number.has_value()) {
          axes.push_back(parser.getBuilder().getI64IntegerAttr(rounds));
          return *number;
        }
        StringAttr axis;
        if (parser.parseAttribute(axis))
          return failure();
        axes.push_back(axis);
        return success();
      });
}

template <typename Range>
static void printAxes(AsmPrinter &printer, const Range &axes) {
  printer << '{';
  llvm::interleaveComma(axes, printer, [&](Attribute axis) {
    printer.printAttributeWithoutType(axis);
  });
  printer << '}';
}

/// `<@mesh, [{"dp"}, {}], partial = {"tp"} max>`: the mesh, axes for each
/// dimension, and what is partial, if anything. A sum is the rule, so that only
/// another kind is written.
Attribute ShardingAttr::parse(AsmParser &parser, Type) {
  FlatSymbolRefAttr mesh;
  SmallVector<ArrayAttr> dims;
  SmallVector<Attribute> partial;
  Reduction reduction = Reduction::Sum;
  auto parseDim = [&]() -> ParseResult {
    SmallVector<Attribute> axes;
    if (parseAxes(parser, axes, /*mayHaveRounds=*/true))
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
        parseAxes(parser, partial, /*mayHaveRounds=*/false))
      return {};
    for (Reduction kind : {Reduction::Max, Reduction::Owned})
      if (succeeded(parser.parseOptionalKeyword(stringifyReduction(kind))))
        reduction = kind;
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
  llvm::interleaveComma(getDims(), printer,
                        [&](ArrayAttr dim) { printAxes(printer, dim); });
  printer << ']';
  if (isPartial()) {
    printer << ", partial = ";
    printAxes(printer, getPartial());
    if (getReduction() != Reduction::Sum)
      printer << ' ' << stringifyReduction(getReduction());
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
    for (StringAttr axis : dist::getAxes(dim))
      if (failed(insert(axis)))
        return failure();
  for (StringAttr axis : partial)
    if (failed(insert(axis)))
      return failure();
  // (C4)
  for (ArrayAttr dim : dims)
    for (auto [place, part] : llvm::enumerate(dim)) {
      auto rounds = dyn_cast<IntegerAttr>(part);
      if (rounds && (rounds.getInt() < 2 || place + 2 != dim.size()))
        return emitError() << "sharding has " << rounds.getInt()
                           << " rounds at place " << place << " of " << dim
                           << ", expected 2 or more in front of the last axis";
    }
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

int64_t MeshOp::getAxisSize(StringRef axis) {
  int64_t index = getAxisIndex(axis);
  return index < 0 ? 1 : getSizes()[index];
}

int64_t MeshOp::getAxisSize(Axis axis) {
  return getAxisSize(StringRef(getFacts(axis).name));
}

Mesh MeshOp::getKnownAxes() {
  Mesh mesh;
  for (const AxisFacts &facts : kAxes)
    mesh[facts.axis] = int(getAxisSize(facts.axis));
  return mesh;
}

Result<Mesh> MeshOp::getMesh() {
  SmallVector<std::pair<std::string_view, int64_t>> sizes;
  for (auto [name, size] :
       llvm::zip_equal(getAxes().getAsRange<StringAttr>(), getSizes()))
    sizes.emplace_back(name.getValue(), size);
  return Mesh::get({sizes.data(), sizes.size()});
}

MeshOp MeshOp::add(ModuleOp module, const Mesh &mesh,
                   llvm::function_ref<bool(const AxisFacts &)> hasAxis) {
  SmallVector<StringRef> names;
  SmallVector<int64_t> sizes;
  for (const AxisFacts &facts : kAxes) {
    if (!mesh.names(facts) && !(hasAxis && hasAxis(facts)))
      continue;
    names.push_back(facts.name);
    sizes.push_back(mesh[facts.axis]);
  }
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  return MeshOp::create(builder, module.getLoc(), builder.getStringAttr("mesh"),
                        builder.getStrArrayAttr(names),
                        builder.getDenseI64ArrayAttr(sizes));
}

int64_t MeshOp::getBlocks(ArrayAttr axes) {
  int64_t blocks = 1;
  for (StringAttr axis : dist::getAxes(axes))
    blocks *= getAxisSize(axis.getValue());
  return blocks;
}

SmallVector<StringAttr> MeshOp::getStateAxes() {
  SmallVector<StringAttr> axes;
  for (const AxisFacts &facts : llvm::reverse(kAxes))
    if (facts.dividesState && getAxisSize(facts.axis) > 1)
      axes.push_back(StringAttr::get(getContext(), facts.name));
  return axes;
}

/// The innermost axis steps by a chunk, each further one by all that is inside
/// of it. Axes of one rank add nothing and are left out; the terms are in the
/// order of `axes`.
SmallVector<RankTerm> MeshOp::getBegin(ArrayAttr axes, int64_t chunk) {
  SmallVector<RankTerm> terms;
  auto names = dist::getAxes(axes);
  for (StringAttr name : llvm::reverse(names)) {
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
    if (to.isOwned() ? from.isPartialOver(axis) && !from.isOwned()
                     : !from.isPartialOver(axis))
      return emitOpError(to.isOwned() ? "makes rows that are owned over \""
                                      : "makes a partial value over \"")
             << axis.getValue()
             << (to.isOwned() ? "\" of a partial sum"
                              : "\" of one that is not");
  if (failed(verifyAxes(*this, from)))
    return failure();
  return verifyAxes(*this, to);
}

OpFoldResult ReshardOp::fold(FoldAdaptor) {
  if (getInput().getType() == getResult().getType())
    return getInput();
  return {};
}
