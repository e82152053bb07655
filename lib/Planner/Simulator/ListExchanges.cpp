//===- ListExchanges.cpp - What an estimated step exchanges ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The list of an estimate. Nothing is counted here: the parts of the estimate
// run once more, rank by rank, and note what they compute the time of.
//
//===----------------------------------------------------------------------===//

#include "Estimator.h"

using namespace plait;
using namespace plait::planner;

/// Blocks, as often as they run in a step.
void Estimator::notePasses(const StageBlocks &stage, Context &noted) const {
  std::vector<bool> isLayer = findLayers(work);
  double microbatches = pipeline.getProblem().microbatches;
  for (const StageBlocks::Entry &entry : stage.entries) {
    noted.notes->times = entry.count * microbatches;
    getBlockTime(entry.block, noted, generator->splitsBackward,
                 isLayer[entry.block], entry.recompute);
  }
  noted.notes->times = 1;
  if (!offloadsActivations(configuration.offload))
    return;
  const StageTime &time = result.stages[size_t(&stage - stages.data())];
  auto note = [&](Carrier carrier, Moment moment, const PlaceCopies &copies,
                  double exposed) {
    double seconds = copies.getSeconds(context);
    if (copies.bytes > 0)
      noted.note({std::nullopt, carrier, moment, 1, microbatches * copies.count,
                  microbatches * copies.bytes, microbatches * seconds,
                  microbatches * std::max(0.0, seconds - exposed),
                  configuration.offload.activations});
  };
  OffloadCopies copies = getCopies(stage, context);
  note(Carrier::To, Moment::Forward, copies.saved, time.copiedForward);
  note(Carrier::From, Moment::Backward,
       generator->splitsBackward ? copies.inputs : copies.saved,
       time.copiedInput);
  if (!generator->splitsBackward)
    return;
  note(Carrier::To, Moment::Backward, copies.made, 0);
  note(Carrier::From, Moment::Backward, copies.weights, time.copiedWeight);
}

/// A message for each microbatch and each neighbour of a virtual stage on
/// another rank. What hides them is the schedule's business.
void Estimator::noteTransfers(uint32_t rank, const Context &noted) const {
  const schedule::Problem &problem = pipeline.getProblem();
  double bytes = getMessageBytes(context);
  uint32_t last = problem.stages * problem.chunks - 1;
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk) {
    uint32_t stage = problem.stageOf(rank, chunk);
    auto send = [&](Moment moment, uint32_t to) {
      if (problem.rankOf(to) == rank)
        return;
      double count = problem.microbatches;
      noted.note({Axis::PP, Carrier::Send, moment, 2, count, count * bytes,
                  count * transfer.at(getLink(rank, problem.rankOf(to)),
                                      problem.stages)});
    };
    if (stage < last)
      send(Moment::Forward, stage + 1);
    if (stage > 0)
      send(Moment::Backward, stage - 1);
  }
}

std::vector<ExchangeList> Estimator::listExchanges() {
  std::vector<ExchangeList> lists;
  bool isTied = sharesTied();
  for (uint32_t rank = 0; rank < pipeline.getProblem().stages; ++rank) {
    ExchangeNotes notes;
    Context noted = context;
    noted.notes = &notes;
    StepLoad load = getLoad(rank);
    if (!isTied)
      load.tied = 0;
    for (const StageBlocks *stage : load.stages)
      notePasses(*stage, noted);
    noteTransfers(rank, noted);
    getDataSeconds(load, noted);
    getOptimizerCost(load, noted);
    getSitesSeconds(load, result.pipelineSeconds + result.optimizerSeconds,
                    noted);
    lists.push_back(std::move(notes.list));
  }
  return lists;
}

Result<std::vector<ExchangeList>>
planner::listExchanges(const Work &work, const Cluster &cluster,
                       const Training &training,
                       const Configuration &configuration) {
  Context context{work, cluster, training, configuration};
  Estimator estimator(context);
  PLAIT_RETURN_IF_ERROR(estimator.run(Microbatches::Some));
  return estimator.listExchanges();
}
