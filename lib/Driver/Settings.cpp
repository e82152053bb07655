//===- Settings.cpp - What a compilation is for ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Settings.h"

#include "plait/Transforms/Pipelines.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace plait;
using planner::Cluster;

static constexpr char kCpu[] = "cpu", kCuda[] = "cuda";

//===----------------------------------------------------------------------===//
// Back end and target
//===----------------------------------------------------------------------===//

Status plait::checkBackend(const CompileOptions &options,
                           const Cluster &cluster) {
  const char *expected = cluster.device.isProcessor ? kCpu : kCuda;
  if (options.backend.empty() || options.backend == expected)
    return Status::success();
  return fail("--backend ", options.backend, " contradicts --cluster ",
              options.cluster, ", whose devices are ",
              cluster.device.isProcessor ? "processors" : "GPUs");
}

static Result<std::string> findBackend(const CompileOptions &options,
                                       const std::optional<Cluster> &cluster) {
  if (!options.backend.empty() && options.backend != kCpu &&
      options.backend != kCuda)
    return fail("backend is \"", options.backend, "\", expected cpu or cuda");
  if (cluster)
    PLAIT_RETURN_IF_ERROR(checkBackend(options, *cluster));
  if (!options.backend.empty())
    return options.backend;
  return std::string(cluster && !cluster->device.isProcessor ? kCuda : kCpu);
}

static Result<codegen::Target> makeProcessor(const CompileOptions &options) {
  if (!options.target.empty())
    return fail("--target ", options.target, " is for --backend cuda, not cpu");
  if (options.targetCPU == "host")
    return codegen::Target(codegen::TargetCPU::getHost());
  return codegen::Target(codegen::TargetCPU{options.targetCPU, ""});
}

/// The architecture that options and cluster ask for; empty: any.
static Result<std::string>
findArchitecture(const CompileOptions &options,
                 const std::optional<Cluster> &cluster) {
  std::string known = llvm::join(codegen::TargetGPU::getNames(), ", ");
  if (!options.target.empty() &&
      !llvm::is_contained(codegen::TargetGPU::getNames(), options.target))
    return fail("target is \"", options.target, "\", expected one of ", known);
  if (!cluster)
    return options.target;
  const planner::Device &device = cluster->device;
  if (device.target.empty() && options.target.empty())
    return fail("the hardware file of ", device.name,
                " names no target: give --target, one of ", known);
  if (device.target.empty() || device.target == options.target)
    return options.target;
  if (!codegen::TargetGPU::get(device.target))
    return fail("plans for ", device.name, " (", device.target,
                ") cannot be compiled, only predicted with --predict: there is "
                "code for ",
                known);
  if (options.target.empty())
    return device.target;
  return fail("--target ", options.target, " contradicts --cluster ",
              options.cluster, ", whose devices are ", device.target);
}

static Result<codegen::Target>
makeTarget(const CompileOptions &options,
           const std::optional<Cluster> &cluster) {
  Result<std::string> backend = findBackend(options, cluster);
  if (!backend.ok())
    return backend.status();
  if (*backend == kCpu)
    return makeProcessor(options);
  if (options.targetCPU != "host")
    return fail("--target-cpu ", options.targetCPU,
                " is for --backend cpu, not cuda");
  Result<std::string> name = findArchitecture(options, cluster);
  if (!name.ok())
    return name.status();
  return codegen::Target(name->empty() ? codegen::TargetGPU()
                                       : *codegen::TargetGPU::get(*name));
}

//===----------------------------------------------------------------------===//
// What is computed
//===----------------------------------------------------------------------===//

/// What the model computes in; fails where no plan does.
static Result<std::string> findPrecision(const CompileOptions &options) {
  if (options.precision.empty())
    return std::string("fp32");
  if (llvm::is_contained(getPrecisions(), options.precision))
    return options.precision;
  return fail("precision is \"", options.precision, "\", plans train in ",
              llvm::join(getPrecisions(), " or "));
}

/// What products do to their results; fails where nothing is called so.
static Result<std::string> findEpilogues(const CompileOptions &options,
                                         const codegen::Target &target) {
  const auto *gpu = std::get_if<codegen::TargetGPU>(&target);
  // On processors kernels that work on whole rows are the faster ones; before
  // sm_90 cuBLASLt was seen to take GELU after the product, slower than a
  // kernel (karpathy/llm.c, pull request 338, and its default).
  if (options.epilogues.empty())
    return std::string(!gpu ? "none" : gpu->cubin == "sm_80" ? "bias" : "all");
  if (llvm::is_contained(getEpilogueKinds(), options.epilogues))
    return options.epilogues;
  return fail("epilogues are \"", options.epilogues, "\", expected ",
              llvm::join(getEpilogueKinds(), ", "));
}

Result<Settings> plait::makeSettings(const CompileOptions &options) {
  Settings settings;
  if (!options.cluster.empty()) {
    Result<Cluster> cluster = planner::parseCluster(options.cluster);
    if (!cluster.ok())
      return cluster.status();
    settings.cluster = std::move(*cluster);
  }
  Result<codegen::Target> target = makeTarget(options, settings.cluster);
  if (!target.ok())
    return target.status();
  settings.target = std::move(*target);
  Result<std::string> precision = findPrecision(options);
  if (!precision.ok())
    return precision.status();
  settings.precision = std::move(*precision);
  Result<std::string> epilogues = findEpilogues(options, settings.target);
  if (!epilogues.ok())
    return epilogues.status();
  settings.epilogues = std::move(*epilogues);
  return settings;
}

//===----------------------------------------------------------------------===//
// What the plan says of it
//===----------------------------------------------------------------------===//

uint64_t plait::getDeviceReserve(const Settings &settings) {
  const auto *gpu = std::get_if<codegen::TargetGPU>(&settings.target);
  if (!gpu)
    return 0;
  if (settings.cluster)
    return uint64_t(settings.cluster->device.reservedBytes);
  const char *usual = gpu->cubin == "sm_80"    ? "a100-80g:1"
                      : gpu->cubin == "sm_100" ? "b200:1"
                                               : "h100:1";
  return uint64_t(planner::parseCluster(usual)->device.reservedBytes);
}

std::unique_ptr<plan::fb::ClusterT>
plait::describeCluster(const Settings &settings, const std::string &name) {
  const planner::Device &device = settings.cluster->device;
  auto described = std::make_unique<plan::fb::ClusterT>();
  described->name = name;
  described->device = device.name;
  described->nodes = settings.cluster->nodes;
  described->devices_per_node = settings.cluster->devicesPerNode;
  described->memory_bytes = uint64_t(device.memoryBytes);
  described->reserved_bytes = uint64_t(device.reservedBytes);
  described->peak_flops =
      device.peak(settings.precision == "bf16" ? planner::Precision::BF16
                                               : planner::Precision::FP32);
  return described;
}
