//===- LowerToSteps.cpp - Functions as lists of steps ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every op that some device executes becomes one step, or several, with the
// memory that its values have been given. What only says where a value lies is
// gone afterwards.
//
// The last pass that sees values. Each op is converted by itself, in order,
// without looking at others: what could be merged or cut has been by the passes
// before, and what is about time is left to those after. Ops that no device
// executes are errors here, since a step of the plan has no name but the
// location that it is given here.
//
//===----------------------------------------------------------------------===//

#include "LibrarySteps.h"
#include "plait/Analysis/KernelShape.h"
#include "plait/Analysis/KernelTraffic.h"
#include "plait/Dialect/NN/IR/Score.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Transforms/BatchedMatmuls.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

namespace plait {
#define GEN_PASS_DEF_LOWERTOSTEPSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// Converts one function.
class Converter {
public:
  /// `deterministic`: attention gives the same bits in every run.
  Converter(func::FuncOp function, bool deterministic)
      : function(function), deterministic(deterministic), builder(function) {}

  LogicalResult run();

private:
  MemoryAttr getMemory(Value value);
  ArrayAttr getMemories(ValueRange values);
  Location locate(Operation *op);
  LogicalResult verifySlot(Operation *op, PlaceAttr place, size_t slots);
  LogicalResult verifyPlaces(size_t slots);
  LogicalResult convert(Operation *op);
  void convertConstant(Operation *op);
  LogicalResult convertCluster(ClusterOp op);
  void convertMatmul(nn::MatmulOp op);
  LogicalResult convertFused(nn::FusedMatmulOp op);
  void convertGrouped(nn::GroupedMatmulOp op);
  template <typename OpTy>
  AttentionOp createAttention(OpTy op, ArrayAttr gradients);
  void convertCollective(dist::CollectiveOpInterface op);
  LogicalResult convertMove(MoveOp op);
  LogicalResult convertConcat(nn::ConcatOp op);

  func::FuncOp function;
  bool deterministic;
  OpBuilder builder;
};

} // namespace

/// Returns where passes have placed a value; null: nowhere.
static PlaceAttr getPlace(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function.getArgAttrOfType<PlaceAttr>(argument.getArgNumber(),
                                                kPlaceAttr);
  }
  auto places = value.getDefiningOp()->getAttrOfType<ArrayAttr>(kPlacesAttr);
  return cast<PlaceAttr>(places[cast<OpResult>(value).getResultNumber()]);
}

MemoryAttr Converter::getMemory(Value value) {
  PlaceAttr place = getPlace(value);
  return MemoryAttr::get(builder.getContext(), place.getSlot(),
                         place.getBuffer(), place.getOffset(),
                         getStoredBytes(value));
}

/// Returns memories in the order of the values, in which kernels take their
/// arguments.
ArrayAttr Converter::getMemories(ValueRange values) {
  SmallVector<Attribute> memories;
  for (Value value : values)
    memories.push_back(getMemory(value));
  return builder.getArrayAttr(memories);
}

/// Messages name the op that a step comes from.
Location Converter::locate(Operation *op) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (StringAttr origin = findOrigin(op->getLoc()))
    out << origin.getValue() << ' ';
  out << '(' << op->getName() << ')';
  return NameLoc::get(builder.getStringAttr(text), op->getLoc());
}

//===----------------------------------------------------------------------===//
// Kernels and constants
//===----------------------------------------------------------------------===//

/// Ends the body of a step with the results of the op that is in it alone.
static void yieldResults(OpBuilder &builder, Operation *op) {
  op->removeAttr(kPlacesAttr);
  builder.setInsertionPointAfter(op);
  YieldOp::create(builder, op->getLoc(), op->getResults());
}

/// The table itself is computed when the plan is written: each rank may have
/// other rows of it.
void Converter::convertConstant(Operation *op) {
  auto constant =
      ConstantOp::create(builder, locate(op), getMemory(op->getResult(0)));
  OpBuilder inner = OpBuilder::atBlockBegin(&constant.getBody().emplaceBlock());
  yieldResults(inner, inner.clone(*op));
}

/// The cluster moves into the kernel's body as it is, for code generation; the
/// step has what is known without generating it: memory, FLOPs, bytes moved.
/// Block arguments stand for the operands, which are other ops' values and
/// about to go. A scatter into a table that is given adds to what lies at its
/// result, as a GEMM with an addend does.
LogicalResult Converter::convertCluster(ClusterOp op) {
  if (BlockArgument table = findScatterAddend(op)) {
    MemoryAttr given = getMemory(op.getOperand(table.getArgNumber()));
    MemoryAttr own = getMemory(op.getResult(0));
    if (given != own)
      return op.emitOpError("adds to ")
             << given << ", but its result is " << own;
  }
  auto kernel = KernelOp::create(
      builder, locate(op), getMemories(op.getOperands()),
      getMemories(op.getResults()), int64_t(getKernelFlops(op)),
      int64_t(getKernelTraffic(op)));
  Block &block = kernel.getBody().emplaceBlock();
  // A row pitch is found through the op that made a value. Behind a block
  // argument nothing could be found, so that it is written down where it is not
  // the default. The same holds for what is sorted behind tokens.
  SmallVector<int64_t> pitches, sorted;
  for (Value operand : op.getOperands()) {
    block.addArgument(operand.getType(), op.getLoc());
    auto extent = block.getArguments().back();
    int64_t pitch = getRowPitch(operand);
    pitches.push_back(pitch == getRowPitch(extent) ? 0 : pitch);
    sorted.push_back(getSortedEntries(operand));
  }
  if (llvm::any_of(sorted, [](int64_t entries) { return entries; }))
    kernel->setAttr(kSortedAttr, builder.getDenseI64ArrayAttr(sorted));
  if (llvm::any_of(pitches, [](int64_t pitch) { return pitch; }))
    kernel->setAttr(kPitchAttr, builder.getDenseI64ArrayAttr(pitches));
  OpBuilder inner = OpBuilder::atBlockBegin(&block);
  Operation *moved = inner.insert(op->cloneWithoutRegions());
  moved->getRegion(0).takeBody(op.getBody());
  moved->setOperands(block.getArguments());
  yieldResults(inner, moved);
  return success();
}

//===----------------------------------------------------------------------===//
// Library steps
//===----------------------------------------------------------------------===//

/// How a gradient treats what is in its buffer already has been decided where
/// it was placed.
void Converter::convertMatmul(nn::MatmulOp op) {
  auto mode = op->getAttrOfType<IntegerAttr>(kAccumulateAttr);
  createGemms(builder, locate(op), op, getMemory(op.getLhs()),
              getMemory(op.getRhs()), getMemory(op.getResult()),
              mode ? static_cast<Accumulate>(mode.getInt())
                   : Accumulate::Overwrite);
}

/// A GEMM adds to what lies at its result, so that an addend has to have been
/// placed there (Lowering/PlaceValues.cpp).
LogicalResult Converter::convertFused(nn::FusedMatmulOp op) {
  Value addend = op.getAddend();
  if (addend && getMemory(addend) != getMemory(op.getResult()))
    return op.emitOpError("adds to ")
           << getMemory(addend) << ", but its result is "
           << getMemory(op.getResult());
  // One GEMM, by the op's constraints.
  GemmOp gemm = createGemms(builder, locate(op), op, getMemory(op.getLhs()),
                            getMemory(op.getRhs()), getMemory(op.getResult()),
                            addend ? Accumulate::Add : Accumulate::Overwrite)
                    .front();
  if (addend)
    return success();
  if (op.getGeluInput())
    gemm.setEpilogue(Epilogue::GeluGradient);
  else if (op.getGelu())
    gemm.setEpilogue(op.getBias() ? Epilogue::BiasGelu : Epilogue::Gelu);
  else
    gemm.setEpilogue(Epilogue::Bias);
  if (Value bias = op.getBias())
    gemm.setBiasAttr(getMemory(bias));
  if (Value input = op.getGelu() ? op.getPreactivation() : op.getGeluInput())
    gemm.setGeluInputAttr(getMemory(input));
  return success();
}

/// lhs has so many rows fewer as dimensions of the ids that it lacks count.
void Converter::convertGrouped(nn::GroupedMatmulOp op) {
  int64_t rows = op.getIds().getType().getNumElements();
  int64_t own = op.getLhs().getType().getNumElements() / op.getDepth();
  auto mode = op->getAttrOfType<IntegerAttr>(kAccumulateAttr);
  GroupedGemmOp::create(
      builder, locate(op), rows, /*repeat=*/rows / own, op.countExperts(),
      op.getDepth(), op.getWidth(), op.isTransposed(), op.makesMatrices(),
      getElementTypeOrSelf(op.getLhs()), getMemory(op.getLhs()),
      getMemory(op.getRhs()), getMemory(op.getIds()), getMemory(op.getResult()),
      getElementTypeOrSelf(op.getResult()),
      mode ? static_cast<Accumulate>(mode.getInt()) : Accumulate::Overwrite,
      op.getBeginAttr(), op.getLimit());
}

/// Query head h of the step is head h % r of group h / r, for groups of r.
template <typename OpTy>
AttentionOp Converter::createAttention(OpTy op, ArrayAttr gradients) {
  ArrayRef<int64_t> query = op.getQuery().getType().getShape();
  int64_t keys = op.getKey().getType().getDimSize(1);
  nn::ScoreAttr score = nn::simplify(op.getScore(), keys);
  auto find = [&](Value value) {
    return value ? getMemory(value) : MemoryAttr();
  };
  return AttentionOp::create(
      builder, locate(op), /*batch=*/query[0], /*heads=*/query[2] * query[3],
      /*kv_heads=*/query[2], /*queries=*/query[1], keys, /*head_size=*/query[4],
      getElementTypeOrSelf(op.getQuery()), getMemory(op.getQuery()),
      getMemory(op.getKey()), getMemory(op.getValue()), getMemory(op.getOut()),
      getMemory(op.getLse()), score, op.getBeginAttr(), gradients,
      find(op.getStarts()), find(op.getSinks()), find(op.getDropoutKeys()),
      op.getProbabilityAttr(), op.getSiteAttr(), op.getGroupBeginAttr(),
      deterministic);
}

/// Returns what the plan moves elements as: bf16, or four bytes.
static Type getMovedType(Value value) {
  Type type = getElementTypeOrSelf(value);
  return type.isBF16() ? type : Float32Type::get(type.getContext());
}

/// No members means all ranks of the axis.
void Converter::convertCollective(dist::CollectiveOpInterface op) {
  dist::CollectiveBlocks blocks = op.getBlocks();
  dist::ReductionAttr reduction;
  if (std::optional<dist::Reduction> combination = op.getCombination())
    reduction = dist::ReductionAttr::get(op.getContext(), *combination);
  DenseI64ArrayAttr members;
  if (auto given = op.getMembers(); given && !given->empty())
    members = builder.getDenseI64ArrayAttr(*given);
  auto rows = op.getSelection();
  CollectiveOp::create(
      builder, locate(op), op.getKind(), reduction, op.getAxis(), members,
      getMovedType(op.getInput()), blocks.outer, blocks.middle, blocks.chunk,
      blocks.splitsInner, getMemory(op.getInput()), getMemory(op->getResult(0)),
      rows ? getMemory(rows->ids) : MemoryAttr(), rows ? rows->width : 1,
      rows ? rows->choices : 1, rows ? rows->experts : 1);
}

/// Rows lie equally far apart at both ends (Lowering/PadRows.cpp).
LogicalResult Converter::convertMove(MoveOp op) {
  if (getRowPitch(op.getInput()) != getRowPitch(op.getResult()))
    return op.emitOpError("has rows that are ")
           << getRowPitch(op.getInput()) << " elements apart, and "
           << getRowPitch(op.getResult()) << " in its result";
  CopyOp::create(builder, locate(op), op.getKind(), getMemory(op.getInput()),
                 getMemory(op.getResult()));
  return success();
}

/// Makes no step: what is joined has been made where it belongs
/// (Lowering/PlaceValues.cpp).
LogicalResult Converter::convertConcat(nn::ConcatOp op) {
  MemoryAttr whole = getMemory(op.getResult());
  int64_t offset = 0;
  for (Value input : op.getInputs()) {
    int64_t bytes = getStoredBytes(input);
    MemoryAttr own = getMemory(input), part = whole.getPart(offset, bytes);
    if (own != part)
      return op.emitOpError("joins ")
             << own << ", but its result has that part at " << part;
    offset += bytes;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// Every op has one case; that of an op which no device can execute is an error
/// here, the last place where it still has its name and location.
LogicalResult Converter::convert(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ClusterOp op) { return convertCluster(op); })
      .Case([&](nn::MatmulOp op) { return convertMatmul(op), success(); })
      .Case([&](nn::FusedMatmulOp op) { return convertFused(op); })
      .Case(
          [&](nn::GroupedMatmulOp op) { return convertGrouped(op), success(); })
      .Case([&](nn::AttentionOp op) {
        return createAttention(op, ArrayAttr()), success();
      })
      .Case([&](nn::AttentionGradOp op) {
        createAttention(
            op, getMemories({op.getGradient(), op.getQueryGradient(),
                             op.getKeyGradient(), op.getValueGradient()}));
        return success();
      })
      .Case([&](dist::CollectiveOpInterface op) {
        return convertCollective(op), success();
      })
      .Case([&](MoveOp op) { return convertMove(op); })
      .Case([&](nn::ConcatOp op) { return convertConcat(op); })
      .Case([&](ConstantDataOpInterface op) {
        return convertConstant(op), success();
      })
      // These only say where a value lies.
      .Case<MemoryOpInterface, func::ReturnOp>(
          [](Operation *) { return success(); })
      .Default([](Operation *op) -> LogicalResult {
        return op->emitOpError("cannot be executed: no step computes '")
               << op->getName() << "'";
      });
}

/// The function of steps says the same of its own, but is verified only after
/// slots have been looked up.
LogicalResult Converter::verifySlot(Operation *op, PlaceAttr place,
                                    size_t slots) {
  if (!place.isInSlot() || place.getSlot() < int64_t(slots))
    return success();
  return op->emitOpError("has a value in slot ")
         << place.getSlot() << ", but its function has " << slots;
}

/// Every value has a place, and that is in one of the function's slots or in a
/// buffer.
LogicalResult Converter::verifyPlaces(size_t slots) {
  for (BlockArgument argument : function.getArguments()) {
    PlaceAttr place = getPlace(argument);
    if (!place)
      return function.emitOpError("has no ")
             << kPlaceAttr << " of argument " << argument.getArgNumber();
    if (failed(verifySlot(function, place, slots)))
      return failure();
  }
  for (Operation &op : function.getBody().front()) {
    auto places = op.getAttrOfType<ArrayAttr>(kPlacesAttr);
    size_t count =
        places ? llvm::count_if(places, llvm::IsaPred<PlaceAttr>) : 0;
    if (count != op.getNumResults() || (places && places.size() != count))
      return op.emitOpError("has ") << op.getNumResults() << " results, but "
                                    << count << " places in " << kPlacesAttr;
    if (places)
      for (auto place : places.getAsRange<PlaceAttr>())
        if (failed(verifySlot(&op, place, slots)))
          return failure();
  }
  return success();
}

/// Replaces the function by one of the same name, so that the actions that call
/// it need no change.
LogicalResult Converter::run() {
  auto bytes = function->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
  auto names = function->getAttrOfType<ArrayAttr>(kSlotNamesAttr);
  if (!bytes || !names)
    return function.emitOpError("has no ")
           << (bytes ? kSlotNamesAttr : kSlotBytesAttr)
           << ": its values have no addresses";
  // Checked first for all values, so that getMemory() cannot fail half way
  // through a function.
  if (failed(verifyPlaces(bytes.size())))
    return failure();
  auto steps =
      FunctionOp::create(builder, function.getLoc(), function.getSymName(),
                         getStageFunction(function), names, bytes);
  builder.createBlock(&steps.getBody());
  // Values keep their ops to the end: where they lie is asked of those.
  for (Operation &op : function.getBody().front())
    if (failed(convert(&op)))
      return failure();
  function.erase();
  return success();
}

namespace {
struct LowerToStepsPass : plait::impl::LowerToStepsPassBase<LowerToStepsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    TargetAttr target = getTarget(module);
    bool isGPU = target && target.isGPU();
    // Before functions are converted: the workspace is computed from attentions
    // in value form.
    if (isGPU)
      for (auto program : module.getOps<ProgramOp>())
        addLibraryWorkspace(program);
    bool deterministic = isGPU && getConfiguration(module).deterministic;
    // Conversion replaces one function after the other: found before.
    SymbolTable symbols(module);
    SmallVector<func::FuncOp> functions;
    for (Attribute name : findCallees())
      if (auto function = symbols.lookup<func::FuncOp>(cast<StringAttr>(name)))
        functions.push_back(function);
    for (func::FuncOp function : functions)
      if (failed(Converter(function, deterministic).run()))
        return signalPassFailure();
    // A processor has no idle cores in a matmul's last wave.
    if (failed(isGPU ? batchMatmuls(module) : verifySteps(module)))
      signalPassFailure();
  }

  /// Finds what programs call, in the order of the calls, so that messages come
  /// in the same order in every run.
  llvm::SetVector<Attribute> findCallees() {
    llvm::SetVector<Attribute> names;
    for (auto program : getOperation().getOps<ProgramOp>())
      for (auto action : program.getBody().getOps<ActionOp>())
        if (auto callee = action.getCalleeAttr())
          names.insert(callee.getAttr());
    return names;
  }
};
} // namespace
