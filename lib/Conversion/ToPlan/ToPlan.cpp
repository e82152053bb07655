//===- ToPlan.cpp - From lowered IR to the plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Conversion/ToPlan.h"

#include "ProgramConverter.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Transforms/Names.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

static std::unique_ptr<fb::ClusterT> convertCluster(ClusterAttr cluster) {
  auto converted = std::make_unique<fb::ClusterT>();
  converted->name = cluster.getName().str();
  converted->device = cluster.getDevice().str();
  converted->nodes = cluster.getNodes();
  converted->devices_per_node = cluster.getDevicesPerNode();
  converted->memory_bytes = cluster.getMemory();
  converted->reserved_bytes = cluster.getReserved();
  converted->peak_flops = cluster.getPeakFlops().getValueAsDouble();
  return converted;
}

/// What the plan says of itself beside what it executes.
static void addIdentity(fb::PlanT &plan, ModuleOp module) {
  if (auto model = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr)) {
    auto text = [&](StringRef key) {
      auto value = model.getAs<StringAttr>(key);
      return value ? value.getValue().str() : std::string();
    };
    plan.model_type = text("model_type");
    plan.model_name = text("name");
    if (auto vocab = model.getAs<IntegerAttr>("vocab"))
      plan.vocab_size = vocab.getInt();
  }
  plan.config = getConfigJson(module).str();
  TrainingConfiguration configuration = getConfiguration(module);
  plan.recompute = print(configuration.recompute);
  plan.optimizer = configuration.optimizer;
  plan.sequence = configuration.sequence;
  plan.global_batch = configuration.globalBatch;
  plan.micro_batch = configuration.microBatch;
  if (ClusterAttr cluster = getCluster(module))
    plan.cluster = convertCluster(cluster);
  auto schedule = *module.getOps<pipe::ScheduleOp>().begin();
  plan.schedule = schedule.getKind().str();
  plan.microbatches = schedule.getMicrobatches();
  plan.model_flops = double(getModelFlops(module)) * double(plan.microbatches);
  dist::MeshOp mesh = dist::MeshOp::find(module);
  if (configuration.contextParallel != ContextParallel::Gather &&
      mesh.getAxisSize(kContextAxis) > 1)
    plan.context_parallel = print(configuration.contextParallel);
  for (auto [name, size] : llvm::zip_equal(
           mesh.getAxes().getAsRange<StringAttr>(), mesh.getSizes())) {
    auto axis = std::make_unique<fb::MeshAxisT>();
    axis->name = name.getValue().str();
    axis->size = size;
    plan.mesh.push_back(std::move(axis));
  }
}

/// Whether some shard of some program is such.
static bool hasShard(const fb::PlanT &plan,
                     llvm::function_ref<bool(const fb::ShardT &)> isSuch) {
  return llvm::any_of(plan.programs, [&](const auto &program) {
    return llvm::any_of(program->shards,
                        [&](const auto &shard) { return isSuch(*shard); });
  });
}

/// What ranks of dp divide.
static uint8_t findZero(const fb::PlanT &plan) {
  auto isDivided = [&](const fb::DimShardingT &dim) {
    return llvm::any_of(dim.axes, [&](uint8_t axis) {
      const fb::MeshAxisT &along = *plan.mesh[axis];
      return along.name == kDataAxis && along.size > 1;
    });
  };
  if (hasShard(plan, [&](const fb::ShardT &shard) {
        return llvm::any_of(shard.dims,
                            [&](const auto &dim) { return isDivided(*dim); });
      }))
    return 3;
  if (hasShard(plan, [](const fb::ShardT &shard) {
        return !shard.state_dims.empty();
      }))
    return 2;
  return hasShard(
      plan, [](const fb::ShardT &shard) { return shard.division != nullptr; });
}

/// Says of the plan as a whole what its shards say: whether there are copies to
/// compute with, and whether ranks hold parts of the optimizer's state.
static void addShardSummary(fb::PlanT &plan) {
  bool hasCopies = hasShard(plan, [](const fb::ShardT &shard) {
    return shard.compute_dtype == fb::DType::BF16;
  });
  plan.precision = hasCopies ? "bf16" : "fp32";
  plan.zero = findZero(plan);
}

static LogicalResult addCode(fb::PlanT &plan, codegen::KernelLibrary &library) {
  if (plan.kernels.empty())
    return success();
  FailureOr<std::vector<codegen::CodeObject>> objects = library.finish();
  if (failed(objects))
    return failure();
  for (codegen::CodeObject &object : *objects) {
    auto code = std::make_unique<fb::CodeObjectT>();
    code->target = object.target;
    code->cpu = object.cpu;
    code->features = std::move(object.features);
    code->data.assign(object.data.begin(), object.data.end());
    plan.code.push_back(std::move(code));
  }
  return success();
}

/// What code is generated for; fails where there is none for the module's
/// target.
static FailureOr<codegen::Target> findCodeTarget(ModuleOp module) {
  TargetAttr target = getTarget(module);
  if (!target)
    return codegen::Target(codegen::TargetCPU::getHost());
  if (!target.isGPU())
    return codegen::Target(
        codegen::TargetCPU{target.getName().str(), target.getFeatures().str()});
  ArrayRef<StringRef> names = codegen::TargetGPU::getNames();
  for (StringRef name : {target.getName(), target.getCubin()})
    if (!llvm::is_contained(names, name))
      return module.emitOpError("is for ")
             << name << ", but there is code for " << llvm::join(names, ", ");
  return codegen::Target(
      codegen::TargetGPU{target.getName().str(), target.getCubin().str()});
}

/// What the runtime needs to know of the devices.
static void describeDevices(fb::PlanT &plan, ModuleOp module) {
  TargetAttr target = getTarget(module);
  if (!target || !target.isGPU())
    return;
  plan.backend = "cuda";
  plan.device_reserve = target.getReserved();
}

FailureOr<std::unique_ptr<fb::PlanT>>
plait::convertToPlan(ModuleOp module,
                     std::vector<codegen::EmittedKernel> *kernels) {
  FailureOr<codegen::Target> target = findCodeTarget(module);
  if (failed(target))
    return failure();
  auto plan = std::make_unique<fb::PlanT>();
  addIdentity(*plan, module);
  auto library = codegen::KernelLibrary::create(module.getContext(), *target);
  SharedTables shared{
      ParameterTable(module, *plan), KernelTable(*library, *plan, kernels), {}};
  for (auto program : module.getOps<ProgramOp>()) {
    FailureOr<std::unique_ptr<fb::ProgramT>> converted =
        convertProgram(program, shared, *plan);
    if (failed(converted))
      return failure();
    plan->programs.push_back(std::move(*converted));
  }
  addShardSummary(*plan);
  if (failed(addCode(*plan, *library)))
    return failure();
  describeDevices(*plan, module);
  return plan;
}
