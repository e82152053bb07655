//===- ReplayStreams.cpp - The action lists of a plan, with streams -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All operations of all programs are a graph: an operation follows the one
// before it in its stream and those whose bytes it waits for. On GPUs the two
// ends of a message are one node; on processors a send ends at once. The
// members of a collective over the pipeline axis are one node. The time of a
// node is the longest path to it.
//
// Streams and their waits are those that the runtime would derive
// (scheduleStreams()), so that what overlaps here overlaps there. Ranks of a
// program are one: what they meet in over other axes takes its time in each of
// them.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Communicators.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Replay.h"
#include "plait/Plan/Streams.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace plait;
using namespace plait::plan;

namespace {

/// `computes`: in stream 0, and neither a transfer nor a collective.
struct Operation {
  uint32_t action;
  uint32_t node;
  bool computes;
};

/// Something that takes time once, for whoever takes part in it. Its start is
/// the latest end of its predecessors.
struct Node {
  double seconds = 0, start = 0;
  uint32_t missing = 0; // predecessors that have not ended
  std::vector<uint32_t> successors;
  double end() const { return start + seconds; }
};

/// Intervals of time, one after the other.
using Intervals = std::vector<std::pair<double, double>>;

/// Nodes first, then edges; times when all edges are known.
class StreamWalker {
public:
  StreamWalker(const fb::Plan &plan, const std::vector<Message> &messages,
               const ReplayCosts &costs)
      : plan(plan), mesh(plan), messages(messages), costs(costs) {}

  /// Nodes, then edges, then times, then sums; each needs the one before it
  /// complete.
  Result<Replayed> run() {
    for (uint32_t i = 0; i < plan.programs()->size(); ++i)
      addOperations(i);
    for (uint32_t i = 0; i < messages.size(); ++i)
      joinMessage(i);
    for (uint32_t i = 0; i < programs.size(); ++i)
      addOrder(i);
    if (!findTimes())
      return fail("the plan's operations wait for each other in a circle");
    for (uint32_t i = 0; i < programs.size(); ++i)
      addUp(i);
    return std::move(replayed);
  }

private:
  /// The operations of a program in the order of the plan, as
  /// plan::forEachOperation numbers them.
  struct Program {
    std::vector<Operation> operations;
    std::vector<uint32_t> firstOf; // of each action, its first operation
    std::map<std::vector<uint32_t>, size_t> met; // collectives so far
    std::vector<std::vector<uint32_t>> batches;  // by function
  };

  void addOperations(uint32_t index);
  std::vector<uint32_t> findBatches(uint32_t index,
                                    const fb::Function &function) const;
  void addCall(uint32_t index, uint32_t action);
  uint32_t meet(Program &program, const fb::CollectiveStep &step);
  void joinMessage(uint32_t index);
  void addOrder(uint32_t index);
  bool findTimes();
  void addUp(uint32_t index);
  void addActions(const Program &program, const Intervals &exchanges,
                  RankTime &rank, std::vector<ActionTime> &actions) const;

  uint32_t addNode(double seconds) {
    nodes.push_back({seconds, 0, 0, {}});
    return uint32_t(nodes.size() - 1);
  }
  void addEdge(uint32_t from, uint32_t to) {
    nodes[from].successors.push_back(to);
    ++nodes[to].missing;
  }

  const fb::Plan &plan;
  RankGrid mesh;
  const std::vector<Message> &messages;
  const ReplayCosts &costs;
  std::vector<Program> programs;
  std::vector<StreamChoice> choices; // by program
  std::vector<Node> nodes;
  /// The collectives of a group over the pipeline axis, in order.
  std::map<std::vector<uint32_t>, std::vector<uint32_t>> meetings;
  Replayed replayed;
};

/// Returns, for each step, the last one of those that are launched with it.
/// Sites are no ranks of one program's group.
std::vector<uint32_t>
StreamWalker::findBatches(uint32_t index, const fb::Function &function) const {
  if (isCuda(plan) && mesh.sites() == 1)
    return batchGathers(mesh, mesh.rankOf(index, 0), function);
  std::vector<uint32_t> last(length(function.steps()));
  std::iota(last.begin(), last.end(), 0);
  return last;
}

/// Messages get their time in joinMessage(), steps in addCall().
void StreamWalker::addOperations(uint32_t index) {
  const fb::Program &source = *plan.programs()->Get(index);
  Program &program = programs.emplace_back();
  choices.push_back(chooseStreams(plan, source));
  for (uint32_t i = 0; i < length(source.functions()); ++i)
    program.batches.push_back(findBatches(index, *source.functions()->Get(i)));
  for (uint32_t i = 0; i < length(source.actions()); ++i) {
    program.firstOf.push_back(uint32_t(program.operations.size()));
    if (isTransfer(*source.actions()->Get(i)))
      program.operations.push_back({i, addNode(0), false});
    else
      addCall(index, i);
  }
}

/// A collective over the pipeline axis is a node that other programs have as
/// well, so that its predecessors are those of all its members. Gathers that
/// GPUs launch together are one node: it waits for what any of them waits for.
void StreamWalker::addCall(uint32_t index, uint32_t action) {
  const fb::Program &source = *plan.programs()->Get(index);
  int32_t number = source.actions()->Get(action)->function();
  const fb::Function &function = *source.functions()->Get(number);
  Program &program = programs[index];
  const std::vector<uint32_t> &last = program.batches[number];
  uint32_t node = 0, end = 0; // of a batch: the step behind it
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const auto *collective = function.steps()->Get(i)->step_as_CollectiveStep();
    double seconds = costs.steps.empty() ? 0 : costs.steps[index][number][i];
    if (i < end) {
      nodes[node].seconds += seconds;
    } else {
      // Other collectives join ranks of this program, which are one here.
      node = collective && collective->axis() == 0 ? meet(program, *collective)
                                                   : addNode(0);
      nodes[node].seconds = seconds;
      end = last[i] + 1;
    }
    bool computes = choices[index].steps[number][i] == 0 && !collective &&
                    !asPlaceCopy(*function.steps()->Get(i));
    program.operations.push_back({action, node, computes});
  }
}

/// The n-th collective of a group is one for all its members.
uint32_t StreamWalker::meet(Program &program, const fb::CollectiveStep &step) {
  std::vector<uint32_t> group = membersOf(mesh, step);
  std::vector<uint32_t> &known = meetings[group];
  size_t number = program.met[group]++;
  if (number == known.size())
    known.push_back(addNode(0));
  return known[number];
}

/// The receive's operation takes, on GPUs, the send's node, before any edge is
/// added.
void StreamWalker::joinMessage(uint32_t index) {
  const Message &message = messages[index];
  auto operationOf = [&](uint32_t program, uint32_t action) -> Operation & {
    return programs[program].operations[programs[program].firstOf[action]];
  };
  uint32_t send = operationOf(message.source, message.send).node;
  uint32_t &receive = operationOf(message.target, message.receive).node;
  // NCCL's send ends with its receive. Threads and processes of processors
  // copy: a send only says that the bytes may be read, and its wait that they
  // have been.
  if (isCuda(plan)) {
    receive = send;
  } else {
    addEdge(send, receive);
    addEdge(receive, operationOf(message.source, message.wait).node);
  }
  nodes[receive].seconds = costs.messages.empty() ? 0 : costs.messages[index];
}

/// Edges join operations that follow each other in a stream or wait for one
/// another.
void StreamWalker::addOrder(uint32_t index) {
  const fb::Program &source = *plan.programs()->Get(index);
  const StreamChoice &choice = choices[index];
  StreamSchedule schedule = scheduleStreams(source, mesh, choice);
  const std::vector<Operation> &operations = programs[index].operations;
  forEachWait(schedule, choice.streams(), [&](uint32_t first, uint32_t second) {
    uint32_t from = operations[first].node, to = operations[second].node;
    if (from != to)
      addEdge(from, to);
  });
}

/// Returns whether all nodes could begin.
/// Longest paths in a graph without circles, by Kahn's order (1962): linear in
/// operations and waits. A circle leaves nodes that never become ready.
bool StreamWalker::findTimes() {
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].missing == 0)
      ready.push_back(i);
  size_t ended = 0;
  for (; !ready.empty(); ++ended) {
    const Node &node = nodes[ready.back()];
    ready.pop_back();
    replayed.seconds = std::max(replayed.seconds, node.end());
    for (uint32_t next : node.successors) {
      nodes[next].start = std::max(nodes[next].start, node.end());
      if (--nodes[next].missing == 0)
        ready.push_back(next);
    }
  }
  return ended == nodes.size();
}

/// Sorted, and those that touch joined. n log n in the intervals.
Intervals join(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals joined;
  for (auto [begin, end] : intervals)
    if (!joined.empty() && begin <= joined.back().second)
      joined.back().second = std::max(joined.back().second, end);
    else
      joined.push_back({begin, end});
  return joined;
}

/// How much of [begin, end) `intervals` cover. Intervals are disjoint and
/// ascend: a binary search, then as many as overlap.
double measure(const Intervals &intervals, double begin, double end) {
  double covered = 0;
  auto next = std::partition_point(
      intervals.begin(), intervals.end(),
      [&](const auto &interval) { return interval.second <= begin; });
  for (; next != intervals.end() && next->first < end; ++next)
    covered += std::min(end, next->second) - std::max(begin, next->first);
  return covered;
}

/// When anything is exchanged, in any stream, then how that lies to what is
/// computed. What is neither exposed nor idle is hidden.
void StreamWalker::addUp(uint32_t index) {
  const Program &program = programs[index];
  Intervals exchanges, computations;
  for (const Operation &operation : program.operations) {
    const Node &node = nodes[operation.node];
    // Sends of processors and waits take no time.
    if (node.seconds > 0)
      (operation.computes ? computations : exchanges)
          .push_back({node.start, node.end()});
  }
  exchanges = join(std::move(exchanges));
  computations = join(std::move(computations));
  auto &times = replayed.operations.emplace_back();
  uint32_t before = uint32_t(nodes.size()); // of the operation before
  for (const Operation &operation : program.operations) {
    const Node &node = nodes[operation.node];
    OperationTime time = {node.seconds,
                          measure(computations, node.start, node.end())};
    // The first of a batch stands for all.
    times.push_back(operation.node == before ? OperationTime() : time);
    before = operation.node;
  }
  RankTime &rank = replayed.ranks.emplace_back();
  auto &actions = replayed.programs.emplace_back(program.firstOf.size());
  addActions(program, exchanges, rank, actions);
  double all = measure(exchanges, 0, replayed.seconds);
  rank.hidden = all - rank.communicating;
}

/// One pass over the operations in the plan's order, which computations keep,
/// as they share stream 0. An action without computations has the span of its
/// operations.
void StreamWalker::addActions(const Program &program,
                              const Intervals &exchanges, RankTime &rank,
                              std::vector<ActionTime> &actions) const {
  double clock = 0; // when the last computation ended
  for (uint32_t i = 0; i < actions.size(); ++i) {
    // Operations of an action follow each other.
    uint32_t begin = program.firstOf[i];
    uint32_t end = i + 1 < actions.size() ? program.firstOf[i + 1]
                                          : uint32_t(program.operations.size());
    // Begins at the first computation: what is exchanged before it is waiting
    // or exposed.
    ActionTime &time = actions[i];
    bool computes = false;
    double first = replayed.seconds, last = 0; // of all its operations
    for (uint32_t j = begin; j < end; ++j) {
      const Operation &operation = program.operations[j];
      const Node &node = nodes[operation.node];
      first = std::min(first, node.start);
      last = std::max(last, node.end());
      if (!operation.computes)
        continue;
      // Of the gap since the last computation, the part in which something was
      // exchanged is exposed; the rest of it is a bubble, and what was
      // exchanged during computations is hidden.
      double exposed = measure(exchanges, clock, node.start);
      rank.communicating += exposed;
      rank.computing += node.seconds;
      if (!computes)
        time.start = node.start;
      else
        time.communicating += exposed;
      computes = true;
      time.computing += node.seconds;
      time.end = clock = node.end();
    }
    // Of the others the whole span; calls without steps have none.
    if (computes)
      continue;
    time.start = begin < end ? first : clock;
    time.end = begin < end ? last : clock;
    time.communicating = time.end - time.start;
  }
  // What is exchanged behind the last computation hides behind nothing.
  rank.communicating += measure(exchanges, clock, replayed.seconds);
}

} // namespace

Result<Replayed> plan::replayStreams(const fb::Plan &plan,
                                     const std::vector<Message> &messages,
                                     const ReplayCosts &costs) {
  return StreamWalker(plan, messages, costs).run();
}
