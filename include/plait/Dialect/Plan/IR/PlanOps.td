//===- PlanOps.td - Programs, actions and buffers ----------*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANOPS_TD
#define PLAIT_DIALECT_PLAN_IR_PLANOPS_TD

include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "plait/Dialect/Plan/IR/PlanBase.td"
include "plait/Dialect/Plan/IR/PlanStepOps.td"

//===----------------------------------------------------------------------===//
// Clusters
//===----------------------------------------------------------------------===//

def Plan_ClusterOp : Plan_Op<"cluster", [Pure, IsolatedFromAbove,
    SingleBlockImplicitTerminator<"::plait::plan::YieldOp">]> {
  let summary = "What one generated kernel computes";
  let description = [{
    The body holds fusable nn ops over one iteration space. Its results are the
    tensors that the kernel writes. `accumulate`, if given, says for each result
    what happens to what was in its buffer before.

    Constraints:
    - (C1) block arguments have the types of the operands, and the terminator's
      operands those of the results.
    - (C2) every op of the body is fusable.
    - (C3) `accumulate` has an entry (of `plan::Accumulate`) per result.

    Example:
    ```mlir
    %0 = plan.cluster(%a, %b) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> {
    ^bb0(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>):
      %s = nn.add %x, %y : tensor<2x4xf32>
      plan.yield %s : tensor<2x4xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<AnyStaticShapeTensor>:$inputs,
                       OptionalAttr<DenseI32ArrayAttr>:$accumulate);
  let results = (outs Variadic<AnyStaticShapeTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `(` $inputs `)` (`accumulate` $accumulate^)? attr-dict-with-keyword `:`
    functional-type(operands, results) $body
  }];
  let hasVerifier = 1;
}

def Plan_YieldOp : Plan_Op<"yield", [Pure, Terminator, ReturnLike]> {
  let summary = "The results of a cluster";
  let description = "Ends the body of `plan.cluster`.";
  let arguments = (ins Variadic<AnyStaticShapeTensor>:$results);
  let assemblyFormat = "($results^ `:` type($results))? attr-dict";
  let builders = [OpBuilder<(ins), [{
    build($_builder, $_state, ::mlir::ValueRange());
  }]>];
}

//===----------------------------------------------------------------------===//
// Host memory
//===----------------------------------------------------------------------===//

def Plan_MoveOp : Plan_Op<"move", [Pure, SameOperandsAndResultType]> {
  let summary = "The same tensor in another memory";
  let description = [{
    Value form of `plan.copy`: the operand is in the arena and the result in the
    host's memory, or the other way round. What a move takes from the host, or
    brings there, no other op uses but the one that says whose memory it is:
    `nn.read`, `nn.write`, or a port of the function.

    Constraints:
    - (C1) what lies in the other place is used by moves from there, and where it is
      stored or returned.

    Example: `%1 = plan.move from_host %0 : tensor<4x8xf32>`.
  }];
  let arguments = (ins Plan_CopyKindAttr:$kind, AnyStaticShapeTensor:$input);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$kind $input attr-dict `:` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The end of it that lies in the other place.
    ::mlir::Value getOffloaded();
  }];
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

def Plan_ProgramOp : Plan_Op<"program", [Symbol, NoTerminator,
    GraphRegionNoTerminator, SingleBlock]> {
  let summary = "The step of every rank with one index along the pipeline";
  let description = [{
    Its buffers, which share one arena of `bytes`, and its actions in order.
    Buffers that are `host` lie in `host_bytes` of the host's memory instead;
    other places have their own names (plait/Support/MemoryPlaces.h).

    Constraints:
    - (C1) the body holds buffers and actions only.
    - (C2) every buffer lies inside the arena, or inside its other place.
    - (C3) buffers that are live at the same time do not overlap.
    - (C4) lifetimes and bindings refer to actions and buffers that exist.
    - (C5) no two buffers have one name.
    - (C6) `plan.copy` alone uses what is bound to other places than the arena, and
      one end of each is there (verified with the steps, in phase `steps`).

    Example:
    ```mlir
    plan.program @rank0 rank 0 bytes 128 {
      plan.buffer @x activations at 0 bytes 64 live [0, 1]
      plan.buffer @y activations at 64 bytes 64 live [0, 0]
      plan.action forward stage 0 microbatch 0 call @forward_0 [@x, @y]
      plan.action backward stage 0 microbatch 0 call @backward_0 [@x]
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$rank, I64Attr:$bytes,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$other_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `rank` $rank `bytes` $bytes (custom<OtherBytes>($other_bytes)^)?
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The bytes of a place: of the arena `bytes`, of the others `other_bytes`,
    /// by number.
    int64_t getPlaceBytes(MemoryPlace place);
  }];
}

def Plan_BufferOp : Plan_Op<"buffer", [HasParent<"ProgramOp">]> {
  let summary = "A part of a rank's memory over a part of the step";
  let description = [{
    Of the arena or, with `host`, of the host's memory, or with the name of another
    place, there. Live from action `first` to
    action `last`, both included.

    Constraints:
    - (C1) offset and size are not negative, and the offset is a multiple of 64.
    - (C2) first is at most last.
    - (C3) the place is one that there is.

    Example: `plan.buffer @x activations at 0 bytes 64 live [0, 1]`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Plan_CategoryAttr:$category,
                       I64Attr:$offset, I64Attr:$bytes, I64Attr:$first,
                       I64Attr:$last,
                       DefaultValuedAttr<I64Attr, "0">:$place);
  let assemblyFormat = [{
    $sym_name $category (custom<Place>($place)^)? `at` $offset `bytes` $bytes `live` ` ` `[` $first `,` $last
    `]` attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    MemoryPlace getMemoryPlace() { return MemoryPlace(getPlace()); }
    /// Its first byte in the space that all places share
    /// (plait/Support/MemoryPlaces.h).
    int64_t getAddress() {
      return int64_t(getOffset() + getBegin(getMemoryPlace()));
    }
  }];
}

def Plan_ActionOp : Plan_Op<"action", [HasParent<"ProgramOp">]> {
  let summary = "One entry of a rank's list";
  let description = [{
    A call runs a function with buffers bound to its slots: for one virtual stage
    and microbatch, or (reduce, optimizer) for the end of the step. A transfer
    moves one buffer from or to the rank `peer`: tensor `tensor` of what the
    virtual stage `stage` sends to the next one, or `backward` to the one before.

    Constraints:
    - (C1) `kind` is not joint.
    - (C2) a call names a function and nothing of a transfer; a transfer names a
      peer, a tensor and one buffer, and no function.
    - (C3) all but gather, reduce and optimizer, which have neither, have a stage and a
      microbatch; no number is negative.

    Example: `plan.action send stage 2 microbatch 3 peer 1 tensor 0 [@y]`.
  }];
  let arguments = (ins Pipe_ActionKindAttr:$kind, OptionalAttr<I64Attr>:$stage,
                       OptionalAttr<I64Attr>:$microbatch,
                       OptionalAttr<FlatSymbolRefAttr>:$callee,
                       OptionalAttr<I64Attr>:$peer, UnitAttr:$backward,
                       OptionalAttr<I64Attr>:$tensor,
                       TypedArrayAttrBase<FlatSymbolRefAttr, "buffers">:$buffers);
  let assemblyFormat = [{
    $kind (`stage` $stage^)? (`microbatch` $microbatch^)? (`call` $callee^)?
    (`peer` $peer^)? (`backward` $backward^)? (`tensor` $tensor^)? $buffers
    attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isTransfer() {
      return getKind() == pipe::ActionKind::Send ||
             getKind() == pipe::ActionKind::Recv ||
             getKind() == pipe::ActionKind::WaitSend;
    }
  }];
}

#endif // PLAIT_DIALECT_PLAN_IR_PLANOPS_TD
