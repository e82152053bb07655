//===- PlanExchanges.cpp - What the ranks of a plan exchange --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The list of a compiled plan: its collectives, sends and copies to and from
// hosts, as often as they are called, with their times from costs and from a
// replay with these.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Streams.h"
#include "plait/Planner/PlanCost.h"
#include "plait/Support/ActionKinds.h"

using namespace plait;
using namespace plait::planner;
using plan::length;
namespace fb = plait::plan::fb;

/// The moment of what a call of `kind` exchanges.
static Moment getMoment(fb::ActionKind kind) {
  switch (getActionFacts(kind).part) {
  case StepPart::Gather:
    return Moment::Gather;
  case StepPart::Forward:
    return Moment::Forward;
  case StepPart::Backward:
    return Moment::Backward;
  case StepPart::Reduce:
    return Moment::Reduce;
  case StepPart::Agreement:
    return Moment::Agreement;
  case StepPart::Optimizer:
  case StepPart::Pipeline: // calls nothing
    return Moment::Optimizer;
  }
}

static std::optional<Axis> getAxis(const fb::Plan &plan, uint32_t axis) {
  const AxisFacts *facts =
      findAxis(plan.mesh()->Get(axis)->name()->string_view());
  return facts ? std::optional(facts->axis) : std::nullopt;
}

/// A collective by the bytes of its whole tensor.
static Exchange makeCollective(const fb::Plan &plan,
                               const fb::CollectiveStep &step) {
  CollectiveKind kind = plan::kindOf(step);
  Exchange exchange;
  exchange.axis = getAxis(plan, step.axis());
  exchange.carrier = getCarrier(kind);
  exchange.members = length(step.members())
                         ? length(step.members())
                         : plan.mesh()->Get(step.axis())->size();
  exchange.bytes = double(step.outer()) * double(step.middle()) *
                   double(step.chunk()) *
                   double(plan::elementBytes(step.dtype())) *
                   double(countBlocks(kind, exchange.members)) *
                   plan::shareOf(step, exchange.members);
  return exchange;
}

static Exchange makeCopy(const fb::CopyStep &step) {
  Exchange exchange;
  exchange.carrier = leavesArena(step.kind()) ? Carrier::To : Carrier::From;
  exchange.place = getOtherPlace(step.kind());
  exchange.bytes = double(step.bytes());
  return exchange;
}

/// A message in either direction: the moment says in which.
static Exchange makeSend(const fb::Plan &plan, const fb::Action &action) {
  Exchange exchange;
  exchange.axis = getAxis(plan, 0);
  exchange.carrier = Carrier::Send;
  exchange.members = 2;
  exchange.moment = action.direction() == fb::Direction::Forward
                        ? Moment::Forward
                        : Moment::Backward;
  exchange.bytes = double(action.bytes());
  return exchange;
}

/// Returns what `operation` of `program` exchanges, if it does.
static std::optional<Exchange> makeExchange(const fb::Plan &plan,
                                            const fb::Program &program,
                                            const plan::Operation &operation) {
  const fb::Action &action = *program.actions()->Get(operation.action);
  const fb::Step *step = operation.get(program);
  if (!step) {
    // What is received takes the time of a message; between stages a program
    // has other messages to receive than those it sends.
    fb::ActionKind kind =
        action.exchange() ? fb::ActionKind::Recv : fb::ActionKind::Send;
    return action.kind() == kind ? std::optional(makeSend(plan, action))
                                 : std::nullopt;
  }
  std::optional<Exchange> exchange;
  if (const auto *collective = step->step_as_CollectiveStep())
    exchange = makeCollective(plan, *collective);
  else if (const fb::CopyStep *copy = plan::asPlaceCopy(*step))
    exchange = makeCopy(*copy);
  if (exchange)
    exchange->moment = getMoment(action.kind());
  return exchange;
}

/// Lists of sites are run in some steps: what they exchange is spread over all.
static std::optional<Exchange>
makeMeanExchange(const fb::Plan &plan, const fb::Program &program,
                 const plan::Operation &operation) {
  const fb::Action &action = *program.actions()->Get(operation.action);
  std::optional<Exchange> exchange = makeExchange(plan, program, operation);
  if (!exchange)
    return exchange;
  exchange->count = plan::runsPerStep(plan, action);
  if (!action.list())
    return exchange;
  exchange->bytes *= exchange->count;
  // Between sites; a site also adds up what its ranks find by themselves.
  if (plan::isTransfer(action))
    exchange->axis = std::nullopt;
  exchange->moment = Moment::Agreement;
  return exchange;
}

std::vector<ExchangeList>
planner::listExchanges(const fb::Plan &plan, const plan::Replayed &replayed) {
  std::vector<ExchangeList> lists;
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    const fb::Program &program = *plan.programs()->Get(i);
    ExchangeList &list = lists.emplace_back();
    plan::forEachOperation(program, [&](const plan::Operation &operation) {
      std::optional<Exchange> exchange =
          makeMeanExchange(plan, program, operation);
      if (!exchange)
        return;
      // A replay without streams has all of them in front of the next.
      if (i < replayed.operations.size()) {
        const plan::OperationTime &time =
            replayed.operations[i][operation.index];
        exchange->seconds = time.seconds;
        exchange->hidden = time.hidden;
      }
      list.add(*exchange);
    });
  }
  return lists;
}
