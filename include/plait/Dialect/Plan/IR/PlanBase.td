//===- PlanBase.td - The plan dialect and its attributes ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANBASE_TD
#define PLAIT_DIALECT_PLAN_IR_PLANBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "plait/Dialect/Dist/IR/DistBase.td"
include "plait/Dialect/NN/IR/NNBase.td"
include "plait/Dialect/Pipe/IR/PipeBase.td"
include "plait/Dialect/Plan/IR/PlanEnums.td"

def PlanDialect : Dialect {
  let name = "plan";
  let summary = "What a rank executes";
  let description = [{
    The last forms before the plan file. A `plan.program` lists the buffers of one
    rank's arena and the actions of its step. What an action calls is first a
    `func.func` in value form, on one rank's local tensors: `plan.cluster` groups
    what one generated kernel does, and the attribute `plan.places` on an op says
    where its results lie. Then it is a `plan.function`, a list of *steps*: ops
    without values, which name the memory that they read and write, and each of
    which is one step of the plan file. Passes that reorder or cut what is executed
    ask steps by `StepOpInterface`.
  }];
  let cppNamespace = "::plait::plan";
  let dependentDialects = ["::plait::dist::DistDialect",
                           "::plait::nn::NNDialect",
                           "::plait::pipe::PipeDialect"];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
}

class Plan_Op<string mnemonic, list<Trait> traits = []>
    : Op<PlanDialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Plan_PlaceAttr : AttrDef<PlanDialect, "Place"> {
  let mnemonic = "place";
  let summary = "Where a value lies";
  let description = [{
    `offset` bytes into what the action binds to a slot of the function (its
    workspace is a slot too), or into a buffer of the program. `slot` is -1 where
    there is a buffer.

    Constraints:
    - (C1) offset is 0 or more, and below 2⁴⁸.
    - (C2) it is in a slot, from 0 on, or in a buffer.

    Example: `#plan.place<slot 2, 4096>`, or in a buffer
    `#plan.place<@"w gradient", 0>`.
  }];
  let parameters = (ins "int64_t":$slot, "::mlir::FlatSymbolRefAttr":$buffer,
                        "int64_t":$offset);
  let assemblyFormat = "`<` custom<SlotOrBuffer>($slot, $buffer) `,` $offset `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isInSlot() const { return getSlot() >= 0; }
  }];
}

def Plan_MemoryAttr : AttrDef<PlanDialect, "Memory"> {
  let mnemonic = "memory";
  let summary = "The bytes that a step reads or writes";
  let description = [{
    `bytes` bytes from `offset` on: of what the action binds to a slot of the
    function, or of a buffer of the program. `slot` is -1 where there is a buffer.

    Constraints:
    - (C1) offset and bytes are 0 or more, and below 2⁴⁸.
    - (C2) it is in a slot, from 0 on, or in a buffer.

    Example: `#plan.memory<slot 2, 4096, 16384>`, or of a buffer
    `#plan.memory<@"pack0.0 gradient", 0, 65536>`.
  }];
  let parameters = (ins "int64_t":$slot, "::mlir::FlatSymbolRefAttr":$buffer,
                        "int64_t":$offset, "int64_t":$bytes);
  let assemblyFormat = [{
    `<` custom<SlotOrBuffer>($slot, $buffer) `,` $offset `,` $bytes `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The first byte behind it.
    int64_t getEnd() const { return getOffset() + getBytes(); }
    /// `bytes` bytes that begin `offset` bytes further on.
    MemoryAttr getPart(int64_t offset, int64_t bytes) const {
      return get(getContext(), getSlot(), getBuffer(), getOffset() + offset,
                 bytes);
    }
  }];
}

def Plan_CategoryAttr : EnumAttr<PlanDialect, Plan_CategoryEnum, "category"> {
  let assemblyFormat = "$value";
}

def Plan_AccumulateAttr
    : EnumAttr<PlanDialect, Plan_AccumulateEnum, "accumulate"> {
  let assemblyFormat = "$value";
}

def Plan_CopyKindAttr
    : EnumAttr<PlanDialect, Plan_CopyKindEnum, "copy_kind"> {
  let assemblyFormat = "$value";
}

def Plan_EpilogueAttr : EnumAttr<PlanDialect, Plan_EpilogueEnum, "epilogue"> {
  let assemblyFormat = "$value";
}

#endif // PLAIT_DIALECT_PLAN_IR_PLANBASE_TD
