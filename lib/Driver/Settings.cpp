//===- Settings.cpp - What a plan is for ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Settings.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
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
  if (options.targetCPU.empty() || options.targetCPU == "host")
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
  if (!options.targetCPU.empty())
    return fail("--target-cpu ", options.targetCPU,
                " is for --backend cpu, not cuda");
  Result<std::string> name = findArchitecture(options, cluster);
  if (!name.ok())
    return name.status();
  return codegen::Target(name->empty() ? codegen::TargetGPU()
                                       : *codegen::TargetGPU::get(*name));
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
  return settings;
}

//===----------------------------------------------------------------------===//
// What the module says of it
//===----------------------------------------------------------------------===//

Status plait::checkGivenTarget(const CompileOptions &options, TargetAttr target,
                               ClusterAttr cluster) {
  auto check = [](const char *option, const std::string &given,
                  StringRef known) {
    if (given.empty() || given == known)
      return Status::success();
    return fail(option, " is ", given, ", but the module was compiled for ",
                known.empty() ? "none" : known.str());
  };
  PLAIT_RETURN_IF_ERROR(
      check("--backend", options.backend, target.isGPU() ? kCuda : kCpu));
  std::string processor = options.targetCPU == "host" && !target.isGPU()
                              ? codegen::TargetCPU::getHost().name
                              : options.targetCPU;
  PLAIT_RETURN_IF_ERROR(check("--target-cpu", processor, target.getName()));
  PLAIT_RETURN_IF_ERROR(check("--target", options.target, target.getName()));
  return check("--cluster", options.cluster,
               cluster ? cluster.getName() : StringRef());
}

EpilogueKind plait::getUsualEpilogues(TargetAttr target) {
  // On processors kernels that work on whole rows are the faster ones; before
  // sm_90 cuBLASLt was seen to take GELU after the matmul, slower than a
  // kernel (karpathy/llm.c, pull request 338, and its default).
  if (!target.isGPU())
    return EpilogueKind::None;
  return target.getCubin() == "sm_80" ? EpilogueKind::Bias : EpilogueKind::All;
}

/// Bytes that a GPU needs beside the arena: without a cluster, what the
/// target's usual device does.
static uint64_t getDeviceReserve(const Settings &settings,
                                 const codegen::TargetGPU &gpu) {
  if (settings.cluster)
    return uint64_t(settings.cluster->device.reservedBytes);
  const char *usual = gpu.cubin == "sm_80"    ? "a100-80g:1"
                      : gpu.cubin == "sm_100" ? "b200:1"
                                              : "h100:1";
  return uint64_t(planner::parseCluster(usual)->device.reservedBytes);
}

TargetAttr plait::describeTarget(MLIRContext *context,
                                 const Settings &settings) {
  if (const auto *cpu = std::get_if<codegen::TargetCPU>(&settings.target))
    return TargetAttr::get(context, TargetKind::CPU, cpu->name, cpu->features,
                           "", 0);
  const auto &gpu = std::get<codegen::TargetGPU>(settings.target);
  return TargetAttr::get(context, TargetKind::CUDA, gpu.ptx, "", gpu.cubin,
                         getDeviceReserve(settings, gpu));
}
