//===- Progress.cpp - Resumption and checkpoints of a run -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a run begins, and what it goes back to: decides between initial weights
// and a checkpoint, brings data and counters to the same place, and keeps the
// record that checkpoints store of a run.
//
//===----------------------------------------------------------------------===//

#include "Progress.h"

#include "Core/Processes.h"
#include "KeptChoices.h"
#include "RunSettings.h"
#include "Setup.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Plan/Defaults.h"

#include <filesystem>

using namespace plait;
using namespace plait::runtime;

/// Whether two paths, which need not exist, name one directory.
static bool isSame(const std::string &a, const std::string &b) {
  std::error_code error;
  auto first = std::filesystem::weakly_canonical(a, error);
  auto second = std::filesystem::weakly_canonical(b, error);
  // One may have a slash at its end.
  return !error &&
         (first / "").lexically_normal() == (second / "").lexically_normal();
}

/// A variance that is frozen has to be there: without updates before, all
/// weights would move by their momentum over an epsilon.
static Status checkVariance(const fb::Plan &plan, uint64_t updates) {
  Compression compression;
  PLAIT_RETURN_IF_ERROR(parse("compress", plan::compressOf(plan), compression));
  if (!sendsMomentum(compression) || updates > 0)
    return Status::success();
  return fail("`compress` is ", plan::compressOf(plan),
              ", which freezes the variance that AdamW has found, but nothing "
              "was updated yet: `resume` from a run of the same model without "
              "`compress`");
}

/// 1. Look for something to resume. That there may be none only holds where it
///    is the directory that is written to; anywhere else a typing error would
///    train from the beginning.
/// 2. Set the weights, or go on from what was found.
Result<runtime::Progress> runtime::Progress::begin(Executor &executor,
                                                   TrainOptions &options,
                                                   Batches &batches,
                                                   RunState &state) {
  runtime::Progress progress(executor, options, batches, state);
  std::optional<Resumed> &resumed = progress.resumed;
  // 1.
  if (!options.resume.empty()) {
    // So that a job may say the same when it starts and when it goes on.
    bool mayBeNone = isSame(options.resume, options.checkpoint.directory);
    auto found =
        resume(executor, options.resume, mayBeNone, options.checkpoint.replica);
    if (!found.ok())
      return found.status();
    resumed = std::move(*found);
  }
  // 2.
  if (!resumed && options.weights.empty() && executor.leads())
    executor.tell(Severity::Note, "weights are random, of seed " +
                                      std::to_string(options.seed) +
                                      ": no `weights` are given");
  if (!resumed)
    PLAIT_RETURN_IF_ERROR(
        agree(executor, setInitialWeights(executor, options)));
  else
    PLAIT_RETURN_IF_ERROR(progress.goOn(*resumed));
  if (options.trains())
    PLAIT_RETURN_IF_ERROR(checkVariance(executor.plan(), state.updates));
  return progress;
}

Status runtime::Progress::openCheckpoints() {
  if (options.checkpoint.directory.empty())
    return Status::success();
  auto created = Checkpointer::create(
      executor, options.checkpoint,
      PlanIdentity::of(executor.plan(), options.planHash), resumed);
  if (!created.ok())
    return created.status();
  checkpoints = std::move(*created);
  keepChoices(executor, options);
  return Status::success();
}

/// Says how the data of a run differs from that of its checkpoint, both as
/// Batches::describe() has them, which ends with the order where samples are
/// shuffled. That is what is forgotten most.
static std::string describeOtherData(const std::string &mine,
                                     const std::string &theirs) {
  if (theirs.starts_with(mine))
    return "the checkpoint was trained with `shuffle`, this run is not";
  if (mine.starts_with(theirs))
    return "this run has `shuffle`, the checkpoint was trained without";
  return "the data is " + mine + ", of the checkpoint " + theirs;
}

/// Settings may differ from the checkpoint's, but for those that would make the
/// run another one than it seems to be: the seed, on which order and dropout
/// depend, is an error; other data is a warning, as changing it may be what is
/// wanted. A forgotten learning rate is not: it stays as it was.
Status runtime::Progress::goOn(const Resumed &resumed) {
  const RunRecord &run = resumed.run;
  if (!options.epochs && options.trains() && run.step > options.steps)
    return fail("checkpoint '", resumed.path, "' is of step ", run.step,
                ", `steps` is ", options.steps);
  // Weights do not need it any more, permutation and dropout do.
  if (run.seed != options.seed)
    return fail("checkpoint '", resumed.path, "' has seed ", run.seed,
                ", `seed` is ", options.seed);
  Result<std::string> kept = keepSettings(options, run.settings);
  if (!kept.ok())
    return fail("checkpoint '", resumed.path, "': ", kept.status().message());
  // A run without steps reads no data.
  bool isSameData = !options.trains() || run.data == batches.describe();
  if (executor.leads()) {
    executor.tell(Severity::Info, "resumed step " + std::to_string(run.step) +
                                      " from " +
                                      (resumed.isReplica ? "memory, '" : "'") +
                                      resumed.path + "'");
    if (!kept->empty() && options.trains())
      executor.tell(Severity::Note, "kept from the checkpoint: " + *kept);
    std::string length = describeOtherLength(options, run.settings);
    if (!length.empty() && options.trains())
      executor.tell(Severity::Note, length);
    if (!isSameData)
      executor.warn(describeOtherData(batches.describe(), run.data) +
                    "; it is read from its beginning");
  }
  batches.startAt(run.step, isSameData ? run.samples : 0);
  setState(run);
  return Status::success();
}

/// The counters that the next step depends on: its number, how often the
/// optimizer has updated, tokens.
void runtime::Progress::setState(const RunRecord &run) {
  state.step = run.step;
  state.updates = run.updates;
  state.tokens = run.tokens;
}

/// 1. End what is being written, so that the newest checkpoint is the newest
///    there can be.
/// 2. Resume it, as at the beginning of a run. Newer ones that are damaged make
///    room.
/// 3. Count how often in a row it was this one, and give up in the end.
/// 4. Go on with the data behind the bad step.
Status runtime::Progress::rollBack() {
  // As for skipped steps: then it is not the data that is bad.
  constexpr unsigned most = 10;
  const uint64_t step = state.step;
  if (!checkpoints)
    return fail("step ", step, ": there are no checkpoints to go back to");
  // 1.
  PLAIT_RETURN_IF_ERROR(checkpoints->settle());
  // 2.
  auto found = resume(executor, options.checkpoint.directory,
                      /*mayBeNone=*/true, options.checkpoint.replica);
  if (!found.ok())
    return found.status();
  if (!*found)
    return fail("step ", step, ": there is no checkpoint in '",
                options.checkpoint.directory, "' to go back to yet");
  const Resumed &resumed = **found;
  PLAIT_RETURN_IF_ERROR(checkpoints->goBackTo(resumed));
  // 3.
  rollBacks = resumed.run.step == rolledBackTo ? rollBacks + 1 : 1;
  rolledBackTo = resumed.run.step;
  if (rollBacks > most)
    return fail("step ", step, ": the run has gone back to step ", rolledBackTo,
                " ", most, " times, in vain");
  // 4.
  uint64_t position = batches.positionAfter(step);
  batches.startAt(resumed.run.step, position);
  setState(resumed.run);
  if (executor.leads())
    executor.tell(Severity::Info,
                  "went back to step " + std::to_string(state.step) +
                      " from '" + resumed.path + "', continues with sample " +
                      std::to_string(position));
  return Status::success();
}

/// Samples rather than steps say where the data is, so that plans with other
/// batches go on at the same place.
RunRecord runtime::Progress::record() const {
  RunRecord run;
  run.step = state.step;
  run.updates = state.updates;
  run.samples = batches.positionAfter(state.step);
  run.tokens = state.tokens;
  run.seed = options.seed;
  run.data = batches.describe();
  run.settings = options.settings;
  return run;
}
