//===- StepPasses.td - Passes of phase steps ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_STEPPASSES_TD
#define PLAIT_TRANSFORMS_STEPPASSES_TD

include "mlir/Pass/PassBase.td"

def LowerToStepsPass : Pass<"plan-lower-to-steps", "::mlir::ModuleOp"> {
  let summary = "Turn functions into lists of steps";
  let description = [{
    Each function that a program calls becomes a `plan.function`: clusters become
    `plan.kernel`, contractions one or more `plan.gemm`, attentions that are whole
    `plan.attention`, collectives `plan.collective`, tables `plan.constant`. What
    only said where a value lies is gone. Values must have been placed. For GPUs,
    each program's arena gets a buffer for libraries.

    Phase `steps`; reads `deterministic`.

    Example:
    ```mlir
    nn.parameter @w : tensor<4x6xf32> init<mean = 0.0, std = 0.02>
    func.func @forward_0() attributes {plan.slot_bytes = array<i64: 128>, plan.slot_names = ["workspace"]} {
      %0 = nn.read @w value {plan.places = [#plan.place<@"w value", 0>]} : tensor<4x6xf32>
      %1 = nn.matmul %0, %0 "ab,cb->ac" {plan.places = [#plan.place<slot 0, 0>]} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>
      return
    }
    plan.program @rank0 rank 0 bytes 256 {
      plan.buffer @"w value" parameters at 0 bytes 96 live [0, 0]
      plan.buffer @workspace workspace at 128 bytes 128 live [0, 0]
      plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
    }
    ```
    becomes
    ```mlir
    plan.function @forward_0 slots ["workspace"] bytes [128] {
      plan.gemm m 4 n 4 k 6 of f32 a <@"w value", 0, 96> strides [6, 1] b <@"w value", 0, 96> strides [1, 6] c <slot 0, 0, 64> strides [4] of f32
    }
    ```
  }];
  let dependentDialects = ["::plait::plan::PlanDialect"];
}

def OverlapCollectivesPass
    : Pass<"plan-overlap-collectives", "::mlir::ModuleOp"> {
  let summary = "Put GEMMs beside collectives that nothing would hide";
  let description = [{
    Moves GEMMs up to where a collective would leave a GPU idle: between it and
    the first step that needs its result, as many as a device computes while it
    lasts, at the rates of the module's cluster (`#plait.rates`). A GEMM is moved over other steps only
    where neither uses bytes that the other writes, so that all results are the
    same bits, and no other step is moved, so that collectives stay in their order.
    Of a GEMM behind another collective, which has use for it, only as many rows are
    moved as are needed, in whole tiles. In the backward pass of tensor parallelism
    this puts GEMMs for weight gradients beside what is exchanged of input gradients.
    A processor has no streams, and nothing happens.

    Phase `steps`; reads the target and the cluster, and nothing of the
    configuration.

    Example:
    ```mlir
    module attributes {plait.target = #plait.target<cuda, name = "sm_90", cubin = "sm_90">} {
      dist.mesh @mesh ["tp"] = [2]
      plan.function @backward_0 slots ["workspace"] bytes [128] {
        plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 4 <slot 0, 0, 16> -> <slot 0, 0, 16>
        plan.gemm m 1 n 4 k 1 of f32 a <slot 0, 0, 4> strides [1, 1] b <slot 0, 0, 16> strides [4, 1] c <slot 0, 16, 16> strides [4] of f32
        plan.gemm m 1 n 4 k 1 of f32 a <slot 0, 32, 4> strides [1, 1] b <slot 0, 48, 16> strides [4, 1] c <slot 0, 64, 16> strides [4] of f32
      }
      plan.program @rank0 rank 0 bytes 128 {
        plan.buffer @workspace workspace at 0 bytes 128 live [0, 0]
        plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
      }
    }
    ```
    becomes, since the second GEMM does not read the sum,
    ```mlir
    plan.collective all_reduce … <slot 0, 0, 16> -> <slot 0, 0, 16>
    plan.gemm … a <slot 0, 32, 4> … c <slot 0, 64, 16> …
    plan.gemm … a <slot 0, 0, 4> … c <slot 0, 16, 16> …
    ```
  }];
}

def SplitCollectivesPass : Pass<"plan-split-collectives", "::mlir::ModuleOp"> {
  let summary = "Compute one piece of a matmul while another is exchanged";
  let description = [{
    A matmul and the sum over tp behind it, or the all-gather in front of it, are cut
    into pieces of rows. On a GPU, where a collective runs on a stream of its own, each
    is beside a piece of the matmul; in as many pieces as leave the least to wait for,
    at the rates of the module's cluster, and at most twice `tp_comm_overlap`. What
    `plan-overlap-collectives` has found enough for stays whole. On a processor, which
    has no streams, there are as many pieces as asked for.

    A matmul is cut where it makes, or reads row by row, all that is exchanged, and no
    piece uses bytes of another. A scatter or gather is cut between its outer blocks,
    rounds of the sequence and sequences. Between two attentions of a forward pass for a
    GPU all steps that go row by row are cut together where that is faster.

    Phase `steps`; reads `tp_comm_overlap`, the target and the cluster.

    Example:
    ```mlir
    // plait-opt --plait-configure=tp-comm-overlap=2 --plan-split-collectives
    module attributes {plait.target = #plait.target<cpu, name = "x86-64-v3">} {
      dist.mesh @mesh ["tp"] = [2]
      plan.function @forward_0 slots ["workspace"] bytes [192] {
        plan.gemm m 2 n 16 k 1 of f32 a <slot 0, 128, 8> strides [1, 1] b <slot 0, 128, 64> strides [16, 1] c <slot 0, 0, 128> strides [16] of f32
        plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 32 <slot 0, 0, 128> -> <slot 0, 0, 128>
      }
      plan.program @rank0 rank 0 bytes 192 {
        plan.buffer @workspace workspace at 0 bytes 192 live [0, 0]
        plan.action forward stage 0 microbatch 0 call @forward_0 [@workspace]
      }
    }
    ```
    becomes
    ```mlir
    plan.gemm m 1 n 16 k 1 … c <slot 0, 0, 64> …
    plan.collective all_reduce … chunk 16 <slot 0, 0, 64> -> <slot 0, 0, 64>
    plan.gemm m 1 n 16 k 1 … c <slot 0, 64, 64> …
    plan.collective all_reduce … chunk 16 <slot 0, 64, 64> -> <slot 0, 64, 64>
    ```
  }];
}

def BucketReductionsPass
    : Pass<"plan-bucket-reductions", "::mlir::ModuleOp"> {
  let summary = "Reduce gradients in the order in which they are computed";
  let description = [{
    Cuts every all-reduce of gradients, in place and in a function that only one
    `reduce` action calls, into buckets of `bucket` elements or up to twice as many,
    and puts those first whose last element is written first. A GPU executes
    collectives on streams of their own, a processor those over dp on a thread of
    their own, each as soon as what it reads is there: so the buckets of the last
    layers are reduced while the backward pass computes the gradients of the layers
    before them.

    All-reduces change places only within a run of neighbours over the same ranks,
    the same on all ranks of a program; over `pp`, which programs have in common,
    they stay. Each element is still the sum of the same numbers. On a processor
    nothing happens to other sums than those over dp.

    Phase `steps`; reads the target and the cluster, and nothing of the
    configuration.

    Example:
    ```mlir
    // plait-opt --plan-bucket-reductions=bucket=64
    module attributes {plait.target = #plait.target<cpu, name = "x86-64-v3">} {
      dist.mesh @mesh ["dp"] = [2]
      plan.function @backward_0 slots ["workspace"] bytes [0] {
        plan.gemm m 1 n 64 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 256> strides [64, 1] c <@gradients, 256, 256> strides [64] of f32
        plan.gemm m 1 n 64 k 1 of f32 a <@w, 0, 4> strides [1, 1] b <@w, 0, 256> strides [64, 1] c <@gradients, 0, 256> strides [64] of f32
      }
      plan.function @reduce_0 slots ["workspace"] bytes [0] {
        plan.collective all_reduce reduction sum on "dp" of f32 outer 1 middle 1 chunk 128 <@gradients, 0, 512> -> <@gradients, 0, 512>
      }
      plan.program @rank0 rank 0 bytes 768 {
        plan.buffer @gradients gradients at 0 bytes 512 live [0, 1]
        plan.buffer @w parameters at 512 bytes 256 live [0, 1]
        plan.buffer @workspace workspace at 0 bytes 0 live [0, 1]
        plan.action backward stage 0 microbatch 0 call @backward_0 [@workspace]
        plan.action reduce call @reduce_0 [@workspace]
      }
    }
    ```
    becomes
    ```mlir
    plan.function @reduce_0 slots ["workspace"] bytes [0] {
      plan.collective all_reduce … chunk 64 <@gradients, 256, 256> -> <@gradients, 256, 256>
      plan.collective all_reduce … chunk 64 <@gradients, 0, 256> -> <@gradients, 0, 256>
    }
    ```
  }];
  let options = [
    Option<"bucket", "bucket", "int64_t", "0",
           "least elements of a bucket; 0: by cost">];
}

#endif // PLAIT_TRANSFORMS_STEPPASSES_TD
