//===- TargetSettings.cpp - Target and cluster of a plan ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What executes the plan: back end, processor or GPU architecture, cluster.
// Three options and a cluster may say something about it, and each pair of them
// may contradict; the functions below ask for one value each, from what is
// given down to what is usual.
//
//===----------------------------------------------------------------------===//

#include "TargetSettings.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace plait;
using planner::Cluster;

/// As options and plans spell them.
static constexpr char kCpu[] = "cpu", kCuda[] = "cuda";

//===----------------------------------------------------------------------===//
// Back end and target
//===----------------------------------------------------------------------===//

/// Asked also where no code will be made, as for predictions.
Status plait::checkBackend(const CompileOptions &options,
                           const Cluster &cluster) {
  const char *expected = cluster.device.isProcessor ? kCpu : kCuda;
  if (options.backend.empty() || options.backend == expected)
    return Status::success();
  return fail("`backend` ", options.backend, " contradicts `cluster` ",
              options.cluster, ", whose devices are ",
              cluster.device.isProcessor ? "processors" : "GPUs");
}

/// The option, else what the cluster's devices are, else cpu.
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

/// LLVM knows the names; one that it does not know is an error of code
/// generation.
static Result<codegen::Target> makeProcessor(const CompileOptions &options) {
  if (!options.target.empty())
    return fail("`target` ", options.target, " is for `backend` cuda, not cpu");
  if (options.targetCPU.empty() || options.targetCPU == "host")
    return codegen::Target(codegen::TargetCPU::getHost());
  return codegen::Target(codegen::TargetCPU{options.targetCPU, ""});
}

/// The architecture that options and cluster ask for; empty: any.
/// 1. An option must be one that code can be made for.
/// 2. Without a cluster it is what is given.
/// 3. With one, both have to agree; devices without a target in their file need
///    the option, and those with one that there is no code for can only be
///    predicted.
static Result<std::string>
findArchitecture(const CompileOptions &options,
                 const std::optional<Cluster> &cluster) {
  // 1. What is known.
  std::string known = llvm::join(codegen::TargetGPU::getNames(), ", ");
  if (!options.target.empty() &&
      !llvm::is_contained(codegen::TargetGPU::getNames(), options.target))
    return fail("target is \"", options.target, "\", expected one of ", known);
  // 2. Given, or any.
  if (!cluster)
    return options.target;
  // 3. The cluster's.
  const planner::Device &device = cluster->device;
  if (device.target.empty() && options.target.empty())
    return fail("the hardware file of ", device.name,
                " names no target: give `target`, one of ", known);
  if (device.target.empty() || device.target == options.target)
    return options.target;
  if (!codegen::TargetGPU::get(device.target))
    return fail("plans for ", device.name, " (", device.target,
                ") cannot be compiled, only predicted with `predict`: there is "
                "code for ",
                known);
  if (options.target.empty())
    return device.target;
  return fail("`target` ", options.target, " contradicts `cluster` ",
              options.cluster, ", whose devices are ", device.target);
}

/// An empty architecture is any GPU: PTX that drivers compile when a plan is
/// loaded.
static Result<codegen::Target>
makeTarget(const CompileOptions &options,
           const std::optional<Cluster> &cluster) {
  Result<std::string> backend = findBackend(options, cluster);
  if (!backend.ok())
    return backend.status();
  if (*backend == kCpu)
    return makeProcessor(options);
  if (!options.targetCPU.empty())
    return fail("`target-cpu` ", options.targetCPU,
                " is for `backend` cpu, not cuda");
  Result<std::string> name = findArchitecture(options, cluster);
  if (!name.ok())
    return name.status();
  return codegen::Target(name->empty() ? codegen::TargetGPU()
                                       : *codegen::TargetGPU::get(*name));
}

/// The cluster first, since the rest follows from it.
Result<TargetSettings>
plait::makeTargetSettings(const CompileOptions &options) {
  TargetSettings settings;
  if (!options.cluster.empty()) {
    Result<Cluster> cluster = planner::parseCluster(options.cluster);
    if (!cluster.ok())
      return cluster.status();
    settings.cluster = std::move(*cluster);
  }
  Result<codegen::Target> target = makeTarget(options, settings.cluster);
  if (!target.ok())
    return target.status();
  // Both are there, or neither.
  settings.target = std::move(*target);
  return settings;
}

//===----------------------------------------------------------------------===//
// What the module says of it
//===----------------------------------------------------------------------===//

/// IR of a later phase has been compiled for something: options may repeat
/// that, not change it. "host" is compared by the name that it stands for.
Status plait::checkGivenTarget(const CompileOptions &options, TargetAttr target,
                               ClusterAttr cluster) {
  // What is not given agrees with anything.
  auto check = [](const char *option, const std::string &given,
                  StringRef known) {
    if (given.empty() || given == known)
      return Status::success();
    return fail(option, " is ", given, ", but the module was compiled for ",
                known.empty() ? "none" : known.str());
  };
  PLAIT_RETURN_IF_ERROR(
      check("`backend`", options.backend, target.isGPU() ? kCuda : kCpu));
  std::string processor = options.targetCPU == "host" && !target.isGPU()
                              ? codegen::TargetCPU::getHost().name
                              : options.targetCPU;
  PLAIT_RETURN_IF_ERROR(check("`target-cpu`", processor, target.getName()));
  PLAIT_RETURN_IF_ERROR(check("`target`", options.target, target.getName()));
  return check("`cluster`", options.cluster,
               cluster ? cluster.getName() : StringRef());
}

EpilogueKind plait::getUsualEpilogues(bool isGPU, StringRef architecture) {
  // On processors kernels that work on whole rows are the faster ones; before
  // sm_90 cuBLASLt was seen to take GELU after the matmul, slower than a
  // kernel (karpathy/llm.c, pull request 338, and its default).
  if (!isGPU)
    return EpilogueKind::None;
  return architecture == "sm_80" ? EpilogueKind::Bias : EpilogueKind::All;
}

/// Bytes that a GPU needs beside the arena: without a cluster, what the
/// target's usual device does.
static uint64_t getDeviceReserve(const TargetSettings &settings,
                                 const codegen::TargetGPU &gpu) {
  // The cluster's file says it; else the usual device of the architecture
  // stands for it.
  if (settings.cluster)
    return uint64_t(settings.cluster->device.reservedBytes);
  const char *usual = gpu.cubin == "sm_80"    ? "a100-80g:1"
                      : gpu.cubin == "sm_100" ? "b200:1"
                                              : "h100:1";
  return uint64_t(planner::parseCluster(usual)->device.reservedBytes);
}

/// What the module says from here on; no pass asks the options again.
TargetAttr plait::describeTarget(MLIRContext *context,
                                 const TargetSettings &settings) {
  if (const auto *cpu = std::get_if<codegen::TargetCPU>(&settings.target))
    return TargetAttr::get(context, TargetKind::CPU, cpu->name, cpu->features,
                           "", 0);
  const auto &gpu = std::get<codegen::TargetGPU>(settings.target);
  return TargetAttr::get(context, TargetKind::CUDA, gpu.ptx, "", gpu.cubin,
                         getDeviceReserve(settings, gpu));
}

//===----------------------------------------------------------------------===//
// Pins
//===----------------------------------------------------------------------===//

Status plait::takeSites(CompileOptions &options) {
  Outer outer = options.pins.outer.value_or(Outer());
  PLAIT_RETURN_IF_ERROR(takeSites(options.mesh, outer));
  if (outer.isOn())
    options.pins.outer = outer;
  return Status::success();
}

std::vector<std::string> plait::findIdlePins(const ConfigurationPins &pins,
                                             const Mesh &mesh) {
  std::vector<std::string> lines;
  auto check = [&]<typename T>(const char *name, const std::optional<T> &pin,
                               T nothing, auto &&uses) {
    if (!pin || *pin == nothing || mesh.product(uses) > 1)
      return;
    std::vector<std::string_view> names;
    for (const AxisFacts &facts : kAxes)
      if (std::invoke(uses, facts))
        names.push_back(facts.name);
    std::string axes;
    for (std::string_view name : names)
      axes += (axes.empty()           ? ""
               : name == names.back() ? " and "
                                      : ", ") +
              std::string(name);
    // A flag has no value.
    std::string value = std::is_same_v<T, bool> ? "" : " " + print(*pin);
    lines.push_back("`" + std::string(name) + "`" + value + " has no effect: " +
                    axes + (names.size() == 1 ? " is 1" : " are 1"));
  };
  auto is = [](Axis axis) {
    return [axis](const AxisFacts &facts) { return facts.axis == axis; };
  };
  check("zero", pins.zero, 0, &AxisFacts::dividesState);
  check("sequence-parallel", pins.sequenceParallel, false, is(Axis::TP));
  check("context-parallel", pins.contextParallel, ContextParallel::Gather,
        is(Axis::CP));
  check("expert-exchange", pins.expertExchange, ExpertExchange::Tokens,
        is(Axis::EP));
  check("tp-comm-overlap", pins.tensorOverlap, 1, is(Axis::TP));
  return lines;
}
