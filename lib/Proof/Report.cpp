//===- Report.cpp - Reasons why there is no proof -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Errors of the proof, with what helps to find their cause: a wrong value
// mostly comes from somewhere else, so the notes name the arguments that the op
// takes and the place where another function returns them.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "Interpreter.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// The arguments of its function that `op` takes, in a kernel or not.
///
/// Directly, or as the inputs of clusters around the op. In the order of the
/// operands.
static llvm::SetVector<unsigned> findArguments(Operation *op,
                                               func::FuncOp function) {
  llvm::SetVector<unsigned> found;
  for (Value operand : op->getOperands())
    while (auto argument = dyn_cast<BlockArgument>(operand)) {
      Operation *parent = argument.getOwner()->getParentOp();
      auto cluster = dyn_cast<plan::ClusterOp>(parent);
      if (!cluster) {
        if (parent == function)
          found.insert(argument.getArgNumber());
        break;
      }
      operand = cluster.getInputs()[argument.getArgNumber()];
    }
  return found;
}

/// What returns the result that is `port` of `stage`; null: the model's input.
///
/// Looks through all functions: it only runs for messages.
static Operation *findReturn(ModuleOp module, pipe::PortAttr port,
                             int64_t stage) {
  auto [kind, source] = findMaker(port.getKind(), stage);
  for (auto function : module.getOps<func::FuncOp>()) {
    auto own = function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr);
    if (!own || own.isOfRank() || own.getIndex() != source)
      continue;
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto result =
          function.getResultAttrOfType<pipe::PortAttr>(i, pipe::kPortAttr);
      if (result && result.getKind() == kind &&
          result.getIndex() == port.getIndex())
        return function.getBody().front().getTerminator();
    }
  }
  return nullptr;
}

/// Nothing for an op outside of the functions of stages, and nothing for
/// arguments without a port.
static void noteArguments(InFlightDiagnostic &diag, Operation *op) {
  // Null for an op of a program or of the module itself.
  auto function = op->getParentOfType<func::FuncOp>();
  auto own =
      function
          ? function->getAttrOfType<pipe::FunctionAttr>(pipe::kFunctionAttr)
          : pipe::FunctionAttr();
  if (!own)
    return;
  // Several arguments may be returned by one op; it is named once.
  llvm::SetVector<Operation *> returns;
  std::string names;
  for (unsigned index : findArguments(op, function)) {
    auto port =
        function.getArgAttrOfType<pipe::PortAttr>(index, pipe::kPortAttr);
    if (!port)
      continue;
    names += (names.empty() ? "" : ", ") + port.getText();
    if (Operation *made = findReturn(function->getParentOfType<ModuleOp>(),
                                     port, own.getIndex()))
      returns.insert(made);
  }
  if (names.empty())
    return;
  diag.attachNote(function.getLoc()) << "it takes an argument: " << names;
  for (Operation *made : returns)
    diag.attachNote(made->getLoc()) << "which is returned here";
}

/// The caller appends the reason; the notes are attached to the same
/// diagnostic, whose order does not matter.
InFlightDiagnostic Report::wrong(Operation *op) {
  verdict = Verdict::Wrong;
  InFlightDiagnostic diag =
      op->emitOpError("computes something else than the model asks for: ");
  noteArguments(diag, op);
  return diag;
}
