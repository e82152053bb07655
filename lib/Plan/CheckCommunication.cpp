//===- CheckCommunication.cpp - All programs together come to an end ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Executes the action lists of all programs in the abstract. A program runs
// until it must wait; what it waits for wakes it. Since Send never blocks and
// everything else waits for one definite event, the outcome does not depend on
// the order in which programs are run: if this execution ends, all do.
//
// Collectives over other axes than the pipeline's join ranks that run the same
// list, hence meet by construction.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "CheckSteps.h"
#include "plait/Plan/Messages.h"

#include <algorithm>
#include <map>
#include <vector>

using namespace plait;
using namespace plait::plan;

namespace {

constexpr uint32_t none = UINT32_MAX;

/// A collective over the pipeline axis that a program has reached.
struct Entry {
  const fb::CollectiveStep *step;
  uint32_t program;
  uint32_t action;
};

bool agree(const fb::CollectiveStep &left, const fb::CollectiveStep &right) {
  return left.kind() == right.kind() && left.reduction() == right.reduction() &&
         left.dtype() == right.dtype() && left.outer() == right.outer() &&
         left.chunk() == right.chunk();
}

std::string describe(const fb::CollectiveStep &step) {
  std::ostringstream out;
  out << fb::EnumNameCollectiveKind(step.kind()) << " "
      << fb::EnumNameReduction(step.reduction()) << " of " << step.outer()
      << " x " << step.chunk() << " " << fb::EnumNameDType(step.dtype());
  return out.str();
}

class Simulation {
public:
  Simulation(const fb::Plan &plan, const std::vector<Message> &messages);

  Status run();

private:
  struct Program {
    const flatbuffers::Vector<flatbuffers::Offset<fb::Action>> *actions;
    std::vector<uint32_t> message; // of each action, or none
    std::vector<std::vector<const fb::CollectiveStep *>> collectives;
    uint32_t action = 0;
    uint32_t collective = 0; // next one inside the current function
  };

  Status advance(uint32_t program);
  /// Whether the program may go past the action; when not, an event will wake
  /// it.
  Result<bool> pass(uint32_t program);
  Result<bool> enter(uint32_t program);
  bool wait(std::vector<bool> &happened, std::vector<uint32_t> &waiting,
            uint32_t message, uint32_t program);
  void signal(std::vector<bool> &happened, std::vector<uint32_t> &waiting,
              uint32_t message);
  std::vector<uint32_t> membersOf(const fb::CollectiveStep &step) const;
  Status checkEnded() const;

  const fb::Plan &plan;
  std::vector<Program> programs;
  std::vector<uint32_t> ready;
  std::vector<bool> posted, received;
  std::vector<uint32_t> awaitingPost, awaitingReceipt;
  std::map<std::vector<uint32_t>, std::vector<Entry>> rendezvous;
};

Simulation::Simulation(const fb::Plan &plan,
                       const std::vector<Message> &messages)
    : plan(plan), posted(messages.size()), received(messages.size()),
      awaitingPost(messages.size(), none),
      awaitingReceipt(messages.size(), none) {
  for (const fb::Program *source : *plan.programs()) {
    Program &program = programs.emplace_back();
    program.actions = source->actions();
    program.message.resize(length(source->actions()), none);
    for (uint32_t i = 0; i < length(source->functions()); ++i) {
      auto &list = program.collectives.emplace_back();
      const auto *steps = source->functions()->Get(i)->steps();
      for (uint32_t j = 0; j < length(steps); ++j)
        if (const auto *step = steps->Get(j)->step_as_CollectiveStep())
          if (step->axis() == 0)
            list.push_back(step);
    }
  }
  for (uint32_t i = 0; i < messages.size(); ++i) {
    const Message &message = messages[i];
    programs[message.source].message[message.send] = i;
    programs[message.source].message[message.wait] = i;
    programs[message.target].message[message.receive] = i;
  }
}

Status Simulation::run() {
  for (uint32_t i = programs.size(); i-- > 0;)
    ready.push_back(i);
  while (!ready.empty()) {
    uint32_t program = ready.back();
    ready.pop_back();
    PLAIT_RETURN_IF_ERROR(advance(program));
  }
  return checkEnded();
}

Status Simulation::advance(uint32_t index) {
  Program &program = programs[index];
  while (program.action < length(program.actions)) {
    Result<bool> passed = pass(index);
    if (!passed.ok())
      return passed.status();
    if (!*passed)
      return Status::success();
    ++program.action;
    program.collective = 0;
  }
  return Status::success();
}

Result<bool> Simulation::pass(uint32_t index) {
  Program &program = programs[index];
  uint32_t message = program.message[program.action];
  switch (program.actions->Get(program.action)->kind()) {
  case fb::ActionKind::Send:
    signal(posted, awaitingPost, message);
    return true;
  case fb::ActionKind::Recv:
    if (!wait(posted, awaitingPost, message, index))
      return false;
    signal(received, awaitingReceipt, message);
    return true;
  case fb::ActionKind::WaitSend:
    // The n-th wait belongs to the n-th send, which must come first.
    if (!posted[message])
      return fail(describeAction(plan, index, program.action),
                  ": waits for a message that is sent later");
    return wait(received, awaitingReceipt, message, index);
  default:
    return enter(index);
  }
}

/// Enters the remaining collectives of the current function one by one.
Result<bool> Simulation::enter(uint32_t index) {
  Program &program = programs[index];
  int32_t function = program.actions->Get(program.action)->function();
  const auto &steps = program.collectives[function];
  while (program.collective < steps.size()) {
    const fb::CollectiveStep &step = *steps[program.collective++];
    std::vector<uint32_t> members = membersOf(step);
    if (!std::count(members.begin(), members.end(), index))
      return fail(describeAction(plan, index, program.action), ": ",
                  describe(step), " does not count the program as a member");
    std::vector<Entry> &entries = rendezvous[members];
    if (!entries.empty() && !agree(*entries.front().step, step))
      return fail(describeAction(plan, index, program.action), ": ",
                  describe(step), " meets ", describe(*entries.front().step),
                  " of ",
                  describeAction(plan, entries.front().program,
                                 entries.front().action));
    entries.push_back({&step, index, program.action});
    if (entries.size() < members.size())
      return false;
    for (const Entry &entry : entries)
      if (entry.program != index)
        ready.push_back(entry.program);
    entries.clear();
  }
  return true;
}

bool Simulation::wait(std::vector<bool> &happened,
                      std::vector<uint32_t> &waiting, uint32_t message,
                      uint32_t program) {
  if (!happened[message])
    waiting[message] = program;
  return happened[message];
}

void Simulation::signal(std::vector<bool> &happened,
                        std::vector<uint32_t> &waiting, uint32_t message) {
  happened[message] = true;
  if (waiting[message] != none)
    ready.push_back(waiting[message]);
}

std::vector<uint32_t>
Simulation::membersOf(const fb::CollectiveStep &step) const {
  if (length(step.members()))
    return {step.members()->begin(), step.members()->end()};
  std::vector<uint32_t> all(programs.size());
  for (uint32_t i = 0; i < all.size(); ++i)
    all[i] = i;
  return all;
}

Status Simulation::checkEnded() const {
  for (uint32_t i = 0; i < programs.size(); ++i) {
    const Program &program = programs[i];
    if (program.action == length(program.actions))
      continue;
    const fb::Action &action = *program.actions->Get(program.action);
    if (program.message[program.action] != none)
      return fail(describeAction(plan, i, program.action),
                  ": deadlock: waits for program ", action.peer(), " for ever");
    const auto *step =
        program.collectives[action.function()][program.collective - 1];
    return fail(describeAction(plan, i, program.action),
                ": deadlock: ", describe(*step), " is not entered by all ",
                membersOf(*step).size(), " members");
  }
  return Status::success();
}

} // namespace

Status plan::checkCommunication(const fb::Plan &plan) {
  Result<std::vector<Message>> messages = matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  return Simulation(plan, *messages).run();
}
