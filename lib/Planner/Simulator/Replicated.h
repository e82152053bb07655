//===- Replicated.h - Exchanges among ranks that hold the same --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_REPLICATED_H
#define PLAIT_LIB_PLANNER_SIMULATOR_REPLICATED_H

#include "Packs.h"

#include <numeric>

namespace plait::planner {

/// Exchanges of parameters or gradients among ranks that hold the same:
/// collectives over the axes that divide state, and where these leave sums to
/// be made, all-reduces over the others.
struct Replicated {
  PerAxis<CollectiveKind> kinds;
  PerAxis<double> count, bytes, seconds;
  double rounding = 0; // seconds of kernels

  double getSeconds() const {
    return std::accumulate(seconds.begin(), seconds.end(), rounding);
  }
  /// Returns the seconds of many that do not wait for one another: those over
  /// one axis run beside those over another, but share links.
  double getSecondsBeside(const Context &context) const;
  /// Adds `times` of other ones, of the same kinds or over other axes.
  void add(const Replicated &rest, double times = 1) {
    for (const AxisFacts &facts : kAxes) {
      if (rest.count[facts.axis] > 0)
        kinds[facts.axis] = rest.kinds[facts.axis];
      count[facts.axis] += times * rest.count[facts.axis];
      bytes[facts.axis] += times * rest.bytes[facts.axis];
      seconds[facts.axis] += times * rest.seconds[facts.axis];
    }
    rounding += times * rest.rounding;
  }
  /// Notes that it happens `times` a step, `exposed` seconds of each by itself.
  void note(Moment moment, double times, double exposed,
            const Context &context) const;
};

/// Adds up what each rank has, once that is summed over the axes that divide
/// state, over the others; nothing where they are one group with these.
Replicated getRest(double bytes, Summed summed, const Context &context);

/// Makes a collective of `bytes` in all over `group`, which is noted at `axis`.
Replicated getCollective(CollectiveKind kind, Axis axis, double bytes,
                         const Group &group, const Context &context);

/// Sums what replicas then compress, each all of its own, over all other ranks
/// that have a part of it.
Replicated getOthers(double bytes, Summed summed, const Context &context);

/// Returns both messages of so many chunks, in each round.
Replicated getMessages(CollectiveKind kind, double chunks,
                       const Context &context);

/// Returns what each replica sends of `elements`: messages to all others, or to
/// each the rows that it adds up. What a replica has is a sum over the other
/// axes before.
Replicated getCompressed(double elements, Summed summed,
                         const Context &context);

/// Returns the seconds of the kernels that make codes of gradients, put them in
/// words, and add up what all replicas have sent, by what they read and write;
/// further rounds read and write the sum so far as well. Codes of a sum are
/// made by one of the replicas, and read by all.
double compressingSeconds(double parameters, const Context &context);

/// Returns the seconds of matrices whose gradients are sent as two factors
/// (lib/Transforms/Gradients/LowRankSum.cpp), one after the other: each is
/// summed over the other axes and gathered where ranks have parts of it, and
/// replicas sum both factors.
double getFactorSeconds(const StepLoad &load, const Context &context);

/// Collectives over the ranks that divide state, or hold it all alike: one
/// group of them, or axis by axis, of which the innermost has all of the bytes,
/// and of what is divided the next one only its ranks' parts.
Replicated getReplicated(CollectiveKind kind, double bytes, bool experts,
                         const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_REPLICATED_H
