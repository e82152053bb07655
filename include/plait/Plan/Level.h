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

/// Whether micro-batches add the gradient of `shard` to what replicas have not
/// sent of it, the state kErrorState: from ZeRO 2 on, of packs that they
/// divide. The gradient then has no memory of its own.
bool addsToError(const fb::Plan &plan, const fb::Shard &shard);

/// A table or a field that plans of level 0 did not have, or not with that
/// meaning.
struct Feature {
  const char *name; // as in Plan.fbs: "Table" or "Table.field"
  uint32_t level;   // the first that has it, at least 1
  bool (*isUsed)(const fb::Plan &plan);
};

/// All features, in the order of their levels.
std::span<const Feature> getFeatures();

/// The highest level that this program reads and writes: that of the latest
/// feature.
uint32_t getFormatLevel();

/// The level that a reader of `plan` needs, which has passed FlatBuffers'
/// verifier. Linear in the plan.
uint32_t getLevel(const fb::Plan &plan);

} // namespace plait::plan

#endif // PLAIT_PLAN_LEVEL_H
