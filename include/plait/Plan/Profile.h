//===- Profile.h - Measured times of a run ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The file that `plait-run --profile` writes and simulation, calibration and
// reports read. It has the shape of the plan it was taken of: an entry for
// every step of every function of every program, in the plan's order. Times are
// wall-clock seconds, means over calls, ranks and training steps.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_PROFILE_H
#define PLAIT_PLAN_PROFILE_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace plait::plan {

/// The figures of one call. The time that a rank spends until the others are
/// there is `waiting`, the rest `seconds`; `processor` is what its thread was
/// given of a core, which is less where ranks share cores.
struct StepProfile {
  std::string kind;     // "KernelStep", as in Plan.fbs
  std::string location; // of the plan; empty: none
  double seconds = 0, waiting = 0, processor = 0;
};

struct FunctionProfile {
  std::string name;
  fb::ActionKind action = fb::ActionKind::Forward; // which calls it
  uint64_t calls = 0; // of one rank in one training step
  std::vector<StepProfile> steps;
};

/// All messages of a program that are alike but for the microbatch.
struct TransferProfile {
  fb::ActionKind kind = fb::ActionKind::Send; // or Recv, WaitSend
  fb::Direction direction = fb::Direction::Forward;
  uint32_t peer = 0, tensor = 0;
  uint64_t bytes = 0; // of one
  uint64_t calls = 0;
  double seconds = 0, waiting = 0, processor = 0; // of one
};

struct ProgramProfile {
  uint64_t arenaBytes = 0; // what a rank has allocated
  std::vector<FunctionProfile> functions;
  std::vector<TransferProfile> transfers;
};

struct Profile {
  std::string plan; // identify() of it
  std::vector<std::pair<std::string, uint32_t>> mesh;
  uint32_t threads = 1;   // of all ranks together
  bool overlap = false;   // what replicas exchange went on beside computing
  uint64_t steps = 0;     // training steps measured; the first one is left out
  double stepSeconds = 0; // their median
  double overheadSeconds = 0; // mean outside of the action lists: reading data
  std::vector<ProgramProfile> programs;
};

/// Returns in words the hash of a plan's bytes (PlanFile::hash), which tells
/// plans apart.
std::string identify(uint64_t hash);

/// JSON, aside first and then renamed. docs/Plan.md lists the fields.
Status writeProfile(const Profile &profile, const std::string &path);

/// Whether `action` is one of the messages that `transfer` sums up.
inline bool isTransfer(const TransferProfile &transfer,
                       const fb::Action &action) {
  return transfer.kind == action.kind() &&
         transfer.direction == action.direction() &&
         transfer.peer == action.peer() && transfer.tensor == action.tensor();
}

} // namespace plait::plan

#endif // PLAIT_PLAN_PROFILE_H
