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
    One list of actions per rank in the text form of plait/Schedule/Schedule.h:
    `F0` is the forward pass of microbatch 0, `B0` its backward pass, `1F0` the
    forward pass of the rank's chunk 1, `SEND_F0` and so on the transfers.

    Constraints:
    - (C1) the lists parse, one for each rank.
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
                       StrArrayAttr:$actions);
  let assemblyFormat = [{
    $sym_name $kind `on` $placement `microbatches` $microbatches $actions
    attr-dict
  }];
  let hasVerifier = 1;
}

#endif // PLAIT_DIALECT_PIPE_IR_PIPEOPS_TD
