//===- Generators.cpp - The table of named schedules ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of all named schedules, how one is asked for, and the schedules
// with whole backwards and one chunk. The others are in Interleaved.cpp
// (several chunks in turn), ZeroBubble.cpp (handcrafted split backwards),
// ControllableMemory.cpp (V-Half and V-Min) and Automatic.cpp (searched for). A
// row's memory bound is a promise that tests hold every generated schedule
// against; the formulas are in Generators.h. What a caller asks for beyond
// that, a limit, is checked after generation and never built into a handcrafted
// order.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Generators.h"
#include "ControllableMemory.h"

#include <algorithm>
#include <limits>

using namespace plait;
using namespace plait::schedule;

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

/// A generator that looks at nothing but the problem, as the table wants it.
template <Schedule (*emit)(const Problem &)>
static Schedule fixed(const Problem &problem, const GeneratorOptions &) {
  return emit(problem);
}

/// No schedule holds more than all microbatches.
static double atMostAll(const Problem &problem, double activations) {
  return std::min<double>(problem.microbatches, activations);
}

/// The warm-up of Megatron's interleaved schedule (Narayanan et al. 2021) in
/// forwards of a chunk, and the one that comes before the first backward; v of
/// them are an activation.
static double boundInterleaved(const Problem &problem, uint32_t rank, double) {
  double p = problem.stages, v = problem.chunks;
  return atMostAll(problem, (2 * (p - rank - 1) + (v - 1) * p + 1) / v);
}

// No bound of the schedule's own: the number of layers bounds the chunks.
static constexpr uint32_t anyChunks = std::numeric_limits<uint32_t>::max();

// The order is that of help texts. The numbers in front of the functions are
// the order of simplicity, by which the planner decides among times that are as
// good as equal.
static constexpr Generator generators[] = {
    {"gpipe", "all forwards, then all backwards", 1, 1, Placement::RoundRobin,
     false, false, true, 1, fixed<gpipe>,
     [](const Problem &problem, uint32_t, double) {
       return double(problem.microbatches);
     }},
    {"1f1b", "alternate one forward and one backward after a short warm-up", 1,
     1, Placement::RoundRobin, false, false, false, 0, fixed<oneFOneB>,
     [](const Problem &problem, uint32_t rank, double) {
       return atMostAll(problem, problem.stages - rank);
     }},
    {"interleaved-1f1b", "1f1b with several chunks on each rank", 2, anyChunks,
     Placement::RoundRobin, false, false, false, 2, fixed<interleavedOneFOneB>,
     boundInterleaved},
    {"breadth-first", "all microbatches of a chunk before the next chunk", 2,
     anyChunks, Placement::RoundRobin, false, false, true, 3,
     fixed<breadthFirst>,
     [](const Problem &problem, uint32_t, double) {
       return double(problem.microbatches);
     }},
    {"zb-h1", "split backward, memory of 1f1b, a third of its bubble", 1, 1,
     Placement::RoundRobin, true, false, false, 4, fixed<zeroBubbleH1>,
     [](const Problem &problem, uint32_t rank, double share) {
       return atMostAll(problem, problem.stages - rank + rank * share);
     }},
    {"zb-h2", "split backward, twice the memory of 1f1b, next to no bubble", 1,
     1, Placement::RoundRobin, true, false, false, 5, fixed<zeroBubbleH2>,
     [](const Problem &problem, uint32_t rank, double share) {
       return atMostAll(problem,
                        2.0 * (problem.stages - rank) - 1 + 2 * rank * share);
     }},
    {"zb-v", "split backward, two chunks in a V, memory of 1f1b", 2, 2,
     Placement::VShape, true, false, false, 6, fixed<zeroBubbleV>,
     [](const Problem &problem, uint32_t, double) {
       return atMostAll(problem, problem.stages);
     }},
    {"v-half", "split backward, two chunks in a V, half the memory of zb-v", 2,
     2, Placement::VShape, true, false, false, 7, fixed<vHalf>,
     [](const Problem &problem, uint32_t, double) {
       return atMostAll(problem, getHalfMemory(problem.stages));
     }},
    {"v-min", "split backward, two chunks in a V, a third of zb-v's memory", 2,
     2, Placement::VShape, true, false, false, 8, fixed<vMin>,
     [](const Problem &problem, uint32_t, double) {
       return atMostAll(problem, getMinMemory(problem.stages));
     }},
    {"dualpipe-v", "forwards of one chunk in a V with backwards of the other",
     2, 2, Placement::VShape, true, false, false, 9, fixed<dualPipeV>,
     [](const Problem &problem, uint32_t, double) {
       return atMostAll(problem, problem.stages + 0.5);
     }},
    {"zb-auto", "split backward, the best found for the costs and a limit", 1,
     2, Placement::VShape, true, true, false, 10, zeroBubbleAuto,
     [](const Problem &problem, uint32_t, double) {
       return double(problem.microbatches); // and the limit it was made for
     }},
};

std::span<const Generator> schedule::getGenerators() { return generators; }

/// The failure for a name that is not among those that `isListed` accepts.
template <typename Predicate>
static Status failListing(const std::string &problem, Predicate isListed) {
  std::string known;
  for (const Generator &generator : generators) {
    if (!isListed(generator))
      continue;
    known += known.empty() ? "" : ", ";
    known += generator.name;
  }
  return fail(problem, ", expected one of ", known);
}

/// Linear: there are a dozen rows, and generating takes far longer.
static const Generator *lookUp(std::string_view name) {
  for (const Generator &generator : generators)
    if (generator.name == name)
      return &generator;
  return nullptr;
}

static std::string describeUnknown(std::string_view name) {
  return "unknown schedule '" + std::string(name) + "'";
}

Result<const Generator *> schedule::findGenerator(std::string_view name) {
  if (const Generator *generator = lookUp(name))
    return generator;
  return failListing(describeUnknown(name),
                     [](const Generator &) { return true; });
}

//===----------------------------------------------------------------------===//
// Generation
//===----------------------------------------------------------------------===//

/// The bound is printed the way the row means it: an exact number, a range, or
/// from a number on.
static Status checkChunks(const Generator &generator, uint32_t chunks) {
  auto [minimum, maximum] = std::pair(generator.minChunks, generator.maxChunks);
  if (chunks >= minimum && chunks <= maximum)
    return Status::success();
  std::string bound = minimum == maximum ? "exactly " : "at least ";
  bound += std::to_string(minimum);
  if (minimum != maximum && maximum != anyChunks)
    bound = std::to_string(minimum) + " to " + std::to_string(maximum);
  return fail("schedule ", generator.name, " orders ", bound,
              " chunk(s) per rank, got ", chunks);
}

Result<uint32_t> schedule::chooseChunks(const Generator &generator,
                                        uint32_t asked) {
  uint32_t chunks = asked ? asked : generator.minChunks;
  PLAIT_RETURN_IF_ERROR(checkChunks(generator, chunks));
  return chunks;
}

/// Also for generators that know of the limit: that their order keeps it is
/// checked like anything else, and not taken on trust.
static Status checkLimit(const Schedule &schedule) {
  if (schedule.memory.limit == 0)
    return Status::success();
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank)
    if (double peak = peakActivations(schedule, rank);
        !schedule.memory.allows(peak))
      return fail("schedule ", schedule.kind, " holds ", peak,
                  " activations on rank ", rank, ", the limit is ",
                  schedule.memory.limit);
  return Status::success();
}

/// 1. The row is found, and the problem, the chunks and the options are
///    checked: generators expect all of that and do not look again.
/// 2. The placement is the generator's. Callers that have stages placed already
///    compare it with theirs.
/// 3. The order is emitted, and gets the name and the memory model, which make
///    it verifiable.
/// 4. The limit is checked on what came out.
Result<Schedule> schedule::generate(std::string_view name,
                                    const Problem &problem,
                                    const GeneratorOptions &options) {
  Result<const Generator *> found = findGenerator(name);
  if (!found.ok())
    return found.status();
  const Generator &generator = **found;
  PLAIT_RETURN_IF_ERROR(problem.check());
  PLAIT_RETURN_IF_ERROR(checkChunks(generator, problem.chunks));
  PLAIT_RETURN_IF_ERROR(options.costs.check(problem));
  PLAIT_RETURN_IF_ERROR(options.memory.check());
  // 2. The generator's placement.
  Problem placed = problem;
  placed.placement = generator.placement;
  // 3. The order, under its name.
  Schedule schedule = generator.generate(placed, options);
  schedule.kind = name;
  schedule.memory = options.memory;
  PLAIT_RETURN_IF_ERROR(checkLimit(schedule));
  return schedule;
}

//===----------------------------------------------------------------------===//
// Whole backwards, one chunk
//===----------------------------------------------------------------------===//

/// The schedule in which rank r runs warmUp(r) forwards, then alternates a
/// forward and a backward until no forward is left, then drains.
template <typename WarmUp>
static Schedule alternate(const Problem &problem, WarmUp warmUp) {
  Schedule schedule{problem, ""};
  for (uint32_t rank = 0; rank < problem.stages; ++rank) {
    std::vector<Action> &actions = schedule.ranks.emplace_back();
    actions.reserve(2 * size_t(problem.microbatches));
    uint32_t lead = std::min(warmUp(rank), problem.microbatches);
    // The warm-up. All of its microbatches are held until the first backward.
    for (uint32_t m = 0; m < lead; ++m)
      actions.push_back({ActionKind::Forward, 0, m});
    for (uint32_t m = 0; m < problem.microbatches; ++m) {
      // Forward before backward: for a moment lead + 1 microbatches are held,
      // which is the p - r of 1F1B for its lead of p - r - 1.
      if (m + lead < problem.microbatches)
        actions.push_back({ActionKind::Forward, 0, m + lead});
      actions.push_back({ActionKind::Backward, 0, m});
    }
  }
  return schedule;
}

/// A warm-up of everything leaves nothing to alternate.
Schedule schedule::gpipe(const Problem &problem) {
  return alternate(problem, [&](uint32_t) { return problem.microbatches; });
}

/// The warm-up is as many forwards as there are ranks behind this one: so many
/// microbatches are on their way there before the first backward can come back.
/// More would be held for longer and make nothing faster.
Schedule schedule::oneFOneB(const Problem &problem) {
  return alternate(problem,
                   [&](uint32_t rank) { return problem.stages - rank - 1; });
}
