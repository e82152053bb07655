//===- Passes.td - The proof as a pass ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PROOF_PASSES_TD
#define PLAIT_PROOF_PASSES_TD

include "mlir/Pass/PassBase.td"

def ProveMeaningPass : Pass<"plait-prove-meaning", "::mlir::ModuleOp"> {
  let summary = "Prove that a step computes what its model asks for";
  let description = [{
    Holds the functions and programs of a step, after `partition` or a later
    phase, against the step of one rank, which is made of the imported model
    in the file `claim` (plait/Proof/Prove.h). Changes nothing; fails at the
    first op that computes something else, and at one that has no rule.
  }];
  let options = [Option<"claim", "claim", "std::string", "",
                        "the imported model, as --dump-phases-to writes it">];
}

#endif // PLAIT_PROOF_PASSES_TD
