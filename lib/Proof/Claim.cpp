//===- Claim.cpp - The step that a plan is held against ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes up to `partition`, for one rank: nothing is split, and
// partitioning only takes the (empty) shardings off the types.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/ExpertChunks.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Proof/Prove.h"
#include "plait/Transforms/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace plait;

/// Forgets how the model is to be spread: one rank computes a microbatch of all
/// of them.
///
/// Meshes keep their axes with one rank each, so that passes which name an axis
/// still find it.
///
/// What replicas compress is their own part each, so that their number stays.
static void unpartition(ModuleOp module) {
  TrainingConfiguration configuration = getConfiguration(module);
  if (dist::MeshOp mesh = dist::MeshOp::find(module);
      mesh && configuration.compress.isOn())
    configuration.compress.replicas =
        std::max<int64_t>(1, mesh.getAxisSize(Axis::DP));
  for (auto mesh : module.getOps<dist::MeshOp>())
    mesh.setSizes(SmallVector<int64_t>(mesh.getSizes().size(), 1));
  for (auto parameter : module.getOps<nn::ParameterOp>()) {
    parameter.removeShardingAttr();
    parameter.removeStateAttr();
  }
  if (pipe::ScheduleOp given = pipe::findSchedule(module))
    given.erase();
  static_cast<Strategy &>(configuration) = Strategy();
  configuration.epilogues = EpilogueKind::None;
  configuration.lossChunks = 1;
  if (auto loss = module.lookupSymbol<func::FuncOp>(nn::kLossFunction))
    configuration.microBatch =
        cast<RankedTensorType>(loss.getArgumentTypes()[0]).getDimSize(0);
  setConfiguration(module, configuration);
  setExpertChunks(module, 1);
}

OwningOpRef<ModuleOp> plait::proof::makeClaim(OwningOpRef<ModuleOp> claim) {
  // As phases do: of two ops that are one but for what names them one is left.
  restoreOrigins(*claim);
  unpartition(*claim);
  // Only errors pass on to the handler outside.
  // What there is to warn of is told where the plan is made.
  ScopedDiagnosticHandler quiet(claim->getContext(), [](Diagnostic &diag) {
    return success(diag.getSeverity() != DiagnosticSeverity::Error);
  });
  PassManager manager(claim->getContext());
  manager.enableVerifier(false);
  buildClaim(manager);
  if (failed(manager.run(*claim)))
    return {};
  return claim;
}
