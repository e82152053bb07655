//===- Generators.h - Named pipeline schedules ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every named schedule is one row of one table. To add one, write a function
// that emits compute actions in the order wanted, say what it needs and how
// much memory it keeps to, and add the row: the driver's option, the verifier,
// the simulator and the charts then know it.
//
//   name               memory of rank r   bubble, free transfers, even stages
//   gpipe              m                  (p - 1)(F + I + W)
//   1f1b               p - r              (p - 1)(F + I + W)
//   interleaved-1f1b   see below          (p - 1)(F + I + W) / v
//   zb-h1              p - r + r w        (p - 1)(F + I - W), if positive
//   zb-h2              2(p - r) - 1 + 2rw (p - 1)(F + I - 2W), if not negative
//   breadth-first      m                  (p - 1)(F + I + W) / v
//   zb-v               p                  0 when F = I = W
//   v-half             p / 2 + 1          see ControllableMemory.cpp
//   v-min              (p + 1) div 3 + 1  likewise
//   dualpipe-v         p + 1 / 2          as zb-v
//   zb-auto            as asked for       the least found
//
// with p ranks of v chunks, m microbatches (no more memory than m) and w of an
// activation left after its I. F, I and W are the times on a whole rank.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_GENERATORS_H
#define PLAIT_SCHEDULE_GENERATORS_H

#include "plait/Schedule/Simulate.h"

#include <span>

namespace plait::schedule {

/// Everything that a generator may be told beyond the problem.
struct GeneratorOptions {
  /// The costs of one virtual stage. Only a generator that searches looks at
  /// them.
  Costs costs;
  /// A limit that the result must keep.
  MemoryModel memory;
};

/// A row of the table. The strings are literals and live for ever.
struct Generator {
  const char *name;
  const char *help;    // one line for option help
  uint32_t minChunks;  // per rank that the generator can order
  uint32_t maxChunks;  // likewise
  Placement placement; // of the virtual stages
  bool splitsBackward; // emits I and W in place of B
  bool searches;       // depends on GeneratorOptions
  bool holdsAll;       // runs all forwards before the first backward
  /// The place in the order of simplicity, 0 the simplest: whole backwards
  /// before split ones, one chunk before several, less memory before more, what
  /// is in wide use before what is not, and what is searched for last. The
  /// planner prefers the simpler one of two that are as fast.
  int simplicity;

  /// Emits a compute-only schedule with `kind` and `memory` still empty.
  /// Expects everything that the function generate() below checks.
  Schedule (*generate)(const Problem &problem, const GeneratorOptions &options);

  /// The most memory that `rank` may hold at once; see peakActivations.
  double (*memoryBound)(const Problem &problem, uint32_t rank,
                        double weightShare);
};

/// All named schedules, in the order in which help texts list them.
std::span<const Generator> getGenerators();

/// The row called `name`, or a failure that lists the names there are.
Result<const Generator *> findGenerator(std::string_view name);

/// The compute-only schedule `name` for `problem`, the placement of which is
/// the generator's whatever it says. Fails on an unknown name, a problem or
/// options that do not check, a number of chunks that the generator cannot
/// order, and when the schedule would not keep options.memory.limit.
Result<Schedule> generate(std::string_view name, const Problem &problem,
                          const GeneratorOptions &options = {});

/// The chunks per rank that are asked for, or, of 0, as few as `generator`
/// orders. Fails where it cannot order so many.
Result<uint32_t> chooseChunks(const Generator &generator, uint32_t asked);

//===----------------------------------------------------------------------===//
// Generators
//===----------------------------------------------------------------------===//
//
// Each expects problem.check() to hold, and its row's chunks and placement.

/// All forwards, then all backwards. Needs memory for all microbatches.
Schedule gpipe(const Problem &problem);

/// Rank r runs p - r - 1 forwards, then alternates one forward and one
/// backward, then drains. Holds at most min(m, p - r) microbatches and is as
/// fast as gpipe (Narayanan et al., PipeDream-Flush).
Schedule oneFOneB(const Problem &problem);

/// 1F1B over v chunks a rank, microbatches taken in groups of p through all
/// chunks (Narayanan et al., "Efficient Large-Scale Language Model Training on
/// GPU Clusters", SC 2021). Holds min(m, (2(p - r - 1) + (v - 1)p + 1) / v).
/// When p does not divide m, the last group is what is left: the order is that
/// of the next multiple of p, without the microbatches that do not exist.
Schedule interleavedOneFOneB(const Problem &problem);

/// All forwards of a chunk before those of the next, then all backwards of the
/// last chunk before those of the one before it (Lamy-Poirier, "Breadth-First
/// Pipeline Parallelism", MLSys 2023). Each chunk's parameters are gathered
/// once a pass where they are sharded over dp; needs memory for all
/// microbatches.
Schedule breadthFirst(const Problem &problem);

/// The handcrafted schedules of Qi et al., "Zero Bubble Pipeline Parallelism"
/// (ICLR 2024). H1 starts like 1F1B and delays weight gradients by r
/// microbatches; H2 starts about twice as many forwards and delays by 2r.
Schedule zeroBubbleH1(const Problem &problem);
Schedule zeroBubbleH2(const Problem &problem);

/// Two chunks in a V, so that the last rank turns from forward to backward
/// without waiting and rank 0 starts both: no bubble when F, I and W take the
/// same time, in the memory of 1F1B's first rank on every rank (same authors,
/// "Pipeline Parallelism with Controllable Memory", NeurIPS 2024).
Schedule zeroBubbleV(const Problem &problem);

/// Two chunks in a V as well, with less memory (same paper). V-Half holds p / 2
/// + 1 microbatches and V-Min (p + 1) div 3 + 1, each counted from its F to its
/// W; see ControllableMemory.cpp.
Schedule vHalf(const Problem &problem);
Schedule vMin(const Problem &problem);

/// DualPipe (DeepSeek-V3 technical report, 2024), cut in half: two chunks in a
/// V, forwards of one chunk beside backwards of the other on every rank (Sea AI
/// Lab, "Cut-in-half"; DeepSeek's DualPipeV). A backward is an I and a W right
/// after it, but for those at the beginning and the end, where W fill gaps.
/// Holds at most p + 1 / 2 microbatches.
Schedule dualPipeV(const Problem &problem);

/// The best of H1, H2 and a search, for given costs and within a given memory
/// limit; see Automatic.cpp. With two chunks, which are placed in a V, the best
/// of ZB-V and a search guided by V-Half and V-Min. With one chunk it stops at
/// the lower bound of Bound.h, which the first pass over the actions mostly
/// meets on even stages; takes up to 18 passes otherwise.
Schedule zeroBubbleAuto(const Problem &problem,
                        const GeneratorOptions &options);

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

/// Makes a compute-only schedule complete. Around the compute actions go
///
///   RECV_F before F, SEND_F after it     (not at the ends of the pipeline)
///   RECV_B before B or I, SEND_B after it
///   WAIT_x before the same chunk's next SEND_x, so that a chunk has at most
///          one unfinished message a direction and needs one buffer for it
///
/// and at the end of every rank the last waits, REDUCE and OPTIMIZER. Virtual
/// stages that are neighbours on one rank exchange nothing.
///
/// Where a rank runs so far ahead of its neighbour that the ranks would
/// deadlock, or on even stages lose time, with one unfinished message, each
/// WAIT_x comes one SEND_x later (and so on): the least depth with which they
/// do not, the same everywhere. Of the named schedules zb-auto may need 2, and
/// breadth-first, the last rank of which runs ahead of the first by all but p
/// microbatches, needs m - p or so; others need 1. On uneven stages a rank may
/// still wait for a reader that is about to come.
///
/// A schedule that is already complete is returned as it is; of one that is not
/// sound the result is not either.
Schedule insertTransfers(const Schedule &schedule);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_GENERATORS_H
