//===- PlanEnums.td - Enumerations of the plan dialect ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a file of their own: what is generated of a file's enumerations has those
// of the files that it includes, too.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANENUMS_TD
#define PLAIT_DIALECT_PLAN_IR_PLANENUMS_TD

include "mlir/IR/EnumAttr.td"

def Plan_AccumulateEnum : I32EnumAttr<"Accumulate", "what becomes of the old value", [
    I32EnumAttrCase<"Overwrite", 0, "overwrite">,
    I32EnumAttrCase<"Add", 1, "add">,
    I32EnumAttrCase<"AddUnlessFirst", 2, "add_unless_first">]> {
  let cppNamespace = "::plait::plan";
  let genSpecializedAttr = 0;
}

def Plan_EpilogueEnum : I32EnumAttr<"Epilogue", "what a GEMM becomes in the same call", [
    I32EnumAttrCase<"None", 0, "none">,
    I32EnumAttrCase<"Bias", 1, "bias">,
    I32EnumAttrCase<"Gelu", 2, "gelu">,
    I32EnumAttrCase<"BiasGelu", 3, "bias_gelu">,
    I32EnumAttrCase<"GeluGradient", 4, "gelu_gradient">]> {
  let cppNamespace = "::plait::plan";
  let genSpecializedAttr = 0;
}

// Two for each place beside the arena, numbered as in MemoryPlaces.h.
def Plan_CopyKindEnum : I32EnumAttr<"CopyKind", "where bytes are copied", [
    I32EnumAttrCase<"ToHost", 1, "to_host">,
    I32EnumAttrCase<"FromHost", 2, "from_host">]> {
  let cppNamespace = "::plait::plan";
  let genSpecializedAttr = 0;
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

#endif // PLAIT_DIALECT_PLAN_IR_PLANENUMS_TD
