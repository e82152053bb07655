//===- ToPlan.cpp - From lowered IR to the plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The last step of the compiler: a module after phase `steps` becomes the
// tables of the plan file, still as objects, which the caller packs, checks and
// writes. Nothing is decided here; all that a plan says of itself is either in
// the module or follows from the programs that were converted.
//
//===----------------------------------------------------------------------===//

#include "plait/Conversion/ToPlan.h"

#include "AddSites.h"
#include "DeviceReserve.h"
#include "ProgramConverter.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/NamedLosses.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Plan/Adapters.h"
#include "plait/Plan/Scalars.h"
#include "plait/Support/MemoryPlaces.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

/// For reports. The rates that passes went by are not written: they have done
/// their part.
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

/// The trainer's own number stands among the optimizer's.
static void addStepNumber(fb::PlanT &plan) {
  auto entry = std::make_unique<fb::OptimizerOptionT>();
  entry->name = plan::kStepOption;
  entry->scalar = findStepScalar(kStepNumber);
  entry->value = 1;
  entry->most = double(plan::kMostStepNumber);
  plan.options.push_back(std::move(entry));
}

/// Names the optimizer, and says what a run may set of it and of those of
/// groups.
static void addOptimizer(fb::PlanT &plan, ModuleOp module,
                         const std::string &name) {
  plan.optimizer = name;
  for (const TrainingOption &option :
       nn::getTrainingOptions(module, **findOptimizer(name))) {
    auto entry = std::make_unique<fb::OptimizerOptionT>();
    entry->name = option.name;
    entry->shared = option.shared;
    entry->scalar = findStepScalar(option.scalar);
    entry->value = option.option->value;
    entry->least = option.option->least;
    entry->most = option.option->most;
    if (!option.correction.empty())
      entry->correction = findStepScalar(option.correction);
    plan.options.push_back(std::move(entry));
  }
}

/// Those that a program does not take, too: rows have them.
static LogicalResult addFloatInputs(fb::PlanT &plan, ModuleOp module) {
  auto inputs = nn::readFloatInputs(module);
  if (failed(inputs))
    return failure();
  for (const nn::FloatInput &input : *inputs) {
    auto added = std::make_unique<fb::FloatInputT>();
    added->name = input.name.str();
    added->of_positions = input.isOfPositions;
    added->shape.assign(input.shape.begin(), input.shape.end());
    plan.float_inputs.push_back(std::move(added));
  }
  return success();
}

/// Adds what the plan was compiled with; lists that say nothing are left out.
static void addSettings(fb::PlanT &plan,
                        const TrainingConfiguration &configuration) {
  visitConfiguration(
      [&](const Field &field, const auto &value) {
        std::string text = print(value);
        if (text.empty())
          return;
        auto setting = std::make_unique<fb::SettingT>();
        setting->name = field.name;
        setting->value = std::move(text);
        plan.settings.push_back(std::move(setting));
      },
      configuration);
}

/// Adds what nn-add-adapters has left, under the name of the option.
static void addAlpha(fb::PlanT &plan, DictionaryAttr model) {
  auto alpha = model.getAs<FloatAttr>(plan::kAlphaEntry.data());
  if (!alpha)
    return;
  auto setting = std::make_unique<fb::SettingT>();
  setting->name = plan::kAlphaSetting;
  llvm::raw_string_ostream(setting->value)
      << llvm::format("%.17g", alpha.getValueAsDouble());
  plan.settings.push_back(std::move(setting));
}

/// What the plan says of itself beside what it executes.
static void addIdentity(fb::PlanT &plan, ModuleOp module) {
  // Models that were written by hand may lack any of these: a name is then
  // empty, a vocabulary 0 and not known.
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
  for (StringRef name : nn::getNamedLosses(module))
    plan.named_losses.push_back(name.str());
  TrainingConfiguration configuration = getConfiguration(module);
  addSettings(plan, configuration);
  if (auto model = module->getAttrOfType<DictionaryAttr>(nn::kModelAttr))
    addAlpha(plan, model);
  plan.recompute = print(configuration.recompute);
  addOptimizer(plan, module, configuration.optimizer);
  plan.sequence = configuration.sequence;
  plan.global_batch = configuration.globalBatch;
  plan.micro_batch = configuration.microBatch;
  if (ClusterAttr cluster = getCluster(module))
    plan.cluster = convertCluster(cluster);
  // There is one: phase `schedule` has left it.
  auto schedule = *module.getOps<pipe::ScheduleOp>().begin();
  plan.schedule = schedule.getKind().str();
  plan.microbatches = schedule.getMicrobatches();
  // Of the whole step.
  plan.model_flops = getModelFlops(module) * double(plan.microbatches);
  dist::MeshOp mesh = dist::MeshOp::find(module);
  // The usual way, and one without such ranks, needs no word in the file.
  if (configuration.contextParallel != ContextParallel::Gather &&
      mesh.getAxisSize(Axis::CP) > 1)
    plan.context_parallel = print(configuration.contextParallel);
  if (configuration.reducePrecision != Precision::FP32)
    plan.reduce_precision = print(configuration.reducePrecision);
  if (configuration.compress.isOn())
    plan.compress = print(configuration.compress);
  if (drawsNumbers(configuration.compress))
    addStepNumber(plan);
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
/// Read off the shards: a stage that divides nothing, for lack of ranks or of
/// dimensions that divide, is stage 0. From the most that is divided to the
/// least: parameters, their state or what replicas feed back in place of
/// gradients, packs. What splits experts splits them
/// whatever is `asked` for.
static uint8_t findZero(const fb::PlanT &plan, int asked) {
  auto isDivided = [&](const fb::DimShardingT &dim) {
    return llvm::any_of(dim.axes, [&](uint8_t axis) {
      const fb::MeshAxisT &along = *plan.mesh[axis];
      const AxisFacts *facts = findAxis(along.name);
      return facts && facts->dividesState && along.size > 1;
    });
  };
  if (asked >= 3 && hasShard(plan, [&](const fb::ShardT &shard) {
        return llvm::any_of(shard.dims,
                            [&](const auto &dim) { return isDivided(*dim); });
      }))
    return 3;
  if (hasShard(plan, [](const fb::ShardT &shard) {
        return !shard.state_dims.empty() ||
               llvm::any_of(shard.state, [&](const auto &slot) {
                 return slot->offset == shard.gradient;
               });
      }))
    return 2;
  return hasShard(
      plan, [](const fb::ShardT &shard) { return shard.division != nullptr; });
}

/// Tells what lies elsewhere than in arenas. Of what outlives a step only the
/// optimizer's does, of the rest only what backward passes wait for.
static Offload findOffload(const fb::PlanT &plan) {
  Offload offload;
  for (const auto &program : plan.programs)
    for (const auto &region : program->regions) {
      bool isKept = region->category == fb::Category::Parameters ||
                    region->category == fb::Category::Optimizer;
      if (!isInArena(region->offset))
        (isKept ? offload.optimizer : offload.activations) =
            getMemoryPlace(region->offset);
    }
  return offload;
}

/// Says of the plan as a whole what its programs say: whether there are copies
/// to compute with, whether ranks hold parts of the optimizer's state, and what
/// is offloaded.
static void addSummary(fb::PlanT &plan, int zero) {
  bool hasCopies = hasShard(plan, [](const fb::ShardT &shard) {
    return shard.compute_dtype == fb::DType::BF16;
  });
  plan.precision = hasCopies ? "bf16" : "fp32";
  plan.zero = findZero(plan, zero);
  if (Offload offload = findOffload(plan); offload != Offload::None)
    plan.offload = print(offload);
}

/// Machine code of all kernels at once, after all programs have added theirs. A
/// plan without kernels has none.
static LogicalResult addCode(fb::PlanT &plan, codegen::KernelLibrary &library) {
  if (plan.kernels.empty())
    return success();
  // PTX and cubin of GPUs are two objects of the same kernels.
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
    // Only without a target does a plan depend on the machine that compiles.
    return codegen::Target(codegen::TargetCPU::getHost());
  if (!target.isGPU())
    return codegen::Target(
        codegen::TargetCPU{target.getName().str(), target.getFeatures().str()});
  // Both the least architecture and the one to assemble for.
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
  plan.device_reserve = findReserve(plan, target.getReserved());
  plan.deterministic = getConfiguration(module).deterministic;
}

FailureOr<std::unique_ptr<fb::PlanT>>
plait::convertToPlan(ModuleOp module,
                     std::vector<codegen::EmittedKernel> *kernels) {
  // First, since without code for the target nothing else is of use.
  FailureOr<codegen::Target> target = findCodeTarget(module);
  if (failed(target))
    return failure();
  auto plan = std::make_unique<fb::PlanT>();
  // Programs ask the plan for the batch and the number of microbatches.
  addIdentity(*plan, module);
  if (failed(addFloatInputs(*plan, module)))
    return failure();
  auto library = codegen::KernelLibrary::create(module.getContext(), *target);
  // In this order: shards refer to parameters by index, steps to kernels.
  SharedTables shared{ParameterTable(module, *plan),
                      KernelTable(*library, *plan, kernels),
                      {},
                      {}};
  // In the order of the ranks of the pipeline, in which the file has them.
  for (auto program : module.getOps<ProgramOp>()) {
    FailureOr<std::unique_ptr<fb::ProgramT>> converted =
        convertProgram(program, shared, *plan);
    if (failed(converted))
      return failure();
    plan->programs.push_back(std::move(*converted));
  }
  // What the plan says as a whole follows from what its programs turned out to
  // hold.
  addSummary(*plan, getConfiguration(module).zero);
  if (failed(addCode(*plan, *library)))
    return failure();
  describeDevices(*plan, module);
  if (Outer outer = getConfiguration(module).outer; outer.isOn())
    if (Status status = addSites(*plan, outer); !status.ok())
      return module.emitError() << status.message();
  return plan;
}
