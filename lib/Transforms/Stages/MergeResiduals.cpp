//===- MergeResiduals.cpp - Keep a value once -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where two values that a function keeps for a later one turn out to be one,
// after common subexpressions are found, it is kept once.
//
// It has to come behind the cleanup of local functions, which finds that two
// residuals are one value, and before memory is placed, where each port is a
// buffer for every microbatch in flight. All functions of a stage are changed
// together, since a port means the same buffer in all of them.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Passes.h"
#include "plait/Transforms/StageFunctions.h"

#include <map>

namespace plait {
#define GEN_PASS_DEF_MERGERESIDUALSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using pipe::PortAttr;
using pipe::PortKind;

/// Residuals that are another port of the same stage.
using Merged = llvm::DenseMap<PortAttr, PortAttr>;

/// Takes the residuals of `function` away that it returns as another port, too.
static void mergeResults(func::FuncOp function, Merged &merged) {
  Operation *terminator = function.getBody().front().getTerminator();
  llvm::DenseMap<Value, PortAttr> known;
  SmallVector<Value> values;
  SmallVector<PortAttr> ports;
  for (auto [value, port] :
       llvm::zip_equal(terminator->getOperands(), getResultPorts(function))) {
    // The gradient of an input leaves the rank, and its buffer is reused.
    bool keeps = port.getKind() != PortKind::InputGradient;
    // The first port of a value stays, and outputs come before residuals: the
    // buffer of an output is there anyway.
    auto [it, isNew] =
        keeps ? known.try_emplace(value, port) : std::pair(known.end(), true);
    if (!isNew && port.getKind() == PortKind::Residual) {
      merged[port] = it->second;
      continue;
    }
    values.push_back(value);
    ports.push_back(port);
  }
  terminator->setOperands(values);
  setPorts(function, getPorts(function), ports);
}

/// Takes each merged port's value from the port that is left. Either the
/// function has that one too, and the argument goes, or the argument takes its
/// name.
static void mergeArguments(func::FuncOp function, const Merged &merged) {
  Block &body = function.getBody().front();
  SmallVector<PortAttr> ports = getPorts(function);
  llvm::DenseMap<PortAttr, BlockArgument> argumentOf;
  for (auto [argument, port] : llvm::zip_equal(body.getArguments(), ports))
    argumentOf[port] = argument;
  for (auto [argument, port] :
       llvm::reverse(llvm::zip_equal(body.getArguments(), ports))) {
    PortAttr other = merged.lookup(port);
    if (!other)
      continue;
    auto [known, isNew] = argumentOf.try_emplace(other, argument);
    if (!isNew)
      argument.replaceAllUsesWith(known->second);
    port = isNew ? other : PortAttr();
  }
  body.eraseArguments(
      [&](BlockArgument argument) { return !ports[argument.getArgNumber()]; });
  llvm::erase(ports, PortAttr());
  setPorts(function, ports, getResultPorts(function));
}

namespace {
struct MergeResidualsPass
    : plait::impl::MergeResidualsPassBase<MergeResidualsPass> {
  void runOnOperation() override {
    std::map<int64_t, SmallVector<func::FuncOp>> stages;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (pipe::FunctionAttr own = getStageFunction(function);
          own && !own.isOfRank())
        stages[own.getIndex()].push_back(function);
    // Results of all functions first: any of them may return what another
    // takes.
    for (auto &[stage, functions] : stages) {
      Merged merged;
      for (func::FuncOp function : functions)
        mergeResults(function, merged);
      if (!merged.empty())
        for (func::FuncOp function : functions)
          mergeArguments(function, merged);
    }
  }
};
} // namespace
