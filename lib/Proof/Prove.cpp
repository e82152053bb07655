//===- Prove.cpp - A proof of what a partitioned step computes ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Proof/Prove.h"

#include "Compare.h"
#include "Places.h"
#include "Program.h"

#include "plait/Dialect/Plait/IR/Plait.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// The type of the tokens of one microbatch of the claim, which is whole.
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

Verdict plait::proof::proveMeaning(ModuleOp claimModule, ModuleOp planModule) {
  Report report;
  RankedTensorType inputs = findInputs(claimModule);
  if (!inputs) {
    report.unproven(claimModule) << "the claim takes no tokens";
    return report.getVerdict();
  }
  Terms terms;
  Mesh one(findMesh(claimModule)), mesh(findMesh(planModule));
  Rules claimRules(terms, one, report), rules(terms, mesh, report);
  terms.setClaim(true);
  Step claim(claimModule, claimRules, inputs);
  if (failed(claim.interpret()))
    // Nothing is known of the plan then.
    return Verdict::Unproven;
  terms.setClaim(false);
  Step plan(planModule, rules, inputs);
  if (failed(plan.interpret()) ||
      failed(compareSteps(claim, plan, rules, planModule)) ||
      failed(checkPlaces(planModule, plan.getSymbols(), report)) ||
      failed(checkPrograms(planModule,
                           getConfiguration(claimModule).globalBatch /
                               inputs.getDimSize(0),
                           report)))
    return report.getVerdict();
  return Verdict::Proven;
}
