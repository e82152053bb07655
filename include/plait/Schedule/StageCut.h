//===- StageCut.h - Cut of layers into stages -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SCHEDULE_STAGECUT_H
#define PLAIT_SCHEDULE_STAGECUT_H

#include "plait/Schedule/Schedule.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace plait::schedule {

/// The layers of each virtual stage of `problem`, a row of layers cut so that
/// the slowest rank, which works through all stages that it holds, is as fast
/// as possible. `costs`, in any unit and none below 0, are of the layers;
/// `before` and `after` are what the first and the last stage do besides, where
/// there is something.
///
/// Every stage gets a layer. Where there are more stages than layers, the first
/// or the last or both get none, and do what comes before or after the layers
/// alone. Expects no more stages than layers and ends.
///
/// With one chunk a rank the cut is the best there is. With more it is where
/// layers cost the same; where they do not, no rank gets more than the slowest
/// one would of the best cut by stages. Where an even cut is as good it is
/// taken, with the short stages in front, because they hold the most
/// microbatches.
std::vector<int> cutStages(std::span<const double> costs,
                           std::optional<double> before,
                           std::optional<double> after, const Problem &problem);

/// Improves a cut by whatever `isBetter` says of one, which is asked at most
/// `most` times, never of the same move twice in a row of refusals: a layer
/// goes from a stage with several to another one, and the stages in between
/// pass one on. Neighbouring stages, which change two ranks, come first. Ends
/// where no such move is better; returns the last cut for which `isBetter` was
/// true.
std::vector<int>
improveCut(std::vector<int> cut, size_t most,
           const std::function<bool(const std::vector<int> &)> &isBetter);

} // namespace plait::schedule

#endif // PLAIT_SCHEDULE_STAGECUT_H
