//===- Rendezvous.cpp - Receives where sends wait for them ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the lists together, without times, and writes them down as they run. An
// action waits for
//
//   Send      the receive of the message before it on its route; of several
//             tensors also, once it has begun, its own
//   Recv      the send of the message before it on its route; of several
//             tensors also the beginning of its own
//   WaitSend  its receive: what comes behind may use the buffer again
//   work      the send of what it reads
//
// Where all ranks wait, some rank waits for a receive further down in the list
// of another one; that is moved to where the other one stands. It can begin at
// once, since it was sent, so each move gets a rank on and holds up none. If no
// rank waits for a receive, each waits for a send, hence for work that comes
// before it: a circle that the order of the work had already.
//
// What comes out cannot deadlock, wherever its buffers lie: the order in which
// things have happened here is one in which they can happen. Waits of a plan
// are between actions of a list, from earlier to later ones, for calls, for
// receives that have been read, and for sends that have been waited for; to
// these add the order of routes and that in which a rank begins its messages.
// This is no stricter than a plan where 1F1B, GPipe and their like are
// concerned, which stay as they are.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Rendezvous.h"
#include "Messages.h"
#include "plait/Schedule/Verify.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

using namespace plait;
using namespace plait::schedule;

namespace {

class ReceivePlacer {
public:
  /// `schedule` has passed verifyLists() and outlives the object.
  ReceivePlacer(
      const Schedule &schedule,
      const std::function<bool(Direction, uint32_t source)> &isSeveral);

  /// None: the schedule does not end whatever is received when.
  std::optional<Schedule> run();

private:
  struct Receive {
    Action action;
    bool isSeveral;
  };
  /// All messages from one rank to another in a direction. The sends of those
  /// below `sent` have begun, the receives of those below `received`.
  struct Route {
    uint32_t target = 0;
    std::vector<Receive> receives = {}; // in the order of the sends
    uint32_t sent = 0, received = 0;
  };
  struct Message {
    uint32_t route = 0, index = 0; // on the route
  };

  Message &messageAt(Direction direction, uint32_t source,
                     uint32_t microbatch) {
    size_t row = size_t(direction) * problem.virtualStages() + source;
    return messages[row * problem.microbatches + microbatch];
  }
  Message &messageOf(uint32_t rank, const Action &action, bool incoming);
  void addSend(uint32_t rank, const Action &send);
  void post(Route &route);
  bool receive(Message message);
  bool send(Message message);
  bool tryAction(uint32_t rank, const Action &action);
  void advance(uint32_t rank);
  bool moveReceive();

  const Schedule &schedule;
  const Problem &problem;
  const std::function<bool(Direction, uint32_t)> &isSeveral;
  std::map<std::tuple<uint32_t, uint32_t, Direction>, uint32_t> routeOf;
  std::vector<Route> routes;
  std::vector<Message> messages; // by direction, source and microbatch
  std::vector<size_t> cursors;   // by rank
  bool moves = false;            // something has happened
  Schedule result;
};

} // namespace

/// Routes have their messages in the order in which they are sent.
ReceivePlacer::ReceivePlacer(
    const Schedule &schedule,
    const std::function<bool(Direction, uint32_t)> &isSeveral)
    : schedule(schedule), problem(schedule.problem), isSeveral(isSeveral),
      messages(2 * size_t(problem.virtualStages()) * problem.microbatches),
      cursors(problem.stages, 0), result(schedule) {
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    result.ranks[rank].clear();
    for (const Action &action : schedule.ranks[rank])
      if (action.kind == ActionKind::Send)
        addSend(rank, action);
  }
}

/// The message that a transfer of `rank`, or the one that its work reads, is.
ReceivePlacer::Message &
ReceivePlacer::messageOf(uint32_t rank, const Action &action, bool incoming) {
  Direction direction =
      action.isCompute() ? *directionOf(action.kind) : action.direction;
  uint32_t stage = problem.stageOf(rank, action.chunk);
  return messageAt(direction,
                   incoming ? *sourceOf(problem, stage, direction) : stage,
                   action.microbatch);
}

void ReceivePlacer::addSend(uint32_t rank, const Action &send) {
  auto [known, isNew] = routeOf.try_emplace(
      std::tuple(rank, send.peer, send.direction), uint32_t(routes.size()));
  if (isNew)
    routes.push_back({send.peer});
  Route &route = routes[known->second];
  messageOf(rank, send, /*incoming=*/false) = {known->second,
                                               uint32_t(route.receives.size())};
  uint32_t source = problem.stageOf(rank, send.chunk);
  uint32_t target = *targetOf(problem, source, send.direction);
  Action receive{ActionKind::Recv, problem.chunkOf(target), send.microbatch,
                 send.direction, rank};
  route.receives.push_back({receive, isSeveral(send.direction, source)});
}

/// Writes down the next receive of a route where its rank stands.
void ReceivePlacer::post(Route &route) {
  result.ranks[route.target].push_back(route.receives[route.received++].action);
  moves = true;
}

/// Those that are sent before it are received before it, whatever the list
/// says: on their route nothing else would ever come.
bool ReceivePlacer::receive(Message message) {
  Route &route = routes[message.route];
  while (route.received <= message.index) {
    // The send before it, or of several tensors its own, has to have begun.
    if (route.sent < route.received + route.receives[route.received].isSeveral)
      return false;
    post(route);
  }
  return true;
}

/// One of several tensors begins, and is over when its receive has begun, too.
bool ReceivePlacer::send(Message message) {
  Route &route = routes[message.route];
  if (route.sent == message.index) {
    if (route.received < route.sent)
      return false;
    ++route.sent;
    moves = true;
  }
  return !route.receives[message.index].isSeveral ||
         route.received > message.index;
}

/// Whether the action, at which `rank` stands, happens; writes it down if so.
bool ReceivePlacer::tryAction(uint32_t rank, const Action &action) {
  switch (action.kind) {
  case ActionKind::Recv:
    return receive(messageOf(rank, action, /*incoming=*/true));
  case ActionKind::Send:
    if (!send(messageOf(rank, action, /*incoming=*/false)))
      return false;
    break;
  case ActionKind::WaitSend: {
    auto [route, index] = messageOf(rank, action, /*incoming=*/false);
    if (routes[route].received <= index)
      return false;
    break;
  }
  case ActionKind::Forward:
  case ActionKind::Backward:
  case ActionKind::BackwardInput: {
    if (!peerOf(problem, rank, action.chunk, *directionOf(action.kind),
                /*incoming=*/true))
      break;
    auto [route, index] = messageOf(rank, action, /*incoming=*/true);
    if (routes[route].sent <= index)
      return false;
    break;
  }
  default: // neither sends nor reads what another rank has sent
    break;
  }
  result.ranks[rank].push_back(action);
  return true;
}

/// Runs `rank` until it waits or ends.
void ReceivePlacer::advance(uint32_t rank) {
  const std::vector<Action> &actions = schedule.ranks[rank];
  for (; cursors[rank] < actions.size() &&
         tryAction(rank, actions[cursors[rank]]);
       ++cursors[rank])
    moves = true;
}

/// Receives what the first rank that waits for a receive has sent, where all
/// ranks wait; false: none does.
bool ReceivePlacer::moveReceive() {
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    if (cursors[rank] == schedule.ranks[rank].size())
      continue;
    const Action &action = schedule.ranks[rank][cursors[rank]];
    if (action.kind != ActionKind::Send && action.kind != ActionKind::WaitSend)
      continue;
    post(routes[messageOf(rank, action, /*incoming=*/false).route]);
    return true;
  }
  return false;
}

std::optional<Schedule> ReceivePlacer::run() {
  while (true) {
    moves = false;
    bool ended = true;
    for (uint32_t rank = 0; rank < problem.stages; ++rank) {
      advance(rank);
      ended &= cursors[rank] == schedule.ranks[rank].size();
    }
    if (ended)
      return std::move(result);
    if (!moves && !moveReceive())
      return std::nullopt;
  }
}

Schedule schedule::postReceives(
    const Schedule &schedule,
    const std::function<bool(Direction, uint32_t)> &isSeveral) {
  if (!verifyLists(schedule).ok() || schedule.isComputeOnly())
    return schedule;
  return ReceivePlacer(schedule, isSeveral).run().value_or(schedule);
}
