//===- NNParameters.cpp - Ops of parameters -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parameters, what they keep between steps, and the names of a step's numbers.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Dialect/NN/IR/Parameters.h"

#include "plait/Plan/Plan_generated.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace plait;
using namespace plait::nn;

/// The tensors of files that one parameter may lie in.
static constexpr int64_t kMostStacked = 1 << 16;

/// Blocks of the state are blocks of the parameter's blocks (C3).
static LogicalResult verifyState(ParameterOp parameter) {
  if (!parameter.getStateAttr())
    return success();
  auto state = cast<dist::ShardingAttr>(parameter.getStateAttr());
  dist::ShardingAttr sharding = getSharding(parameter);
  // Each dimension's axes begin with those of the parameter: then a rank's
  // block of the state lies within its block of the value.
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

/// Bytes of its slots, and of all parameters together, stay far from what 64
/// bits hold: sizes of a tensor are multiplied without a check (C4).
static LogicalResult verifyElements(ParameterOp parameter) {
  constexpr int64_t most = int64_t(1) << 44; // 64 TiB in f32
  int64_t left = most;
  for (int64_t extent : cast<RankedTensorType>(parameter.getType()).getShape())
    left = extent > 0 ? left / extent : 0;
  if (left > 0)
    return success();
  return parameter.emitOpError("has type ")
         << parameter.getType() << ", expected 1 to " << most << " elements";
}

/// (C5) Weights are drawn in fp32.
static LogicalResult verifyInit(ParameterOp op) {
  auto isFloat = [](FloatAttr number) {
    // False of a NaN too.
    return std::abs(number.getValueAsDouble()) <=
           std::numeric_limits<float>::max();
  };
  InitAttr init = op.getInit();
  if (isFloat(init.getMean()) && isFloat(init.getStd()) &&
      init.getStd().getValueAsDouble() >= 0)
    return success();
  return op.emitOpError("starts as ")
         << init << ", expected numbers in the range of fp32, std 0 or more";
}

/// (C6)
static LogicalResult verifyMatrix(ParameterOp op) {
  auto rank = cast<RankedTensorType>(op.getType()).getRank();
  std::optional<ArrayRef<int64_t>> columns = op.getMatrix();
  if (!columns)
    return success();
  int64_t least = 0;
  bool isAscending = llvm::all_of(*columns, [&](int64_t dim) {
    bool isNext = dim >= least;
    least = dim + 1;
    return isNext;
  });
  if (isAscending && least <= rank && !columns->empty() &&
      int64_t(columns->size()) < rank)
    return success();
  return op.emitOpError("has matrix ")
         << op.getMatrixAttr() << ", expected some but not all of " << rank
         << " dimensions, in ascending order";
}

/// The type is plain, as a parameter is one tensor however it lies; where it
/// lies are attributes of their own, which passes set.
LogicalResult ParameterOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  // (C1)
  if (type.getEncoding())
    return emitOpError("has type ") << type << ", expected a plain one";
  if (failed(verifyElements(*this)))
    return failure();
  // (C2)
  if (FileAttr file = getFileAttr()) {
    size_t rank = file.getShape().size();
    // Subtracted rather than added, so that no sizes can overflow.
    bool inside =
        file.getBegin().size() == rank && file.getBox().size() == rank;
    for (size_t dim = 0; inside && dim < rank; ++dim)
      inside =
          file.getBegin()[dim] >= 0 && file.getBox()[dim] >= 0 &&
          file.getBegin()[dim] <= file.getShape()[dim] &&
          file.getBox()[dim] <= file.getShape()[dim] - file.getBegin()[dim];
    if (!inside ||
        ShapedType::getNumElements(file.getBox()) != type.getNumElements())
      return emitOpError("has ")
             << type.getNumElements() << " elements, but its file slice "
             << file << " does not fit";
    size_t stars = file.getName().getValue().count('*');
    if (stars > 1 || (stars && file.getShape().empty()) ||
        (stars && file.getShape()[0] > kMostStacked))
      return emitOpError("has file slice ")
             << file << ", expected one * at most, and a first dimension of up "
             << "to " << kMostStacked << " with it";
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
    auto isDealtOut = [](ArrayAttr dim) { return dist::getRounds(dim) > 1; };
    if (llvm::any_of(sharding.getDims(), isDealtOut))
      return emitOpError("has ")
             << name << " " << attr << ", which deals out a parameter";
    if (failed(dist::verifyAxes(*this, sharding)))
      return failure();
  }
  if (failed(verifyInit(*this)) || failed(verifyMatrix(*this)))
    return failure();
  // (C7) False of a NaN, too.
  constexpr double mostRate = 1e6;
  if (!(getRateFactor() >= 0 && getRateFactor() <= mostRate))
    return emitOpError("has rate ")
           << getRateAttr() << ", expected 0 to 1,000,000";
  // (C8) Likewise.
  std::optional<APFloat> balance = getBalance();
  if (balance && !(balance->convertToDouble() >= 0 &&
                   balance->convertToDouble() <= mostRate))
    return emitOpError("has balance ")
           << getBalanceAttr() << ", expected 0 to 1,000,000";
  if (balance && (getDecay() || getMatrix()))
    return emitOpError("has balance ")
           << getBalanceAttr() << " and a rule of the optimizer's, decay or "
           << "matrix";
  // (C9)
  if (std::optional<StringRef> own = getOptimizer())
    if (Status status = plait::findOptimizer(*own).status(); !status.ok())
      return emitOpError("has ") << status.message();
  return verifyState(*this);
}

/// The verifier knows all names.
ArrayRef<int64_t> nn::findSavedShape(ParameterOp parameter) {
  FileAttr file = parameter.getFileAttr();
  auto module = parameter->getParentOfType<ModuleOp>();
  auto model = module ? module->getAttrOfType<DictionaryAttr>(kModelAttr)
                      : DictionaryAttr();
  auto shapes =
      model ? model.getAs<DictionaryAttr>(kShapesEntry) : DictionaryAttr();
  auto shape = shapes && file ? shapes.getAs<DenseI64ArrayAttr>(file.getName())
                              : DenseI64ArrayAttr();
  return shape ? shape.asArrayRef() : ArrayRef<int64_t>();
}

const Optimizer &nn::findOptimizer(ParameterOp parameter,
                                   const Optimizer &main) {
  if (std::optional<StringRef> own = parameter.getOptimizer())
    return **plait::findOptimizer(*own);
  return main.updatesMatrices() && !parameter.getMatrix() ? *main.getRest()
                                                          : main;
}

std::vector<TrainingOption> nn::getTrainingOptions(ModuleOp module,
                                                   const Optimizer &main) {
  std::vector<const Optimizer *> others;
  for (auto parameter : module.getOps<ParameterOp>())
    if (std::optional<StringRef> own = parameter.getOptimizer())
      others.push_back(*plait::findOptimizer(*own));
  return plait::getTrainingOptions(main, others);
}

/// Whether no optimizer keeps what is called so.
static bool isUnknown(Slot slot) {
  return slot.isState() && !isState(slot.getName());
}

/// Checks an access of `type` to a pack.
static LogicalResult verifyPackAccess(Operation *op, PackOp pack, Slot slot,
                                      RankedTensorType type) {
  // (C1)
  if ((slot == Slot::Reduced && !pack.isDivided()) || isUnknown(slot))
    return op->emitOpError("names @")
           << pack.getSymName() << ", which has no " << slot.getName();
  if (type == pack.getSlotType(slot))
    return success();
  return op->emitOpError("has type ")
         << type << ", but the " << slot.getName() << " of @"
         << pack.getSymName() << " is " << pack.getSlotType(slot);
}

/// Checks an access against its symbol.
static LogicalResult verifyAccess(SlotOpInterface op,
                                  SymbolTableCollection &tables) {
  FlatSymbolRefAttr symbol = op.getSymbolAttr();
  Slot slot = op.getSlot();
  RankedTensorType type = op.getTensor().getType();
  // Looked up by tables that a whole verification shares: walking the module
  // for each access would be quadratic.
  Operation *target = tables.lookupNearestSymbolFrom(op, symbol);
  // A slot may belong to a pack, a parameter or an accumulator. Which slots
  // there are, and of which type, differs.
  if (auto pack = dyn_cast_or_null<PackOp>(target))
    return verifyPackAccess(op, pack, slot, type);
  auto parameter = dyn_cast_or_null<ParameterOp>(target);
  auto accumulator = dyn_cast_or_null<AccumulatorOp>(target);
  // (C1)
  if (slot == Slot::Reduced || isUnknown(slot) ||
      (!parameter && !(accumulator && slot == Slot::Value)))
    return op->emitOpError("names ")
           << symbol << ", which has no " << slot.getName();
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
  // Before partitioning: the global type, which lies as the parameter does, or
  // as the state where this is the master value. Partial sums are what
  // gradients are until the end of the step.
  if (dist::plainType(type) == declared) {
    // (C3)
    // Gradients that are compressed are whole on each replica.
    dist::ShardingAttr compressed =
        slot == Slot::Gradient
            ? getSharding(parameter, Slot::getState(kErrorState.data()))
            : sharding;
    if (!own || !sharding || own.withoutPartial() == sharding ||
        own.withoutPartial() == master || own.withoutPartial() == compressed)
      return success();
    InFlightDiagnostic diag = op->emitOpError("has type ")
                              << type << ", but the sharding of " << symbol
                              << " is " << sharding;
    diag.attachNote(target->getLoc()) << "declared here";
    return diag;
  }
  // After it: one rank's block.
  dist::MeshOp mesh = dist::MeshOp::find(op);
  for (dist::ShardingAttr lying : {sharding, master})
    if (mesh && lying &&
        type == mesh.getLocalType(dist::withSharding(declared, lying)))
      return success();
  InFlightDiagnostic diag = op->emitOpError("has type ")
                            << type << ", but the " << slot.getName() << " of "
                            << symbol << " is " << declared;
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
  // The table of the file is the only list of names: one that is added there is
  // allowed here.
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
  if (findStepScalar(getName()) >= 0)
    return success();
  auto diag = emitOpError("has name \"") << getName() << "\", expected one of ";
  llvm::interleaveComma(getStepScalars(), diag);
  return diag;
}

LogicalResult MetricOp::verify() {
  // A named loss: its accumulator says that there is one.
  auto module = (*this)->getParentOfType<ModuleOp>();
  if (module && llvm::is_contained(getNamedLosses(module), getName()))
    return success();
  return verifyName(*this, getName(), plan::fb::EnumNamesMetric());
}

/// Through reshards, since a parameter that is stored in parts is gathered
/// before it is used.
Type nn::getGradientElementType(Value primal) {
  Value source = primal;
  while (auto reshard = source.getDefiningOp<dist::ReshardOp>())
    source = reshard.getInput();
  return source.getDefiningOp<ReadOp>() ? Float32Type::get(primal.getContext())
                                        : getElementTypeOrSelf(primal);
}
