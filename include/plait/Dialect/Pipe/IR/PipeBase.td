//===- PipeBase.td - Attributes of the pipe dialect ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PIPE_IR_PIPEBASE_TD
#define PLAIT_DIALECT_PIPE_IR_PIPEBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def PipeDialect : Dialect {
  let name = "pipe";
  let summary = "Pipeline stages and schedules";
  let description = [{
    The layers of a model are cut into *virtual stages*, executed one after the
    other by the forward pass; a *placement* says which rank of the pipeline
    holds which of them; what a stage does is a set of *functions* whose
    arguments and results are *ports*; a *schedule* is data: for each rank the
    ordered list of its actions.

    Discardable attributes:
    - `pipe.stage = 3` (i64), on an op of `@loss`: its virtual stage.
    - `pipe.placement`, on the module: `#pipe.placement`. Without it the stages
      lie in line, one on each rank of the mesh axis "pp".
    - `pipe.function`, on a function: `#pipe.function`.
    - `pipe.port`, on the arguments and results of such a function: `#pipe.port`.

    Constraints on them:
    - (C1) each is of its type; a stage is 0 or more.
    - (C2) every argument and result of a function with `pipe.function` has a
      port, and only those do.
    - (C3) a function has the ports of its action, each at most once among the
      arguments and at most once among the results: forward takes inputs and
      gives outputs and residuals, a backward function takes any but gives only
      input gradients (and residuals for the weight gradients), gather, reduce
      and optimizer have none.
  }];
  let cppNamespace = "::plait::pipe";
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

// The values are those of schedule::ActionKind and of the plan file's
// ActionKind; Pipe.cpp and ProgramConverter.cpp assert it. A joint function is a
// forward and a backward one before they are split, and no action.
def Pipe_ActionKindEnum : I32EnumAttr<"ActionKind", "what a rank does", [
    I32EnumAttrCase<"Forward", 0, "forward">,
    I32EnumAttrCase<"Backward", 1, "backward">,
    I32EnumAttrCase<"BackwardInput", 2, "backward_input">,
    I32EnumAttrCase<"BackwardWeight", 3, "backward_weight">,
    I32EnumAttrCase<"Send", 4, "send">,
    I32EnumAttrCase<"Recv", 5, "recv">,
    I32EnumAttrCase<"WaitSend", 6, "wait_send">,
    I32EnumAttrCase<"Reduce", 7, "reduce">,
    I32EnumAttrCase<"Optimizer", 8, "optimizer">,
    I32EnumAttrCase<"Gather", 9, "gather">,
    I32EnumAttrCase<"Joint", 10, "joint">]> {
  let cppNamespace = "::plait::pipe";
  let genSpecializedAttr = 0;
}
def Pipe_ActionKindAttr : EnumAttr<PipeDialect, Pipe_ActionKindEnum, "action"> {
  let assemblyFormat = "$value";
}

def Pipe_PortKindEnum : I32EnumAttr<"PortKind", "what crosses a function's border", [
    I32EnumAttrCase<"Tokens", 0, "tokens">,
    I32EnumAttrCase<"Targets", 1, "targets">,
    I32EnumAttrCase<"Keys", 2, "keys">,
    I32EnumAttrCase<"Starts", 3, "starts">,
    I32EnumAttrCase<"Features", 4, "features">,
    I32EnumAttrCase<"Context", 5, "context">,
    I32EnumAttrCase<"Input", 6, "input">,
    I32EnumAttrCase<"Output", 7, "output">,
    I32EnumAttrCase<"InputGradient", 8, "input_gradient">,
    I32EnumAttrCase<"OutputGradient", 9, "output_gradient">,
    I32EnumAttrCase<"Residual", 10, "residual">]> {
  let cppNamespace = "::plait::pipe";
  let genSpecializedAttr = 0;
}

// The values are those of schedule::Placement.
def Pipe_ArrangementEnum : I32EnumAttr<"Arrangement", "how stages lie on ranks", [
    I32EnumAttrCase<"Looped", 0, "looped">,
    I32EnumAttrCase<"V", 1, "v">]> {
  let cppNamespace = "::plait::pipe";
  let genSpecializedAttr = 0;
}

class Pipe_Attr<string name, string attrMnemonic> : AttrDef<PipeDialect, name> {
  let mnemonic = attrMnemonic;
  let genVerifyDecl = 1;
}

def Pipe_FunctionAttr : Pipe_Attr<"Function", "function"> {
  let summary = "What a function does, and for whom";
  let description = [{
    `index` is a virtual stage; of gather, reduce and optimizer, which begin and
    end the step of all stages of a rank at once, that rank of the pipeline.

    Constraints:
    - (C1) the action is one that functions do: no transfer.
    - (C2) the index is 0 or more.

    Example: `#pipe.function<backward_input, 3>`.
  }];
  let parameters = (ins EnumParameter<Pipe_ActionKindEnum>:$action,
                        "int64_t":$index);
  let assemblyFormat = "`<` $action `,` $index `>`";
  let extraClassDeclaration = [{
    /// Whether `index` is a rank of the pipeline and not a virtual stage.
    bool isOfRank() const { return pipe::isOfRank(getAction()); }
  }];
}

def Pipe_PortAttr : Pipe_Attr<"Port", "port"> {
  let summary = "What an argument or a result of a stage's function is";
  let description = [{
    Ports of one stage and microbatch that are equal are one value. `tokens` and
    `targets` are the rows of a batch, `keys` the numbers of its rows that dropout
    draws from, `starts` where the document of each of its tokens begins.
    `features i` and `context i` are the numbers of float input `i` of the model,
    of each position or of each sequence. `output i` of a stage is `input i` of
    the next, `input_gradient i` of a stage `output_gradient i` of the one before.
    A `residual` is kept from one function of the stage to a later one.

    Constraints:
    - (C1) the index is 0 or more; of tokens, targets, keys and starts it is 0,
      and not written.

    Example: `#pipe.port<input 0>`, `#pipe.port<tokens>`.
  }];
  let parameters = (ins EnumParameter<Pipe_PortKindEnum>:$kind,
                        "int64_t":$index);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// Whether there is only one of its kind: tokens, targets, keys or starts.
    static bool isSingle(PortKind kind) { return kind <= PortKind::Starts; }
    bool isModelInput() const { return getKind() <= PortKind::Context; }
    /// Whether a port of that text is an input of the model.
    static bool namesModelInput(::llvm::StringRef text);
    /// "input 0", "tokens".
    std::string getText() const;
  }];
}

def Pipe_ActionsAttr : AttrDef<PipeDialect, "Actions"> {
  let mnemonic = "actions";
  let summary = "What a rank of a pipeline does, in order";
  let description = [{
    Actions by kind, chunk of the rank and microbatch, in the text form of
    plait/Schedule/Schedule.h: `F0` is the forward pass of microbatch 0, `B0` its
    backward pass, `1F0` the forward pass of the rank's chunk 1, `SEND_F0` and so
    on the transfers. The other rank of a message follows from the placement: it
    is neither written nor kept here.

    Example: `#pipe.actions<"F0 B0 REDUCE OPTIMIZER">`.
  }];
  let parameters = (ins ArrayRefParameter<"::plait::schedule::Action">:$actions);
  let hasCustomAssemblyFormat = 1;
}

def Pipe_PlacementAttr : Pipe_Attr<"Placement", "placement"> {
  let summary = "Which rank of a pipeline holds which virtual stage";
  let description = [{
    With `chunks` virtual stages on each of `ranks` ranks: looped, 3 ranks with 2
    chunks hold 0 1 2 | 0 1 2, in a V they hold 0 1 2 | 2 1 0. With one chunk both
    are the stages in line.

    Constraints:
    - (C1) ranks and chunks are at least 1, and their product at most 2^22.

    Example: `#pipe.placement<v, ranks = 4, chunks = 2>`.
  }];
  let parameters = (ins EnumParameter<Pipe_ArrangementEnum>:$arrangement,
                        "int64_t":$ranks, "int64_t":$chunks);
  let assemblyFormat = [{
    `<` $arrangement `,` `ranks` `=` $ranks `,` `chunks` `=` $chunks `>`
  }];
  let extraClassDeclaration = [{
    int64_t getStages() const { return getRanks() * getChunks(); }
    /// The rank that holds a virtual stage.
    int64_t getRank(int64_t stage) const;
    /// The same for the schedule library, with `microbatches` to order.
    schedule::Problem getProblem(int64_t microbatches) const;
  }];
}

#endif // PLAIT_DIALECT_PIPE_IR_PIPEBASE_TD
