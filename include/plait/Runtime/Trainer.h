//===- Trainer.h - The training loop and the comparison ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What plait-run does, without its command line.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_TRAINER_H
#define PLAIT_RUNTIME_TRAINER_H

#include "plait/Plan/Container.h"
#include "plait/Runtime/Checkpoint.h"
#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Sites.h"
#include "plait/Runtime/StepNotes.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace plait::runtime {

/// Says what happens when the loss is far above those before it.
enum class SpikePolicy { Ignore, Report, Stop, RollBack };

/// Says what happens at a loss or gradient norm that is not a finite number.
/// Skip: the step changes nothing. RollBack, here and above: the run goes on
/// from the newest checkpoint with the data after the step.
enum class NonFinitePolicy { Stop, Skip, RollBack };

class Observer; // plait/Runtime/Observer.h

struct TrainOptions {
  std::string weights; // empty: from the initialisers and the seed
  /// A folder as PEFT saves adapters, to begin with; empty: none. `weights` is
  /// then the model that they are of.
  std::string adapter;
  // Lists of sources; one is set, except for check(): see Batches::fromTokens.
  std::string tokens;
  std::string tokenType;
  std::string text;
  bool textAsBytes = false; // whatever the vocabulary is
  /// The caller gives the rows of each step: see TrainingRun. Excludes tokens
  /// and text.
  bool givesRows = false;
  std::optional<uint64_t> documentEnd; // the token that ends a document
  /// The folder whose tokenizer goes into what is saved; empty: `weights`, or
  /// what the run of a checkpoint has begun with.
  std::string origin;
  std::string log;              // empty: none, "-": standard output
  std::string sampleLog;        // empty: none; see Training/SampleLog.h
  std::string save;             // empty: do not save
  bool savesRounded = false;    // `save` and `best` in bf16
  std::string best;             // empty: none; see Training/Best.h
  std::string resume;           // empty: begin with the first step
  CheckpointOptions checkpoint; // which are written
  uint64_t planHash = 0;        // PlanFile::hash(), for checkpoints
  uint64_t steps = 20;          // 0: none, see trains()
  std::optional<double> epochs; // passes over all samples, instead of `steps`
  uint64_t seed = 0;
  bool shuffle = false;
  double learningRate = 3e-4;        // the peak of the schedule
  std::string schedule = "constant"; // one of getScheduleNames()
  uint64_t warmupSteps = 0;
  double leastLearningRate = 0; // what the schedule decays to
  /// Steps of the schedule, the warm-up included; of "wsd" those of its decay.
  /// Nothing: `steps`, of "wsd" a tenth of them.
  std::optional<uint64_t> decaySteps;
  /// The numbers that the plan's optimizer reads, by the names of its options.
  /// Nothing: as the plan says.
  std::map<std::string, std::optional<double>> optimizer;
  double gradClip = 1.0; // 0: no clipping
  NonFinitePolicy onNonFinite = NonFinitePolicy::Stop;
  /// A spike is a loss that is more than `spikeDeviations` standard deviations
  /// above the mean of the last `spikeSteps` steps.
  SpikePolicy onSpike = SpikePolicy::Ignore;
  uint64_t spikeSteps = 100;
  double spikeDeviations = 6;
  // Data that is held out; at most one of the two is set.
  std::string evalTokens;
  std::string evalText;
  uint64_t evalEvery = 0;  // steps; 0: after the last one only
  uint64_t evalSteps = 0;  // batches of an evaluation; 0: all there are
  std::string tensorboard; // a directory; empty: none
  std::string dashboard;   // an HTML file; empty: none
  std::string metricsPort; // "PORT" or "HOST:PORT"; empty: none
  std::string settings;    // all that was asked for, as one JSON object
  /// Which of the settings somebody has given, by the options' long names. Of
  /// the others a run that is resumed keeps those that it learns with: see
  /// keepSettings().
  std::set<std::string> given;
  /// Who looks on, in the process of rank 0, behind the run's own logs. They
  /// outlive the run.
  std::vector<Observer *> observers;
  uint64_t printEvery = 10; // steps, for a console off a terminal; 0: none
  /// Asked between steps: true ends the run as if all steps were done. Of
  /// several processes one is enough. Empty: never.
  std::function<bool()> interrupted;
  SiteOptions sites; // of a run that is one of them
  ExecutorOptions executor;
  /// Who reads the notes of steps, which `executor` has then. They outlive the
  /// run.
  std::vector<StepReader *> readers;

  /// Whether there are steps to do. Where there are none the run evaluates the
  /// weights that it has, and saves them.
  bool trains() const { return steps > 0 || epochs; }
};

/// The point that a run has reached. With weights and what the optimizer keeps
/// it is all that a later one needs to go on from there: see RunRecord.
struct RunState {
  uint64_t step = 0;    // the last one done; the first is 1
  uint64_t updates = 0; // steps that were not skipped
  double tokens = 0;    // of all steps
};

/// The learning rate's schedules by name: see Training/LearningRate.h.
std::vector<std::string> getScheduleNames();

/// Why an option of plait-run, by its long name, means nothing to a plan. To be
/// read after the option and after the plan: "for cuda" and "is for cpu", or
/// "with optimizer adamw" and "has sgd".
struct OptionMismatch {
  std::string wanted;
  std::string found;
};

/// Nothing where the plan reads the option, as most do.
std::optional<OptionMismatch> findMismatch(const fb::Plan &plan,
                                           std::string_view option);

/// Fails unless all processes have opened the same plan, and are of the same
/// version: numbers may depend on it. All of them call this with how opening
/// `path` went; `file` is null where it failed.
Status agreeOnPlan(Rendezvous &processes, const std::string &path,
                   const Status &opened, const plan::PlanFile *file);

/// Trains until `steps` steps, or `epochs` of the data, are done, those before
/// `resume` included, or until it is interrupted. Adds one JSON object a step
/// to the log, and tells the observers; of several processes, that of rank 0
/// does. A run without steps gives the loss on held-out data as a result to the
/// reporter. Fails as soon as loss or gradient norm are not finite numbers,
/// unless such steps are skipped, and when it is interrupted before the first
/// step.
Status train(const fb::Plan &plan, const TrainOptions &options);

/// Runs one step of the plan and of its reference plan from the same weights on
/// the same data with a learning rate of 0, gives the reporter as its result
/// how the gradients differ, worst first, and fails when the loss differs by
/// more than 1e-5, or a gradient or the norm of all by more than 1e-4, all
/// relative. In bf16 that is 2^-12 and 2^-5, or what rounding does to this
/// model where that is more: see Check.cpp. Fails, too, where one of these is
/// not a finite number. Without data it draws random tokens. Of several
/// processes, that of rank 0 runs the reference, compares and tells; all return
/// the same verdict.
Status check(const fb::Plan &plan, const TrainOptions &options);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_TRAINER_H
