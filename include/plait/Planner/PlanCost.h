//===- PlanCost.h - Cost model of plans -------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The search predicts from the model's work; here what was compiled is looked
// at: the shapes of its matmuls, the traffic of its kernels, the bytes of its
// collectives and messages. The costs are those of the same model (Cost.h), or
// those that a run measured. plan::replay turns either into a step.
//
// Ranks fill nodes in order: rank 0 to devicesPerNode - 1 share the first.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_PLANCOST_H
#define PLAIT_PLANNER_PLANCOST_H

#include "plait/Plan/Profile.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Replay.h"
#include "plait/Planner/Cluster.h"
#include "plait/Planner/Exchange.h"

#include <string>

namespace plait::planner {

/// Seconds of one call of `step` on a rank of `cluster`; of a collective, from
/// when all members are there. `mesh` is the plan's.
double stepSeconds(const plan::fb::Step &step, const plan::RankGrid &mesh,
                   const Cluster &cluster);

/// Says whether ranks of several nodes take part in a step or message.
bool crossesNodes(const plan::fb::Step &step, const plan::RankGrid &mesh,
                  const Cluster &cluster);
bool crossesNodes(uint32_t source, uint32_t target, const plan::RankGrid &mesh,
                  const Cluster &cluster);

/// The largest power of two that divides what rows lie apart, in elements, in
/// all three matrices and from matrix to matrix.
int64_t getRowAlignment(const plan::fb::GemmStep &step);

/// Seconds of a message of `bytes` between two programs.
double messageSeconds(uint32_t source, uint32_t target, uint64_t bytes,
                      const plan::RankGrid &mesh, const Cluster &cluster);

/// All of them. Fails when the cluster has fewer devices than the plan ranks.
Result<plan::ReplayCosts>
predictCosts(const plan::fb::Plan &plan,
             const std::vector<plan::Message> &messages,
             const Cluster &cluster);

/// The cluster that a plan is taken to run on.
struct PlanCluster {
  Cluster cluster;
  std::string warning; // empty: none
};
/// The cluster called `name`; without a name, what the plan was made for, or
/// of a CPU plan that was made for none, this kind of machine.
Result<PlanCluster> clusterOf(const plan::fb::Plan &plan,
                              const std::string &name = "");

/// A step whose parts cost that. `overlaps`: ranks communicate beside
/// computing, in streams.
Result<plan::Replayed> replayStep(const plan::fb::Plan &plan,
                                  const std::vector<plan::Message> &messages,
                                  const plan::ReplayCosts &costs,
                                  bool overlaps);

/// The same, `costs` being predicted, on `cluster`: CPU ranks share its
/// processors.
Result<plan::Replayed> predictStep(const plan::fb::Plan &plan,
                                   const std::vector<plan::Message> &messages,
                                   const plan::ReplayCosts &costs,
                                   const Cluster &cluster, bool overlaps);

/// Lists, by program, what a rank of it exchanges in a step. Times are those of
/// `replayed`; 0 where it has no streams.
std::vector<ExchangeList> listExchanges(const plan::fb::Plan &plan,
                                        const plan::Replayed &replayed);

/// The measured ones. `profile` must be of the plan (checkProfile).
plan::ReplayCosts measuredCosts(const plan::fb::Plan &plan,
                                const std::vector<plan::Message> &messages,
                                const plan::Profile &profile);

/// Reads a profile. Fails with one line that names the file and the field.
Result<plan::Profile> readProfile(const std::string &path);
/// Reads a profile, or all that a check of a node has left in its "profiles":
/// at least one.
Result<std::vector<plan::Profile>> readProfiles(const std::string &path);

/// Fails, naming `path`, unless the profile was taken of this plan: by its
/// hash, and by having an entry for all that the plan has.
Status checkProfile(const plan::Profile &profile, const std::string &path,
                    const plan::fb::Plan &plan, uint64_t hash);

/// "pp=2 dp=2 tp=2", for messages and titles.
std::string printMesh(const plan::fb::Plan &plan);

} // namespace plait::planner

#endif // PLAIT_PLANNER_PLANCOST_H
