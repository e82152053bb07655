//===- Level.h - What a reader of a plan has to know ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields are only ever added to the schema, and a reader passes over those that
// it does not know. Where that would compute something else, the reader must
// know the field: each feature that came later has a *level*, a plan needs the
// highest of those that it uses, and its header says so.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_LEVEL_H
#define PLAIT_PLAN_LEVEL_H

#include "plait/Plan/Plan_generated.h"

#include <cstdint>
#include <span>

namespace plait::plan {

/// The highest level that this program reads and writes.
constexpr uint32_t formatLevel = 6;

/// A table or a field that plans of level 0 did not have.
struct Feature {
  const char *name; // as in Plan.fbs: "Table" or "Table.field"
  uint32_t level;   // the first that has it, 1 to formatLevel
  bool (*isUsed)(const fb::Plan &plan);
};

/// All features, in the order of their levels.
std::span<const Feature> getFeatures();

/// The level that a reader of `plan` needs, which has passed FlatBuffers'
/// verifier. Linear in the plan.
uint32_t getLevel(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_LEVEL_H
