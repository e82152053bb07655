//===- FunctionConverter.cpp - Functions as lists of steps ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionConverter.h"

#include "Attention.h"
#include "Products.h"
#include "plait/Analysis/KernelTraffic.h"
#include "plait/Conversion/ElementType.h"
#include "plait/Conversion/RankScalar.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Transforms/Buffers.h"
#include "plait/Transforms/StageFunctions.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

FailureOr<std::unique_ptr<fb::KernelStepT>>
KernelTable::convert(ClusterOp cluster) {
  FailureOr<codegen::KernelInfo> info = library.add(cluster);
  if (failed(info))
    return failure();
  auto [it, isNew] = indices.try_emplace(info->symbol, plan.kernels.size());
  if (isNew) {
    auto kernel = std::make_unique<fb::KernelT>();
    kernel->symbol = info->symbol;
    kernel->block_threads = info->blockThreads;
    kernel->indices_per_block = info->indicesPerBlock;
    kernel->shared_bytes = info->sharedBytes;
    plan.kernels.push_back(std::move(kernel));
  }
  auto step = std::make_unique<fb::KernelStepT>();
  step->kernel = it->second;
  step->extent = info->extent;
  step->grain = info->grain;
  step->traffic = getKernelTraffic(cluster);
  step->flops = getKernelFlops(cluster);
  for (const codegen::RankScalar &scalar : info->scalars) {
    FailureOr<fb::RankScalar> converted =
        convertRankScalar(cluster, scalar.axis, scalar.scale, scalar.bias,
                          scalar.firstMicrobatch);
    if (failed(converted))
      return failure();
    step->scalars.push_back(*converted);
  }
  return step;
}

namespace {

/// Converts one function.
class Converter {
public:
  Converter(func::FuncOp function, const llvm::StringMap<uint64_t> &offsets,
            KernelTable &kernels, fb::PlanT &plan)
      : function(function), offsets(offsets), kernels(kernels), plan(plan) {}

  FailureOr<std::unique_ptr<fb::FunctionT>> run();

private:
  fb::Ref refOf(Value value);
  std::unique_ptr<fb::Ref> pointTo(Value value) {
    return std::make_unique<fb::Ref>(refOf(value));
  }
  template <typename StepT>
  void add(std::unique_ptr<StepT> step, Operation *op);
  LogicalResult convert(Operation *op);
  LogicalResult convertCluster(ClusterOp op);
  LogicalResult convertProduct(nn::MatmulOp op);
  LogicalResult convertFused(nn::FusedMatmulOp op);
  void convertCollective(dist::CollectiveOpInterface op);
  uint32_t locate(Operation *op);
  void addSlots();

  func::FuncOp function;
  const llvm::StringMap<uint64_t> &offsets;
  KernelTable &kernels;
  fb::PlanT &plan;
  std::unique_ptr<fb::FunctionT> result = std::make_unique<fb::FunctionT>();
};

} // namespace

/// Where passes have placed a value.
static PlaceAttr getPlace(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function.getArgAttrOfType<PlaceAttr>(argument.getArgNumber(),
                                                kPlaceAttr);
  }
  auto places = value.getDefiningOp()->getAttrOfType<ArrayAttr>(kPlacesAttr);
  return cast<PlaceAttr>(places[cast<OpResult>(value).getResultNumber()]);
}

fb::Ref Converter::refOf(Value value) {
  PlaceAttr place = getPlace(value);
  StringRef buffer = place.getBuffer().getValue();
  int slot = 0;
  if (buffer.consume_front("slot ") && !buffer.getAsInteger(10, slot))
    return fb::Ref(place.getOffset(), slot);
  return fb::Ref(
      offsets.lookup(place.getBuffer().getValue()) + place.getOffset(), -1);
}

/// The index of "name @ function" in the plan's table of locations.
uint32_t Converter::locate(Operation *op) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (StringAttr origin = findOrigin(op->getLoc()))
    out << origin.getValue() << ' ';
  out << "(" << op->getName() << ") in " << function.getSymName();
  if (plan.locations.empty() || plan.locations.back() != text)
    plan.locations.push_back(text);
  return plan.locations.size() - 1;
}

template <typename StepT>
void Converter::add(std::unique_ptr<StepT> content, Operation *op) {
  auto step = std::make_unique<fb::StepT>();
  step->step.Set(std::move(*content));
  step->location = locate(op);
  result->steps.push_back(std::move(step));
}

LogicalResult Converter::convertCluster(ClusterOp op) {
  FailureOr<std::unique_ptr<fb::KernelStepT>> step = kernels.convert(op);
  if (failed(step))
    return failure();
  auto addArgument = [&](Value value) {
    (*step)->args.push_back(refOf(value));
    (*step)->arg_bytes.push_back(getStoredBytes(value));
  };
  llvm::for_each(op.getOperands(), addArgument);
  llvm::for_each(op.getResults(), addArgument);
  (*step)->outputs = op.getNumResults();
  add(std::move(*step), op);
  return success();
}

LogicalResult Converter::convertProduct(nn::MatmulOp op) {
  auto mode = op->getAttrOfType<IntegerAttr>(kAccumulateAttr);
  auto accumulate = mode ? static_cast<fb::Accumulate>(mode.getInt())
                         : fb::Accumulate::Overwrite;
  auto steps = convertContraction(op, refOf(op.getLhs()), refOf(op.getRhs()),
                                  refOf(op.getResult()), accumulate);
  for (auto &step : steps)
    add(std::move(step), op);
  return success();
}

LogicalResult Converter::convertFused(nn::FusedMatmulOp op) {
  auto steps =
      convertContraction(op, refOf(op.getLhs()), refOf(op.getRhs()),
                         refOf(op.getResult()), fb::Accumulate::Overwrite);
  // One product, by the op's constraints.
  std::unique_ptr<fb::GemmStepT> step = std::move(steps.front());
  if (op.getGeluInput())
    step->epilogue = fb::Epilogue::GeluGradient;
  else if (op.getGelu())
    step->epilogue = op.getBias() ? fb::Epilogue::BiasGelu : fb::Epilogue::Gelu;
  else
    step->epilogue = fb::Epilogue::Bias;
  if (Value bias = op.getBias())
    step->bias = pointTo(bias);
  if (Value input = op.getGelu() ? op.getPreactivation() : op.getGeluInput())
    step->gelu_input = pointTo(input);
  add(std::move(step), op);
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

template <auto Left, auto Right>
constexpr bool haveOneValue = static_cast<int>(Left) == static_cast<int>(Right);
static_assert(haveOneValue<dist::CollectiveKind::AllReduce,
                           fb::CollectiveKind::AllReduce> &&
              haveOneValue<dist::CollectiveKind::AllGather,
                           fb::CollectiveKind::AllGather> &&
              haveOneValue<dist::CollectiveKind::ReduceScatter,
                           fb::CollectiveKind::ReduceScatter> &&
              haveOneValue<dist::CollectiveKind::AllToAll,
                           fb::CollectiveKind::AllToAll> &&
              haveOneValue<dist::Reduction::Sum, fb::Reduction::Sum> &&
              haveOneValue<dist::Reduction::Max, fb::Reduction::Max>);

void Converter::convertCollective(dist::CollectiveOpInterface op) {
  auto step = std::make_unique<fb::CollectiveStepT>();
  step->kind = static_cast<fb::CollectiveKind>(op.getKind());
  step->axis = dist::MeshOp::find(op).getAxisIndex(op.getAxis());
  step->dtype = getElementDType(op.getInput());
  step->input = pointTo(op.getInput());
  step->output = pointTo(op->getResult(0));
  if (std::optional<dist::Reduction> reduction = op.getCombination())
    step->reduction = static_cast<fb::Reduction>(*reduction);
  for (int64_t member : op.getMembers().value_or(ArrayRef<int64_t>()))
    step->members.push_back(member);
  dist::CollectiveBlocks blocks = op.getBlocks();
  step->outer = blocks.outer;
  step->middle = blocks.middle;
  step->chunk = blocks.chunk;
  step->splits_inner = blocks.splitsInner;
  add(std::move(step), op);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

LogicalResult Converter::convert(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](ClusterOp op) { return convertCluster(op); })
      .Case([&](nn::MatmulOp op) { return convertProduct(op); })
      .Case([&](nn::FusedMatmulOp op) { return convertFused(op); })
      .Case<nn::AttentionOp, nn::AttentionGradOp>([&](auto op) {
        auto step =
            convertAttention(op, [&](Value value) { return refOf(value); });
        if (succeeded(step))
          add(std::move(*step), op);
        return LogicalResult(step);
      })
      .Case([&](dist::CollectiveOpInterface op) {
        return convertCollective(op), success();
      })
      // These only say where a value lies.
      .Case<nn::ReadOp, nn::WriteOp, nn::AccumulateOp, nn::MetricOp,
            nn::StepScalarOp, func::ReturnOp>(
          [](Operation *) { return success(); })
      .Default([](Operation *op) -> LogicalResult {
        if (isa<ConstantDataOpInterface>(op))
          return success();
        return op->emitError("cannot be executed: no step computes '")
               << op->getName() << "'";
      });
}

void Converter::addSlots() {
  for (auto name : function->getAttrOfType<ArrayAttr>(kSlotNamesAttr)
                       .getAsRange<StringAttr>())
    result->slots.push_back(name.getValue().str());
  auto bytes = function->getAttrOfType<DenseI64ArrayAttr>(kSlotBytesAttr);
  for (int64_t size : bytes.asArrayRef())
    result->slot_bytes.push_back(size);
  result->workspace_bytes = bytes.asArrayRef().back();
}

FailureOr<std::unique_ptr<fb::FunctionT>> Converter::run() {
  result->name = function.getSymName().str();
  addSlots();
  for (Operation &op : function.getBody().front())
    if (failed(convert(&op)))
      return failure();
  return std::move(result);
}

FailureOr<std::unique_ptr<fb::FunctionT>>
plait::convertFunction(func::FuncOp function,
                       const llvm::StringMap<uint64_t> &offsets,
                       KernelTable &kernels, fb::PlanT &plan) {
  return Converter(function, offsets, kernels, plan).run();
}
