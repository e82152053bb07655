//===- Idle.cpp - Meshes that leave devices idle --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fewer ranks than devices: searched when the best of all devices is known, and
// only as far as a bound does not say that they are slower.
//
//===----------------------------------------------------------------------===//

#include "Search/Explore.h"

#include <algorithm>
#include <limits>

using namespace plait;
using namespace plait::planner;

double Explorer::getLeastSeconds(const Work &work, int context) {
  auto [entry, isNew] = leastSeconds.try_emplace({&work, context}, 1e300);
  if (!isNew)
    return entry->second;
  Configuration one;
  one.offload = choices.offload.front();
  one.mesh[Axis::EP] = work.expertParallel;
  one.mesh[Axis::TP] = work.tensorParallel;
  one.mesh[Axis::CP] = context;
  one.sequenceParallel = work.sequenceParallel;
  one.expertExchange = work.expertExchange;
  // Sizes that divide a replica's sequences divide all of them.
  for (int64_t size : choices.getMicroBatches(Mesh(), input.training)) {
    one.microBatch = size;
    for (const Recomputation &recompute : choices.recompute)
      for (const ScheduleChoice &schedule : choices.schedules)
        for (ContextParallel kind : choices.getContextParallel(context)) {
          one.recompute = recompute;
          one.contextParallel = kind;
          entry->second = std::min(
              entry->second, getLeastWork(one, schedule.splits) / double(size));
        }
  }
  return entry->second;
}

/// Unless a bound says at once that it is slower than all devices together.
void Explorer::addIdleMesh(const Work &work, const Mesh &mesh) {
  double sequences = double(input.training.globalBatch) / mesh.batchParts();
  double least = getLeastSeconds(work, mesh[Axis::CP]) * sequences /
                 mesh[Axis::PP] * boundRounding;
  if (least < fullSeconds && idleMeshes.insert({&work, mesh}).second)
    addMesh(work, mesh);
}

/// Of the meshes with idle devices, those that need the least memory for their
/// tp, cp and pp: more replicas divide more and have fewer microbatches.
/// Where none of them fits, none does.
void Explorer::addSmallestIdle() {
  for (const auto &[key, work] : works) {
    std::map<std::pair<int, int>, int64_t> least; // by cp and pp
    for (const Mesh &mesh : choices.getIdleMeshes(key, work->mostStages(),
                                                  input.training, input.pins)) {
      std::vector<int64_t> sizes =
          choices.getMicroBatches(mesh, input.training);
      auto [known, isNew] =
          least.try_emplace({mesh[Axis::CP], mesh[Axis::PP]},
                            std::numeric_limits<int64_t>::max());
      ++meshes;
      if (sizes.empty() || sizes.front() >= known->second)
        continue;
      known->second = sizes.front();
      addIdleMesh(*work, mesh);
    }
  }
  explore();
}

/// Fewer ranks may be faster: where their number divides layers and batch
/// better, or where communication is what takes long.
void Explorer::addIdle() {
  fullSeconds = std::min(getBestSeconds(), most);
  for (int tensor : choices.tensorsWithIdle)
    for (bool sequenceParallel : choices.sequenceParallel)
      if (works.empty() ||
          getTensorSeconds(tensor, sequenceParallel) < fullSeconds)
        addTensor(tensor, sequenceParallel);
  if (fullSeconds == 1e300) {
    addSmallestIdle();
    if (getBestSeconds() == 1e300)
      return;
  }
  threshold = getThreshold();
  for (const auto &[key, work] : works)
    for (const Mesh &mesh : choices.getIdleMeshes(key, work->mostStages(),
                                                  input.training, input.pins))
      addIdleMesh(*work, mesh);
  explore();
}
