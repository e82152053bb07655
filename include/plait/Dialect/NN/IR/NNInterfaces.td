//===- NNInterfaces.td - Interfaces of a step's ops --------*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNINTERFACES_TD
#define PLAIT_DIALECT_NN_IR_NNINTERFACES_TD

include "mlir/IR/OpBase.td"

def NN_MemoryOpInterface : OpInterface<"MemoryOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op that computes nothing: it says which memory of a step its result is, or
    which its operand goes to. No step of a plan is made of it.
  }];
  let methods = [
    InterfaceMethod<"The memory.", "::plait::nn::StepMemory", "getMemory", (ins)>,
  ];
}

def NN_DropoutOpInterface : OpInterface<"DropoutOpInterface"> {
  let cppNamespace = "::plait";
  let description = "An op that may drop elements at random while it trains.";
  let methods = [
    InterfaceMethod<"Makes it compute the same without; may erase it.",
      "void", "removeDropout", (ins)>,
  ];
}

def NN_SlotOpInterface : OpInterface<"SlotOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op that reads, replaces or adds to a slot of a parameter or a pack, or to
    an accumulator: all that a step remembers goes through such ops.
  }];
  let methods = [
    InterfaceMethod<"What the op does to the slot.",
      "::plait::nn::SlotAccess", "getAccess", (ins)>,
    InterfaceMethod<"The parameter, pack or accumulator.",
      "::mlir::FlatSymbolRefAttr", "getSymbolAttr", (ins)>,
    InterfaceMethod<"Its slot.", "::plait::nn::Slot", "getSlot", (ins)>,
    InterfaceMethod<"Has it access another; the type has to follow.",
      "void", "setSlot", (ins "::plait::nn::Slot":$slot)>,
    InterfaceMethod<"What was read, or what is stored.",
      "::mlir::TypedValue<::mlir::RankedTensorType>", "getTensor", (ins)>,
  ];
  let extraSharedClassDeclaration = [{
    ::llvm::StringRef getSymbol() { return $_op.getSymbolAttr().getValue(); }
  }];
}

def NN_SelectionOpInterface : OpInterface<"SelectionOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    An op that takes entries of a tensor which ids name. Who asks how many ids
    there may be need not know which op it is.
  }];
  let methods = [
    InterfaceMethod<"What it selects, and from what.",
      "::plait::nn::Selection", "getSelection", (ins)>,
  ];
}

def NN_GroupedOpInterface : OpInterface<"GroupedOpInterface"> {
  let cppNamespace = "::plait";
  let description = [{
    A contraction of each row with the matrix that an id of the row names: that of
    one of several experts.
  }];
  let methods = [
    InterfaceMethod<"The ids, one for each row.",
      "::mlir::TypedValue<::mlir::RankedTensorType>", "getIds", (ins)>,
    InterfaceMethod<"The first expert of the rank; none: it has all.",
      "::std::optional<::plait::nn::BeginAttr>", "getBegin", (ins)>,
    InterfaceMethod<"Whether the matrices are the result.",
      "bool", "makesMatrices", (ins)>,
  ];
}

#endif // PLAIT_DIALECT_NN_IR_NNINTERFACES_TD
