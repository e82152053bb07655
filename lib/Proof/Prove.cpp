//===- Prove.cpp - A proof of what a partitioned step computes ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of a proof: what claim and plan say beside their steps is compared
// (Carried.h); both are interpreted (Step.h), their results are compared
// (Compare.h), and then it is shown that memory (Places.h) and programs
// (Program.h) carry the values as the interpretation assumes. The first defect
// ends it.
//
//===----------------------------------------------------------------------===//

#include "plait/Proof/Prove.h"

#include "Carried.h"
#include "Compare.h"
#include "Places.h"
#include "Program.h"

#include "plait/Dialect/Plait/IR/Plait.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// The type of the tokens of one microbatch of the claim, which is whole.
///
/// Null: no function takes tokens or targets.
static RankedTensorType findInputs(ModuleOp claim) {
  for (auto function : claim.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments()) {
      auto port = function.getArgAttrOfType<pipe::PortAttr>(
          argument.getArgNumber(), pipe::kPortAttr);
      if (port && (port.getKind() == pipe::PortKind::Tokens ||
                   port.getKind() == pipe::PortKind::Targets))
        return cast<RankedTensorType>(argument.getType());
    }
  return {};
}

static dist::MeshOp findMesh(ModuleOp module) {
  auto meshes = module.getOps<dist::MeshOp>();
  return meshes.empty() ? dist::MeshOp() : *meshes.begin();
}

/// 1. What both steps share: the inputs, and the terms, so that equal values of
///    claim and plan are one term.
/// 2. The claim comes first, so each term that it has is known to be of the
///    claim before the plan asks for it.
/// 3. The plan, by the same rules on its own mesh.
/// The batch is the claim's: a plan may not change how many microbatches a step
/// has and be measured by its own number.
Verdict plait::proof::proveMeaning(ModuleOp claimModule, ModuleOp planModule) {
  Report report;
  RankedTensorType inputs = findInputs(claimModule);
  if (!inputs) {
    report.unproven(claimModule) << "the claim takes no tokens";
    return report.getVerdict();
  }
  // 1. The terms.
  Terms terms;
  MeshSizes one(findMesh(claimModule)), mesh(findMesh(planModule));
  Rules claimRules(terms, one, report), rules(terms, mesh, report);
  // 2. The claim.
  terms.setClaim(true);
  Step claim(claimModule, claimRules, inputs);
  if (failed(claim.interpret()))
    // Nothing is known of the plan then.
    return Verdict::Unproven;
  // 3. The plan. Of several sites it is that of one.
  TrainingConfiguration asked = getConfiguration(claimModule);
  terms.setClaim(false);
  Step plan(planModule, rules, inputs);
  if (failed(checkCarried(claimModule, planModule, report)) ||
      failed(plan.interpret()) ||
      failed(compareSteps(claim, plan, rules, planModule)) ||
      failed(checkPlaces(planModule, plan.getSymbols(), report)) ||
      failed(checkPrograms(
          planModule,
          asked.globalBatch / (inputs.getDimSize(0) * asked.outer.countSites()),
          report)))
    return report.getVerdict();
  return Verdict::Proven;
}
