//===- PredictStep.cpp - Prediction of a plan's step time -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step of a compiled plan on a cluster: the costs of PlanCost.cpp in the
// order that the plan fixes, and the cluster that this is about. The replay
// itself is in lib/Plan, where the runtime's tools have it too and nothing
// knows of clusters.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Streams.h"
#include "plait/Planner/Cost.h"
#include "plait/Planner/PlanCost.h"

using namespace plait;
using namespace plait::planner;
namespace fb = plait::plan::fb;

Result<plan::Replayed>
planner::replayStep(const fb::Plan &plan,
                    const std::vector<plan::Message> &messages,
                    const plan::ReplayCosts &costs, bool overlaps) {
  return overlaps ? plan::replayStreams(plan, messages, costs)
                  : plan::replay(plan, messages, costs);
}

/// Ranks that share a processor leave their cores to others while they wait.
/// Ranks are predicted with their share of the processor, which is too slow
/// where others rest. The whole step then shrinks evenly, with all of its
/// parts: which rank gains at which moment is not modelled. Measured costs
/// contain this effect already and are not scaled.
static void share(plan::Replayed &replayed, const Device &device) {
  double busy = 0;
  for (const plan::RankTime &rank : replayed.ranks)
    busy += (rank.computing + rank.communicating + rank.hidden) /
            double(replayed.programs.size());
  double seconds = replayed.seconds;
  double shared = sharedSeconds(seconds, busy, device);
  if (seconds <= 0 || shared == seconds)
    return;
  double scale = shared / seconds;
  for (std::vector<plan::ActionTime> &actions : replayed.programs)
    for (plan::ActionTime &time : actions)
      for (double *part :
           {&time.start, &time.end, &time.computing, &time.communicating})
        *part *= scale;
  for (plan::RankTime &rank : replayed.ranks)
    for (double *part : {&rank.computing, &rank.communicating, &rank.hidden})
      *part *= scale;
  replayed.seconds = shared;
}

Result<plan::Replayed> planner::predictStep(
    const fb::Plan &plan, const std::vector<plan::Message> &messages,
    const plan::ReplayCosts &costs, const Cluster &cluster, bool overlaps) {
  Result<plan::Replayed> replayed = replayStep(plan, messages, costs, overlaps);
  if (replayed.ok())
    share(*replayed, cluster.device);
  return replayed;
}

/// Whether the plan was made for `cluster`.
/// What a plan records of its cluster. Other figures may have changed since:
/// then times differ, but what was placed still fits.
static bool isFor(const fb::Cluster &planned, const Cluster &cluster) {
  return planned.device()->string_view() == cluster.device.name &&
         int64_t(planned.nodes()) == cluster.nodes &&
         int64_t(planned.devices_per_node()) == cluster.devicesPerNode &&
         planned.memory_bytes() == uint64_t(cluster.device.memoryBytes);
}

/// Finds the cluster by name, or by the name that the plan was made for, or, of
/// a processor's plan, as many ranks of this kind of machine. A plan for
/// another device can be asked about, with a warning; one for a GPU without any
/// cluster cannot, because nothing says which.
Result<PlanCluster> planner::clusterOf(const fb::Plan &plan,
                                       const std::string &name) {
  const fb::Cluster *planned = plan.cluster();
  std::string text = name;
  if (text.empty() && planned)
    text = planned->name()->str();
  if (text.empty() && plan::backendOf(plan) != "cpu")
    return fail("the plan is for ", plan::backendOf(plan),
                ": give `cluster`, as in `cluster` h100:1x8");
  if (text.empty())
    text = "cpu:" + std::to_string(plan::RankGrid(plan).ranks());
  Result<Cluster> cluster = parseCluster(text);
  if (!cluster.ok())
    return cluster.status();
  PlanCluster result = {std::move(*cluster), ""};
  if (planned && !isFor(*planned, result.cluster))
    result.warning =
        "the plan was made for " + planned->name()->str() +
        (name.empty() ? ", which has changed since" : ", not for " + name);
  return result;
}
