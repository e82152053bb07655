//===- Guard.h - Search for the source of NaNs ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a guarded step every operation of a rank is looked at: of the numbers that
// it reads and of those that it writes. The one to blame is the one that makes
// NaN or an infinity of finite numbers, on the rank where it does. What arrives
// from another rank is that rank's.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_GUARD_H
#define PLAIT_LIB_RUNTIME_CORE_GUARD_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Executor.h"

#include <optional>
#include <string>

namespace plait::runtime {

/// Looks at what the steps of one rank read and write. Used by its thread, and
/// only with devices that have done a step when they return from it.
class StepGuard {
public:
  StepGuard(const plan::RankGrid &mesh, const fb::Program &program,
            Device &device)
      : mesh(mesh), program(program), device(device) {}

  /// Before `step` runs: whether all that it reads is finite. False for what
  /// only moves numbers.
  Result<bool> isInputFinite(const fb::Action &action, const fb::Step &step);
  /// After it has: fails where it has written what is not.
  Status checkOutput(const fb::Action &action, const fb::Step &step);

private:
  struct Found {
    uint64_t element;
    float value;
  };
  Result<std::optional<Found>> find(uint64_t begin, uint64_t end, uint64_t unit,
                                    bool allowsMask);
  bool isInput(uint64_t begin, uint64_t end) const;

  const plan::RankGrid &mesh;
  const fb::Program &program;
  Device &device;
  std::vector<std::byte> window;
};

/// Fails unless all ranks that hold the same elements of a parameter hold the
/// same bits, all of them finite. All processes call this.
Status checkReplicas(Executor &executor, uint64_t step);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_GUARD_H
