//===- AddClipping.cpp - Sites that no other site may move far ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Centred clipping (Karimireddy, He, Jaggi 2021): what a site has moved by
// since sites agreed last is scaled down to a radius, so that no site moves the
// mean by more than its share of that. The paper's iteration is done once, from
// the last agreement, as it recommends. The norm is of all weights of a site,
// of which its ranks have parts.
//
//===----------------------------------------------------------------------===//

#include "SiteBuilder.h"

#include "llvm/ADT/DenseSet.h"

using namespace plait;

/// 1. What a site has moved by, of all its weights.
/// 2. The norm of that.
/// 3. It is scaled down and added up, and all have the anchor that moves by the
///    mean.
void SiteBuilder::addClipping(fb::FunctionT &function) {
  // 1. Moved.
  for (const SentRange &range : ranges)
    addDifference(function, range);
  // 2. Norm.
  addNorm(function);
  // 3. Mean.
  for (const SentRange &range : ranges) {
    addOuter(function, fb::OuterKind::Clip, range.begin, range.elements())
        .others = at(scratch[0]);
    addSum(function, range.begin, range.elements());
    addUpdate(function, range);
  }
  addRounding(function);
}

/// Whether ranks along the axis have other elements of what a rank updates.
static bool divides(uint8_t axis, const fb::ShardT &shard) {
  bool isMaster = shard.compute_dtype == fb::DType::BF16;
  const auto &dims =
      isMaster && !shard.state_dims.empty() ? shard.state_dims : shard.dims;
  if (llvm::any_of(dims, [&](const auto &dim) {
        return llvm::is_contained(dim->axes, axis);
      }))
    return true;
  return isMaster && shard.division &&
         (shard.division->axis == axis ||
          llvm::is_contained(shard.division->inner_axes, axis));
}

/// Counts the ranks of a site that update the same elements of a parameter: on
/// each stage that has it, those along the axes that do not divide it.
static uint32_t countHolders(const fb::PlanT &plan, const fb::ShardT &shard) {
  uint32_t count = 0;
  for (const auto &program : plan.programs)
    for (const auto &other : program->shards) {
      if (other->parameter != shard.parameter)
        continue;
      uint32_t ranks = 1;
      for (uint8_t axis = 1; axis < plan.mesh.size(); ++axis)
        if (!divides(axis, *other))
          ranks *= plan.mesh[axis]->size;
      count += ranks;
    }
  return count;
}

/// Each element counts once: as so many parts as there are ranks that have it.
/// Members of a pack that ranks divide have one part of it together.
void SiteBuilder::addNorm(fb::FunctionT &function) {
  fb::FillStepT fill;
  fill.target = at(scratch[0]);
  fill.bytes = sizeof(float);
  addStep(function, std::move(fill));
  llvm::DenseSet<uint64_t> seen;
  for (const auto &shard : program.shards) {
    if (plan.parameters[shard->parameter]->frozen ||
        !seen.insert(shard->weight).second)
      continue;
    fb::OuterStepT &step = addOuter(function, fb::OuterKind::Squares,
                                    shard->weight, countHeld(plan, *shard));
    step.mixed = at(scratch[0]);
    step.copies = countHolders(plan, *shard);
  }
  for (uint8_t over = 0; over < plan.mesh.size(); ++over)
    if (plan.mesh[over]->size > 1)
      addCollective(function, CollectiveKind::AllReduce, over, scratch[0],
                    scratch[0], 1, fb::DType::F32);
}
