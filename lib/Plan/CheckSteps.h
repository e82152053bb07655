//===- CheckSteps.h - Everything in a function is in range ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of checkStructure that look into the head and into functions, and
// the helpers that all parts share. Private to lib/Plan.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLAN_CHECKSTEPS_H
#define PLAIT_LIB_PLAN_CHECKSTEPS_H

#include "plait/Plan/Ranks.h"
#include "plait/Plan/Uses.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace plait::plan {

/// No arena is larger; sums of a few products of this size fit 64 bits.
constexpr uint64_t maxElements = uint64_t(1) << 46;

/// The product of `sizes`, or nothing when one is below 1 or the bytes of that
/// many elements would not fit an arena.
std::optional<uint64_t> elementCount(std::span<const int64_t> sizes);
std::optional<uint64_t> elementCount(std::initializer_list<int64_t> sizes);
std::optional<uint64_t> elementCount(const flatbuffers::Vector<int64_t> &sizes);

/// The name of slot `slot` for messages.
std::string slotName(const fb::Function &function, uint32_t slot);

/// Checks what is no program's: mesh, batch, parameters, words and figures.
Status checkHead(const fb::Plan &plan);

/// Checks all steps of `function`, which belongs to `program`, and says of each
/// slot to which memory it has to be bound.
Status checkFunction(const fb::Plan &plan, const fb::Program &program,
                     const fb::Function &function,
                     std::vector<std::optional<MemoryPlace>> &slots);

} // namespace plait::plan

#endif // PLAIT_LIB_PLAN_CHECKSTEPS_H
