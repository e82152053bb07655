//===- PipeOps.td - Pipeline schedules ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD
#define PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD

include "mlir/IR/SymbolInterfaces.td"
include "plait/Dialect/Pipe/IR/PipeBase.td"

class Pipe_Op<string mnemonic, list<Trait> traits = []>
    : Op<PipeDialect, mnemonic, traits>;

def Pipe_ScheduleOp : Pipe_Op<"schedule", [Symbol]> {
  let summary = "What every rank of a pipeline does, in order";
  let description = [{
    The `#pipe.actions` of each rank, written without the name of the attribute.

    Constraints:
    - (C1) there is one list for each rank; its actions name microbatches and
      chunks that there are, and its messages go to other ranks.
    - (C2) the schedule is sound: every action once, dependencies respected, no
      deadlock.

    `kind` is a name for reports; a schedule written by hand may be called
    anything. One that is in the module before phase `stage` says where virtual
    stages lie, whether backward passes are split, and the order; `schedule` and
    `chunks` of the configuration then say nothing.

    Example:
    ```mlir
    pipe.schedule @schedule "1f1b" on <looped, ranks = 1, chunks = 1> microbatches 2 [
      "F0 B0 F1 B1 REDUCE OPTIMIZER"]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$kind,
                       Pipe_PlacementAttr:$placement, I64Attr:$microbatches,
                       TypedArrayAttrBase<Pipe_ActionsAttr,
                                          "the actions of each rank">:$actions);
  let assemblyFormat = [{
    $sym_name $kind `on` $placement `microbatches` $microbatches
    custom<ActionLists>($actions) attr-dict
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD
