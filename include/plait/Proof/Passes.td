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

def CheckKernelsPass : Pass<"plait-check-kernels", "::mlir::ModuleOp"> {
  let summary = "Run kernels against a second evaluation of their ops";
  let description = [{
    Compiles the kernel of each cluster, after phase `lower`, for this machine's
    processor, runs it on drawn numbers and holds what it gives against what the
    ops of the cluster define (plait/Proof/Kernels.h), as `plaitc` does at the
    end. Changes nothing, and says before the module how many there were; fails
    at the first op that is computed wrongly. With `code-of` it is the kernels
    of another module's clusters, in order, that are held against this one's
    ops, where they are not the same: a change of the one shows whether a
    generator that went wrong like this would be found out.
  }];
  let options = [Option<"codeOf", "code-of", "std::string", "",
                        "compile the clusters of this module instead">];
}

#endif // PLAIT_PROOF_PASSES_TD
