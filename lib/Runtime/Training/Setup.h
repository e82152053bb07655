//===- Setup.h - Setup of training and checking -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_SETUP_H
#define PLAIT_LIB_RUNTIME_TRAINING_SETUP_H

#include "plait/Runtime/Trainer.h"

namespace plait::runtime {

/// The data that the options name, random tokens if none.
Result<Batches> openBatches(const fb::Plan &plan, const TrainOptions &options);

/// Leaves `batches` the rows of the run's own site, where that is a run by
/// itself. `plan` is that of all sites.
void takeSite(const fb::Plan &plan, const TrainOptions &options,
              Batches &batches);

/// Whether ranks of the plan take an input of `kind`.
bool takesInput(const fb::Plan &plan, fb::InputKind kind);

/// Tells `batches` where their documents end. Fails where the plan needs to
/// know and the options do not say, or the other way round.
Status setDocumentEnd(const fb::Plan &plan, const TrainOptions &options,
                      Batches &batches);

/// Sets `options.steps` where the length of a run is said in epochs: the steps
/// that are full of their samples, from where `batches` are after `step` on.
/// Epochs count samples of one pass over the data; steps follow from where the
/// run is, as a checkpoint of another global batch may have been resumed, or
/// batches left out. A last batch that is not full is not trained on.
Status setSteps(TrainOptions &options, const Batches &batches, uint64_t step);

/// All processes call this with how it went for them; each gets the failure of
/// the lowest rank that has one. Of one process it is `mine`.
Status agree(Executor &executor, const Status &mine);

/// An executor; tells where it runs.
Result<std::unique_ptr<Executor>> makeExecutor(const fb::Plan &plan,
                                               const TrainOptions &options);
/// Loads its weights or initialises them.
Status setInitialWeights(Executor &executor, const TrainOptions &options);
/// Writes a model folder, in the precision and with the tokenizer that the
/// options name. All processes call this; each gets the same status.
Status saveModel(Executor &executor, const TrainOptions &options,
                 const std::string &directory);
/// An executor with its weights.
Result<std::unique_ptr<Executor>> startExecutor(const fb::Plan &plan,
                                                const TrainOptions &options);

/// Warns of what weights and adapters have that the plan has no use for:
/// tensors, which were trained in another model, and dropout.
void warnOfUnused(const Executor &executor, const TrainOptions &options);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_SETUP_H
