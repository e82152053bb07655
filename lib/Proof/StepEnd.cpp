//===- StepEnd.cpp - The end of a step, on all ranks at once ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reduce and optimizer functions differ from rank to rank of the pipeline, and
// meet in collectives along it. Each rank is interpreted up to its next one;
// where all members of one stand before it, it is done.
//
// A sum along the pipeline is then the sum of what its members hold, in terms:
// ranks of the pipeline have different values under one name, as the gradients
// of tied parameters or their parts of the norm, and no form describes that.
//
//===----------------------------------------------------------------------===//

#include "Interpreter.h"

#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Support/ActionKinds.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;
using pipe::ActionKind;

/// One along a pipeline of a single rank crosses nothing, and is the identity
/// for the rules.
bool plait::proof::crossesPipeline(Operation *op) {
  auto collective = dyn_cast<dist::CollectiveOpInterface>(op);
  if (!collective || collective.getAxis() != kPipelineAxis)
    return false;
  auto module = op->getParentOfType<ModuleOp>();
  auto meshes = module.getOps<dist::MeshOp>();
  return !meshes.empty() && (*meshes.begin()).getAxisSize(Axis::PP) > 1;
}

namespace {
/// What is left of a rank's end of the step.
///
/// May be moved: its interpreter's contents stay where they were allocated.
struct Remaining {
  Interpreter interpreter;
  SmallVector<Operation *> ops; // the next one last

  /// Up to a collective along the pipeline, or the end.
  LogicalResult advance(Report &report) {
    while (!ops.empty() && !crossesPipeline(ops.back())) {
      Operation *op = ops.pop_back_val();
      if (nn::getSlotAccess(op) == nn::SlotAccess::Add) {
        report.unproven(op) << "the sums over microbatches are complete";
        return failure();
      }
      if (failed(interpreter.run(op)))
        return failure();
    }
    return success();
  }
};

/// Lets ranks meet until all are at their end.
class StepEnd {
public:
  StepEnd(std::vector<Remaining> &ranks, Rules &rules)
      : ranks(ranks), rules(rules) {}
  LogicalResult run();

private:
  SmallVector<int64_t> findMembers(dist::AllReduceOp op) const;
  LogicalResult meet(int64_t rank, bool &met);

  std::vector<Remaining> &ranks;
  Rules &rules;
};
} // namespace

/// All ranks, where the op names none.
SmallVector<int64_t> StepEnd::findMembers(dist::AllReduceOp op) const {
  if (auto members = op.getMembers())
    return SmallVector<int64_t>(*members);
  return llvm::to_vector(llvm::seq<int64_t>(0, ranks.size()));
}

/// Does the collective before which `rank` stands, if all others stand there.
///
/// 1. The collective is a sum of two or more members, of which `rank` is one.
/// 2. Each member stands before one with the same members; else the others have
///    something to do first, and `met` stays as it is.
/// 3. They agree on what they combine, and their values are added up as if by
///    one op.
/// 4. All members go on with the sum.
LogicalResult StepEnd::meet(int64_t rank, bool &met) {
  auto own = dyn_cast<dist::AllReduceOp>(ranks[rank].ops.back());
  if (!own) {
    rules.report.unproven(ranks[rank].ops.back())
        << "only sums along the pipeline have a rule";
    return failure();
  }
  // 1. Who.
  SmallVector<int64_t> members = findMembers(own);
  if (!llvm::is_contained(members, rank))
    return rules.report.wrong(own)
           << "rank " << rank << " of the pipeline is no member";
  if (members.size() < 2)
    return rules.report.wrong(own) << "combines what one rank has with itself";
  std::optional<Content> total;
  for (int64_t member : members) {
    if (member >= int64_t(ranks.size()) || ranks[member].ops.empty())
      return rules.report.wrong(own)
             << "rank " << member << " of the pipeline takes no part";
    // 2. Is it there?
    auto other = dyn_cast<dist::AllReduceOp>(ranks[member].ops.back());
    if (!other || findMembers(other) != members)
      return success(); // it stands before another one
    // 3. Do they agree?
    if (other.getReduction() != own.getReduction() ||
        other.getType() != own.getType()) {
      InFlightDiagnostic diag = rules.report.wrong(own);
      diag << "the ranks of the pipeline disagree on what they combine";
      diag.attachNote(other.getLoc()) << "here is another member";
      return diag;
    }
    // No value of the step is the larger one of what two stages have.
    if (own.getReduction() != dist::Reduction::Sum)
      return rules.report.wrong(own)
             << "takes a maximum of what the stages have";
    rules.terms.setOrigin(own);
    const Content &part = ranks[member].interpreter.get(other.getInput());
    FailureOr<Content> sum = total ? rules.add(own, *total, part) : part;
    if (failed(sum))
      return failure();
    total = std::move(*sum);
  }
  // 4. Go on.
  met = true;
  for (int64_t member : members) {
    Operation *op = ranks[member].ops.pop_back_val();
    ranks[member].interpreter.bind(op->getResult(0), *total);
  }
  return success();
}

/// Each round completes a collective, of which there are finitely many. If
/// ranks are left and none can meet, they have their collectives in different
/// orders: a run would wait for ever.
LogicalResult StepEnd::run() {
  while (true) {
    Operation *waiting = nullptr;
    bool met = false;
    for (auto [index, rank] : llvm::enumerate(ranks)) {
      if (failed(rank.advance(rules.report)))
        return failure();
      if (!rank.ops.empty())
        waiting = rank.ops.back();
    }
    if (!waiting)
      return success();
    for (int64_t rank = 0; rank < int64_t(ranks.size()) && !met; ++rank)
      if (!ranks[rank].ops.empty() && failed(meet(rank, met)))
        return failure();
    if (!met)
      return rules.report.wrong(waiting)
             << "the ranks of the pipeline wait for one another here";
  }
}

/// A rank's functions of the end of a step come in the order of their kinds;
/// any may be missing. Nothing takes what they return.
LogicalResult Step::interpretEnd() {
  std::vector<Remaining> remaining;
  for (auto [index, state] : llvm::enumerate(ranks)) {
    state.endMicrobatches();
    Remaining &own =
        remaining.emplace_back(Remaining{Interpreter(rules, state), {}});
    for (size_t kind = 0; kind < std::size(actionKinds); ++kind) {
      if (actionKinds[kind].time != ActionTime::End)
        continue;
      if (auto function = functions.lookup(pipe::FunctionAttr::get(
              module.getContext(), ActionKind(kind), index)))
        for (Operation &op : function.getBody().front().without_terminator())
          own.ops.push_back(&op);
    }
    std::reverse(own.ops.begin(), own.ops.end());
  }
  return StepEnd(remaining, rules).run();
}
