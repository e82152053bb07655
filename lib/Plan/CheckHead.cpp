//===- CheckHead.cpp - What all programs of a plan share ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of checkStructure that looks at mesh, batch, parameters, words and
// figures. Mesh and batch come first, as everything else is compared with them.
// Linear in the plan.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Defaults.h"
#include "plait/Plan/FloatInputs.h"
#include "plait/Plan/Metrics.h"
#include "plait/Plan/Options.h"

#include "CheckSteps.h"

#include <cmath>
#include <set>

using namespace plait;
using namespace plait::plan;

namespace {

/// Rank numbers and products of axis sizes fit 32 bits comfortably.
constexpr uint64_t maxRanks = 1 << 24;

/// Axis 0 picks the program of a rank, for which it is named pp. The product is
/// checked at each axis, before it could overflow.
Status checkMesh(const fb::Plan &plan) {
  if (plan.mesh()->size() == 0)
    return fail("the mesh has no axes");
  if (plan.mesh()->Get(0)->name()->str() != "pp")
    return fail("mesh axis 0 is '", plan.mesh()->Get(0)->name()->str(),
                "', not 'pp'");
  uint64_t ranks = 1;
  for (const fb::MeshAxis *axis : *plan.mesh()) {
    ranks *= axis->size();
    if (ranks == 0 || ranks > maxRanks)
      return fail("mesh axis '", axis->name()->str(), "' of size ",
                  axis->size(), " makes ", ranks, " ranks, allowed are 1 to ",
                  maxRanks);
  }
  return Status::success();
}

/// Bounds of the factors come first, so that the product below has a meaning.
Status checkBatch(const fb::Plan &plan) {
  if (plan.vocab_size() < 1 || plan.vocab_size() > INT32_MAX)
    return fail("vocab_size is ", plan.vocab_size(), ", allowed are 1 to ",
                INT32_MAX);
  int64_t replicas = RankGrid::partsOf(plan, Splits::Batch);
  // The runtime counts tokens of a step in 64 bits.
  constexpr int64_t limit = int64_t(1) << 31;
  for (int64_t size : {plan.sequence(), plan.global_batch(), plan.micro_batch(),
                       int64_t(plan.microbatches())})
    if (size < 1 || size > limit)
      return fail("sequence ", plan.sequence(), ", global_batch ",
                  plan.global_batch(), ", micro_batch ", plan.micro_batch(),
                  " and microbatches ", plan.microbatches(), " must be 1 to ",
                  limit);
  std::optional<uint64_t> batch = elementCount(
      {replicas, plan.micro_batch(), int64_t(plan.microbatches())});
  // Nothing where the product is too large, which is no batch either.
  if (batch != static_cast<uint64_t>(plan.global_batch()))
    return fail("global_batch is ", plan.global_batch(), ", but ", replicas,
                " data-parallel ranks run ", plan.microbatches(),
                " microbatches of ", plan.micro_batch());
  return Status::success();
}

/// The box lies inside the file's tensor and has as many elements as the
/// parameter, of which it may be another shape.
Status checkParameter(const fb::Parameter &parameter) {
  std::string name = parameter.name()->str();
  auto elements = elementCount(*parameter.shape());
  auto boxElements = elementCount(*parameter.box_shape());
  if (!elements || !elementCount(*parameter.file_shape()))
    return fail("parameter '", name, "' has an impossible shape");
  // Comparing the optionals covers an impossible box, too.
  if (elements != boxElements)
    return fail("parameter '", name, "' has ", *elements,
                " elements, its slice of '", parameter.file_name()->str(),
                "' has ", boxElements.value_or(0));
  if (parameter.saved_shape() && elementCount(*parameter.saved_shape()) !=
                                     elementCount(*parameter.file_shape()))
    return fail("parameter '", name,
                "' is saved as another number of elements "
                "than '",
                parameter.file_name()->str(), "' has");
  // The box has the dimensions of the file's tensor, not those of the
  // parameter.
  uint32_t rank = parameter.file_shape()->size();
  if (parameter.box_begin()->size() != rank ||
      parameter.box_shape()->size() != rank)
    return fail("parameter '", name, "': its slice has another rank than '",
                parameter.file_name()->str(), "'");
  for (uint32_t dim = 0; dim < rank; ++dim) {
    int64_t begin = parameter.box_begin()->Get(dim);
    int64_t size = parameter.file_shape()->Get(dim);
    if (begin < 0 || begin > size ||
        parameter.box_shape()->Get(dim) > size - begin)
      return fail("parameter '", name, "': its slice ends beyond dimension ",
                  dim, " of '", parameter.file_name()->str(), "', which has ",
                  size);
  }
  if (parameter.unsaved() && !parameter.frozen())
    return fail("parameter '", name, "' is trained, but not saved");
  // Each is a tensor of the file, looked up by its name.
  constexpr int64_t mostTensors = 1 << 16;
  std::string_view file = parameter.file_name()->string_view();
  if (size_t stars = std::ranges::count(file, '*');
      stars > 1 ||
      (stars && (rank == 0 || parameter.file_shape()->Get(0) > mostTensors)))
    return fail("parameter '", name, "' is in '", file,
                "', expected one * at most, and a first dimension of up to ",
                mostTensors, " with it");
  if (parameter.init() > fb::InitKind::MAX ||
      parameter.dtype() != fb::DType::F32)
    return fail("parameter '", name,
                "' has an unknown initialiser or a type "
                "other than f32");
  // False of a NaN, too.
  constexpr double mostRate = 1e6;
  if (!(parameter.rate() >= 0 && parameter.rate() <= mostRate))
    return fail("parameter '", name, "' multiplies the learning rate by ",
                parameter.rate(), ", expected 0 to ", mostRate);
  return Status::success();
}

/// Messages tell parameters apart by name, and the reference is compared by
/// name.
Status checkParameters(const fb::Plan &plan) {
  std::set<std::string> names;
  for (const fb::Parameter *parameter : *plan.parameters()) {
    PLAIT_RETURN_IF_ERROR(checkParameter(*parameter));
    if (!names.insert(parameter->name()->str()).second)
      return fail("parameter '", parameter->name()->str(), "' exists twice");
  }
  return Status::success();
}

/// Which machine runs the plan, and how it starts the kernels there. Kernels of
/// processors are called with ranges and have no blocks.
Status checkBackend(const fb::Plan &plan) {
  if (backendOf(plan) != "cpu" && !isCuda(plan))
    return fail("backend '", backendOf(plan),
                "' is unknown, known are cpu and cuda");
  constexpr uint32_t maxThreads = 1024; // of a block, on every GPU
  for (uint32_t i = 0; isCuda(plan) && i < length(plan.kernels()); ++i) {
    const fb::Kernel &kernel = *plan.kernels()->Get(i);
    if (kernel.block_threads() < 1 || kernel.block_threads() > maxThreads ||
        kernel.indices_per_block() < 1)
      return fail("kernel '", kernel.symbol()->str(), "' has blocks of ",
                  kernel.block_threads(), " threads for ",
                  kernel.indices_per_block(), " indices, allowed are 1 to ",
                  maxThreads, " threads and 1 index or more");
  }
  return Status::success();
}

/// Shards say what is divided; this only bounds what they may say.
Status checkZero(const fb::Plan &plan) {
  if (plan.zero() <= 3)
    return Status::success();
  return fail("zero is ", int(plan.zero()), ", allowed are 0 to 3");
}

/// Checks what utilisation and messages are computed from. Written so that NaN
/// fails. Without a cluster nothing is computed from it.
Status checkCluster(const fb::Plan &plan) {
  if (!(plan.model_flops() >= 0 && std::isfinite(plan.model_flops())))
    return fail("model_flops is ", plan.model_flops(),
                ", expected a number of at least 0");
  const fb::Cluster *cluster = plan.cluster();
  if (!cluster)
    return Status::success();
  if (cluster->nodes() < 1 || cluster->devices_per_node() < 1)
    return fail("the cluster has ", cluster->nodes(), " nodes of ",
                cluster->devices_per_node(), " devices");
  if (cluster->reserved_bytes() >= cluster->memory_bytes())
    return fail("the cluster's devices reserve ", cluster->reserved_bytes(),
                " bytes of ", cluster->memory_bytes());
  if (!(cluster->peak_flops() > 0 && std::isfinite(cluster->peak_flops())))
    return fail("the cluster's devices have a peak of ", cluster->peak_flops(),
                " FLOP/s");
  return Status::success();
}

/// They become keys of logs.
Status checkNamedLosses(const fb::Plan &plan) {
  if (length(plan.named_losses()) > kMostNamedLosses)
    return fail("names ", length(plan.named_losses()),
                " losses, expected at most ", kMostNamedLosses);
  std::set<std::string> names;
  for (uint32_t i = 0; i < length(plan.named_losses()); ++i) {
    std::string name = plan.named_losses()->Get(i)->str();
    if (!isLossName(name))
      return fail("named loss ", i, " is '", name,
                  "', expected letters, digits and underscores");
    if (!names.insert(name).second)
      return fail("names two losses '", name, "'");
  }
  return Status::success();
}

/// The words of the configuration.
Status checkPrecision(const fb::Plan &plan) {
  for (auto [what, value] :
       {std::pair("precision", precisionOf(plan)),
        std::pair("reduce-precision", reducePrecisionOf(plan))})
    if (value != "fp32" && value != "bf16")
      return fail(what, " '", value, "' is unknown, known are fp32 and bf16");
  return Status::success();
}

} // namespace

Status plan::checkHead(const fb::Plan &plan) {
  PLAIT_RETURN_IF_ERROR(checkMesh(plan));
  PLAIT_RETURN_IF_ERROR(checkBatch(plan));
  PLAIT_RETURN_IF_ERROR(checkParameters(plan));
  PLAIT_RETURN_IF_ERROR(checkBackend(plan));
  PLAIT_RETURN_IF_ERROR(checkPrecision(plan));
  PLAIT_RETURN_IF_ERROR(checkZero(plan));
  PLAIT_RETURN_IF_ERROR(checkOptions(plan));
  PLAIT_RETURN_IF_ERROR(checkCluster(plan));
  PLAIT_RETURN_IF_ERROR(checkNamedLosses(plan));
  return checkFloatInputs(plan);
}
