//===- Collectives.h - Kinds of collectives ---------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor of a collective consists of blocks, one a member. What tells one
// kind from another is a row of facts, which verifiers, the plan checker, the
// runtime and cost models read: a further kind is a row, its op, and a method
// of each group of ranks.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_COLLECTIVES_H
#define PLAIT_SUPPORT_COLLECTIVES_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace plait {

/// Plan files have these numbers.
enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll
};

struct CollectiveFacts {
  std::string_view name; // in hardware files and messages; IR has underscores
  /// Whether a member brings, and gets, all blocks; otherwise one.
  bool readsAll, writesAll;
  bool reduces;      // combines values
  bool exchanges;    // cuts two dimensions
  bool worksInPlace; // its output may be its input
  int passes;        // of all blocks around a ring
};

inline constexpr CollectiveFacts collectives[] = {
    {"all-reduce", false, false, true, false, true, 2},
    {"all-gather", false, true, false, false, false, 1},
    {"reduce-scatter", true, false, true, false, false, 1},
    {"all-to-all", true, true, false, true, false, 1},
};

static_assert(std::size(collectives) == size_t(CollectiveKind::AllToAll) + 1);

constexpr const CollectiveFacts &getFacts(CollectiveKind kind) {
  return collectives[size_t(kind)];
}

/// The blocks of the whole tensor, see getSentShare().
constexpr int64_t countBlocks(CollectiveKind kind, int64_t members) {
  return getFacts(kind).readsAll || getFacts(kind).writesAll ? members : 1;
}

/// Returns the part of the whole tensor's bytes that each of `members` sends in
/// a ring. The whole tensor is what an all-reduce combines, an all-gather ends
/// with, a reduce-scatter begins with, and one member holds before an
/// all-to-all.
constexpr double getSentShare(CollectiveKind kind, int64_t members) {
  return getFacts(kind).passes * (double(members) - 1) / double(members);
}

/// Returns the part of the rows of a gather or scatter of some rows that each
/// member has an expert of, where each of a row's `choices` is as likely of one
/// member as of another.
inline double getRowShare(int64_t members, int64_t choices) {
  return 1 - std::pow(1 - 1 / double(members), double(choices));
}

} // namespace plait

#endif // PLAIT_SUPPORT_COLLECTIVES_H
