//===- Tensors.cpp - Tensors of a run as DLPack has them ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor holds the run that its memory belongs to, or a copy of its own, so
// that it may outlive the handle of the run.
//
//===----------------------------------------------------------------------===//

#include "RunObject.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Slices.h"
#include "plait/Runtime/Weights.h"

#include <algorithm>
#include <dlpack/dlpack.h>

using namespace plait;
using namespace plait::capi;
namespace fb = plait::plan::fb;
using runtime::ParameterTensor;

namespace {

/// The content of a DLManagedTensor. `owner` is null where `copy` is the
/// tensor.
struct Tensor {
  DLManagedTensor managed = {};
  std::vector<int64_t> shape;
  std::shared_ptr<RunObject> owner;
  std::vector<float> copy;
};

/// Rows follow each other without gaps: strides are null.
DLManagedTensor *release(std::unique_ptr<Tensor> tensor, const float *data) {
  DLTensor &view = tensor->managed.dl_tensor;
  view.data = const_cast<float *>(data);
  view.device = {kDLCPU, 0};
  view.ndim = int(tensor->shape.size());
  view.dtype = {kDLFloat, 32, 1};
  view.shape = tensor->shape.data();
  tensor->managed.manager_ctx = tensor.get();
  tensor->managed.deleter = [](DLManagedTensor *self) {
    delete static_cast<Tensor *>(self->manager_ctx);
  };
  return &tensor.release()->managed;
}

std::vector<int64_t> listExtents(const flatbuffers::Vector<int64_t> &shape) {
  return {shape.begin(), shape.end()};
}

/// A tensor of a parameter of a run, where it lies.
class Finder {
public:
  Finder(std::shared_ptr<RunObject> run, uint32_t parameter,
         ParameterTensor kind)
      : run(std::move(run)), executor(this->run->run->executor()),
        index(parameter),
        parameter(*executor.plan().parameters()->Get(parameter)), kind(kind) {}

  /// Returns what `rank`, which is one of this process, holds.
  Result<DLManagedTensor *> ofRank(uint32_t rank);
  /// All of it, in the process of rank 0; in others null.
  Result<DLManagedTensor *> whole();

private:
  const fb::Shard *findShard(uint32_t rank) const;
  runtime::Piece pieceOf(uint32_t rank, const fb::Shard &shard) const;
  std::optional<uint32_t> findWhole() const;
  Result<DLManagedTensor *> give(uint32_t rank, const runtime::Piece &piece,
                                 std::vector<int64_t> shape);

  std::shared_ptr<RunObject> run;
  runtime::Executor &executor;
  uint32_t index;
  const fb::Parameter &parameter;
  ParameterTensor kind;
};

/// Null: the rank has nothing of the parameter.
const fb::Shard *Finder::findShard(uint32_t rank) const {
  const auto *shards = executor.program(rank).shards();
  for (uint32_t i = 0; i < plan::length(shards); ++i)
    if (shards->Get(i)->parameter() == index)
      return shards->Get(i);
  return nullptr;
}

runtime::Piece Finder::pieceOf(uint32_t rank, const fb::Shard &shard) const {
  return {executor.mesh(), rank, shard, parameter,
          kind == ParameterTensor::Weight ? runtime::weightOf(shard)
                                          : runtime::gradientOf(shard)};
}

/// A view of the rank's memory where that is the host's, else a copy.
Result<DLManagedTensor *> Finder::give(uint32_t rank,
                                       const runtime::Piece &piece,
                                       std::vector<int64_t> shape) {
  auto tensor = std::make_unique<Tensor>();
  tensor->shape = std::move(shape);
  runtime::Device &device = executor.device(rank);
  if (plan::backendOf(executor.plan()) == "cpu" && !piece.isRounded) {
    tensor->owner = run;
    return release(std::move(tensor), reinterpret_cast<const float *>(
                                          device.arena() + piece.offset));
  }
  tensor->copy.resize(piece.part.count);
  PLAIT_RETURN_IF_ERROR(executor.forEachRank([&](uint32_t one) {
    return one == rank ? runtime::readPiece(device, piece, 0, tensor->copy)
                       : Status::success();
  }));
  const float *data = tensor->copy.data();
  return release(std::move(tensor), data);
}

/// A tensor that ranks divide by elements, not by dimensions, has one
/// dimension.
Result<DLManagedTensor *> Finder::ofRank(uint32_t rank) {
  auto ranks = executor.ranks();
  if (!std::binary_search(ranks.begin(), ranks.end(), rank))
    return fail(Code::WrongCall, "rank ", rank,
                " is none of this process, which has ", ranks.front(), " to ",
                ranks.back());
  const fb::Shard *shard = findShard(rank);
  if (!shard)
    return fail(Code::WrongCall, "rank ", rank, " has nothing of parameter '",
                parameter.name()->str(), "'");
  runtime::Piece piece = pieceOf(rank, *shard);
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (uint32_t i = 0; i < piece.splits.dims.size(); ++i) {
    shape.push_back(
        plan::blockOf(executor.mesh(), rank, *piece.splits.dims.Get(i),
                      parameter.shape()->Get(i), piece.splits.ownAxis)
            .extent);
    elements *= shape.back();
  }
  if (piece.part.count != elements)
    shape = {piece.part.count};
  return give(rank, piece, std::move(shape));
}

/// The first rank of the process of rank 0 that has all of it and no padding,
/// on the host. All processes find the same.
std::optional<uint32_t> Finder::findWhole() const {
  // Of several sites no rank has the mean.
  bool isMean = kind == ParameterTensor::Weight && executor.mesh().sites() > 1;
  if (plan::backendOf(executor.plan()) != "cpu" || isMean)
    return std::nullopt;
  runtime::Rendezvous *processes = executor.processes();
  uint32_t end =
      processes ? processes->spread().firstOf(1) : executor.mesh().ranks();
  for (uint32_t rank = 0; rank < end; ++rank) {
    const fb::Shard *shard = findShard(rank);
    if (!shard)
      continue;
    runtime::Piece piece = pieceOf(rank, *shard);
    bool isWhole =
        piece.part.count == runtime::elementCount(*parameter.shape());
    for (uint32_t i = 0; i < piece.splits.dims.size(); ++i)
      isWhole &= plan::blockOf(executor.mesh(), rank, *piece.splits.dims.Get(i),
                               parameter.shape()->Get(i), piece.splits.ownAxis)
                     .valid == parameter.shape()->Get(i);
    if (isWhole)
      return rank;
  }
  return std::nullopt;
}

Result<DLManagedTensor *> Finder::whole() {
  if (auto rank = findWhole()) {
    if (!executor.leads())
      return static_cast<DLManagedTensor *>(nullptr);
    return give(*rank, pieceOf(*rank, *findShard(*rank)),
                listExtents(*parameter.shape()));
  }
  auto gathered = runtime::gatherTensor(executor, index, kind);
  if (!gathered.ok())
    return gathered.status();
  if (!executor.leads())
    return static_cast<DLManagedTensor *>(nullptr);
  auto tensor = std::make_unique<Tensor>();
  tensor->shape = listExtents(*parameter.shape());
  tensor->copy = std::move(*gathered);
  const float *data = tensor->copy.data();
  return release(std::move(tensor), data);
}

/// The number of the parameter called `name`.
Result<uint32_t> findParameter(const fb::Plan &plan, const char *name) {
  PLAIT_RETURN_IF_ERROR(checkGiven(name, "name"));
  for (uint32_t i = 0; i < plan.parameters()->size(); ++i)
    if (plan.parameters()->Get(i)->name()->string_view() == name)
      return i;
  return fail(Code::WrongCall, "the plan has no parameter '", name, "'");
}

/// The elements of a tensor that a caller gives for `parameter`.
Result<std::span<const float>> readGiven(const DLManagedTensor *managed,
                                         const fb::Parameter &parameter) {
  PLAIT_RETURN_IF_ERROR(checkGiven(managed, "tensor"));
  const DLTensor &tensor = managed->dl_tensor;
  std::string name = "the tensor for '" + parameter.name()->str() + "'";
  if (tensor.device.device_type != kDLCPU)
    return fail(Code::WrongCall, name, " is on device ",
                int(tensor.device.device_type), ", expected the host, ",
                int(kDLCPU));
  if (tensor.dtype.code != kDLFloat || tensor.dtype.bits != 32 ||
      tensor.dtype.lanes != 1)
    return fail(Code::WrongCall, name, " is not of float32");
  const auto &shape = *parameter.shape();
  if (tensor.ndim != int(shape.size()) ||
      !std::equal(shape.begin(), shape.end(), tensor.shape))
    return fail(Code::WrongCall, name, " has another shape than ",
                runtime::formatShape(std::span(shape.data(), shape.size())));
  int64_t step = 1;
  for (int i = tensor.ndim - 1; tensor.strides && i >= 0; --i) {
    if (shape.Get(i) > 1 && tensor.strides[i] != step)
      return fail(Code::WrongCall, name, " is not in row-major order");
    step *= shape.Get(i);
  }
  PLAIT_RETURN_IF_ERROR(checkGiven(tensor.data, "tensor->dl_tensor.data"));
  const auto *bytes = static_cast<const std::byte *>(tensor.data);
  return std::span(reinterpret_cast<const float *>(bytes + tensor.byte_offset),
                   size_t(runtime::elementCount(shape)));
}

} // namespace

plait_error *plait_run_tensor(plait_run *run, const char *name, int32_t kind,
                              int32_t rank, DLManagedTensor **tensor) {
  return call<RunObject>(run, [&](auto &object) -> plait_error * {
    PLAIT_CAPI_TRY(checkGiven(tensor, "tensor"));
    const fb::Plan &plan = object->plan->file.plan();
    auto parameter = findParameter(plan, name);
    PLAIT_CAPI_TRY(parameter.status());
    if (kind != PLAIT_WEIGHT && kind != PLAIT_GRADIENT)
      return makeError(fail(Code::WrongCall, "kind is ", kind, ", expected ",
                            PLAIT_WEIGHT, " or ", PLAIT_GRADIENT));
    if (rank < PLAIT_WHOLE)
      return makeError(fail(Code::WrongCall, "rank is ", rank,
                            ", expected at least ", PLAIT_WHOLE));
    bool isWeight = kind == PLAIT_WEIGHT;
    if (!isWeight && plan.parameters()->Get(*parameter)->frozen())
      return makeError(fail(Code::WrongCall, "parameter '", name,
                            "' is frozen and has no gradient"));
    PLAIT_CAPI_TRY(object->run->checkAlive());
    Finder finder(object, *parameter,
                  isWeight ? ParameterTensor::Weight
                           : ParameterTensor::Gradient);
    auto found =
        rank == PLAIT_WHOLE ? finder.whole() : finder.ofRank(uint32_t(rank));
    PLAIT_CAPI_TRY(found.status());
    *tensor = *found;
    return nullptr;
  });
}

plait_error *plait_run_set_tensor(plait_run *run, const char *name,
                                  const DLManagedTensor *tensor) {
  return call<RunObject>(run, [&](auto &object) -> plait_error * {
    const fb::Plan &plan = object->plan->file.plan();
    auto parameter = findParameter(plan, name);
    PLAIT_CAPI_TRY(parameter.status());
    auto elements = readGiven(tensor, *plan.parameters()->Get(*parameter));
    PLAIT_CAPI_TRY(elements.status());
    PLAIT_CAPI_TRY(object->run->checkAlive());
    PLAIT_CAPI_TRY(
        runtime::setParameter(object->run->executor(), *parameter, *elements));
    return nullptr;
  });
}
