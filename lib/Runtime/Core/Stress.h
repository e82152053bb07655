//===- Stress.h - What must not change a step -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_STRESS_H
#define PLAIT_LIB_RUNTIME_CORE_STRESS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Executor.h"

namespace plait::runtime {

/// Does to the steps of one rank what a test asks for, and what may not change
/// a bit of their results: see Stress in Executor.h.
class StepStress {
public:
  StepStress(const fb::Program &program, Device &device, uint32_t rank)
      : program(program), device(device), rank(rank) {}

  void set(Stress value) { stress = value; }
  /// Before an action: fills with NaN the memory whose contents begin with it.
  /// Only for a rank of one stream, whose earlier actions have ended.
  Status spoilMemory(uint32_t action);
  /// Before the rank sends, receives or enters collective number `operation` of
  /// a step: waits for a moment, or not, by these numbers alone.
  void holdMessage(uint64_t step, uint32_t operation) const;

private:
  const fb::Program &program;
  Device &device;
  uint32_t rank;
  Stress stress = Stress::None;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_STRESS_H
