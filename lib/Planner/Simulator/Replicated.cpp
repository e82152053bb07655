//===- Replicated.cpp - Exchanges among ranks that hold the same ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives of parameters and gradients, by axis.
//
//===----------------------------------------------------------------------===//

#include "Replicated.h"

#include <algorithm>
#include <ranges>

using namespace plait;
using namespace plait::planner;

Replicated planner::getRest(double bytes, Summed summed,
                            const Context &context) {
  Replicated made;
  for (const AxisFacts &facts : kAxes) {
    bool isOwned = facts.splitsExperts && summed.isExperts;
    bool isSummed = facts.splitsTokens()
                        ? !isOwned && facts.copiesState()
                        : facts.axis == Axis::TP && summed.isPartial;
    if (!isSummed || context.configuration.mesh[facts.axis] == 1)
      continue;
    made.count[facts.axis] = 1;
    made.bytes[facts.axis] = bytes;
    made.seconds[facts.axis] =
        collectiveSeconds(CollectiveKind::AllReduce, bytes,
                          context.group(facts.axis), context.cluster);
  }
  return made;
}

Replicated planner::getCollective(CollectiveKind kind, Axis axis, double bytes,
                                  const Group &group, const Context &context) {
  Replicated made;
  double seconds = collectiveSeconds(kind, bytes, group, context.cluster);
  bool strided =
      group.perNode > 1 && group.perNode < context.cluster.devicesPerNode;
  if (group.perNode < group.ranks && strided)
    seconds /= context.framework().stridedFraction;
  made.kinds[axis] = kind;
  made.count[axis] = 1;
  made.bytes[axis] = bytes;
  made.seconds[axis] = seconds;
  return made;
}

Replicated planner::getOthers(double bytes, Summed summed,
                              const Context &context) {
  Replicated made;
  for (const AxisFacts &facts : kAxes)
    if (facts.dividesState && facts.axis != Axis::DP &&
        !(facts.splitsExperts && summed.isExperts) &&
        context.configuration.mesh[facts.axis] > 1)
      made.add(getCollective(CollectiveKind::AllReduce, facts.axis, bytes,
                             context.group(facts.axis), context));
  made.add(getRest(bytes, summed, context));
  return made;
}

Replicated planner::getReplicated(CollectiveKind kind, double bytes,
                                  bool experts, const Context &context) {
  if (context.framework().joinsReplicas)
    return getCollective(kind, Axis::DP, bytes, context.replicaGroup(experts),
                         context);
  Replicated made;
  for (const AxisFacts &facts : std::views::reverse(kAxes)) {
    int ranks = context.configuration.mesh[facts.axis];
    if (!facts.dividesState || (experts && facts.splitsExperts) || ranks == 1)
      continue;
    made.add(getCollective(kind, facts.axis, bytes, context.group(facts.axis),
                           context));
    if (kind != CollectiveKind::AllReduce)
      bytes /= ranks;
  }
  return made;
}

/// Counts links as busy for what a collective takes beyond one of a byte.
double Replicated::getSecondsBeside(const Context &context) const {
  double longest = 0, inside = 0, across = 0;
  for (const AxisFacts &facts : kAxes) {
    if (count[facts.axis] == 0)
      continue;
    Group group = context.group(facts.axis);
    double empty =
        count[facts.axis] *
        collectiveSeconds(kinds[facts.axis], 1, group, context.cluster);
    double busy = std::max(0.0, seconds[facts.axis] - empty);
    (group.perNode < group.ranks ? across : inside) += busy;
    longest = std::max(longest, seconds[facts.axis]);
  }
  return std::max({longest, inside, across}) + rounding;
}

/// Each axis has the same share of it hidden.
void Replicated::note(Moment moment, double times, double exposed,
                      const Context &context) const {
  if (!context.notes)
    return;
  double all = getSeconds();
  double share = all > 0 ? std::max(0.0, 1 - exposed / all) : 0;
  for (const AxisFacts &facts : kAxes) {
    bool isJoined = facts.dividesState && context.framework().joinsReplicas;
    int64_t members = isJoined ? context.replicaGroup(/*experts=*/false).ranks
                               : context.configuration.mesh[facts.axis];
    if (members == 1 || bytes[facts.axis] == 0)
      continue;
    double taken = times * seconds[facts.axis];
    context.note({facts.axis, getCarrier(kinds[facts.axis]), moment, members,
                  times * count[facts.axis], times * bytes[facts.axis], taken,
                  share * taken});
  }
}
