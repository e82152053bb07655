//===- ProofPass.cpp - The proof as a pass ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pass `plait-prove-meaning`: reads the imported model, makes the claim of
// it (Claim.cpp) and holds the module against that (Prove.cpp). plaitc calls
// the two functions itself; the pass is for `plait-opt`, with IR that was
// dumped or edited.
//
//===----------------------------------------------------------------------===//

#include "plait/Proof/Passes.h"
#include "plait/Proof/Prove.h"

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Plan/Files.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

namespace plait::proof {
#define GEN_PASS_DEF_PROVEMEANINGPASS
#include "plait/Proof/Passes.h.inc"
} // namespace plait::proof

using namespace mlir;
using namespace plait;

namespace {
struct ProveMeaningPass : proof::impl::ProveMeaningPassBase<ProveMeaningPass> {
  using ProveMeaningPassBase::ProveMeaningPassBase;

  /// What the front of the pipeline, which makes the claim, creates.
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<nn::NNDialect, dist::DistDialect, pipe::PipeDialect,
                    PlaitDialect, plan::PlanDialect, func::FuncDialect>();
  }

  void runOnOperation() override {
    // In the same context: terms of both modules compare attributes by address.
    OwningOpRef<ModuleOp> model;
    if (checkInput(claim, "claim").ok())
      model = parseSourceFile<ModuleOp>(claim, &getContext());
    if (!model) {
      getOperation().emitError("the proof needs a claim, the imported model; "
                               "there is none in \"")
          << claim << "\"";
      return signalPassFailure();
    }
    auto step = proof::makeClaim(std::move(model));
    if (!step)
      return signalPassFailure();
    proof::Verdict verdict = proof::proveMeaning(*step, getOperation());
    // In plaitc an unproven step is a warning; here nothing is asked for but
    // the proof, so it is a failure.
    if (verdict == proof::Verdict::Unproven)
      getOperation().emitError("the step is not proven");
    if (verdict != proof::Verdict::Proven)
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
