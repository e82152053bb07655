//===- PlanInterfaces.td - Interface of steps --------------*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_PLAN_IR_PLANINTERFACES_TD
#define PLAIT_DIALECT_PLAN_IR_PLANINTERFACES_TD

include "mlir/IR/OpBase.td"

def StepOpInterface : OpInterface<"StepOpInterface"> {
  let cppNamespace = "::plait::plan";
  let description = [{
    One step of a `plan.function`. All that passes over steps ask is here: two
    steps may change places if neither writes what the other uses, and run at the
    same time if moreover their streams differ.

    What a step computes is checked by its own verifier; that it stays inside of
    its slots is by the function's.
  }];
  let methods = [
    InterfaceMethod<"The memory that it reads and writes, result last.",
      "::llvm::SmallVector<::plait::plan::StepUse>", "getUses", (ins)>,
    InterfaceMethod<[{
      What tells the stream that it is executed on: steps whose attributes are
      equal run one after the other. Null: the stream that computes.
    }],
      "::mlir::Attribute", "getStream", (ins), "", "return {};">,
    InterfaceMethod<[{
      Floating-point operations that keep a device's matrix units busy; a
      multiply-add counts two.
    }],
      "double", "getMatrixFlops", (ins), "", "return 0;">,
    InterfaceMethod<"What it sends to other ranks, along which mesh axis.",
      "::plait::plan::StepMessage", "getSent", (ins), "", "return {};">,
  ];
}

#endif // PLAIT_DIALECT_PLAN_IR_PLANINTERFACES_TD
