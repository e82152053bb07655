//===- Stress.cpp - What must not change a step ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Stress.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <thread>

using namespace plait;
using namespace plait::runtime;

/// Whether a region of that category is written before it is read in each step.
/// Parameters, gradients and state live on, and padding in them begins as zero.
static bool isWrittenFirst(fb::Category category) {
  return category == fb::Category::Activations ||
         category == fb::Category::Transfers ||
         category == fb::Category::Workspace;
}

/// All bits set are a NaN of f32 and of bf16.
Status StepStress::spoilMemory(uint32_t action) {
  static const std::vector<std::byte> spoiled(1 << 16, std::byte(0xFF));
  if (stress != Stress::Memory)
    return Status::success();
  for (uint32_t i = 0; i < plan::length(program.regions()); ++i) {
    const fb::Region &region = *program.regions()->Get(i);
    if (region.first_action() != action || !isWrittenFirst(region.category()))
      continue;
    for (uint64_t done = 0; done < region.bytes(); done += spoiled.size())
      PLAIT_RETURN_IF_ERROR(device.write(
          region.offset() + done, std::span(spoiled).first(std::min<uint64_t>(
                                      spoiled.size(), region.bytes() - done))));
  }
  return Status::success();
}

/// One in four is late, by up to a millisecond: some are overtaken by what
/// others do meanwhile, and a step of thousands still ends.
void StepStress::holdMessage(uint64_t step, uint32_t operation) const {
  if (stress != Stress::Messages)
    return;
  uint64_t drawn = (step << 40) ^ (uint64_t(rank) << 28) ^ operation;
  // The finalizer of splitmix64.
  drawn = (drawn ^ (drawn >> 30)) * 0xBF58476D1CE4E5B9;
  drawn = (drawn ^ (drawn >> 27)) * 0x94D049BB133111EB;
  drawn ^= drawn >> 31;
  if (drawn % 4 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(drawn / 4 % 1000));
}
