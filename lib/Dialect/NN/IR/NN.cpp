//===- NN.cpp - The nn dialect: registration and verifiers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/NN/IR/Parameters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "plait/Plan/Plan_generated.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::nn;

#include "plait/Dialect/NN/IR/NNDialect.cpp.inc"
#include "plait/Dialect/NN/IR/NNEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "plait/Dialect/NN/IR/NNAttrs.cpp.inc"
#include "plait/Dialect/NN/IR/NNInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "plait/Dialect/NN/IR/NNOps.cpp.inc"

void NNDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "plait/Dialect/NN/IR/NNAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "plait/Dialect/NN/IR/NNOps.cpp.inc"
      >();
}

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// Fails with an error unless `value`, if there is one, has exactly this shape.
static LogicalResult verifyShape(Operation *op, const char *what, Value value,
                                 ArrayRef<int64_t> expected) {
  if (!value || shapeOf(value) == expected)
    return success();
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::interleave(expected, out, "x");
  return op->emitOpError("has ") << what << " " << value.getType()
                                 << ", expected the shape [" << text << "]";
}

/// Fails unless `sum`, the result of the op, may add up numbers like `term`.
static LogicalResult verifySum(Operation *op, Value term, Value sum) {
  Type from = getElementTypeOrSelf(term), to = getElementTypeOrSelf(sum);
  if (to == from || to.isF32())
    return success();
  return op->emitOpError("has result ")
         << sum.getType() << ", expected elements of f32 or of "
         << term.getType();
}

/// Of an op on rows, of which the rank has those from `begin` on.
static LogicalResult verifyRowLimit(Operation *op, BeginAttr begin,
                                    int64_t limit) {
  if (limit < 0 || (limit > 0 && !begin))
    return op->emitOpError("has limit ")
           << limit << ", expected 0, or a positive one with begin";
  return success();
}

//===----------------------------------------------------------------------===//
// BeginAttr
//===----------------------------------------------------------------------===//

Attribute BeginAttr::parse(AsmParser &parser, Type) {
  SmallVector<RankTerm> terms;
  auto parseTerm = [&]() -> ParseResult {
    RankTerm &term = terms.emplace_back();
    return failure(parser.parseAttribute(term.axis) || parser.parseStar() ||
                   parser.parseInteger(term.scale));
  };
  SMLoc loc = parser.getCurrentLocation();
  int64_t extent = 0;
  if (parser.parseLess())
    return {};
  if (failed(parser.parseOptionalGreater()) &&
      (parser.parseCommaSeparatedList(parseTerm) ||
       (succeeded(parser.parseOptionalKeyword("of")) &&
        parser.parseInteger(extent)) ||
       parser.parseGreater()))
    return {};
  return parser.getChecked<BeginAttr>(loc, parser.getContext(), terms, extent);
}

void BeginAttr::print(AsmPrinter &printer) const {
  printer << '<';
  llvm::interleaveComma(getTerms(), printer, [&](const RankTerm &term) {
    printer << term.axis << " * " << term.scale;
  });
  if (getExtent() != 0)
    printer << " of " << getExtent();
  printer << '>';
}

LogicalResult BeginAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                ArrayRef<RankTerm> terms, int64_t extent) {
  // (C1)
  if (terms.empty())
    return emitError() << "names no axis";
  for (auto [index, term] : llvm::enumerate(terms)) {
    if (term.scale < 1)
      return emitError() << "has stride " << term.scale << " for axis "
                         << term.axis << ", expected at least 1";
    for (const RankTerm &earlier : terms.take_front(index))
      if (earlier.axis == term.axis)
        return emitError() << "names axis " << term.axis << " twice";
  }
  // (C2)
  if (extent < 0)
    return emitError() << "is in a dimension of " << extent << " elements";
  return success();
}

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

LogicalResult MatmulOp::verify() {
  if (failed(verifyContraction(*this)))
    return failure();
  // (C4)
  return verifySum(*this, getLhs(), getResult());
}

/// (C2)
static LogicalResult verifyWindow(Operation *op,
                                  std::optional<int64_t> window) {
  if (window && *window < 1)
    return op->emitOpError("has window ") << *window << ", less than 1";
  return success();
}

/// (C4)
static LogicalResult verifyQueries(Operation *op, int64_t queries, int64_t keys,
                                   BeginAttr begin) {
  if (begin ? queries <= keys : queries == keys)
    return success();
  return op->emitOpError("has ")
         << queries << " queries and " << keys << " keys, expected as many"
         << (begin ? " or more" : ", or begin");
}

template <typename OpTy> static LogicalResult verifyAttention(OpTy op) {
  // (C1)
  ArrayRef<int64_t> q = shapeOf(op.getQuery()), k = shapeOf(op.getKey());
  if (q.size() != 5)
    return op.emitOpError("has query ")
           << op.getQuery().getType() << ", expected five dimensions";
  int64_t keys = k.size() == 4 ? k[1] : q[1];
  int64_t keyShape[] = {q[0], keys, q[2], q[4]};
  int64_t lseShape[] = {q[0], q[2], q[3], q[1]};
  if (failed(verifyShape(op, "key", op.getKey(), keyShape)) ||
      failed(verifyShape(op, "value", op.getValue(), keyShape)) ||
      failed(verifyShape(op, "output", op.getOut(), q)) ||
      failed(verifyShape(op, "lse", op.getLse(), lseShape)) ||
      failed(verifyWindow(op, op.getWindow())))
    return failure();
  // (C5), (C6)
  if (failed(verifyShape(op, "starts", op.getStarts(), q.take_front(2))) ||
      failed(verifyDropout(op, op.getDropoutKeys(), q[0],
                           op.getProbabilityAttr(), op.getSiteAttr())))
    return failure();
  return verifyQueries(op, q[1], keys, op.getBeginAttr());
}

LogicalResult AttentionOp::verify() { return verifyAttention(*this); }

LogicalResult AttentionGradOp::verify() {
  if (failed(
          verifyShape(*this, "gradient", getGradient(), shapeOf(getQuery()))) ||
      failed(verifyShape(*this, "query gradient", getQueryGradient(),
                         shapeOf(getQuery()))) ||
      failed(verifyShape(*this, "key gradient", getKeyGradient(),
                         shapeOf(getKey()))) ||
      failed(verifyShape(*this, "value gradient", getValueGradient(),
                         shapeOf(getValue()))))
    return failure();
  return verifyAttention(*this);
}

//===----------------------------------------------------------------------===//
// Embeddings and losses
//===----------------------------------------------------------------------===//

static LogicalResult verifyEmbedding(Operation *op, Value table, Value ids,
                                     Value rows) {
  // (C1)
  if (shapeOf(table).size() != 2)
    return op->emitOpError("has table ")
           << table.getType() << ", expected two dimensions";
  SmallVector<int64_t> expected(shapeOf(ids));
  expected.push_back(shapeOf(table)[1]);
  return verifyShape(op, "rows", rows, expected);
}

LogicalResult EmbeddingOp::verify() {
  if (failed(verifyEmbedding(*this, getTable(), getIds(), getResult())))
    return failure();
  // (C2)
  return verifyRowLimit(*this, getBeginAttr(), getLimit());
}

LogicalResult EmbeddingGradOp::verify() {
  if (failed(verifyEmbedding(*this, getResult(), getIds(), getGradient())))
    return failure();
  // (C2)
  if (failed(verifyRowLimit(*this, getBeginAttr(), getLimit())))
    return failure();
  // (C3)
  return verifySum(*this, getGradient(), getResult());
}

LogicalResult PickOp::verify() {
  // (C1)
  SmallVector<int64_t> expected(shapeOf(getIds()));
  if (shapeOf(getInput()).empty())
    return emitOpError("has input of rank 0, expected at least 1");
  expected.push_back(shapeOf(getInput()).back());
  if (failed(verifyShape(*this, "input", getInput(), expected)))
    return failure();
  return verifyShape(*this, "result", getResult(), expected);
}

LogicalResult ValidOp::verify() {
  // (C1)
  return verifyShape(*this, "result", getResult(), shapeOf(getIds()));
}

LogicalResult IotaOp::verify() {
  // (C1)
  if (getAlong() >= shapeOf(getResult()).size())
    return emitOpError("counts along dimension ")
           << static_cast<int64_t>(getAlong()) << " of a tensor of rank "
           << shapeOf(getResult()).size();
  return success();
}

void SoftmaxCrossEntropyOp::build(OpBuilder &builder, OperationState &state,
                                  Value logits, Value targets, int32_t ignore) {
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  build(builder, state, {scalar, scalar}, logits, targets,
        builder.getI32IntegerAttr(ignore));
}

LogicalResult SoftmaxCrossEntropyOp::verify() {
  // (C1)
  ArrayRef<int64_t> logits = shapeOf(getLogits());
  if (logits.empty() || logits.drop_back() != shapeOf(getTargets()))
    return emitOpError("has logits ")
           << getLogits().getType() << " for targets "
           << getTargets().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Normalisation, rotary embedding
//===----------------------------------------------------------------------===//

/// (C2)
static LogicalResult verifyPositive(Operation *op, const char *what,
                                    APFloat value) {
  if (!value.isFinite() || value.isNegative() || value.isZero())
    return op->emitOpError("has ") << what << ' ' << value.convertToDouble()
                                   << ", which is not positive";
  return success();
}

LogicalResult LayerNormOp::verify() {
  // (C1)
  ArrayRef<int64_t> input = shapeOf(getInput());
  if (input.empty())
    return emitOpError("has input of rank 0, expected at least 1");
  if (failed(verifyShape(*this, "output", getOut(), input)) ||
      failed(verifyShape(*this, "weight", getWeight(), input.take_back())) ||
      failed(verifyShape(*this, "bias", getBias(), input.take_back())) ||
      failed(verifyShape(*this, "mean", getMean(), input.drop_back())) ||
      failed(verifyShape(*this, "rstd", getRstd(), input.drop_back())))
    return failure();
  return verifyPositive(*this, "epsilon", getEpsilon());
}

LogicalResult RMSNormOp::verify() {
  // (C1)
  ArrayRef<int64_t> input = shapeOf(getInput());
  if (input.empty())
    return emitOpError("has input of rank 0, expected at least 1");
  if (failed(verifyShape(*this, "output", getOut(), input)) ||
      failed(verifyShape(*this, "weight", getWeight(), input.take_back())) ||
      failed(verifyShape(*this, "rstd", getRstd(), input.drop_back())))
    return failure();
  return verifyPositive(*this, "epsilon", getEpsilon());
}

LogicalResult RopeOp::verify() {
  // (C1)
  ArrayRef<int64_t> input = shapeOf(getInput());
  if (input.size() < 3 || input.back() % 2)
    return emitOpError("has input ")
           << getInput().getType()
           << ", expected at least three dimensions, the last one even";
  return verifyPositive(*this, "theta", getTheta());
}

LogicalResult RopeTableOp::verify() {
  // (C1)
  ArrayRef<int64_t> shape = shapeOf(getResult());
  if (shape.size() != 2 || shape.back() % 2)
    return emitOpError("has result ")
           << getResult().getType()
           << ", expected two dimensions, the last one even";
  return verifyPositive(*this, "theta", getTheta());
}

LogicalResult RotateHalfOp::verify() {
  // (C1)
  ArrayRef<int64_t> shape = shapeOf(getInput());
  if (shape.empty() || shape.back() % 2)
    return emitOpError("has input ")
           << getInput().getType() << ", expected an even last dimension";
  return success();
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// Fails unless `dims` are ascending dimensions of a tensor of rank `rank`.
static LogicalResult verifyDims(Operation *op, ArrayRef<int64_t> dims,
                                int64_t rank) {
  int64_t last = -1;
  for (int64_t dim : dims) {
    if (dim <= last || dim >= rank)
      return op->emitOpError("lists dimension ")
             << dim << " after " << last << " of a tensor of rank " << rank;
    last = dim;
  }
  return success();
}

LogicalResult BroadcastOp::verify() {
  ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getResult());
  // (C1)
  if (getDims().size() != from.size())
    return emitOpError("lists ")
           << getDims().size() << " dimensions for an input of rank "
           << from.size();
  if (failed(verifyDims(*this, getDims(), to.size())))
    return failure();
  // (C2)
  for (auto [extent, dim] : llvm::zip_equal(from, getDims()))
    if (extent != to[dim])
      return emitOpError("turns extent ")
             << extent << " into " << to[dim] << " along dimension " << dim;
  return success();
}

LogicalResult ReduceOp::verify() {
  ArrayRef<int64_t> from = shapeOf(getInput());
  // (C1)
  if (getDims().empty())
    return emitOpError("lists no dimension to reduce");
  if (failed(verifyDims(*this, getDims(), from.size())))
    return failure();
  // (C2)
  SmallVector<int64_t> expected;
  for (auto [dim, extent] : llvm::enumerate(from))
    if (!llvm::is_contained(getDims(), static_cast<int64_t>(dim)))
      expected.push_back(extent);
  return verifyShape(*this, "result", getResult(), expected);
}

LogicalResult CausalMaskOp::verify() {
  // (C1)
  if (shapeOf(getInput()).size() < 2)
    return emitOpError("has input ")
           << getInput().getType() << ", expected at least two dimensions";
  if (failed(verifyWindow(*this, getWindow())))
    return failure();
  // (C3)
  return verifyShape(*this, "starts", getStarts(),
                     shapeOf(getInput()).drop_back());
}

LogicalResult MaskPaddingOp::verify() {
  // (C1)
  int64_t rank = shapeOf(getInput()).size(), dim = getDim();
  if (dim < 0 || dim >= rank)
    return emitOpError("masks dimension ")
           << dim << " of a tensor of rank " << rank;
  return success();
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

static int64_t product(ArrayRef<int64_t> extents) {
  int64_t result = 1;
  for (int64_t extent : extents)
    result *= extent;
  return result;
}

/// Blocks of the state are blocks of the parameter's blocks (C3).
static LogicalResult verifyState(ParameterOp parameter) {
  if (!parameter.getStateAttr())
    return success();
  auto state = cast<dist::ShardingAttr>(parameter.getStateAttr());
  dist::ShardingAttr sharding = getSharding(parameter);
  if (sharding &&
      llvm::all_of_zip(sharding.getDims(), state.getDims(),
                       [](ArrayAttr outer, ArrayAttr all) {
                         return all.getValue().take_front(outer.size()) ==
                                outer.getValue();
                       }))
    return success();
  return parameter.emitOpError("has state ")
         << state << ", which does not split the blocks of its sharding "
         << parameter.getShardingAttr();
}

LogicalResult ParameterOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  // (C1)
  if (type.getEncoding())
    return emitOpError("has type ") << type << ", expected a plain one";
  // (C2)
  if (FileAttr file = getFileAttr()) {
    size_t rank = file.getShape().size();
    bool inside =
        file.getBegin().size() == rank && file.getBox().size() == rank;
    for (size_t dim = 0; inside && dim < rank; ++dim)
      inside =
          file.getBegin()[dim] >= 0 && file.getBox()[dim] >= 0 &&
          file.getBegin()[dim] <= file.getShape()[dim] &&
          file.getBox()[dim] <= file.getShape()[dim] - file.getBegin()[dim];
    if (!inside || product(file.getBox()) != type.getNumElements())
      return emitOpError("has ")
             << type.getNumElements() << " elements, but its file box " << file
             << " does not fit";
  }
  // (C3)
  for (auto [name, attr] :
       {std::pair("sharding", getShardingAttr()), {"state", getStateAttr()}}) {
    if (!attr)
      continue;
    auto sharding = dyn_cast<dist::ShardingAttr>(attr);
    if (!sharding || sharding.isPartial() ||
        static_cast<int64_t>(sharding.getDims().size()) != type.getRank())
      return emitOpError("has ")
             << name << " " << attr << ", expected one of " << type.getRank()
             << " dimensions, not partial";
    if (failed(dist::verifyAxes(*this, sharding)))
      return failure();
  }
  return verifyState(*this);
}

/// Checks an access of `type` to a pack.
static LogicalResult verifyPackAccess(Operation *op, PackOp pack, Slot slot,
                                      RankedTensorType type) {
  // (C1)
  if (slot == Slot::Reduced && !pack.getAxis())
    return op->emitOpError("names @")
           << pack.getSymName() << ", which has no " << stringifySlot(slot);
  if (type == pack.getSlotType(slot))
    return success();
  return op->emitOpError("has type ")
         << type << ", but the " << stringifySlot(slot) << " of @"
         << pack.getSymName() << " is " << pack.getSlotType(slot);
}

/// Checks an access against its symbol.
static LogicalResult verifyAccess(SlotOpInterface op,
                                  SymbolTableCollection &tables) {
  FlatSymbolRefAttr symbol = op.getSymbolAttr();
  Slot slot = op.getSlot();
  RankedTensorType type = op.getTensor().getType();
  Operation *target = tables.lookupNearestSymbolFrom(op, symbol);
  if (auto pack = dyn_cast_or_null<PackOp>(target))
    return verifyPackAccess(op, pack, slot, type);
  auto parameter = dyn_cast_or_null<ParameterOp>(target);
  auto accumulator = dyn_cast_or_null<AccumulatorOp>(target);
  // (C1)
  if (slot == Slot::Reduced ||
      (!parameter && !(accumulator && slot == Slot::Value)))
    return op->emitOpError("names ")
           << symbol << ", which has no " << stringifySlot(slot);
  auto declared = cast<RankedTensorType>(parameter ? parameter.getType()
                                                   : accumulator.getType());
  if (slot == Slot::Compute)
    declared = declared.clone(BFloat16Type::get(op->getContext()));
  // (C2)
  dist::ShardingAttr sharding = getSharding(parameter, slot);
  // Whether there is a copy to compute with is not known here.
  dist::ShardingAttr master =
      slot == Slot::Value ? getSharding(parameter, Slot::Gradient) : sharding;
  dist::ShardingAttr own = dist::ShardingAttr::of(type);
  if (dist::plainType(type) == declared) {
    // (C3)
    if (!own || !sharding || own.withoutPartial() == sharding ||
        own.withoutPartial() == master)
      return success();
    InFlightDiagnostic diag = op->emitOpError("has type ")
                              << type << ", but the sharding of " << symbol
                              << " is " << sharding;
    diag.attachNote(target->getLoc()) << "declared here";
    return diag;
  }
  dist::MeshOp mesh = dist::MeshOp::find(op);
  for (dist::ShardingAttr lying : {sharding, master})
    if (mesh && lying &&
        type == mesh.getLocalType(dist::withSharding(declared, lying)))
      return success();
  InFlightDiagnostic diag = op->emitOpError("has type ")
                            << type << ", but the " << stringifySlot(slot)
                            << " of " << symbol << " is " << declared;
  diag.attachNote(target->getLoc()) << "declared here";
  return diag;
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifyAccess(*this, tables);
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifyAccess(*this, tables);
}

LogicalResult AccumulateOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifyAccess(*this, tables);
}

/// Checks a name against the enumeration `names` of the plan format, which
/// ends with "Count" (C1).
static LogicalResult verifyName(Operation *op, StringRef name,
                                const char *const *names) {
  std::string known;
  for (; StringRef(*names) != "Count"; ++names) {
    if (name == *names)
      return success();
    known += std::string(known.empty() ? "" : ", ") + *names;
  }
  return op->emitOpError("has name \"")
         << name << "\", expected one of " << known;
}

LogicalResult StepScalarOp::verify() {
  return verifyName(*this, getName(), plan::fb::EnumNamesScalar());
}

LogicalResult MetricOp::verify() {
  return verifyName(*this, getName(), plan::fb::EnumNamesMetric());
}

Type nn::getGradientElementType(Value primal) {
  Value source = primal;
  while (auto reshard = source.getDefiningOp<dist::ReshardOp>())
    source = reshard.getInput();
  return source.getDefiningOp<ReadOp>() ? Float32Type::get(primal.getContext())
                                        : getElementTypeOrSelf(primal);
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

OpFoldResult ScaleOp::fold(FoldAdaptor) {
  return getAmount().isExactlyValue(1.0) ? OpFoldResult(getInput())
                                         : OpFoldResult();
}

OpFoldResult ShiftOp::fold(FoldAdaptor) {
  return getAmount().isZero() ? OpFoldResult(getInput()) : OpFoldResult();
}

/// What was widened only is narrow again without rounding.
OpFoldResult CastOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  auto inner = getInput().getDefiningOp<CastOp>();
  if (inner && inner.isExact() && inner.getInput().getType() == getType())
    return inner.getInput();
  return {};
}

OpFoldResult AddOp::fold(FoldAdaptor) {
  auto isZero = [](Value value) {
    auto fill = value.getDefiningOp<FillOp>();
    return fill && fill.getAmount().isZero();
  };
  if (isZero(getRhs()))
    return getLhs();
  return isZero(getLhs()) ? OpFoldResult(getRhs()) : OpFoldResult();
}
