//===- Messages.h - Matching of sends and receives --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Transfers between programs are named by (source, target, virtual stage that
// sends, direction, microbatch, tensor), and those between sites by their list
// and exchange as well. Within one step the n-th Send of a
// name meets the n-th Recv and the n-th WaitSend of that name. Messages pair
// the actions once and for all; nothing is looked up during a step.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_MESSAGES_H
#define PLAIT_PLAN_MESSAGES_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <string>
#include <vector>

namespace plait::plan {

/// One transfer of a step. The three numbers are indices into the action lists
/// of `source` (send, wait) and `target` (receive).
struct Message {
  uint32_t source;
  uint32_t target;
  uint32_t send;
  uint32_t receive;
  uint32_t wait;
};

/// Whether `action` moves bytes between programs; the others call a function.
inline bool isTransfer(const fb::Action &action) {
  return action.kind() == fb::ActionKind::Send ||
         action.kind() == fb::ActionKind::Recv ||
         action.kind() == fb::ActionKind::WaitSend;
}

/// Every transfer of `plan`, in an order that depends on the plan alone. Fails
/// when a message is not sent, received and waited for exactly once, or when
/// both ends disagree about its size. Needs a plan whose structure is sound.
Result<std::vector<Message>> matchMessages(const fb::Plan &plan);

/// "program 1, action 17 (Recv, microbatch 3)": how messages name an action.
std::string describeAction(const fb::Plan &plan, uint32_t program,
                           uint32_t action);

} // namespace plait::plan

#endif // PLAIT_PLAN_MESSAGES_H
