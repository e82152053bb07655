//===- PlanOps.td - What a rank executes ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANOPS_TD
#define PLAIT_DIALECT_PLAN_IR_PLANOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def PlanDialect : Dialect {
  let name = "plan";
  let summary = "What a rank executes";
  let description = [{
    The last form before the plan file. Computation is still in value form, in
    functions of one rank's local tensors; `plan.cluster` groups what one
    generated kernel does, and the attribute `plan.places` on an op says where
    its results lie in memory. A `plan.program` lists the buffers of one rank's
    arena and the actions of its step.
  }];
  let cppNamespace = "::plait::plan";
  let useDefaultAttributePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Plan_PlaceAttr : AttrDef<PlanDialect, "Place"> {
  let mnemonic = "place";
  let summary = "Where a value lies";
  let description = [{
    `offset` bytes into a buffer: one that the action binds to a slot of the
    function ("slot 2"; the function's workspace is a slot too), or one of the
    program ("w gradient").

    Example: `#plan.place<"slot 2", 4096>`.
  }];
  let parameters = (ins "::mlir::StringAttr":$buffer, "int64_t":$offset);
  let assemblyFormat = "`<` $buffer `,` $offset `>`";
}

def Plan_AccumulateEnum : I32EnumAttr<"Accumulate", "what becomes of the old value", [
    I32EnumAttrCase<"Overwrite", 0, "overwrite">,
    I32EnumAttrCase<"Add", 1, "add">,
    I32EnumAttrCase<"AddUnlessFirst", 2, "add_unless_first">]> {
  let cppNamespace = "::plait::plan";
}

def Plan_CategoryEnum : I32EnumAttr<"Category", "what memory is used for", [
    I32EnumAttrCase<"Parameters", 0, "parameters">,
    I32EnumAttrCase<"Gradients", 1, "gradients">,
    I32EnumAttrCase<"Optimizer", 2, "optimizer">,
    I32EnumAttrCase<"Activations", 3, "activations">,
    I32EnumAttrCase<"Transfers", 4, "transfers">,
    I32EnumAttrCase<"Workspace", 5, "workspace">,
    I32EnumAttrCase<"Inputs", 6, "inputs">,
    I32EnumAttrCase<"Constants", 7, "constants">]> {
  let cppNamespace = "::plait::plan";
  let genSpecializedAttr = 0;
}
def Plan_CategoryAttr : EnumAttr<PlanDialect, Plan_CategoryEnum, "category"> {
  let assemblyFormat = "$value";
}

//===----------------------------------------------------------------------===//
// Clusters
//===----------------------------------------------------------------------===//

class Plan_Op<string mnemonic, list<Trait> traits = []>
    : Op<PlanDialect, mnemonic, traits>;

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
// Programs
//===----------------------------------------------------------------------===//

def Plan_ProgramOp : Plan_Op<"program", [Symbol, NoTerminator,
    GraphRegionNoTerminator, SingleBlock]> {
  let summary = "The step of every rank of one stage";
  let description = [{
    Its buffers, which share one arena of `bytes`, and its actions in order.
    `in_flight` is the largest number of microbatches whose activations are held
    at once.

    Constraints:
    - (C1) the body holds buffers and actions only.
    - (C2) every buffer lies inside the arena.
    - (C3) buffers that are live at the same time do not overlap.
    - (C4) lifetimes and bindings refer to actions and buffers that exist.
    - (C5) no two buffers have one name.

    Example:
    ```mlir
    plan.program @stage0 stage 0 bytes 128 in_flight 1 {
      plan.buffer @x activations at 0 bytes 64 live [0, 1]
      plan.buffer @y activations at 64 bytes 64 live [0, 0]
      plan.action "forward" chunk 0 microbatch 0 call @forward_0 [@x, @y]
      plan.action "backward" chunk 0 microbatch 0 call @backward_0 [@x]
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$stage, I64Attr:$bytes,
                       I64Attr:$in_flight);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `stage` $stage `bytes` $bytes `in_flight` $in_flight
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
}

def Plan_BufferOp : Plan_Op<"buffer", [HasParent<"ProgramOp">]> {
  let summary = "A part of the arena over a part of the step";
  let description = [{
    Live from action `first` to action `last`, both included.

    Constraints:
    - (C1) offset and size are not negative, and the offset is a multiple of 64.
    - (C2) first is at most last.

    Example: `plan.buffer @x activations at 0 bytes 64 live [0, 1]`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Plan_CategoryAttr:$category,
                       I64Attr:$offset, I64Attr:$bytes, I64Attr:$first,
                       I64Attr:$last);
  let assemblyFormat = [{
    $sym_name $category `at` $offset `bytes` $bytes `live` ` ` `[` $first `,` $last
    `]` attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_ActionOp : Plan_Op<"action", [HasParent<"ProgramOp">]> {
  let summary = "One entry of a rank's list";
  let description = [{
    `kind` is forward, backward, backward_input, backward_weight, reduce or
    optimizer, which call a function with buffers bound to its slots; or send,
    recv or wait_send, which move one buffer from or to stage `peer`.

    Constraints:
    - (C1) `kind` is one of these.
    - (C2) a call names a function, a transfer a peer and one buffer.

    Example: `plan.action "send" chunk 0 microbatch 3 peer 1 [@y]`.
  }];
  let arguments = (ins StrAttr:$kind, I64Attr:$chunk, I64Attr:$microbatch,
                       OptionalAttr<FlatSymbolRefAttr>:$callee,
                       OptionalAttr<I64Attr>:$peer,
                       OptionalAttr<BoolAttr>:$backward,
                       OptionalAttr<I64Attr>:$tensor,
                       TypedArrayAttrBase<FlatSymbolRefAttr, "buffers">:$buffers);
  let assemblyFormat = [{
    $kind `chunk` $chunk `microbatch` $microbatch (`call` $callee^)?
    (`peer` $peer^)? (`backward` $backward^)? (`tensor` $tensor^)? $buffers
    attr-dict
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_PLAN_IR_PLANOPS_TD
