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

    Part of `plaitc` unless `--no-prove`; reads the batch of the configuration.

    Example:
    ```mlir
    // plait-opt --plait-shard --plait-stage --plait-differentiate --plait-checkpoint --plait-partition --plait-prove-meaning=claim=%s
    module attributes {plait.model = {layers = 1 : i64, model_type = "t", name = "t", vocab = 16 : i64},
        plait.configuration = #plait.configuration<global_batch = 2, seq = 8>} {
      dist.mesh @mesh ["pp", "dp", "tp"] = [1, 1, 2]
      nn.parameter @embed : tensor<16x4xf32> init<mean = 0.0, std = 0.02>
      func.func @loss(%tokens: tensor<1x8xi32>, %targets: tensor<1x8xi32>) -> (tensor<f32>, tensor<f32>) {
        %e = nn.read @embed value : tensor<16x4xf32>
        %x = nn.embedding %e, %tokens : (tensor<16x4xf32>, tensor<1x8xi32>) -> tensor<1x8x4xf32>
        %y = nn.matmul %x, %e "bsh,vh->bsv" : (tensor<1x8x4xf32>, tensor<16x4xf32>) -> tensor<1x8x16xf32>
        %loss, %count = nn.softmax_cross_entropy %y, %targets ignore -100 : (tensor<1x8x16xf32>, tensor<1x8xi32>) -> (tensor<f32>, tensor<f32>)
        return %loss, %count : tensor<f32>, tensor<f32>
      }
    }
    ```
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
    end. Changes nothing, and remarks how many there were; fails
    at the first op that is computed wrongly. With `code-of` it is the kernels
    of another module's clusters, in order, that are held against this one's
    ops, where they are not the same: a change of the one shows whether a
    generator that went wrong like this would be found out.

    Example:
    ```mlir
    func.func @forward_0(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = plan.cluster(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
      ^bb0(%a: tensor<4x8xf32>):
        %1 = nn.sigmoid %a : tensor<4x8xf32>
        %2 = nn.mul %a, %1 : tensor<4x8xf32>
        plan.yield %2 : tensor<4x8xf32>
      }
      return %0 : tensor<4x8xf32>
    }
    // remark: kernels: all 1 ran and gave what their ops define in
    ```
  }];
  let options = [Option<"codeOf", "code-of", "std::string", "",
                        "compile the clusters of this module instead">];
}

#endif // PLAIT_PROOF_PASSES_TD
