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
// A field that is not set keeps the format's default, which is what the op
// means by leaving it out. Memory becomes an offset: in the arena for a buffer,
// whose own is known, in a slot for what actions bind.
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

/// Enumerations are cast from IR to the file: a number that differed would be
/// another mode, without any error.
template <auto Left, auto Right>
constexpr bool haveOneValue = static_cast<int>(Left) == static_cast<int>(Right);
static_assert(haveOneValue<dist::Reduction::Sum, fb::Reduction::Sum> &&
              haveOneValue<dist::Reduction::Max, fb::Reduction::Max>);
static_assert(
    haveOneValue<Accumulate::Overwrite, fb::Accumulate::Overwrite> &&
    haveOneValue<Accumulate::Add, fb::Accumulate::Add> &&
    haveOneValue<Accumulate::AddUnlessFirst, fb::Accumulate::AddUnlessFirst>);
static_assert(haveOneValue<CopyKind::ToHost, fb::CopyKind::ToHost> &&
              haveOneValue<CopyKind::FromHost, fb::CopyKind::FromHost> &&
              size_t(fb::CopyKind::MAX) == 2 * otherPlaces.size() &&
              getMaxEnumValForCopyKind() == 2 * otherPlaces.size());
static_assert(haveOneValue<Epilogue::None, fb::Epilogue::None> &&
              haveOneValue<Epilogue::Bias, fb::Epilogue::Bias> &&
              haveOneValue<Epilogue::Gelu, fb::Epilogue::Gelu> &&
              haveOneValue<Epilogue::BiasGelu, fb::Epilogue::BiasGelu> &&
              haveOneValue<Epilogue::GeluGradient, fb::Epilogue::GeluGradient>);

// All but bf16 has four bytes, and moves as f32 does.
static fb::DType getDType(Type type) {
  return type.isBF16() ? fb::DType::BF16 : fb::DType::F32;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Fails where code generation does, with an error at the op of the cluster
/// that is at fault. The step has everything but its arguments, which are the
/// function's to know.
FailureOr<fb::KernelStepT> KernelTable::write(KernelOp kernel) {
  ClusterOp cluster = kernel.getCluster();
  // Generated here, or found: the library knows clusters that compute the same.
  FailureOr<codegen::KernelInfo> info = library.add(cluster);
  if (failed(info))
    return failure();
  // Clusters that compute the same have one symbol, in all programs.
  auto [it, isNew] = indices.try_emplace(info->symbol, plan.kernels.size());
  // How a GPU launches it is a property of the kernel, how far it goes one of
  // the step.
  if (isNew) {
    auto made = std::make_unique<fb::KernelT>();
    made->symbol = info->symbol;
    made->block_threads = info->blockThreads;
    made->indices_per_block = info->indicesPerBlock;
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
  // What the kernel computes with that differs between ranks, in the order of
  // its arguments.
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
  FailureOr<fb::GroupedGemmStepT> write(GroupedGemmOp op);
  FailureOr<fb::CollectiveStepT> write(CollectiveOp op);
  FailureOr<fb::CopyStepT> write(CopyOp op);
  LogicalResult add(Operation *op);

  FunctionOp function;
  // Of the one program that calls the function: steps name its buffers.
  const ProgramMemory &memory;
  KernelTable &kernels;
  fb::PlanT &plan;
  std::unique_ptr<fb::FunctionT> result = std::make_unique<fb::FunctionT>();
};

} // namespace

/// Slot -1 is the arena itself.
fb::Ref Writer::getRef(MemoryAttr used) const {
  if (!used.getBuffer())
    return fb::Ref(used.getOffset(), used.getSlot());
  return fb::Ref(memory.find(used.getBuffer()).getAddress() + used.getOffset(),
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

/// Arguments in the order of the uses, inputs before outputs, which is how the
/// generated code takes them. Their bytes are for the checker: kernels are
/// code, which it cannot look into.
FailureOr<fb::KernelStepT> Writer::write(KernelOp op) {
  FailureOr<fb::KernelStepT> step = kernels.write(op);
  if (failed(step))
    return failure();
  for (const StepUse &use : op.getUses()) {
    step->args.push_back(getRef(use.memory));
    step->arg_bytes.push_back(use.memory.getBytes());
  }
  step->outputs = op.getOutputs().size();
  ClusterOp cluster = op.getCluster();
  for (auto [index, type] : llvm::enumerate(llvm::concat<const Type>(
           cluster.getOperandTypes(), cluster.getResultTypes())))
    if (getElementTypeOrSelf(type).isInteger())
      step->integers.push_back(index);
  return step;
}

/// The op has checked that strides and sizes fit.
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

/// The format has strides, the op dense tensors: they are written out. Optional
/// parts are null where the op has none.
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
  nn::ScoreAttr score = op.getScore();
  step.scale = score.getScale().getValue().convertToFloat();
  step.causal = !score.getBidirectional();
  // 0: the whole sequence.
  step.window = score.getWindow() ? score.getWindow().getInt() : 0;
  if (FloatAttr softCap = score.getSoftCap())
    step.soft_cap = softCap.getValue().convertToFloat();
  step.deterministic = op.getDeterministic();
  step.q = point(op.getQ());
  step.k = point(op.getK());
  step.v = point(op.getV());
  step.out = point(op.getOut());
  step.stats = point(op.getStats());
  if (auto gradients = op.getGradients()) {
    auto each = llvm::to_vector(gradients->getAsRange<MemoryAttr>());
    // In the order that the op has verified: out's, then those of q, k and v.
    step.d_out = point(each[0]);
    step.d_q = point(each[1]);
    step.d_k = point(each[2]);
    step.d_v = point(each[3]);
  }
  if (failed(writeBegin(op, op.getBeginAttr(), step.first_query)))
    return failure();
  step.chunks = op.getBegin() ? op.getBegin()->getChunks() : 0;
  if (MemoryAttr starts = op.getStartsAttr())
    step.starts = point(starts);
  if (MemoryAttr sinks = op.getSinksAttr())
    step.sinks = point(sinks);
  if (!op.getDropoutKeysAttr())
    return step;
  // A table of its own, so that a step without dropout has none of it.
  step.dropout = std::make_unique<fb::AttentionDropoutT>();
  step.dropout->keys = point(op.getDropoutKeysAttr());
  step.dropout->probability = op.getProbability()->convertToDouble();
  step.dropout->site = *op.getSite();
  if (failed(writeBegin(op, op.getGroupBeginAttr(), step.dropout->first_group)))
    return failure();
  return step;
}

/// The tensors are dense: sizes are all that there is to say.
FailureOr<fb::GroupedGemmStepT> Writer::write(GroupedGemmOp op) {
  fb::GroupedGemmStepT step;
  step.kind =
      op.getMakesMatrices() ? fb::GroupedKind::Matrices : fb::GroupedKind::Rows;
  step.rows = op.getRows();
  step.repeat = op.getRepeat();
  step.experts = op.getExperts();
  step.k = op.getK();
  step.n = op.getN();
  step.transposed = op.getTransposed();
  step.dtype = getDType(op.getType());
  step.c_dtype = getDType(op.getCType());
  step.accumulate = static_cast<fb::Accumulate>(op.getAccumulate());
  step.a = point(op.getA());
  step.b = point(op.getB());
  step.c = point(op.getC());
  step.ids = point(op.getIds());
  step.limit = op.getLimit();
  if (failed(writeBegin(op, op.getBeginAttr(), step.first_expert)))
    return failure();
  return step;
}

/// The axis by its position in the mesh; no members means all of its ranks.
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
  if (MemoryAttr ids = op.getIdsAttr()) {
    step.rows = std::make_unique<fb::RowSelectionT>();
    step.rows->ids = point(ids);
    step.rows->width = op.getWidth();
    step.rows->choices = op.getChoices();
    step.rows->experts = op.getExperts();
  }
  return step;
}

FailureOr<fb::CopyStepT> Writer::write(CopyOp op) {
  fb::CopyStepT step;
  step.kind = static_cast<fb::CopyKind>(op.getKind());
  step.source = point(op.getSource());
  step.target = point(op.getTarget());
  step.bytes = op.getSource().getBytes();
  return step;
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

/// One case a step op. A step that someone adds and the file has no table for
/// is an error at its op, not a step less.
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
          .Case<KernelOp, GemmOp, GroupedGemmOp, AttentionOp, CollectiveOp,
                CopyOp>(set)
          .Default([](Operation *op) -> LogicalResult {
            return op->emitOpError("is a step that the plan file has no table "
                                   "for");
          });
  if (failed(written))
    return failure();
  // After the step has been written: one that fails leaves no location.
  made->location = locate(op);
  result->steps.push_back(std::move(made));
  return success();
}

/// The workspace is the last slot, and its size stands by itself as well.
FailureOr<std::unique_ptr<fb::FunctionT>> Writer::run() {
  result->name = function.getSymName().str();
  for (auto name : function.getSlots().getAsRange<StringAttr>())
    result->slots.push_back(name.getValue().str());
  for (int64_t size : function.getBytes())
    result->slot_bytes.push_back(size);
  result->workspace_bytes = function.getBytes().back();
  // Constants are no steps: they are in memory before the first one, and the
  // program's (ProgramConverter.cpp).
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
