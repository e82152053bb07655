//===- CheckCommunication.cpp - All programs together come to an end ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives over other axes than the pipeline's join ranks that run the same
// list, hence meet by construction; the rest is what a replay finds out.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "plait/Plan/Replay.h"

using namespace plait;
using namespace plait::plan;

Status plan::checkCommunication(const fb::Plan &plan) {
  Result<std::vector<Message>> messages = matchMessages(plan);
  if (!messages.ok())
    return messages.status();
  return replay(plan, *messages, ReplayCosts()).status();
}
