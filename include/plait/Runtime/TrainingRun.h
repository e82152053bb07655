//===- TrainingRun.h - A training run, step by step -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What train() does, for callers that have a loop of their own: nothing happens
// between two calls, so that a run may be looked at, interrupted or left there.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_TRAININGRUN_H
#define PLAIT_RUNTIME_TRAININGRUN_H

#include "plait/Runtime/Trainer.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

class Stragglers;

/// The outcome of a step.
struct Verdict {
  bool skipped = false;   // nothing was updated
  bool rollsBack = false; // to before the step
  std::string warning;    // empty: nothing to say
};

/// The loss on data that is held out.
struct Evaluation {
  double loss; // mean over the tokens
  double tokens;
  double seconds;    // wall time
  StepMetrics means; // over the tokens; of loss and named losses alone
};

/// A loss that the plan names, with what a step reports of it.
struct NamedLoss {
  std::string name;
  double value;
};

/// Returns those of a step, in the plan's order.
std::vector<NamedLoss> getNamedLosses(const fb::Plan &plan,
                                      const StepMetrics &metrics);

struct StepReport {
  uint64_t step; // from 1
  StepMetrics metrics;
  double learningRate;
  double seconds; // wall time, without the evaluation
  Verdict verdict;
  std::optional<Evaluation> evaluation; // after the step, where one was due
  const Stragglers *watched; // null where ranks were not watched in this step

  double tokens() const { return at(metrics, fb::Metric::TokenCount); }
  double tokensPerSecond() const { return tokens() / seconds; }
};

/// A run from its options to its outputs. All processes make the same calls,
/// each from one thread at a time. After a failure of begin() or step() the run
/// goes no further; who has waited for its end still hears of it by end().
class TrainingRun {
public:
  /// Binds the ranks of this process, sets their weights or resumes, and opens
  /// all outputs. `plan` outlives the run and has passed checkPlan.
  static Result<std::unique_ptr<TrainingRun>>
  begin(const fb::Plan &plan, const TrainOptions &options);
  virtual ~TrainingRun() = default;

  /// Returns where the run is.
  virtual const RunState &state() const = 0;
  /// Returns what the run has become of its options: steps of epochs are
  /// counted, and what a checkpoint has learned with is kept.
  virtual const TrainOptions &options() const = 0;
  virtual Executor &executor() = 0;
  bool isDone() const { return state().step >= options().steps; }

  /// Whether any process was interrupted (TrainOptions::interrupted). All have
  /// to end after the same step: none waits for one that is gone. After
  /// stepOn(), where GPUs have begun the next step, it is false until that one
  /// is done.
  virtual Result<bool> isInterrupted() = 0;

  /// Does the step after the one that was reached, and evaluates and writes a
  /// checkpoint where those are due. One that is rolled back leaves the run
  /// where it has gone back to. Fails where all steps are done.
  virtual Result<StepReport> step() = 0;
  /// The same for a caller that does nothing between steps but ask isDone() and
  /// isInterrupted(): where nothing else comes between this step and the next,
  /// GPUs are given the next one before this one is waited for.
  virtual Result<StepReport> stepOn() = 0;
  /// The same as step() of a run whose data the caller gives
  /// (TrainOptions::givesRows): `rows` are global_batch rows of sequence + 1
  /// tokens each, of which the first `sequence` are the inputs and the last the
  /// targets. Fails, and does nothing, where they have another size or a token
  /// that is not in the vocabulary.
  virtual Result<StepReport> step(std::span<const int32_t> rows) = 0;

  /// Evaluates the weights that were reached. Nothing where the run has no
  /// held-out data, or was interrupted meanwhile.
  virtual Result<std::optional<Evaluation>> evaluate() = 0;

  /// Fails where a step has failed, or the run was closed.
  virtual Status checkAlive() const = 0;

  /// Writes a model folder, as saveWeights() does, in the precision and with
  /// the tokenizer that the options name.
  virtual Status save(const std::string &directory) = 0;
  /// Writes a checkpoint of the state that was reached, where there is none,
  /// into the run's directory, and waits until it is complete.
  virtual Status checkpoint() = 0;

  /// Tells those who watch how the run has ended, once: nothing where it has
  /// not done a step.
  virtual Status end(const Status &outcome) = 0;
  /// Writes what the run is to leave: weights, then the last checkpoint. A
  /// failure of the former does not keep the latter from being written.
  virtual Status finish() = 0;
  /// Ends the run: lets go of its files and directories, while its memory stays
  /// as it is.
  virtual void close() = 0;
};

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_TRAININGRUN_H
