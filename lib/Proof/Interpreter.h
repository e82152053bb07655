//===- Interpreter.h - The interpretation of a step -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is interpreted once for all microbatches: what a function of a stage
// gives is an expression over "the tokens" and "the targets", of whichever
// microbatch; that each call gets what belongs to its microbatch is shown apart
// (Program.h). The end of the step works on sums over microbatches and is
// interpreted on all ranks of the pipeline at once.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_INTERPRETER_H
#define PLAIT_LIB_PROOF_INTERPRETER_H

#include "State.h"
#include "plait/Dialect/Pipe/IR/Pipe.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Allocator.h"

namespace plait::proof {

/// Interprets the ops of one function.
class Interpreter {
public:
  Interpreter(Rules &rules, RankState &state) : rules(rules), state(state) {}
  Interpreter(Interpreter &&) = default; // contents point into it

  void bind(mlir::Value value, Content content) {
    const Content *own = new (kept.Allocate()) Content(std::move(content));
    contents[value] = {own, own->form.term};
  }
  /// `value` is what `other` is.
  void alias(mlir::Value value, mlir::Value other) {
    Known known = contents.find(other)->second;
    contents[value] = known;
  }
  const Content &get(mlir::Value value) {
    return complete(contents.find(value)->second);
  }
  llvm::LogicalResult run(mlir::Operation *op);

  std::vector<Contribution> contributions;
  Contents returned;

private:
  llvm::LogicalResult runCluster(mlir::Operation *op);
  llvm::LogicalResult runAccess(SlotOpInterface access);
  llvm::LogicalResult runSum(nn::AddOp add);
  llvm::LogicalResult runRule(mlir::Operation *op);
  const Content &complete(Known &known);

  Rules &rules;
  RankState &state;
  llvm::SpecificBumpPtrAllocator<Content> kept;
  llvm::DenseMap<mlir::Value, Known> contents;
};

class Step {
public:
  /// `inputs` is the type of tokens, and of targets, over all ranks.
  Step(mlir::ModuleOp module, Rules &rules, mlir::RankedTensorType inputs);

  llvm::LogicalResult interpret();
  llvm::MutableArrayRef<RankState> getRanks() { return ranks; }
  const Symbols &getSymbols() const { return symbols; }

private:
  using Ports = std::map<std::pair<int64_t, int64_t>, Content>; // stage, index
  llvm::LogicalResult findFunctions();
  llvm::LogicalResult interpretBegin();
  llvm::LogicalResult interpretStages();
  llvm::LogicalResult call(mlir::func::FuncOp function);
  Content makeInput(pipe::PortAttr port, mlir::RankedTensorType taken);
  llvm::FailureOr<Content> findArgument(mlir::func::FuncOp function,
                                        unsigned index, int64_t stage);
  // StepEnd.cpp
  llvm::LogicalResult interpretEnd();

  mlir::ModuleOp module;
  Rules &rules;
  Symbols symbols;
  mlir::RankedTensorType inputs;
  int64_t stages = 0;
  pipe::PlacementAttr placement; // null: in line
  llvm::DenseMap<mlir::Attribute, mlir::func::FuncOp> functions;
  std::vector<RankState> ranks;
  /// What stages pass on, by kind.
  std::map<pipe::PortKind, Ports> ports;
};

/// Which port of which stage makes what a port of `kind` of `stage` takes: what
/// comes in is what a neighbour puts out, all else is the stage's own.
std::pair<pipe::PortKind, int64_t> findMaker(pipe::PortKind kind,
                                             int64_t stage);

/// Whether `op` communicates along the pipeline of a mesh that has one.
bool crossesPipeline(mlir::Operation *op);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_INTERPRETER_H
