//===- PlanStepOps.td - Steps: what a rank executes at a time ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One op for each kind of step that compilations make; Plan.fbs has the meaning of
// the fields that these share with its tables. Transfers are actions of the
// program (PlanOps.td), since they bind no slots. Waits and events between streams
// are no ops: they follow from what steps use (plait/Plan/Streams.h).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANSTEPOPS_TD
#define PLAIT_DIALECT_PLAN_IR_PLANSTEPOPS_TD

include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "plait/Dialect/Plan/IR/PlanBase.td"
include "plait/Dialect/Plan/IR/PlanInterfaces.td"

def Plan_MemoryArray : TypedArrayAttrBase<Plan_MemoryAttr, "memory">;

def Plan_FunctionOp : Plan_Op<"function", [Symbol, IsolatedFromAbove,
    NoTerminator, SingleBlock]> {
  let summary = "A list of steps";
  let description = [{
    What an action calls: `does` says for which of its virtual stages or, once a
    step, ranks. It binds buffers to the slots, of which the last is the
    workspace of the call.

    Constraints:
    - (C1) the body holds steps and constants only.
    - (C2) there is a slot, and each has a name and a size of 0 or more.
    - (C3) what a step uses of a slot is inside of it.

    Example:
    ```mlir
    plan.function @forward_0 does <forward, 0> slots ["residual", "workspace"] bytes [4096, 128] {
      plan.gemm m 8 n 16 k 4 of f32 a <slot 1, 0, 128> strides [4, 1] b <@"w value", 0, 256> strides [16, 1] c <slot 0, 0, 512> strides [16] of f32
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       OptionalAttr<Pipe_FunctionAttr>:$does,
                       StrArrayAttr:$slots, DenseI64ArrayAttr:$bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name (`does` $does^)? `slots` $slots `bytes` $bytes
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
}

def Plan_ConstantOp : Plan_Op<"constant", [HasParent<"FunctionOp">,
    SingleBlockImplicitTerminator<"::plait::plan::YieldOp">]> {
  let summary = "A table that the function's steps read";
  let description = [{
    The numbers lie in a buffer from before the first step on. The body is the op
    that knows them.

    Constraints:
    - (C1) the body is one op of ConstantDataOpInterface, whose result it yields.
    - (C2) the buffer holds as many bytes as the result.

    Example:
    ```mlir
    builtin.module {
      plan.function @forward_0 slots ["workspace"] bytes [64] {
        plan.constant <@"rope_table of 8 x 4", 0, 128> {
          %0 = nn.rope_table theta 1.000000e+04 : tensor<8x4xf32>
          plan.yield %0 : tensor<8x4xf32>
        }
      }
    }
    ```
  }];
  let arguments = (ins Plan_MemoryAttr:$memory);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$memory attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The op that knows the numbers.
    ::mlir::Operation *getSource() { return &getBody().front().front(); }
  }];
}

class Plan_StepOp<string mnemonic, list<string> methods = [],
                  list<Trait> traits = []>
    : Plan_Op<mnemonic, !listconcat(traits, [HasParent<"FunctionOp">,
          DeclareOpInterfaceMethods<StepOpInterface, methods>])>;

def Plan_KernelOp : Plan_StepOp<"kernel", [],
    [SingleBlockImplicitTerminator<"::plait::plan::YieldOp">]> {
  let summary = "A generated kernel";
  let description = [{
    `flops` and `traffic`, in bytes, are for predictions.

    Constraints:
    - (C1) the body is one `plan.cluster` of all of the block's arguments in order,
      whose results it yields.
    - (C2) there is an input for each argument and an output for each result, of
      as many bytes.
    - (C3) flops and traffic are 0 or more.

    Example:
    ```mlir
    builtin.module {
      plan.function @forward_0 slots ["x", "workspace"] bytes [64, 64] {
        plan.kernel [#plan.memory<slot 0, 0, 32>] -> [#plan.memory<slot 1, 0, 32>] flops 8 traffic 64 {
        ^bb0(%x: tensor<2x4xf32>):
          %y = plan.cluster(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32> {
          ^bb0(%a: tensor<2x4xf32>):
            %s = nn.add %a, %a : tensor<2x4xf32>
            plan.yield %s : tensor<2x4xf32>
          }
          plan.yield %y : tensor<2x4xf32>
        }
      }
    }
    ```
  }];
  let arguments = (ins Plan_MemoryArray:$inputs, Plan_MemoryArray:$outputs,
                       I64Attr:$flops, I64Attr:$traffic);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $inputs `->` $outputs `flops` $flops `traffic` $traffic
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::plait::plan::ClusterOp getCluster();
  }];
}

def Plan_GemmOp : Plan_StepOp<"gemm", ["getMatrixFlops"]> {
  let summary = "GEMMs, by a library";
  let description = [{
    C[batch][m][n] = sum over k of A[batch][m][k] · B[batch][k][n]. Strides are in
    elements: those of rows, columns and each batch dimension; C's columns lie side
    by side, so that it has none for them. `accumulate` says what becomes of C's old
    content, `epilogue` what the library does to the result.

    Constraints:
    - (C1) sizes are 1 or more and strides 0 or more, one for each dimension.
    - (C2) of the strides of A's rows and columns one is 1, and so with B.
    - (C3) each operand has exactly the bytes from the first to the last element.
    - (C4) the elements are f32 or bf16, C's f32 or as the others'.
    - (C5) an epilogue has the operands that it needs and no others; then there is
      no batch, and C is overwritten.

    Example:
    ```mlir
    plan.function @forward_0 slots ["x", "workspace"] bytes [64, 64] {
      plan.gemm m 2 n 4 k 3 of bf16 a <slot 0, 0, 12> strides [3, 1] b <@"w compute", 0, 24> strides [1, 3] c <slot 1, 0, 32> strides [4] of f32 accumulate add_unless_first
    }
    ```
  }];
  let arguments = (ins I64Attr:$m, I64Attr:$n, I64Attr:$k,
                       OptionalAttr<DenseI64ArrayAttr>:$batch, TypeAttr:$type,
                       Plan_MemoryAttr:$a, DenseI64ArrayAttr:$a_strides,
                       Plan_MemoryAttr:$b, DenseI64ArrayAttr:$b_strides,
                       Plan_MemoryAttr:$c, DenseI64ArrayAttr:$c_strides,
                       TypeAttr:$c_type,
                       DefaultValuedAttr<Plan_AccumulateAttr,
                         "::plait::plan::Accumulate::Overwrite">:$accumulate,
                       DefaultValuedAttr<Plan_EpilogueAttr,
                         "::plait::plan::Epilogue::None">:$epilogue,
                       OptionalAttr<Plan_MemoryAttr>:$bias,
                       OptionalAttr<Plan_MemoryAttr>:$gelu_input);
  let assemblyFormat = [{
    `m` $m `n` $n `k` $k (`batch` $batch^)? `of` $type
    `a` $a `strides` $a_strides `b` $b `strides` $b_strides
    `c` $c `strides` $c_strides `of` $c_type (`accumulate` $accumulate^)?
    (`epilogue` $epilogue^)? (`bias` $bias^)? (`gelu_input` $gelu_input^)?
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Of the batch dimensions, outermost first.
    ::llvm::ArrayRef<int64_t> getBatchSizes() {
      return getBatch().value_or(::llvm::ArrayRef<int64_t>());
    }
    /// Bytes from the first to the last element of A, B and C.
    int64_t countABytes();
    int64_t countBBytes();
    int64_t countCBytes();
  }];
}

def Plan_GroupedGemmOp : Plan_StepOp<"grouped_gemm", ["getMatrixFlops"]> {
  let summary = "A GEMM of each row with the matrix that an id names, by a library";
  let description = [{
    Row r belongs to expert ids[r] - `begin`, or to none of the `experts` that the
    rank has. A is [rows / repeat, k]: row r takes row r / repeat of it. The experts'
    matrices are [experts, k, n] or, `transposed`, [experts, n, k]. They are B, and
    C is [rows, n], of zeros for a row of none; or, with `makes_matrices`, they are C,
    the sums over their rows of A's times B's, which is [rows, n]. All is row-major.
    `limit`, if not 0, is the number of all experts.

    Constraints:
    - (C1) sizes are 1 or more, and `repeat` divides the rows.
    - (C2) each tensor has the bytes of its shape.
    - (C3) the elements are f32 or bf16, C's f32 or as the others'.
    - (C4) `limit` is 0 or more, and `begin` in the order of its dimension.

    Example:
    ```mlir
    plan.function @forward_0 slots ["x", "workspace"] bytes [64, 128] {
      plan.grouped_gemm rows 4 repeat 2 experts 3 k 2 n 2 of f32 a <slot 0, 0, 16> b <@"w value", 0, 48> ids <slot 0, 16, 16> c <slot 1, 0, 32> of f32
    }
    ```
  }];
  let arguments = (ins I64Attr:$rows, I64Attr:$repeat, I64Attr:$experts,
                       I64Attr:$k, I64Attr:$n, UnitAttr:$transposed,
                       UnitAttr:$makes_matrices, TypeAttr:$type,
                       Plan_MemoryAttr:$a, Plan_MemoryAttr:$b,
                       Plan_MemoryAttr:$ids, Plan_MemoryAttr:$c,
                       TypeAttr:$c_type,
                       DefaultValuedAttr<Plan_AccumulateAttr,
                         "::plait::plan::Accumulate::Overwrite">:$accumulate,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       DefaultValuedAttr<I64Attr, "0">:$limit);
  let assemblyFormat = [{
    `rows` $rows `repeat` $repeat `experts` $experts `k` $k `n` $n
    (`transposed` $transposed^)? (`makes_matrices` $makes_matrices^)? `of` $type
    `a` $a `b` $b `ids` $ids `c` $c `of` $c_type (`accumulate` $accumulate^)?
    (`begin` $begin^)? (`limit` $limit^)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The elements of A, B, the ids and C.
    ::std::array<int64_t, 4> countElements();
  }];
}

def Plan_AttentionOp : Plan_StepOp<"attention"> {
  let summary = "Attention or its gradients, by a library";
  let description = [{
    Tensors are row-major [batch, position, head, element]; `stats` is f32 [batch,
    head, query]. The score is that of `nn.attention`, and with `starts`, int32
    [batch, query], a query sees none before the position there. `begin` is the position
    of the rank's first query, or where it lies if queries are in `zigzag` order;
    `group_begin` its first key head, for dropout.

    Constraints:
    - (C1) sizes are 1 or more, and `heads` is a multiple of `kv_heads`; the window
      is from 1 to below the keys.
    - (C2) `gradients`, of which there are none or four, are those of `out`, q, k
      and v.
    - (C3) each tensor has the bytes of its shape.
    - (C4) the elements are f32 or bf16.
    - (C5) dropout's keys, `probability` and `site` come together.
    - (C6) with `zigzag`, `begin` is in a dimension of as many elements as there are
      keys; `group_begin` has none.
    - (C7) `bidirectional` attention has no `starts`.
    - (C8) forward attention alone has `sinks`, f32 [head].

    Example:
    ```mlir
    plan.function @forward_0 slots ["workspace"] bytes [1024] {
      plan.attention batch 1 heads 2 kv_heads 1 queries 4 keys 4 head_size 8 of bf16 q <slot 0, 0, 128> k <slot 0, 128, 64> v <slot 0, 192, 64> out <slot 0, 256, 128> stats <slot 0, 384, 32> scale 5.000000e-01
    }
    ```
  }];
  let arguments = (ins I64Attr:$batch, I64Attr:$heads, I64Attr:$kv_heads,
                       I64Attr:$queries, I64Attr:$keys, I64Attr:$head_size,
                       TypeAttr:$type, Plan_MemoryAttr:$q, Plan_MemoryAttr:$k,
                       Plan_MemoryAttr:$v, Plan_MemoryAttr:$out,
                       Plan_MemoryAttr:$stats, NN_ScoreAttr:$score,
                       OptionalAttr<NN_BeginAttr>:$begin,
                       OptionalAttr<Plan_MemoryArray>:$gradients,
                       OptionalAttr<Plan_MemoryAttr>:$starts,
                       OptionalAttr<Plan_MemoryAttr>:$sinks,
                       OptionalAttr<Plan_MemoryAttr>:$dropout_keys,
                       OptionalAttr<F64Attr>:$probability,
                       OptionalAttr<I64Attr>:$site,
                       OptionalAttr<NN_BeginAttr>:$group_begin,
                       UnitAttr:$deterministic);
  let assemblyFormat = [{
    `batch` $batch `heads` $heads `kv_heads` $kv_heads `queries` $queries
    `keys` $keys `head_size` $head_size `of` $type `q` $q `k` $k `v` $v
    `out` $out `stats` $stats custom<Score>($score) (`begin` $begin^)?
    (`gradients` $gradients^)? (`starts` $starts^)? (`sinks` $sinks^)?
    (`dropout` $dropout_keys^ `probability` $probability `site` $site)?
    (`group_begin` $group_begin^)? (`deterministic` $deterministic^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_CollectiveOp : Plan_StepOp<"collective", ["getStream", "getSent"]> {
  let summary = "What the ranks along one mesh axis do together";
  let description = [{
    The tensor is [outer, blocks, middle, chunk] elements, with one block a rank, as
    for the plan file's CollectiveStep. `members`, if given, are the indices along the
    axis that take part. With `rows` only those rows move, of `width` elements, that the
    ids (`choices` a row) have some expert of the receiving or sending rank for.

    Constraints:
    - (C1) the axis is one of the mesh.
    - (C2) sizes are 1 or more; only an all_to_all has a middle above 1 or
      `splits_inner`.
    - (C3) reductions are of f32 or bf16, and say how values combine; no others do.
    - (C4) input and output have the bytes of what a rank brings and gets.
    - (C5) `members` are ascending indices of the axis.
    - (C6) only an all_reduce works in place.
    - (C7) an all_gather or reduce_scatter of all ranks along an axis, with outer 1, may have
      `rows`: whole ones in a block, with 1 or more choices and experts, of a
      reduce_scatter 1 choice; the ids have 4 bytes for each choice of all blocks.

    Example:
    ```mlir
    plan.function @reduce_0 slots ["workspace"] bytes [64] {
      plan.collective all_reduce reduction sum on "tp" of f32 outer 1 middle 1 chunk 16 <slot 0, 0, 64> -> <slot 0, 0, 64>
    }
    ```
  }];
  let arguments = (ins Dist_CollectiveKindAttr:$kind,
                       OptionalAttr<Dist_ReductionAttr>:$reduction,
                       StrAttr:$axis, OptionalAttr<DenseI64ArrayAttr>:$members,
                       TypeAttr:$type, I64Attr:$outer, I64Attr:$middle,
                       I64Attr:$chunk, UnitAttr:$splits_inner,
                       Plan_MemoryAttr:$input, Plan_MemoryAttr:$output,
                       OptionalAttr<Plan_MemoryAttr>:$ids,
                       DefaultValuedAttr<I64Attr, "1">:$width,
                       DefaultValuedAttr<I64Attr, "1">:$choices,
                       DefaultValuedAttr<I64Attr, "1">:$experts);
  let assemblyFormat = [{
    $kind (`reduction` $reduction^)? `on` $axis (`members` $members^)? `of` $type
    `outer` $outer `middle` $middle `chunk` $chunk
    (`splits_inner` $splits_inner^)? (`rows` $ids^)? (`width` $width^)?
    (`choices` $choices^)? (`experts` $experts^)? $input `->` $output attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isInPlace() { return getInput() == getOutput(); }
    /// How many ranks take part, in the mesh of the module around it.
    int64_t countRanks();
  }];
}

def Plan_CopyOp : Plan_StepOp<"copy", ["getStream"]> {
  let summary = "Bytes on their way to the host's memory, or back";
  let description = [{
    The only kind of step that uses another place than the arena: `to_host` writes
    there, `from_host` reads there, and the other end is in the arena (verified where
    buffers are known: `plan.program`, C6). Either way copies run beside what
    computes, on a stream of their own.

    Constraints:
    - (C1) source and target have as many bytes.

    Example:
    ```mlir
    plan.function @optimizer_0 slots ["workspace"] bytes [4096] {
      plan.copy from_host <@"w moment1", 0, 4096> -> <slot 0, 0, 4096>
    }
    ```
  }];
  let arguments = (ins Plan_CopyKindAttr:$kind, Plan_MemoryAttr:$source,
                       Plan_MemoryAttr:$target);
  let assemblyFormat = "$kind $source `->` $target attr-dict";
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_PLAN_IR_PLANSTEPOPS_TD
