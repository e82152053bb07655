//===- ToPlan.cpp - From lowered IR to the plan file ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Conversion/ToPlan.h"

#include "FunctionConverter.h"
#include "ProgramConverter.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

static void addIdentity(fb::PlanT &plan, ModuleOp module,
                        const PlanIdentity &identity) {
  if (auto model = module->getAttrOfType<DictionaryAttr>("plait.model")) {
    auto text = [&](StringRef key) {
      auto value = model.getAs<StringAttr>(key);
      return value ? value.getValue().str() : std::string();
    };
    plan.model_type = text("model_type");
    plan.model_name = text("name");
    if (auto vocab = model.getAs<IntegerAttr>("vocab"))
      plan.vocab_size = vocab.getInt();
  }
  plan.recompute = identity.recompute;
  plan.sequence = identity.sequence;
  plan.global_batch = identity.globalBatch;
  plan.micro_batch = identity.microBatch;
  auto schedule = *module.getOps<pipe::ScheduleOp>().begin();
  plan.schedule = schedule.getKind().str();
  plan.microbatches = schedule.getMicrobatches();
  dist::MeshOp mesh = dist::MeshOp::find(module);
  for (auto [name, size] : llvm::zip_equal(
           mesh.getAxes().getAsRange<StringAttr>(), mesh.getSizes())) {
    auto axis = std::make_unique<fb::MeshAxisT>();
    axis->name = name.getValue().str();
    axis->size = size;
    plan.mesh.push_back(std::move(axis));
  }
}

static LogicalResult addCode(fb::PlanT &plan, codegen::KernelLibrary &library,
                             const codegen::TargetCPU &target) {
  if (plan.kernels.empty())
    return success();
  FailureOr<std::vector<char>> object = library.finish();
  if (failed(object))
    return failure();
  auto code = std::make_unique<fb::CodeObjectT>();
  code->target = "x86_64";
  code->cpu = target.name;
  code->features = library.requiredFeatures();
  code->data.assign(object->begin(), object->end());
  plan.code.push_back(std::move(code));
  return success();
}

FailureOr<std::unique_ptr<fb::PlanT>>
plait::convertToPlan(ModuleOp module, const PlanIdentity &identity,
                     codegen::TargetCPU target) {
  auto plan = std::make_unique<fb::PlanT>();
  addIdentity(*plan, module, identity);
  codegen::KernelLibrary library(module.getContext(), target);
  KernelTable kernels(library, *plan);
  ParameterTable parameters(module, *plan);
  for (auto program : module.getOps<ProgramOp>()) {
    FailureOr<std::unique_ptr<fb::ProgramT>> converted =
        convertProgram(program, parameters, kernels, *plan);
    if (failed(converted))
      return failure();
    plan->programs.push_back(std::move(*converted));
  }
  if (failed(addCode(*plan, library, target)))
    return failure();
  return plan;
}
