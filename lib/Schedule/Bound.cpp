//===- Bound.cpp - Lower bound of pipeline schedules ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rank r runs m forwards of F(r), input gradients of I(r) and weight gradients
// of W(r), one at a time; a message takes c. The memory limit is N, the share
// that an activation keeps after its input gradient w, and K = floor(N). The
// span S of a schedule is the longest time on a rank from the start of its
// first forward to the end of its last action. A whole backward is an I and a W
// right after it, the message of which leaves later: also covered.
//
// Round trip. Between the start of a microbatch's F on rank r and the start of
// its I there pass at least
//   L(r) = sum of F(q), q >= r, + sum of I(q), q > r, + 2c(p - 1 - r).
//
// (1) Warm-up. Let D(r) be the time from the start of the first F on r to that
// of the first I. The first F on r + 1 starts at least F(r) + c after that on
// r; the first I on r starts at least I(r+1) + c after that on r + 1. Hence
//   D(p-1) >= F(p-1),   D(r) >= D(r+1) + F(r) + I(r+1) + 2c.
// In D(r), rank r can run nothing but whole forwards, at most min(m, K) of
// them, so that its idle time there is at least D(r) - n F(r) for some such n.
// If idle times must not exceed x(r), the D(r) that satisfy this are bounded
// below by the smallest one, and a smaller D(r+1) leaves more choice to all
// ranks before it: choosing the smallest from the last rank to the first
// decides whether any schedule has idle times of at most x(r).
//
// (2) Drain. Let k be the microbatch the F of which starts last on r. Until its
// I starts, L(r) later or more, r can run that F and, of the other microbatches
// held when it starts, u before their I and x before their W: memory gives
// u + w x <= N - 1, and u + x <= m - 1. So r is idle for at least
//   L(r) - F(r) - max(u (I(r) + W(r)) + x W(r)).
// If m > N, the first I starts before the last F, (1) and (2) are about
// different times and add up. The span of r is its work and its idle time.
//
// (3) Two ranks. For r <= s, the first F on s starts at least the sum over
// r <= q < s of F(q) + c after that on r. When the last I on s starts, whole
// memory for its microbatch and w for each W left must be there: besides its
// own at most floor((N - 1) / w) come after it, all other work on s and the
// idle times (1) and (2) of s before its end. From there, the I of the same
// microbatch on the ranks down to r take the sum of I(q) + c, and its W on r
// comes after that. So S is at least
//   sum (F(q) + c) + m (F(s) + I(s)) + (m - after(s)) W(s) + idle(s)
//     + sum (I(q) + c) + W(r).
//
// (4) Little memory. Number the forwards of r in the order in which they start.
// When number j starts, the frees of j + 1 - N must have come from at least
// a = j + 1 - K ended I. One of these belongs to a forward with number a - 1 or
// later and started L(r) after it. So forward j starts at least L(r) + I(r)
// after forward j - K. If N - K < w, either all a of these W have ended as
// well, which adds W(r), or one more I has, which adds F(r). S is at least
//   ((m - 1) mod K) F + floor((m - 1) / K) (L + I + min(F, W)) + L + I + W.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Bound.h"
#include "WarmUp.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::schedule;

uint32_t schedule::getCapacity(const Problem &problem,
                               const MemoryModel &memory) {
  if (memory.limit == 0)
    return problem.microbatches;
  return std::min<double>(problem.microbatches, memory.limit);
}

std::optional<std::vector<uint32_t>>
schedule::planWarmUp(const Problem &problem, const Costs &costs,
                     uint32_t capacity, const std::vector<double> &allowance) {
  std::vector<uint32_t> leads(problem.stages);
  double delay = 0; // D of the rank after this one, then of this one
  for (uint32_t rank = problem.stages; rank-- > 0;) {
    double forward = costs.forwardOf(rank);
    delay += forward;
    if (rank + 1 < problem.stages)
      delay += costs.backwardInputOf(rank + 1) + 2 * costs.transfer;
    // Rounding must not turn an exact fit into a miss.
    double slack = allowance[rank] + 1e-9 * delay;
    double fits = capacity;
    if (forward > 0)
      fits = std::min(fits, std::floor(delay / forward * (1 + 1e-12)));
    // As many forwards as fit leave more idle time than is allowed: one more
    // is run, and the first input gradient comes when that has ended.
    if (delay - fits * forward > slack) {
      if (fits == capacity)
        return std::nullopt;
      delay = ++fits * forward;
    }
    leads[rank] = fits;
  }
  return leads;
}

namespace {

/// The bounds of the proof for one problem, by their numbers: (2) and (4) need
/// one rank each, (3) pairs of ranks, and (1) is asked whether a span is
/// reachable.
class SpanBound {
public:
  SpanBound(const Problem &problem, const Costs &costs,
            const MemoryModel &memory)
      : problem(problem), costs(costs), memory(memory), p(problem.stages),
        m(problem.microbatches), capacity(getCapacity(problem, memory)),
        roundTrips(p), drains(p) {}

  double run();

private:
  double forward(uint32_t rank) const { return costs.forwardOf(rank); }
  double input(uint32_t rank) const { return costs.backwardInputOf(rank); }
  double weight(uint32_t rank) const { return costs.backwardWeightOf(rank); }
  double work(uint32_t rank) const {
    return m * (forward(rank) + input(rank) + weight(rank));
  }
  /// How many activations of which only the weight share is left fit beside
  /// `whole` others.
  double fitHalves(double whole) const {
    if (memory.limit == 0 || memory.weightShare == 0)
      return m;
    return std::floor((memory.limit - whole) / memory.weightShare + 1e-9);
  }

  double boundDrain(uint32_t rank) const;
  double boundLittleMemory(uint32_t rank) const;
  double getTail(uint32_t rank) const;
  void findRestricted();
  bool isReachable(double span) const;

  const Problem &problem;
  const Costs &costs;
  const MemoryModel &memory;
  uint32_t p, m, capacity;
  std::vector<double> roundTrips; // L
  std::vector<double> drains;     // idle time by (2)
  /// A schedule of span S leaves rank r idle, by (1), for at most S - fixed[r].
  std::vector<double> fixed;
  double low = 0; // proven so far
};

} // namespace

/// Bound (2): the idle time of a rank behind its last forward.
double SpanBound::boundDrain(uint32_t rank) const {
  double most = 0;
  // All u of (2): the best x to each is the most that memory and the number of
  // microbatches leave.
  for (uint32_t whole = 0; whole < capacity; ++whole) {
    double halves = std::min<double>(m - 1 - whole, fitHalves(1.0 + whole));
    most = std::max(most, whole * (input(rank) + weight(rank)) +
                              std::max(halves, 0.0) * weight(rank));
  }
  return std::max(0.0, roundTrips[rank] - forward(rank) - most);
}

/// Bound (4), with K as `capacity`; without a limit there is a single round.
double SpanBound::boundLittleMemory(uint32_t rank) const {
  uint32_t rounds = (m - 1) / capacity;
  double round = roundTrips[rank] + input(rank);
  if (memory.limit - capacity < memory.weightShare - 1e-9)
    round += std::min(forward(rank), weight(rank));
  return (m - 1) % capacity * forward(rank) + rounds * round +
         roundTrips[rank] + input(rank) + weight(rank);
}

/// (3): the work on `rank` from its first F to the end of its last I, at least.
double SpanBound::getTail(uint32_t rank) const {
  // The weight gradients that may come after the last input gradient: as many
  // as memory holds the shares of, and its own.
  double after = std::min<double>(m, fitHalves(1) + 1);
  return m * (forward(rank) + input(rank)) + (m - after) * weight(rank);
}

/// Collects (2) and (3) by the rank the warm-up of which they add to.
void SpanBound::findRestricted() {
  fixed.assign(p, 0);
  bool adds = memory.limit != 0 && m > memory.limit;
  // The most, over r <= s, of what (3) says of the ranks r to s - 1 and of
  // W(r).
  double outside = 0;
  for (uint32_t s = 0; s < p; ++s) {
    if (s > 0)
      outside += forward(s - 1) + input(s - 1) + 2 * costs.transfer;
    outside = std::max(outside, weight(s));
    double longest = std::max(work(s), outside + getTail(s));
    fixed[s] = longest + (adds ? drains[s] : 0);
    low = std::max(low, longest + drains[s]);
  }
}

/// (1): whether all ranks can start within what `span` leaves for idle time.
bool SpanBound::isReachable(double span) const {
  std::vector<double> allowance(p);
  for (uint32_t rank = 0; rank < p; ++rank) {
    allowance[rank] = span - fixed[rank];
    if (allowance[rank] < 0)
      return false;
  }
  return planWarmUp(problem, costs, capacity, allowance).has_value();
}

/// The search for (1) starts at what (2), (3) and (4) prove: the shortest span
/// whose idle times leave every rank a warm-up.
double SpanBound::run() {
  low = getWork(problem, costs);
  for (uint32_t rank = p; rank-- > 0;) {
    roundTrips[rank] = forward(rank);
    if (rank + 1 < p)
      roundTrips[rank] +=
          roundTrips[rank + 1] + input(rank + 1) + 2 * costs.transfer;
    drains[rank] = boundDrain(rank);
    low = std::max(low, boundLittleMemory(rank));
  }
  findRestricted();
  // Any warm-up fits into the first round trip.
  return bisect(low, low + roundTrips[0],
                [&](double span) { return isReachable(span); })
      .first;
}

Result<Bound> schedule::boundSpan(const Problem &problem, const Costs &costs,
                                  const MemoryModel &memory) {
  PLAIT_RETURN_IF_ERROR(problem.check());
  PLAIT_RETURN_IF_ERROR(costs.check(problem));
  PLAIT_RETURN_IF_ERROR(memory.check());
  double work = getWork(problem, costs);
  Bound bound{work, 0};
  if (problem.chunks == 1)
    bound.span = SpanBound(problem, costs, memory).run();
  if (bound.span > 0)
    bound.bubbleRate = (bound.span - work) / bound.span;
  return bound;
}
