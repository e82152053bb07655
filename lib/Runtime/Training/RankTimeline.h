//===- RankTimeline.h - A step as bars --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_RANKTIMELINE_H
#define PLAIT_LIB_RUNTIME_TRAINING_RANKTIMELINE_H

#include "Stragglers.h"

#include <nlohmann/json.hpp>

namespace plait::runtime {

/// Describes what the page (DashboardPage.h) shows of the last watched step:
/// {"step", "seconds", "names": [text, …], "rows": [[rank, stream, [[begin,
/// length, kind, index into names], …]], …]}, times in microseconds. Of many
/// ranks it has those that the others waited for most.
nlohmann::ordered_json describeTimeline(const Stragglers &watched);

/// Describes what ranks do in the last watched steps: {"steps", "slow":
/// [sentence, …], "ranks_of_run", "ranks": [[rank, host, position, computing,
/// times, waiting, waited for, slow], …]}, in seconds of a step; of many ranks
/// as above.
nlohmann::ordered_json describeRanks(const Stragglers &watched);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_RANKTIMELINE_H
