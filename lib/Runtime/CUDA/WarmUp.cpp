//===- WarmUp.cpp - The first call of every library step ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt and cuDNN load a kernel in its first call, for which the driver may
// wait until the GPU is idle. Where a kernel of NCCL's waits there for another
// rank, which waits likewise, it never is. So all of them are called once
// before there are communicators. The GPU being idle, and nothing in the arena,
// this is also when GEMMs are timed. The arena is zero; so it is afterwards.
//
//===----------------------------------------------------------------------===//

#include "Core/Operands.h"
#include "CudaDevice.h"
#include "GemmTimer.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"

#include <algorithm>
#include <map>
#include <set>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Walks the calls of a program for what libraries compute.
class WarmUp {
public:
  WarmUp(const fb::Plan &plan, const fb::Program &program, CudaDevice &device,
         uint32_t rank)
      : program(program), device(device), rank(rank), mesh(plan) {}

  /// All actions of the rank's program, in order; what several of them share is
  /// called once. Transfers have no steps to be called. GEMMs come last, when
  /// it is known how often a step has them.
  Status run() {
    for (uint32_t i = 0; i < plan::length(program.actions()); ++i) {
      const fb::Action &action = *program.actions()->Get(i);
      if (plan::isTransfer(action))
        continue;
      const fb::Function &function =
          *program.functions()->Get(action.function());
      for (uint32_t j = 0; j < plan::length(function.steps()); ++j)
        PLAIT_RETURN_IF_ERROR(visit(action, *function.steps()->Get(j)));
    }
    PLAIT_RETURN_IF_ERROR(device.timeGemms(gemmUses()));
    for (const auto &[number, use] : gemms)
      PLAIT_RETURN_IF_ERROR(device.gemm(number, use.operands, /*add=*/false));
    return Status::success();
  }
  bool hasCalled() const { return !gemms.empty() || !attentions.empty(); }

private:
  /// Preparing is idempotent: equal steps have one number, and the executor
  /// gets the same one later. That number decides whether it has been called.
  Status visit(const fb::Action &action, const fb::Step &step) {
    // The addresses are those of the plan, so that alignment is what it will
    // be.
    auto place = [&](const fb::Ref &ref) {
      return RankMemory(device).at(action, ref);
    };
    if (const auto *gemm = step.step_as_GemmStep()) {
      auto number = device.prepareGemm(*gemm);
      if (!number.ok())
        return number.status();
      GemmUse &use =
          gemms.try_emplace(*number, GemmUse{*number, operandsOf(*gemm, place)})
              .first->second;
      use.adds |= gemm->accumulate() != fb::Accumulate::Overwrite;
      ++use.calls;
    }
    // Loading its kernels is all that may have to wait.
    if (const auto *grouped = step.step_as_GroupedGemmStep())
      return device
          .prepareGroupedGemm(
              *grouped, plan::valueOf(mesh, rank, grouped->first_expert()))
          .status();
    if (const auto *attention = step.step_as_AttentionStep()) {
      auto number = device.prepareAttention(
          *attention, {plan::valueOf(mesh, rank, attention->first_query())});
      if (!number.ok())
        return number.status();
      if (attentions.insert(*number).second)
        return device.attention(*number, operandsOf(*attention, place));
    }
    return Status::success();
  }

  std::vector<GemmUse> gemmUses() const {
    std::vector<GemmUse> uses;
    for (const auto &[number, use] : gemms)
      uses.push_back(use);
    return uses;
  }

  const fb::Program &program;
  CudaDevice &device;
  uint32_t rank;
  plan::RankGrid mesh;
  std::map<uint32_t, GemmUse> gemms;
  std::set<uint32_t> attentions; // that have been called
};

} // namespace

/// Whether a step of `program` says so.
static bool isDeterministic(const fb::Program &program) {
  for (uint32_t f = 0; f < plan::length(program.functions()); ++f) {
    const auto *steps = program.functions()->Get(f)->steps();
    for (uint32_t i = 0; i < plan::length(steps); ++i)
      if (const auto *attention = steps->Get(i)->step_as_AttentionStep();
          attention && attention->deterministic())
        return true;
  }
  return false;
}

bool runtime::isDeterministic(const fb::Plan &plan) {
  return plan.deterministic() ||
         std::any_of(plan.programs()->begin(), plan.programs()->end(),
                     [](const fb::Program *program) {
                       return ::isDeterministic(*program);
                     });
}

/// A plan that is to have the same bits in every run keeps the heuristic's
/// choice: that others give the same ones is only seen on numbers.
Status CudaDevice::timeGemms(const std::vector<GemmUse> &uses) {
  if (!timing.enabled || uses.empty() || runtime::isDeterministic(plan))
    return Status::success();
  std::vector<GemmUse> parts;
  for (const GemmUse &use : uses)
    for (uint32_t part : gemms->partsOf(use.gemm)) {
      parts.push_back(use);
      parts.back().gemm = part;
    }
  GemmTimer timer(*queue, *gemms, timing);
  PLAIT_RETURN_IF_ERROR(timer.run(std::move(parts)));
  timedText = timer.report();
  return Status::success();
}

/// Zeroes again what libraries have written, workspace and results of zeros, as
/// plans count on it.
Status CudaDevice::warmUp(uint32_t rank) {
  PLAIT_RETURN_IF_ERROR(attachThread());
  WarmUp libraries(plan, program, *this, rank);
  PLAIT_RETURN_IF_ERROR(libraries.run());
  if (!libraries.hasCalled())
    return Status::success();
  PLAIT_RETURN_IF_ERROR(queue->fillZero(arena(), owned->bytes()));
  return queue->synchronize();
}
