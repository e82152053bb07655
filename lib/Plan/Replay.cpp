//===- Replay.cpp - The action lists of a plan, executed together ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An interpreter for action lists with a clock for each program. A Send posts,
// a Recv and a WaitSend wait for an event, a call spends time and stops at each
// collective over the pipeline axis until its members are there. With costs of
// zero it proves that the lists end; with those of a cost model it says when.
// Plans with streams are replayed by ReplayStreams.cpp.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Replay.h"

#include "CheckSteps.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <map>

using namespace plait;
using namespace plait::plan;

namespace {

constexpr uint32_t none = UINT32_MAX;
/// Times are at least 0.
constexpr double never = -1;

/// A part of a function: what runs up to a collective over the pipeline axis,
/// and that collective, or up to the end. Times are sums over its steps,
/// `meetingSeconds` that of the collective alone.
struct Segment {
  double computing = 0, communicating = 0;
  const fb::CollectiveStep *meeting = nullptr;
  double meetingSeconds = 0;
};

/// A collective over the pipeline axis that a program has reached.
struct Entry {
  const fb::CollectiveStep *step;
  uint32_t program;
  uint32_t action;
};

/// When something happened, and who waits for it. One waiter is enough: a
/// message has one receiver and one sender.
struct Event {
  double time = never;
  uint32_t waiter = none;
};

/// Compares what members of a collective have to say alike, for bytes to fit
/// and sums to be the same; addresses are each one's own.
bool agree(const fb::CollectiveStep &left, const fb::CollectiveStep &right) {
  return left.kind() == right.kind() && left.reduction() == right.reduction() &&
         left.dtype() == right.dtype() && left.outer() == right.outer() &&
         left.chunk() == right.chunk() && left.middle() == right.middle() &&
         left.splits_inner() == right.splits_inner() && !left.rows() &&
         !right.rows();
}

/// Describes a step as messages of the checker have it: "all_reduce Sum of 1 x
/// 64 F32".
std::string describe(const fb::CollectiveStep &step) {
  std::ostringstream out;
  out << getFacts(kindOf(step)).name << " "
      << fb::EnumNameReduction(step.reduction()) << " of " << step.outer()
      << " x ";
  if (step.middle() != 1)
    out << step.middle() << " x ";
  out << step.chunk() << " " << fb::EnumNameDType(step.dtype());
  return out.str();
}

/// `costs` is null where steps take no time.
/// A function is entered again where it waits, so it is cut there: collectives
/// over the pipeline axis join programs that run other functions, all others
/// ranks of one program, which come to them together.
std::vector<Segment> splitAtMeetings(const fb::Function &function,
                                     const std::vector<double> *costs) {
  std::vector<Segment> segments(1);
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const auto *collective = function.steps()->Get(i)->step_as_CollectiveStep();
    double seconds = costs ? (*costs)[i] : 0;
    Segment &segment = segments.back();
    if (!collective) {
      segment.computing += seconds;
    } else if (collective->axis() != 0) {
      segment.communicating += seconds;
    } else {
      segment.meeting = collective;
      segment.meetingSeconds = seconds;
      segments.emplace_back();
    }
  }
  return segments;
}

/// Invariant: a program that is neither in `ready` nor at its end waits for
/// exactly one event or meeting, which will put it there.
class Walker {
public:
  Walker(const fb::Plan &plan, const std::vector<Message> &messages,
         const ReplayCosts &costs);

  Result<Replayed> run();

private:
  struct Program {
    const flatbuffers::Vector<flatbuffers::Offset<fb::Action>> *actions;
    std::vector<uint32_t> message;              // of each action, or none
    std::vector<std::vector<Segment>> segments; // of each function
    uint32_t action = 0;
    uint32_t segment = 0; // next one inside the current function
    double clock = 0;
  };

  ActionTime &timeOf(uint32_t program) {
    return replayed.programs[program][programs[program].action];
  }
  Status advance(uint32_t program);
  /// Whether the program may go past the action; when not, an event will wake
  /// it.
  Result<bool> pass(uint32_t program);
  Result<bool> enter(uint32_t program);
  Result<bool> meet(uint32_t program, const Segment &segment);
  void spend(uint32_t program, double computing, double communicating);
  bool wait(Event &event, uint32_t program);
  void signal(Event &event, double time);
  Status checkEnded() const;

  const fb::Plan &plan;
  const RankGrid mesh;
  const ReplayCosts &costs;
  std::vector<Program> programs;
  std::vector<uint32_t> ready;
  std::vector<Event> posted, received; // by message
  std::map<std::vector<uint32_t>, std::vector<Entry>> rendezvous;
  Replayed replayed;
};

/// Messages are looked up by action, segments by function: no action is
/// searched for anything later.
Walker::Walker(const fb::Plan &plan, const std::vector<Message> &messages,
               const ReplayCosts &costs)
    : plan(plan), mesh(plan), costs(costs), posted(messages.size()),
      received(messages.size()) {
  for (uint32_t p = 0; p < plan.programs()->size(); ++p) {
    const fb::Program *source = plan.programs()->Get(p);
    Program &program = programs.emplace_back();
    program.actions = source->actions();
    program.message.resize(length(source->actions()), none);
    replayed.programs.emplace_back(length(source->actions()));
    // Functions are cut once, and entered by each call.
    for (uint32_t i = 0; i < length(source->functions()); ++i)
      program.segments.push_back(
          splitAtMeetings(*source->functions()->Get(i),
                          costs.steps.empty() ? nullptr : &costs.steps[p][i]));
  }
  for (uint32_t i = 0; i < messages.size(); ++i) {
    const Message &message = messages[i];
    // Three actions of two programs share the message's events.
    programs[message.source].message[message.send] = i;
    programs[message.source].message[message.wait] = i;
    programs[message.target].message[message.receive] = i;
  }
}

/// Programs run until they wait and are woken by what they wait for, so that
/// each action is passed once and looked at at most twice: time grows with the
/// actions. The order in which programs are woken changes no time, since each
/// event has one.
Result<Replayed> Walker::run() {
  // The first program runs first; any order would do.
  for (uint32_t i = programs.size(); i-- > 0;)
    ready.push_back(i);
  while (!ready.empty()) {
    uint32_t program = ready.back();
    ready.pop_back();
    PLAIT_RETURN_IF_ERROR(advance(program));
  }
  PLAIT_RETURN_IF_ERROR(checkEnded());
  for (const std::vector<ActionTime> &actions : replayed.programs) {
    // Without streams nothing is hidden.
    RankTime &rank = replayed.ranks.emplace_back();
    for (const ActionTime &time : actions) {
      rank.computing += time.computing;
      rank.communicating += time.communicating;
      replayed.seconds = std::max(replayed.seconds, time.end);
    }
  }
  return std::move(replayed);
}

/// Goes on until the program has to wait; then it is entered again at the same
/// action, and inside of a function at the segment that comes next.
Status Walker::advance(uint32_t index) {
  Program &program = programs[index];
  while (program.action < length(program.actions)) {
    Result<bool> passed = pass(index);
    if (!passed.ok())
      return passed.status();
    if (!*passed)
      return Status::success();
    double end = timeOf(index).end = program.clock;
    ++program.action;
    program.segment = 0;
    if (program.action < length(program.actions))
      timeOf(index).start = end;
  }
  return Status::success();
}

/// A Recv is looked at again when its message has been posted, and takes its
/// time once, as it passes once.
Result<bool> Walker::pass(uint32_t index) {
  Program &program = programs[index];
  uint32_t message = program.message[program.action];
  switch (program.actions->Get(program.action)->kind()) {
  case fb::ActionKind::Send:
    signal(posted[message], program.clock);
    return true;
  case fb::ActionKind::Recv:
    if (!wait(posted[message], index))
      return false;
    // The receiver's clock bears the message; the sender goes on, and waits
    // for the end of it in WaitSend.
    spend(index, 0, costs.messages.empty() ? 0 : costs.messages[message]);
    signal(received[message], program.clock);
    return true;
  case fb::ActionKind::WaitSend:
    // The n-th wait belongs to the n-th send, which must come first.
    if (posted[message].time == never)
      return fail(describeAction(plan, index, program.action),
                  ": waits for a message that is sent later");
    return wait(received[message], index);
  default: // a call
    return enter(index);
  }
}

/// Runs the remaining parts of the current function one by one. `segment` is
/// counted up before the meeting: a program that is woken goes on behind it,
/// with the clock that the meeting has given it.
Result<bool> Walker::enter(uint32_t index) {
  Program &program = programs[index];
  int32_t function = program.actions->Get(program.action)->function();
  const std::vector<Segment> &segments = program.segments[function];
  while (program.segment < segments.size()) {
    const Segment &segment = segments[program.segment++];
    spend(index, segment.computing, segment.communicating);
    if (!segment.meeting)
      continue;
    Result<bool> met = meet(index, segment);
    if (!met.ok() || !*met)
      return met;
  }
  return true;
}

/// Each member adds itself to the group's entries; the last one sets the clocks
/// of all and wakes them. Members that enter different collectives would
/// exchange nonsense or hang: that is an error at once, and names both.
Result<bool> Walker::meet(uint32_t index, const Segment &segment) {
  uint32_t action = programs[index].action;
  const fb::CollectiveStep &step = *segment.meeting;
  std::vector<uint32_t> members = membersOf(mesh, step);
  if (!std::count(members.begin(), members.end(), index))
    return fail(describeAction(plan, index, action), ": ", describe(step),
                " does not count the program as a member");
  // One meeting at a time of each group: who has entered is not past it before
  // all have.
  std::vector<Entry> &entries = rendezvous[members];
  if (!entries.empty() && !agree(*entries.front().step, step))
    return fail(
        describeAction(plan, index, action), ": ", describe(step), " meets ",
        describe(*entries.front().step), " of ",
        describeAction(plan, entries.front().program, entries.front().action));
  entries.push_back({&step, index, action});
  if (entries.size() < members.size())
    return false;
  double last = 0;
  for (const Entry &entry : entries)
    last = std::max(last, programs[entry.program].clock);
  for (const Entry &entry : entries) {
    // All begin when the last one comes, and end together.
    programs[entry.program].clock = last;
    spend(entry.program, 0, segment.meetingSeconds);
    if (entry.program != index)
      ready.push_back(entry.program);
  }
  entries.clear();
  return true;
}

/// Waiting is what is left of an action's time (ActionTime::waiting).
void Walker::spend(uint32_t program, double computing, double communicating) {
  ActionTime &time = timeOf(program);
  time.computing += computing;
  time.communicating += communicating;
  programs[program].clock += computing + communicating;
}

/// An event that has happened already only moves the clock, if it is later.
bool Walker::wait(Event &event, uint32_t program) {
  if (event.time == never) {
    event.waiter = program;
    return false;
  }
  double &clock = programs[program].clock;
  clock = std::max(clock, event.time);
  return true;
}

/// The waiter looks at its action again; it may be that nobody waits.
void Walker::signal(Event &event, double time) {
  event.time = time;
  if (event.waiter != none)
    ready.push_back(event.waiter);
}

/// Reached when nothing is ready: a program that is not at its end waits for
/// ever. The first one is reported, with what it waits for.
Status Walker::checkEnded() const {
  for (uint32_t i = 0; i < programs.size(); ++i) {
    const Program &program = programs[i];
    if (program.action == length(program.actions))
      continue;
    const fb::Action &action = *program.actions->Get(program.action);
    if (program.message[program.action] != none)
      return fail(describeAction(plan, i, program.action),
                  ": deadlock: waits for program ", action.peer(), " for ever");
    const fb::CollectiveStep &step =
        *program.segments[action.function()][program.segment - 1].meeting;
    return fail(describeAction(plan, i, program.action),
                ": deadlock: ", describe(step), " is not entered by all ",
                membersOf(mesh, step).size(), " members");
  }
  return Status::success();
}

} // namespace

Result<Replayed> plan::replay(const fb::Plan &plan,
                              const std::vector<Message> &messages,
                              const ReplayCosts &costs) {
  return Walker(plan, messages, costs).run();
}
