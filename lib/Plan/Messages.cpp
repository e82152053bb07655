//===- Messages.cpp - Matching of sends and receives ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the partner of each transfer once, by sorting all ends by name: n log
// n, and independent of the order in which programs are looked at. Names need
// not be unique: the n-th of one name meets the n-th.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Messages.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <tuple>

using namespace plait;
using namespace plait::plan;

namespace {

/// An end of a message. Sorting brings the ends of one name together: first
/// all sends in the order of their program, then receives, then waits.
struct End {
  uint32_t source;
  uint32_t target;
  uint32_t list, exchange; // of sites
  uint32_t stage;
  fb::Direction direction;
  uint32_t microbatch;
  uint32_t tensor;
  fb::ActionKind role;
  uint32_t action;

  auto name() const {
    return std::tie(source, target, list, exchange, stage, direction,
                    microbatch, tensor);
  }
  auto key() const { return std::tuple_cat(name(), std::tie(role, action)); }
  uint32_t program() const {
    return role == fb::ActionKind::Recv ? target : source;
  }
};

/// A receive names its source as peer, the others their target. After sorting
/// the ends of one name are sends, receives and waits, each in the order of the
/// action list: ActionKind has them in this order.
std::vector<End> collectEnds(const fb::Plan &plan) {
  std::vector<End> ends;
  for (uint32_t program = 0; program < plan.programs()->size(); ++program) {
    const auto *actions = plan.programs()->Get(program)->actions();
    for (uint32_t i = 0; i < length(actions); ++i) {
      const fb::Action &action = *actions->Get(i);
      if (!isTransfer(action))
        continue;
      // Source and target of a message are the same whichever end tells of it.
      bool receives = action.kind() == fb::ActionKind::Recv;
      ends.push_back({receives ? action.peer() : program,
                      receives ? program : action.peer(), action.list(),
                      action.exchange(), action.stage(), action.direction(),
                      action.microbatch(), action.tensor(), action.kind(), i});
    }
  }
  std::sort(ends.begin(), ends.end(), [](const End &left, const End &right) {
    return left.key() < right.key();
  });
  return ends;
}

/// Finds an action by program and index, which an End has of its action.
const fb::Action &actionOf(const fb::Plan &plan, const End &end) {
  return *plan.programs()->Get(end.program())->actions()->Get(end.action);
}

} // namespace

/// Names the action by its program and its index there.
std::string plan::describeAction(const fb::Plan &plan, uint32_t program,
                                 uint32_t action) {
  const fb::Action &found =
      *plan.programs()->Get(program)->actions()->Get(action);
  std::ostringstream out;
  out << "program " << program << ", action " << action << " ("
      << fb::EnumNameActionKind(found.kind()) << ", microbatch "
      << found.microbatch() << ")";
  return out.str();
}

/// Each group of one name has to have equally many of all three; the i-th of
/// each are a message.
Result<std::vector<Message>> plan::matchMessages(const fb::Plan &plan) {
  std::vector<End> ends = collectEnds(plan);
  std::vector<Message> messages;
  for (size_t begin = 0; begin < ends.size();) {
    size_t end = begin;
    // Sends, receives, waits.
    size_t counts[3] = {0, 0, 0};
    for (; end < ends.size() && ends[end].name() == ends[begin].name(); ++end)
      ++counts[static_cast<int>(ends[end].role) -
               static_cast<int>(fb::ActionKind::Send)];
    auto [sends, receives, waits] = counts;
    if (sends != receives || sends != waits)
      return fail(
          describeAction(plan, ends[begin].program(), ends[begin].action),
          ": the message from program ", ends[begin].source, " to ",
          ends[begin].target, " (",
          fb::EnumNameDirection(ends[begin].direction), " from stage ",
          ends[begin].stage, ", tensor ", ends[begin].tensor, ") is sent ",
          sends, ", received ", receives, " and waited for ", waits, " times");
    // They lie one group behind the other, each in order.
    for (size_t i = 0; i < sends; ++i) {
      const End &send = ends[begin + i];
      const End &receive = ends[begin + sends + i];
      const End &wait = ends[begin + 2 * sends + i];
      if (actionOf(plan, send).bytes() != actionOf(plan, receive).bytes())
        return fail(describeAction(plan, receive.program(), receive.action),
                    ": receives ", actionOf(plan, receive).bytes(),
                    " bytes, the sender posts ", actionOf(plan, send).bytes());
      messages.push_back(
          {send.source, send.target, send.action, receive.action, wait.action});
    }
    begin = end;
  }
  return messages;
}
