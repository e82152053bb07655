//===- Uses.h - Memory accesses of steps ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one place that knows which bytes of the arena a step touches. The plan
// checker proves them to be inside the arena; the runtime derives from them
// which steps have to wait for each other.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_USES_H
#define PLAIT_PLAN_USES_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"
#include "plait/Support/Collectives.h"
#include "plait/Support/MemoryPlaces.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plait::plan {

/// The kind of a step of a checked plan.
inline CollectiveKind kindOf(const fb::CollectiveStep &step) {
  return CollectiveKind(step.kind());
}
/// The part of the whole tensor that moves, with even routing.
inline double shareOf(const fb::CollectiveStep &step, int64_t members) {
  return step.rows() ? getRowShare(members, step.rows()->choices()) : 1;
}

/// The smallest run of bytes, from one Ref on, that holds all that a step
/// touches of one tensor.
struct Use {
  const char *what;   // for messages: "A", "input"
  const fb::Ref *ref; // null where a malformed plan has none
  /// Elements from the Ref on. Nothing: the sizes or strides are impossible.
  std::optional<uint64_t> count;
  uint64_t unit = 1; // bytes of an element
  bool writes = false;
  /// Not known: up to the end of the slot or of the arena; `count` is 0.
  bool toEnd = false;
  bool isInteger = false; // of a kernel: its elements are i32

  /// Returns where it ends, in bytes from the beginning of its slot or of the
  /// arena, which end at `limit`. Only for steps that the checker accepts.
  uint64_t end(uint64_t limit) const {
    return toEnd ? limit : ref->offset() + *count * unit;
  }
};

/// Returns the step where it is a copy between the arena and another place.
inline const fb::CopyStep *asPlaceCopy(const fb::Step &step) {
  const fb::CopyStep *copy = step.step_as_CopyStep();
  return copy && copy->kind() != fb::CopyKind::Within ? copy : nullptr;
}

/// Tells where a use of `step` is: one end of a copy to or from another place
/// is there, and nothing else is.
MemoryPlace getPlaceOf(const fb::Step &step, const Use &use);

/// The uses of `step`. Its kind is known; the axis of a collective is one of
/// `mesh`, and the lists of a GEMM have the same length.
std::vector<Use> usesOf(const RankGrid &mesh, const fb::Step &step);

/// Bytes of the arena that are read, and with `writes` written.
struct ByteRange {
  uint64_t begin, end;
  bool writes;
};

/// Whether [offset, offset + bytes) is inside of what a rank has in a place; in
/// any, if none is given.
bool isInside(const fb::Program &program, std::optional<MemoryPlace> place,
              uint64_t offset, uint64_t bytes);
/// "the 64 bytes of the arena", for messages.
std::string describe(const fb::Program &program,
                     std::optional<MemoryPlace> place);

/// Returns the bytes that a use is where `action` calls the step's function.
/// Only for plans that the checker accepts.
ByteRange rangeOf(const fb::Program &program, const fb::Action &action,
                  const Use &use);

} // namespace plait::plan

#endif // PLAIT_PLAN_USES_H
