//===- PipeOps.td - Pipeline stages and schedules ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD
#define PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"

def PipeDialect : Dialect {
  let name = "pipe";
  let summary = "Pipeline stages and schedules";
  let description = [{
    The discardable attribute `pipe.stage = i` (i64) on an op or a function names
    the stage that it belongs to, and `pipe.phase` on a function, which then has
    a stage too, what it does: "forward", "backward" (or "joint": both, before
    they are split), "reduce" or "optimizer". A schedule is data: for each rank
    the ordered list of its actions.
  }];
  let cppNamespace = "::plait::pipe";
  let hasOperationAttrVerify = 1;
}

class Pipe_Op<string mnemonic, list<Trait> traits = []>
    : Op<PipeDialect, mnemonic, traits>;

def Pipe_ScheduleOp : Pipe_Op<"schedule", [Symbol]> {
  let summary = "What every rank of a pipeline does, in order";
  let description = [{
    One list of actions per stage in the text form of plait/Schedule/Schedule.h:
    `F0` is the forward pass of microbatch 0, `B0` its backward pass, `SEND_F0` and
    so on the transfers.

    Constraints:
    - (C1) the lists parse, one for each stage.
    - (C2) the schedule is sound: every action once, dependencies respected, no
      deadlock.

    `kind` is a name for reports; a schedule written by hand may be called
    anything.

    Example:
    ```mlir
    pipe.schedule @schedule "1f1b" stages 1 microbatches 2 ["F0 B0 F1 B1 REDUCE OPTIMIZER"]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$kind, I64Attr:$stages,
                       I64Attr:$microbatches, StrArrayAttr:$actions);
  let assemblyFormat = [{
    $sym_name $kind `stages` $stages `microbatches` $microbatches $actions
    attr-dict
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD
