//===- Executor.h - Runs the programs of a plan -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The executor walks the action lists of all ranks of this process. It makes
// no decision and no allocation during a step: everything that can be looked
// up is looked up when the executor is made. (oneDNN takes scratch memory for
// its own use from malloc inside a GEMM.)
//
// Where the ranks of a plan run. Without a launcher all are in this process; of
// a CUDA plan rank r is then on GPU r modulo the number of GPUs. When mpirun or
// srun has started several processes, the ranks of a CPU plan are spread over
// them; of a CUDA plan, which torchrun can start as well, each process runs one
// rank. See docs/Clusters.md and docs/GPU.md.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_EXECUTOR_H
#define PLAIT_RUNTIME_EXECUTOR_H

#include "plait/Plan/Metrics.h"
#include "plait/Plan/Options.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Ranks.h"
#include "plait/Runtime/Data.h"
#include "plait/Support/Reporter.h"

#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace plait::runtime {

class Device;
class Rendezvous;
class SiteMember;
struct RunState;
class StepNotes;

/// Says whether GEMMs on GPUs take the fastest algorithm, as measured when the
/// plan is loaded, by one rank for all that run the same program.
struct GemmTiming {
  bool enabled = true;
  bool verbose = false; // a line for each GEMM
  /// Whether later starts of the run are given Executor::libraryChoices(). Then
  /// algorithms count that round sums in another way; else only those that have
  /// the bits of cuBLASLt's first choice, which every start has.
  bool isKept = false;
  /// Choices of an earlier start, in the process of rank 0; empty: none.
  std::string chosen = {};
  /// The time that a GPU has for all of them.
  std::chrono::milliseconds limit = std::chrono::seconds(10);
  /// Elements of C from which on it is looked at, in bf16 and else: fewer would
  /// not show that the bits differ.
  int64_t leastNarrow = 1 << 20, least = 1 << 12;
};

/// Names what a test adds to the steps of a plan on CPUs. None of it may change
/// a bit of what they compute.
enum class Stress {
  None,
  Memory,  // NaN in what a step is to write before it reads it; without overlap
  Messages // some messages and collectives begin late
};

struct ExecutorOptions {
  /// Threads of all ranks on this host; a rank has an equal share, at least
  /// one.
  unsigned threads = 1;
  /// How long a rank waits for another before the run is given up.
  std::chrono::milliseconds timeLimit = std::chrono::minutes(10);
  /// The number of visible GPUs that CUDA plans use, 0: all of them.
  unsigned devices = 0;
  /// Record the second step and replay it from then on.
  bool cudaGraph = true;
  /// The operations of one recording, if the step has more and can be cut; 0:
  /// it is never cut.
  uint32_t graphOperations = 20'000;
  /// Give what replicas exchange on CPUs a thread of its own beside what
  /// computes. The bits are the same without.
  bool overlap = true;
  /// The processes that run the plan together, which outlive the executor;
  /// null: all ranks are in this one.
  Rendezvous *processes = nullptr;
  /// The bytes that this process takes of its host's memory beside arenas, for
  /// copies of checkpoints; asked when the processes know their hosts. Empty:
  /// nothing.
  std::function<Result<uint64_t>()> copyBytes = {};
  /// Round the factors of f32 GEMMs to TF32's 10 bits of mantissa.
  bool tf32 = false;
  /// Thread blocks of a collective that GPUs compute beside, at most; as many
  /// multiprocessors are left to it by the GEMMs beside it. 0: NCCL chooses,
  /// and GEMMs take the whole GPU.
  uint32_t collectiveBlocks = 0;
  GemmTiming gemmTiming = {};
  /// Every so many steps each operation on CPUs is looked at, and the first one
  /// that makes NaN or an infinity of finite numbers fails; 0: never.
  uint64_t guardEvery = 0;
  Stress stress = Stress::None;
  /// How the plan's only site, which is a run of its own, reaches others; null:
  /// there are none. Outlives the executor.
  SiteMember *sites = nullptr;
  /// Who hears what is no error, from any thread and from several at once;
  /// null: nobody. Outlives the executor.
  Reporter *reporter = nullptr;
  /// Notes that ranks make of when operations begin and end, in steps before
  /// which they are enabled; null: nowhere. Outlive the executor. Steps of GPUs
  /// must be walked (cudaGraph).
  StepNotes *notes = nullptr;
  /// Hears of ranks that do not come back after another one has failed: the
  /// failure, and what they do, in lines. Nobody can take their threads away,
  /// so it should end the process, after Rendezvous::disconnect(). Where it
  /// returns, or is empty, the step waits for them, for ever if need be.
  std::function<void(const std::string &failure)> onStuck = {};
};

/// Names what the numbers of a run may depend on beside its plan: the versions
/// of plait and of the libraries that compute.
std::string describeVersion();

/// Values in the order of fb::Scalar, behind them those of further options of
/// the plan's optimizer; the rest is 0.
using StepScalars = std::array<float, plan::kMostScalars>;

/// Values in the order of fb::Metric, then those of the plan's named losses;
/// the rest is 0.
using StepMetrics =
    std::array<float, size_t(fb::Metric::Count) + plan::kMostNamedLosses>;

inline double at(const StepMetrics &metrics, fb::Metric index) {
  return metrics[static_cast<size_t>(index)];
}

/// Whether loss and gradient norm are finite numbers.
inline bool isFinite(const StepMetrics &metrics) {
  return std::isfinite(at(metrics, fb::Metric::Loss)) &&
         std::isfinite(at(metrics, fb::Metric::GradNorm));
}

/// How much of a step is done, on all ranks alike.
enum class StepScope {
  Train,         // all of it
  TrainIfFinite, // the update only where loss and gradient norm are finite
  // Forward passes and metrics, of which the gradient norm has no meaning:
  // nothing that outlives the step changes.
  Evaluate
};

/// The ranks of a plan that belong to this process, as its threads. Its own
/// calls come from one thread.
class Executor {
public:
  /// Allocates the arenas, loads the code and writes the constants. `plan`
  /// must outlive the executor and must have passed checkPlan.
  static Result<std::unique_ptr<Executor>>
  create(const fb::Plan &plan, const ExecutorOptions &options);
  virtual ~Executor() = default;

  /// Runs one step on the batch of step `number` (from 1) and returns the
  /// metrics, which all ranks agree on. After a failure only destruction is
  /// allowed. Other scopes than Train need metrics that are known early
  /// (plan::countMetricSteps), and are walked on GPUs, too.
  ///
  /// `next` are the scalars of the step after this one, where that is trained
  /// on the same batches and its runStep() is what is called next: then GPUs
  /// may be given it before this one is waited for. If it has been, isAhead(),
  /// and what the ranks hold is not that of the step whose metrics are there.
  virtual Result<StepMetrics> runStep(uint64_t number, const Batches &batches,
                                      const StepScalars &scalars,
                                      StepScope scope = StepScope::Train,
                                      const StepScalars *next = nullptr) = 0;
  virtual bool isAhead() const = 0;

  /// Lets a site that is a run of its own (ExecutorOptions::sites) meet the
  /// others: after `state`, which becomes where the run then is, has been
  /// reached, or, with `begins`, before its first step, `resumed` or not.
  /// Nothing where sites do not meet then.
  virtual Status meetSites(RunState &state, bool begins, bool resumed) = 0;

  /// Runs `job` for every rank of this process on the thread of that rank, all
  /// at once; the first failure is returned, with the rank's number in front.
  virtual Status
  forEachRank(const std::function<Status(uint32_t rank)> &job) = 0;

  /// Lets every rank of this process call `wait`, in each step, before it
  /// changes what outlives the step: parameters and what the optimizer keeps.
  /// Until then any thread may read these. False: it may not, as on GPUs, which
  /// repeat steps without asking, and nobody calls. `wait` is called by several
  /// threads at once, and outlives the steps.
  virtual bool holdUpdates(std::function<void()> wait) = 0;

  /// The device of `rank`, to be used by the jobs of forEachRank.
  virtual Device &device(uint32_t rank) = 0;
  /// The ranks of this process, increasing.
  virtual std::span<const uint32_t> ranks() const = 0;
  /// One line that says where they run; empty where that goes without saying.
  virtual const std::string &placement() const = 0;
  /// One line with the versions of the libraries that compute and communicate,
  /// and how the GEMMs of rank 0 have been timed, in the process of rank 0;
  /// empty in others, and on CPUs.
  virtual const std::string &libraries() const = 0;
  /// The algorithms that libraries on GPUs were made to take, for
  /// GemmTiming::chosen of a later start; empty: they choose themselves.
  virtual const std::string &libraryChoices() const = 0;
  /// A line for each GPU: what the arenas take of its memory, and what the
  /// libraries have taken by now, which is all there will be after two steps.
  /// Empty on CPUs.
  virtual Result<std::string> describeMemory() = 0;
  virtual const plan::RankGrid &mesh() const = 0;
  virtual const fb::Plan &plan() const = 0;

  /// ExecutorOptions::reporter.
  virtual Reporter *reporter() const = 0;
  /// Tells it something; nobody where there is none.
  void tell(Severity severity, const std::string &text) const {
    plait::tell(reporter(), severity, text);
  }
  void warn(const std::string &text) const { tell(Severity::Warning, text); }
  void result(const std::string &line) const {
    if (Reporter *hearer = reporter())
      hearer->result(line);
  }

  /// How the processes of the run reach each other; null: every rank of the
  /// plan is in this process.
  virtual Rendezvous *processes() = 0;
  /// Whether this process speaks for all: it has rank 0.
  bool leads() const { return ranks().front() == 0; }

  /// The program that `rank` runs.
  const fb::Program &program(uint32_t rank) const {
    return *plan().programs()->Get(mesh().index(rank, 0));
  }
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_EXECUTOR_H
