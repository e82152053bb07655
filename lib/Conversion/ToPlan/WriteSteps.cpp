//===- WriteSteps.cpp - Functions of steps in the plan file ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each step op is one table of the plan file, field by field. Nothing is
// decided here, but for the code of kernels.
//
//===----------------------------------------------------------------------===//

#include "WriteSteps.h"

#include "plait/Conversion/RankScalar.h"
#include "plait/Dialect/Plait/IR/Plait.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

//===----------------------------------------------------------------------===//
// Enumerations
//===----------------------------------------------------------------------===//

template <auto Left, auto Right>
constexpr bool haveOneValue = static_cast<int>(Left) == static_cast<int>(Right);
static_assert(haveOneValue<dist::Reduction::Sum, fb::Reduction::Sum> &&
              haveOneValue<dist::Reduction::Max, fb::Reduction::Max>);
static_assert(
    haveOneValue<Accumulate::Overwrite, fb::Accumulate::Overwrite> &&
    haveOneValue<Accumulate::Add, fb::Accumulate::Add> &&
    haveOneValue<Accumulate::AddUnlessFirst, fb::Accumulate::AddUnlessFirst>);
static_assert(haveOneValue<Epilogue::None, fb::Epilogue::None> &&
              haveOneValue<Epilogue::Bias, fb::Epilogue::Bias> &&
              haveOneValue<Epilogue::Gelu, fb::Epilogue::Gelu> &&
              haveOneValue<Epilogue::BiasGelu, fb::Epilogue::BiasGelu> &&
              haveOneValue<Epilogue::GeluGradient, fb::Epilogue::GeluGradient>);

static fb::DType getDType(Type type) {
  return type.isBF16() ? fb::DType::BF16 : fb::DType::F32;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

FailureOr<fb::KernelStepT> KernelTable::write(KernelOp kernel) {
  ClusterOp cluster = kernel.getCluster();
  FailureOr<codegen::KernelInfo> info = library.add(cluster);
  if (failed(info))
    return failure();
  // Clusters that compute the same have one symbol, in all programs.
  auto [it, isNew] = indices.try_emplace(info->symbol, plan.kernels.size());
  if (isNew) {
    auto made = std::make_unique<fb::KernelT>();
    made->symbol = info->symbol;
    made->block_threads = info->blockThreads;
    made->indices_per_block = info->indicesPerBlock;
    made->shared_bytes = info->sharedBytes;
    plan.kernels.push_back(std::move(made));
    if (emitted)
      emitted->push_back({cluster, *info});
  }
  fb::KernelStepT step;
  step.kernel = it->second;
  step.extent = info->extent;
  step.grain = info->grain;
  step.traffic = kernel.getTraffic();
  step.flops = kernel.getFlops();
  for (const codegen::RankScalar &scalar : info->scalars) {
    FailureOr<fb::RankScalar> converted =
        convertRankScalar(cluster, scalar.axis, scalar.scale, scalar.bias,
                          scalar.firstMicrobatch);
    if (failed(converted))
      return failure();
    step.scalars.push_back(*converted);
  }
  return step;
}

namespace {

/// Writes one function.
class Writer {
public:
  Writer(FunctionOp function, const ProgramMemory &memory, KernelTable &kernels,
         fb::PlanT &plan)
      : function(function), memory(memory), kernels(kernels), plan(plan) {}

  FailureOr<std::unique_ptr<fb::FunctionT>> run();

private:
  using RefPtr = std::unique_ptr<fb::Ref>;

  fb::Ref getRef(MemoryAttr used) const;
  /// Null for null.
  RefPtr point(MemoryAttr used) const {
    return used ? std::make_unique<fb::Ref>(getRef(used)) : nullptr;
  }
  uint32_t locate(Operation *op);
  FailureOr<fb::KernelStepT> write(KernelOp op);
  FailureOr<fb::GemmStepT> write(GemmOp op);
  FailureOr<fb::AttentionStepT> write(AttentionOp op);
  FailureOr<fb::CollectiveStepT> write(CollectiveOp op);
  LogicalResult add(Operation *op);

  FunctionOp function;
  const ProgramMemory &memory;
  KernelTable &kernels;
  fb::PlanT &plan;
  std::unique_ptr<fb::FunctionT> result = std::make_unique<fb::FunctionT>();
};

} // namespace

fb::Ref Writer::getRef(MemoryAttr used) const {
  if (!used.getBuffer())
    return fb::Ref(used.getOffset(), used.getSlot());
  return fb::Ref(memory.find(used.getBuffer()).getOffset() + used.getOffset(),
                 -1);
}

/// The index of "name (op) in function" in the plan's table of locations.
uint32_t Writer::locate(Operation *op) {
  std::string text;
  if (StringAttr origin = findOrigin(op->getLoc()))
    text = origin.getValue().str() + " in ";
  text += function.getSymName();
  // Steps of one op stand together, so the last one is all that is compared.
  if (plan.locations.empty() || plan.locations.back() != text)
    plan.locations.push_back(text);
  return plan.locations.size() - 1;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

FailureOr<fb::KernelStepT> Writer::write(KernelOp op) {
  FailureOr<fb::KernelStepT> step = kernels.write(op);
  if (failed(step))
    return failure();
  for (const StepUse &use : op.getUses()) {
    step->args.push_back(getRef(use.memory));
    step->arg_bytes.push_back(use.memory.getBytes());
  }
  step->outputs = op.getOutputs().size();
  return step;
}

FailureOr<fb::GemmStepT> Writer::write(GemmOp op) {
  fb::GemmStepT step;
  step.m = op.getM();
  step.n = op.getN();
  step.k = op.getK();
  step.batch = op.getBatchSizes().vec();
  // Rows, columns (C has none) and then the batch.
  step.a_row = op.getAStrides()[0];
  step.a_col = op.getAStrides()[1];
  step.a_batch = op.getAStrides().drop_front(2).vec();
  step.b_row = op.getBStrides()[0];
  step.b_col = op.getBStrides()[1];
  step.b_batch = op.getBStrides().drop_front(2).vec();
  step.c_row = op.getCStrides()[0];
  step.c_batch = op.getCStrides().drop_front().vec();
  step.a = point(op.getA());
  step.b = point(op.getB());
  step.c = point(op.getC());
  step.dtype = getDType(op.getType());
  step.c_dtype = getDType(op.getCType());
  step.accumulate = static_cast<fb::Accumulate>(op.getAccumulate());
  step.epilogue = static_cast<fb::Epilogue>(op.getEpilogue());
  step.bias = point(op.getBiasAttr());
  step.gelu_input = point(op.getGeluInputAttr());
  return step;
}

/// The terms of where a rank's block begins; none for null.
static LogicalResult writeBegin(Operation *op, nn::BeginAttr begin,
                                std::vector<fb::RankScalar> &scalars) {
  return begin ? convertRankTerms(op, begin.getTerms(), 1, scalars) : success();
}

FailureOr<fb::AttentionStepT> Writer::write(AttentionOp op) {
  fb::AttentionStepT step;
  step.kind = op.getGradients() ? fb::AttentionKind::Backward
                                : fb::AttentionKind::Forward;
  step.dtype = getDType(op.getType());
  step.batch = op.getBatch();
  step.heads = op.getHeads();
  step.kv_heads = op.getKvHeads();
  step.queries = op.getQueries();
  step.keys = op.getKeys();
  step.head_size = op.getHeadSize();
  // Tensors are row-major [batch, position, head, element].
  auto getStrides = [&](int64_t positions, int64_t heads) {
    int64_t position = heads * step.head_size;
    return std::vector<int64_t>{positions * position, position, step.head_size};
  };
  step.q_strides = step.out_strides = getStrides(step.queries, step.heads);
  step.k_strides = step.v_strides = getStrides(step.keys, step.kv_heads);
  step.scale = op.getScale().convertToFloat();
  step.causal = true;
  step.window = op.getWindow().value_or(0);
  step.deterministic = op.getDeterministic();
  step.q = point(op.getQ());
  step.k = point(op.getK());
  step.v = point(op.getV());
  step.out = point(op.getOut());
  step.stats = point(op.getStats());
  if (auto gradients = op.getGradients()) {
    auto each = llvm::to_vector(gradients->getAsRange<MemoryAttr>());
    step.d_out = point(each[0]);
    step.d_q = point(each[1]);
    step.d_k = point(each[2]);
    step.d_v = point(each[3]);
  }
  if (failed(writeBegin(op, op.getBeginAttr(), step.first_query)))
    return failure();
  if (MemoryAttr starts = op.getStartsAttr())
    step.starts = point(starts);
  if (!op.getDropoutKeysAttr())
    return step;
  step.dropout = std::make_unique<fb::AttentionDropoutT>();
  step.dropout->keys = point(op.getDropoutKeysAttr());
  step.dropout->probability = op.getProbability()->convertToDouble();
  step.dropout->site = *op.getSite();
  if (failed(writeBegin(op, op.getGroupBeginAttr(), step.dropout->first_group)))
    return failure();
  return step;
}

FailureOr<fb::CollectiveStepT> Writer::write(CollectiveOp op) {
  fb::CollectiveStepT step;
  step.kind = static_cast<uint8_t>(op.getKind());
  if (std::optional<dist::Reduction> reduction = op.getReduction())
    step.reduction = static_cast<fb::Reduction>(*reduction);
  step.axis = dist::MeshOp::find(op).getAxisIndex(op.getAxis());
  for (int64_t member : op.getMembers().value_or(ArrayRef<int64_t>()))
    step.members.push_back(member);
  step.dtype = getDType(op.getType());
  step.outer = op.getOuter();
  step.middle = op.getMiddle();
  step.chunk = op.getChunk();
  step.splits_inner = op.getSplitsInner();
  step.input = point(op.getInput());
  step.output = point(op.getOutput());
  return step;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

LogicalResult Writer::add(Operation *op) {
  auto made = std::make_unique<fb::StepT>();
  auto set = [&](auto step) {
    auto written = write(step);
    if (succeeded(written))
      made->step.Set(std::move(*written));
    return LogicalResult(written);
  };
  LogicalResult written =
      llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case<KernelOp, GemmOp, AttentionOp, CollectiveOp>(set)
          .Default([](Operation *op) -> LogicalResult {
            return op->emitOpError("is a step that the plan file has no table "
                                   "for");
          });
  if (failed(written))
    return failure();
  made->location = locate(op);
  result->steps.push_back(std::move(made));
  return success();
}

FailureOr<std::unique_ptr<fb::FunctionT>> Writer::run() {
  result->name = function.getSymName().str();
  for (auto name : function.getSlots().getAsRange<StringAttr>())
    result->slots.push_back(name.getValue().str());
  for (int64_t size : function.getBytes())
    result->slot_bytes.push_back(size);
  result->workspace_bytes = function.getBytes().back();
  for (StepOpInterface step : getSteps(function))
    if (failed(add(step)))
      return failure();
  return std::move(result);
}

FailureOr<std::unique_ptr<fb::FunctionT>>
plait::writeFunction(FunctionOp function, const ProgramMemory &memory,
                     KernelTable &kernels, fb::PlanT &plan) {
  return Writer(function, memory, kernels, plan).run();
}
