//===- Exchange.h - What a rank exchanges in a step -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step as a list of what goes over wires: collectives along each axis of the
// mesh, messages between stages, copies to the host and back. The list can be
// had of a plan, where it is read off the steps, and of an estimate, which it
// is what communication costs are computed from. The two are the same but for
// what docs/PlanTool.md names, which tests hold them to.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_EXCHANGE_H
#define PLAIT_PLANNER_EXCHANGE_H

#include "plait/Configuration/Mesh.h"
#include "plait/Support/Collectives.h"
#include "plait/Support/MemoryPlaces.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plait::planner {

/// Kinds of exchanges. The first ones are those of CollectiveKind, with their
/// numbers.
enum class Carrier : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Send, // a message to another stage
  To,   // a copy from the arena to another place of the rank
  From, // and back
};
constexpr Carrier getCarrier(CollectiveKind kind) { return Carrier(kind); }
/// Returns the kind of a collective, none of the others.
constexpr std::optional<CollectiveKind> getCollective(Carrier carrier) {
  if (carrier > Carrier::AllToAll)
    return std::nullopt;
  return CollectiveKind(carrier);
}

/// The part of a step that has it among its work: the passes of microbatches,
/// sums of gradients behind the last one, the update, what renews parameters in
/// front of the first pass, and what sites do behind it all.
enum class Moment : uint8_t {
  Gather,
  Forward,
  Backward,
  Reduce,
  Optimizer,
  Agreement
};
/// "forward".
std::string_view getName(Moment moment);

/// Exchanges of one kind, at one moment, along one axis, of one rank.
struct Exchange {
  std::optional<Axis> axis; // none: between sites, or places of a rank
  Carrier carrier = Carrier::AllReduce;
  Moment moment = Moment::Forward;
  int64_t members = 1; // of each group; 2 of a message, 1 of a copy
  /// Amounts of a step: how many there are, and their bytes, of whole tensors
  /// (see collectiveSeconds()). Of agreements, which are in some steps only,
  /// the mean over all steps.
  double count = 0, bytes = 0;
  /// Seconds of a step: of each by itself, and of them those beside computing.
  double seconds = 0, hidden = 0;
  MemoryPlace place = MemoryPlace::Arena; // the other one of a copy

  /// "all-reduce", "send", "to-host".
  std::string getName() const;

  /// Returns the bytes that the rank sends, if collectives run as rings.
  double getSent() const;
  /// Whether the two differ in amounts alone.
  bool isAlike(const Exchange &other) const {
    return axis == other.axis && carrier == other.carrier &&
           moment == other.moment && members == other.members &&
           place == other.place;
  }
};

/// Exchanges of a rank, each kind once, in the order of axes, then moments,
/// then carriers.
class ExchangeList {
public:
  /// Adds to the entry that is alike; what is exchanged by nobody is left out.
  void add(const Exchange &exchange);
  const std::vector<Exchange> &get() const { return exchanges; }
  /// Returns the bytes that the rank sends.
  double getSent() const;

private:
  std::vector<Exchange> exchanges;
};

} // namespace plait::planner

#endif // PLAIT_PLANNER_EXCHANGE_H
