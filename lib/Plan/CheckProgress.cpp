//===- CheckProgress.cpp - All programs together come to an end -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives over other axes than the pipeline's join ranks that run the same
// list, hence meet by construction; what messages and the others do is what a
// replay finds out. On GPUs there is more to see:
//
// NCCL's send ends when its receive does, at least above some size: a message
// is one event of both ranks. So calls and messages are a graph: a message
// follows the one before it on its route, on both sides, and what uses the same
// bytes before it; a call follows the call before it and the messages whose
// bytes it uses. The step ends if there is no circle.
//
// Collectives along the pipeline are not in it: they come when all messages are
// over, and Replay.h has them.
//
// NCCL begins what a GPU is given in the order in which it is given, whatever
// streams it is in (NCCL_LAUNCH_ORDER_IMPLICIT): a message whose stream waits
// holds up all that comes behind it. So each end of a message has a node for
// its beginning, and these follow each other.
//
// The graph has a node for each call and each message of all programs, and
// edges as forEachWait() has them, by the code that decides about streams.
// Whether it has a circle is Kahn's algorithm (1962); of a circle the message
// tells every member, for it is the only way to find out why a GPU would hang.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Replay.h"
#include "plait/Plan/StepParts.h"
#include "plait/Plan/Streams.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

namespace {

/// The bytes of a slot that a function uses; none: begin is end. One range for
/// all of its uses, from the first byte to the last: at worst an edge too many,
/// which is a wait that is not needed, never one too few.
struct SlotUse {
  uint64_t begin = UINT64_MAX, end = 0;
  bool writes = false;
};

/// Nodes are of programs, not of ranks: ranks of a program do the same.
class Progress {
public:
  Progress(const fb::Plan &plan, const std::vector<Message> &messages,
           LaunchOrder order, const StepCuts &cuts)
      : plan(plan), mesh(plan), messages(messages), order(order), cuts(cuts) {}

  /// Tells who waits for whom in a circle; empty: there is none.
  std::string findCircle();

private:
  /// A WaitSend has a node of its own, without bytes, in the stream of its
  /// route.
  struct Node {
    uint32_t program, action; // of a message, its send
    uint32_t message;         // or none
    uint32_t missing = 0;     // predecessors that have not ended
    std::vector<uint32_t> successors = {}, predecessors = {};
  };
  static constexpr uint32_t none = UINT32_MAX;

  void addNodes();
  void addOrder(uint32_t program);
  void addCuts(uint32_t program);
  void addEdge(uint32_t from, uint32_t to);
  std::vector<SlotUse> findSlots(const fb::Function &function) const;
  std::string describe(const Node &node) const;
  std::string tell(uint32_t start) const;

  const fb::Plan &plan;
  RankGrid mesh;
  const std::vector<Message> &messages;
  LaunchOrder order;
  const StepCuts &cuts; // empty: steps are not cut
  std::vector<Node> nodes;
  std::vector<std::vector<uint32_t>> nodeOf; // by program and action
  std::vector<std::vector<uint32_t>>
      begins; // likewise; the same but of messages
};

/// The bytes that transfers of a program use, sorted and joined. Calls use many
/// bytes that are never sent; leaving those out keeps the graph sparse. Ranges
/// are disjoint and ascend, so that one search decides.
class Transferred {
public:
  /// Sorted by beginning, so that each range can only touch the last one.
  explicit Transferred(const fb::Program &program) {
    std::vector<std::pair<uint64_t, uint64_t>> all;
    for (const fb::Action *action : *program.actions())
      if (isTransfer(*action))
        all.emplace_back(action->buffer(), action->buffer() + action->bytes());
    std::sort(all.begin(), all.end());
    for (auto [begin, end] : all)
      if (!ranges.empty() && begin <= ranges.back().second)
        ranges.back().second = std::max(ranges.back().second, end);
      else
        ranges.emplace_back(begin, end);
  }
  /// The first range that ends behind `begin` is the only one to look at.
  bool overlap(uint64_t begin, uint64_t end) const {
    auto next = std::upper_bound(
        ranges.begin(), ranges.end(), begin,
        [](uint64_t at, const auto &range) { return at < range.second; });
    return next != ranges.end() && next->first < end;
  }

private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
};

} // namespace

/// A receive has the node of its send: what has to precede either precedes
/// both. The node that it would have had stays alone.
void Progress::addNodes() {
  for (uint32_t p = 0; p < plan.programs()->size(); ++p) {
    uint32_t count = length(plan.programs()->Get(p)->actions());
    std::vector<uint32_t> &own = nodeOf.emplace_back();
    for (uint32_t i = 0; i < count; ++i) {
      own.push_back(uint32_t(nodes.size()));
      nodes.push_back({p, i, none});
    }
  }
  for (uint32_t i = 0; i < messages.size(); ++i) {
    const Message &message = messages[i];
    uint32_t node = nodeOf[message.source][message.send];
    nodes[node].message = i;
    nodeOf[message.target][message.receive] = node;
  }
  // A message ends when both of its ends have begun.
  begins = nodeOf;
  for (const Message &message : messages)
    for (auto [program, action] :
         {std::pair(message.source, message.send),
          std::pair(message.target, message.receive)}) {
      uint32_t begin = uint32_t(nodes.size());
      nodes.push_back({program, action, none});
      addEdge(begin, nodeOf[program][action]);
      begins[program][action] = begin;
    }
}

void Progress::addEdge(uint32_t from, uint32_t to) {
  nodes[from].successors.push_back(to);
  nodes[to].predecessors.push_back(from);
  ++nodes[to].missing;
}

/// Once for each function, not for each call of it.
std::vector<SlotUse> Progress::findSlots(const fb::Function &function) const {
  std::vector<SlotUse> slots(length(function.slot_bytes()));
  for (uint32_t i = 0; i < length(function.steps()); ++i)
    for (const Use &use : usesOf(mesh, *function.steps()->Get(i))) {
      if (use.ref->slot() < 0)
        continue; // parameters are not sent
      SlotUse &own = slots[use.ref->slot()];
      own.begin = std::min(own.begin, use.ref->offset());
      own.end = std::max(own.end,
                         use.end(function.slot_bytes()->Get(use.ref->slot())));
      own.writes |= use.writes;
    }
  return slots;
}

/// 1. Which bytes of its slots each function uses.
/// 2. Each action goes to the planner with its stream and the transferred bytes
///    that it uses: those of the buffer, or of the slots where they are bound
///    to them.
/// 3. Its waits are edges between nodes, those of one stream included. With
///    LaunchOrder::Serial everything is in one stream.
/// 4. Messages begin in their order.
void Progress::addOrder(uint32_t index) {
  const fb::Program &program = *plan.programs()->Get(index);
  Transferred transferred(program);
  // 1. Functions.
  std::vector<std::vector<SlotUse>> slots;
  for (uint32_t i = 0; i < length(program.functions()); ++i)
    slots.push_back(findSlots(*program.functions()->Get(i)));
  StreamChoice choice = chooseStreams(plan, program);
  uint32_t streams = order == LaunchOrder::Serial ? 1 : choice.streams();
  // 2. Actions.
  StreamPlanner planner(streams);
  std::vector<ByteRange> ranges;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    ranges.clear();
    if (action.kind() == fb::ActionKind::Send ||
        action.kind() == fb::ActionKind::Recv)
      ranges.push_back({action.buffer(), action.buffer() + action.bytes(),
                        action.kind() == fb::ActionKind::Recv});
    else if (!isTransfer(action))
      for (uint32_t s = 0; s < length(action.bindings()); ++s) {
        const SlotUse &use = slots[action.function()][s];
        uint64_t base = action.bindings()->Get(s);
        // Slots that are never sent from or received into make no edges.
        if (use.begin < use.end &&
            transferred.overlap(base + use.begin, base + use.end))
          ranges.push_back({base + use.begin, base + use.end, use.writes});
      }
    uint32_t stream = streams == 1 ? 0 : choice.transfers[i];
    planner.add(stream, ranges);
  }
  // 3. Edges.
  forEachWait(planner.finish(), streams, [&](uint32_t first, uint32_t second) {
    addEdge(nodeOf[index][first], begins[index][second]);
  });
  // 4. Beginnings.
  uint32_t last = none;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    uint32_t begin = begins[index][i];
    if (begin == nodeOf[index][i])
      continue; // no message
    if (last != none)
      addEdge(last, begin);
    last = begin;
  }
}

/// A cut waits for all actions since the one before it, and what comes behind
/// it waits for the cut.
void Progress::addCuts(uint32_t index) {
  uint32_t from = 0;
  uint32_t last = none;
  for (uint32_t i = 0; i < nodeOf[index].size(); ++i) {
    if (std::binary_search(cuts[index].begin(), cuts[index].end(), i)) {
      uint32_t cut = uint32_t(nodes.size());
      nodes.push_back({index, i, none});
      for (; from < i; ++from)
        addEdge(nodeOf[index][from], cut);
      last = cut;
    }
    if (last != none)
      addEdge(last, begins[index][i]);
  }
}

/// Names both ends of a message.
std::string Progress::describe(const Node &node) const {
  if (node.message == none) {
    bool isEnd = &node == &nodes[nodeOf[node.program][node.action]];
    return (isEnd ? "" : "the start of ") +
           describeAction(plan, node.program, node.action);
  }
  const Message &message = messages[node.message];
  return describeAction(plan, message.source, message.send) + ", received by " +
         describeAction(plan, message.target, message.receive) + ",";
}

/// Walks predecessors that have not ended until one comes again; from there it
/// walks the circle once more and describes it. Nodes before the circle are
/// left out.
std::string Progress::tell(uint32_t start) const {
  auto follow = [&](uint32_t node) {
    const std::vector<uint32_t> &before = nodes[node].predecessors;
    return *std::find_if(before.begin(), before.end(), [&](uint32_t other) {
      return nodes[other].missing > 0;
    });
  };
  // What never begins waits for something that never begins, so this comes
  // around.
  std::vector<bool> seen(nodes.size());
  for (; !seen[start]; start = follow(start))
    seen[start] = true;
  std::string story = describe(nodes[start]);
  for (uint32_t node = follow(start); node != start; node = follow(node))
    story += " waits for " + describe(nodes[node]) + " which";
  return story + " waits for the first of these";
}

/// 1. The graph.
/// 2. Take away what waits for nothing, over and over.
/// 3. What is left waits in a circle, or for one.
std::string Progress::findCircle() {
  // 1. Nodes and edges.
  addNodes();
  for (uint32_t i = 0; i < plan.programs()->size(); ++i)
    addOrder(i);
  for (uint32_t i = 0; i < cuts.size(); ++i)
    addCuts(i);
  // 2. Take away.
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].missing == 0)
      ready.push_back(i);
  while (!ready.empty()) {
    uint32_t node = ready.back();
    ready.pop_back();
    for (uint32_t next : nodes[node].successors)
      if (--nodes[next].missing == 0)
        ready.push_back(next);
  }
  // 3. What is left.
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].missing > 0)
      return tell(i);
  return {};
}

std::string plan::findCircle(const fb::Plan &plan,
                             const std::vector<Message> &messages,
                             LaunchOrder order, const StepCuts &cuts) {
  return Progress(plan, messages, order, cuts).findCircle();
}

/// Checks plans for GPUs only; for others a send ends at once.
Status plan::checkProgress(const fb::Plan &plan, LaunchOrder order) {
  Result<std::vector<Message>> messages = matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  std::string circle = plan::findCircle(plan, *messages, order, {});
  return circle.empty() ? Status::success() : fail("deadlock: ", circle);
}

/// Without costs: only whether the replay comes to its end is of interest.
Status plan::checkCommunication(const fb::Plan &plan) {
  Result<std::vector<Message>> messages = matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  return replay(plan, *messages, ReplayCosts()).status();
}
