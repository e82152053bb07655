//===- PlanCost.cpp - Cost model of plans ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the parts of a compiled plan cost: each step of a program by the same
// models as an operation of a profile (Cost/), each message by its bytes and
// the nodes that it goes between; or what a run has measured of them. Here
// sizes are exact, since the plan has them, where a prediction scales those of
// a profile. Nothing here knows in which order steps run: plan::replay puts the
// costs in time.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/PlanCost.h"

#include "Cost/Parts.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Communicators.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Sites.h"
#include "plait/Plan/Uses.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;
using plan::length;
namespace fb = plait::plan::fb;

static int64_t getLowestBit(uint64_t bits) {
  return int64_t(bits & (~bits + 1));
}

/// All strides together: the lowest bit that is set in any is the largest power
/// of two that divides all. Of A and B the larger stride is that of rows,
/// whichever way they are stored.
int64_t planner::getRowAlignment(const fb::GemmStep &step) {
  uint64_t bits = uint64_t(std::max(step.a_row(), step.a_col())) |
                  uint64_t(std::max(step.b_row(), step.b_col())) |
                  uint64_t(step.c_row());
  for (const auto *strides : {step.a_batch(), step.b_batch(), step.c_batch()})
    for (uint32_t i = 0; i < length(strides); ++i)
      bits |= uint64_t(strides->Get(i));
  return getLowestBit(bits);
}

/// A library's product, whose result is read and written so many times.
static double productSeconds(Matmul matmul, fb::DType dtype, fb::DType result,
                             double passes, const Device &device) {
  matmul.inputBytes = double(plan::elementBytes(dtype));
  matmul.outputBytes = double(plan::elementBytes(result)) * passes;
  return matmulCost(matmul, device,
                    dtype == fb::DType::BF16 ? Precision::BF16
                                             : Precision::FP32)
      .seconds;
}

/// A library call with what is fused into it: everything that is read or
/// written of an element of C counts as traffic of the result.
static double gemmSeconds(const fb::GemmStep &step, const Device &device) {
  Matmul matmul = {1, step.m(), step.n(), step.k()};
  for (uint32_t i = 0; i < length(step.batch()); ++i)
    matmul.batch *= step.batch()->Get(i);
  matmul.rowAlignment = getRowAlignment(step);
  // Of each element of C: written, read before, GELU's input read or written,
  // and its part of the bias.
  double passes = 1;
  passes += step.accumulate() != fb::Accumulate::Overwrite;
  passes += step.gelu_input() != nullptr;
  passes += step.bias() ? 1.0 / double(step.m()) : 0;
  return productSeconds(matmul, step.dtype(), step.c_dtype(), passes, device);
}

/// Counts as a GEMM for each expert, of as many rows as if all had equally
/// many. Rows of other ranks' experts are zeros in the result.
static double groupedGemmSeconds(const fb::GroupedGemmStep &step,
                                 const plan::RankGrid &mesh,
                                 const Device &device) {
  int64_t all = step.limit() ? step.limit() : step.experts();
  for (uint32_t i = 0; !step.limit() && i < length(step.first_expert()); ++i)
    if (int32_t axis = step.first_expert()->Get(i)->axis(); axis >= 0)
      all *= mesh.size(uint32_t(axis));
  int64_t each = (step.rows() + all - 1) / all;
  bool makes = step.kind() == fb::GroupedKind::Matrices;
  Matmul matmul = {step.experts(), makes ? step.k() : each, step.n(),
                   makes ? each : step.k()};
  matmul.rowAlignment = getLowestBit(uint64_t(step.k() | step.n()));
  double passes = 1 + (step.accumulate() != fb::Accumulate::Overwrite);
  int64_t zeros = makes ? 0 : step.rows() - step.experts() * each;
  double bytes = double(std::max<int64_t>(zeros, 0)) * double(step.n()) *
                 double(plan::elementBytes(step.c_dtype()));
  return productSeconds(matmul, step.dtype(), step.c_dtype(), passes, device) +
         memoryCost(bytes, device).seconds;
}

/// The step names its queries and all keys, from which follows among how many
/// ranks a sequence is divided. All gradients are one step.
static double attentionStepSeconds(const fb::AttentionStep &step,
                                   const Device &device) {
  // The step as an operation of a profile, so that one model serves both.
  Operation operation;
  operation.kind = OperationKind::Attention;
  operation.pass = step.kind() == fb::AttentionKind::Forward
                       ? Pass::Forward
                       : Pass::BackwardInput;
  operation.heads = step.heads();
  operation.keyValueHeads = step.kv_heads();
  operation.headSize = step.head_size();
  operation.queries = operation.keys = step.keys();
  operation.causal = step.causal();
  CostOptions options;
  // Ranks that share the queries run one program: the slowest counts, which has
  // the last of them where they are in order.
  options.sequenceParts =
      int(step.keys() / std::max<int64_t>(1, step.queries()));
  options.balancedContext = options.reorderedContext = step.chunks() != 0;
  options.precision =
      step.dtype() == fb::DType::BF16 ? Precision::BF16 : Precision::FP32;
  options.microBatch = step.batch();
  return attentionCost(operation, device, options).seconds;
}

/// The group of the members' first ranks; the others lie alike.
static Group groupOf(const fb::CollectiveStep &step, const plan::RankGrid &mesh,
                     const Cluster &cluster) {
  // A collective may name some indices of its axis; without members it is of
  // all.
  uint32_t axis = step.axis();
  std::vector<uint32_t> members(mesh.size(axis));
  for (uint32_t i = 0; i < members.size(); ++i)
    members[i] = i;
  if (length(step.members()))
    members.assign(step.members()->begin(), step.members()->end());
  auto nodeOf = [&](uint32_t member) {
    return mesh.withIndex(0, axis, member) / uint32_t(cluster.devicesPerNode);
  };
  // Every node is taken to have as many members as that of the first member,
  // also where a group is spread unevenly.
  Group group;
  group.ranks = int(members.size());
  group.perNode =
      int(std::count_if(members.begin(), members.end(), [&](uint32_t member) {
        return nodeOf(member) == nodeOf(members.front());
      }));
  return group;
}

/// The copy of the rows that come back to a rank from itself, which are read
/// and written.
static double ownCopySeconds(const fb::CollectiveStep &step, double bytes,
                             int members, const Device &device) {
  bool comesBack =
      step.rows() && plan::kindOf(step) == CollectiveKind::ReduceScatter;
  return comesBack ? 2 * bytes / members / getMemoryRate(device) : 0;
}

/// The bytes of the full tensor, as collectiveSeconds counts them: a step holds
/// the blocks of one rank, of which there are one or as many as members, by the
/// kind.
static double bytesOf(const fb::CollectiveStep &step, int members) {
  return double(step.outer()) * double(step.middle()) * double(step.chunk()) *
         double(plan::elementBytes(step.dtype())) *
         double(countBlocks(plan::kindOf(step), members)) *
         plan::shareOf(step, members);
}

static double collectiveStepSeconds(const fb::CollectiveStep &step,
                                    const plan::RankGrid &mesh,
                                    const Cluster &cluster) {
  CollectiveKind kind = plan::kindOf(step);
  Group group = groupOf(step, mesh, cluster);
  double bytes = bytesOf(step, group.ranks);
  if (cluster.sites && step.axis() == mesh.sitesAxis())
    return siteCollectiveSeconds(kind, bytes, group.ranks,
                                 mesh.ranks() / mesh.sites(), cluster);
  auto seconds = step.rows() ? rowsSeconds : collectiveSeconds;
  return seconds(kind, bytes, group, cluster) +
         ownCopySeconds(step, bytes, group.ranks, cluster.device);
}

/// Counts those of Encode and Decode. Where a message has less than a bit of
/// each element, these are looked for first.
static double getMessageFlops(const fb::OuterStep &step,
                              const plan::RankGrid &mesh) {
  double elements = double(step.elements());
  bool isSparse = 40 * double(step.words()) < elements;
  if (step.kind() == fb::OuterKind::Encode)
    return elements * getEncodeFlops(isSparse);
  if (step.kind() == fb::OuterKind::Decode)
    return elements * getDecodeFlops(isSparse) * double(mesh.sites());
  return 0;
}

/// By the kind of the step; one that no model covers costs nothing. A copy
/// reads and writes its bytes, a fill writes them.
double planner::stepSeconds(const fb::Step &step, const plan::RankGrid &mesh,
                            const Cluster &cluster) {
  const Device &device = cluster.device;
  if (const auto *kernel = step.step_as_KernelStep())
    return kernelCost(double(kernel->traffic()), double(kernel->flops()),
                      device)
        .seconds;
  if (const auto *gemm = step.step_as_GemmStep())
    return gemmSeconds(*gemm, device);
  if (const auto *grouped = step.step_as_GroupedGemmStep())
    return groupedGemmSeconds(*grouped, mesh, device);
  if (const auto *attention = step.step_as_AttentionStep())
    return attentionStepSeconds(*attention, device);
  if (const auto *collective = step.step_as_CollectiveStep())
    return collectiveStepSeconds(*collective, mesh, cluster);
  if (const fb::CopyStep *copy = plan::asPlaceCopy(step))
    if (double rate = device.places[getOtherPlace(copy->kind())].bandwidth)
      return device.launchSeconds + double(copy->bytes()) / rate;
  if (const auto *copy = step.step_as_CopyStep())
    return memoryCost(2 * double(copy->bytes()), device).seconds;
  if (const auto *fill = step.step_as_FillStep())
    return memoryCost(double(fill->bytes()), device).seconds;
  if (const auto *outer = step.step_as_OuterStep()) {
    double bytes = 0;
    for (const plan::Use &use : plan::usesOf(mesh, step))
      bytes += double(*use.count * use.unit) * (use.writes ? 2 : 1);
    return kernelCost(bytes, getMessageFlops(*outer, mesh), device).seconds;
  }
  return 0;
}

bool planner::crossesNodes(const fb::Step &step, const plan::RankGrid &mesh,
                           const Cluster &cluster) {
  const auto *collective = step.step_as_CollectiveStep();
  if (!collective)
    return false;
  Group group = groupOf(*collective, mesh, cluster);
  return group.perNode < group.ranks;
}

/// All ranks of a program send at once, each to its counterpart. If any pair is
/// on different nodes, the message is as slow as that pair.
bool planner::crossesNodes(uint32_t source, uint32_t target,
                           const plan::RankGrid &mesh, const Cluster &cluster) {
  uint32_t perNode = uint32_t(cluster.devicesPerNode);
  for (uint32_t i = 0; i < mesh.programRanks(); ++i)
    if (mesh.rankOf(source, i) / perNode != mesh.rankOf(target, i) / perNode)
      return true;
  return false;
}

double planner::messageSeconds(uint32_t source, uint32_t target, uint64_t bytes,
                               const plan::RankGrid &mesh,
                               const Cluster &cluster) {
  return transferSeconds(double(bytes),
                         !crossesNodes(source, target, mesh, cluster), cluster);
}

/// Those between sites count in the steps that have them. If any pair of sites
/// is on different nodes, the message is as slow as that pair.
static double getMessageSeconds(const fb::Plan &plan,
                                const plan::Message &message,
                                const plan::RankGrid &mesh,
                                const Cluster &cluster) {
  const fb::Action &send =
      *plan.programs()->Get(message.source)->actions()->Get(message.send);
  if (!send.exchange())
    return messageSeconds(message.source, message.target, send.bytes(), mesh,
                          cluster);
  if (cluster.sites)
    return plan::runsPerStep(plan, send) *
           siteTransferSeconds(double(send.bytes()),
                               mesh.ranks() / mesh.sites(), cluster);
  uint32_t perNode = uint32_t(cluster.devicesPerNode);
  bool sameNode = true;
  for (uint32_t i = 0; i < mesh.programRanks(); ++i) {
    uint32_t source = mesh.rankOf(message.source, i);
    uint32_t target =
        plan::partnerOf(plan, mesh, source, send).value_or(source);
    sameNode &= source / perNode == target / perNode;
  }
  return plan::runsPerStep(plan, send) *
         transferSeconds(double(send.bytes()), sameNode, cluster);
}

/// Of the calls of `function`, the part that is in a first microbatch.
static double getFirstShare(const fb::Program &program, int32_t function) {
  // Counted over the plan's actions, so that it needs no measurement.
  double calls = 0, first = 0;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (action.function() != function)
      continue;
    ++calls;
    first += action.first();
  }
  return calls > 0 ? first / calls : 0;
}

/// The share of the steps in which `function` is called: agreements of sites
/// are spread over all steps from one to the next.
static double getShare(const fb::Plan &plan, const fb::Program &program,
                       int32_t function) {
  for (uint32_t i = 0; i < length(program.actions()); ++i)
    if (const fb::Action &action = *program.actions()->Get(i);
        action.function() == function)
      return plan::runsPerStep(plan, action);
  return 1;
}

/// Gathers that GPUs launch together are one, of all their bytes, which the
/// first of them stands for: it waits for what any of them waits for, and the
/// others end with it.
static void joinGathers(const fb::Function &function, uint32_t rank,
                        double share, const plan::RankGrid &mesh,
                        const Cluster &cluster, std::vector<double> &seconds) {
  std::vector<uint32_t> last = plan::batchGathers(mesh, rank, function);
  for (uint32_t first = 0; first < last.size(); first = last[first] + 1) {
    if (last[first] == first)
      continue;
    auto gather = [&](uint32_t i) -> const fb::CollectiveStep & {
      return *function.steps()->Get(i)->step_as_CollectiveStep();
    };
    Group group = groupOf(gather(first), mesh, cluster);
    double bytes = 0;
    for (uint32_t i = first; i <= last[first]; ++i) {
      bytes += bytesOf(gather(i), group.ranks);
      seconds[i] = 0;
    }
    seconds[first] = share * collectiveSeconds(CollectiveKind::AllGather, bytes,
                                               group, cluster);
  }
}

/// One figure for each step of each function of each program, and for each
/// message, in the order of `messages`: the shape that plan::replay expects.
Result<plan::ReplayCosts>
planner::predictCosts(const fb::Plan &plan,
                      const std::vector<plan::Message> &messages,
                      const Cluster &cluster) {
  plan::RankGrid mesh(plan);
  if (mesh.ranks() > uint64_t(cluster.devices()))
    return fail("the plan has ", mesh.ranks(), " ranks, cluster '",
                cluster.name, "' has ", cluster.devices(), " devices");
  if (cluster.sites && cluster.sites != int64_t(mesh.sites()))
    return fail("the plan has ", mesh.sites(),
                mesh.sites() == 1 ? " site" : " sites", ", cluster '",
                cluster.name, "' has ", cluster.sites);
  plan::ReplayCosts costs;
  for (const fb::Program *program : *plan.programs()) {
    auto &functions = costs.steps.emplace_back();
    for (uint32_t i = 0; i < length(program->functions()); ++i) {
      const auto *steps = program->functions()->Get(i)->steps();
      auto &seconds = functions.emplace_back();
      double share = getShare(plan, *program, int32_t(i));
      for (uint32_t j = 0; j < length(steps); ++j) {
        const fb::Step &step = *steps->Get(j);
        seconds.push_back(share * stepSeconds(step, mesh, cluster));
        const auto *fill = step.step_as_FillStep();
        // It runs in the first microbatch alone and is nothing in the others:
        // costs are by function, so that each call gets its share.
        if (fill && fill->first_microbatch_only())
          seconds.back() *= getFirstShare(*program, int32_t(i));
      }
      // Sites are no ranks of one program's group.
      if (!cluster.device.isProcessor && !cluster.sites)
        joinGathers(*program->functions()->Get(i),
                    mesh.rankOf(uint32_t(costs.steps.size() - 1), 0), share,
                    mesh, cluster, seconds);
    }
  }
  for (const plan::Message &message : messages)
    costs.messages.push_back(getMessageSeconds(plan, message, mesh, cluster));
  return costs;
}

/// In the same shape, of what a profile has: a mean over calls, so that steps
/// that run in one microbatch only are spread over all as well.
plan::ReplayCosts
planner::measuredCosts(const fb::Plan &plan,
                       const std::vector<plan::Message> &messages,
                       const plan::Profile &profile) {
  plan::ReplayCosts costs;
  for (const plan::ProgramProfile &program : profile.programs) {
    auto &functions = costs.steps.emplace_back();
    for (const plan::FunctionProfile &function : program.functions) {
      auto &seconds = functions.emplace_back();
      for (const plan::StepProfile &step : function.steps)
        seconds.push_back(step.seconds);
    }
  }
  for (const plan::Message &message : messages) {
    // Measured where it was received: that side moves the bytes. What the
    // profile has no entry for takes no time.
    const fb::Action &action =
        *plan.programs()->Get(message.target)->actions()->Get(message.receive);
    double seconds = 0;
    for (const plan::TransferProfile &transfer :
         profile.programs[message.target].transfers)
      if (plan::isTransfer(transfer, action))
        seconds = transfer.seconds;
    costs.messages.push_back(seconds);
  }
  return costs;
}

std::string planner::printMesh(const fb::Plan &plan) {
  std::string text;
  for (const fb::MeshAxis *axis : *plan.mesh())
    text += (text.empty() ? "" : " ") + axis->name()->str() + "=" +
            std::to_string(axis->size());
  return text;
}
