//===- CheckNumbers.cpp - Owners and shapes of parameters -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What relates programs to each other: the union of their shards is every
// parameter exactly once. Owners are what is saved and counted in the norm;
// other programs may hold copies (tied parameters).
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "plait/Plan/Ranks.h"

#include <vector>

using namespace plait;
using namespace plait::plan;

/// Every rank's block has the shape that the sharding implies.
static Status checkShape(const fb::Plan &plan, uint32_t program,
                         const fb::Shard &shard) {
  RankGrid mesh(plan);
  const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
  for (uint32_t dim = 0; dim < parameter.shape()->size(); ++dim) {
    int64_t global = parameter.shape()->Get(dim);
    int64_t expected = blockOf(mesh, 0, *shard.dims()->Get(dim), global).extent;
    if (shard.local_shape()->Get(dim) != expected)
      return fail("program ", program, ": shard of '", parameter.name()->str(),
                  "' has ", shard.local_shape()->Get(dim),
                  " elements in dimension ", dim, ", its sharding of ", global,
                  " implies ", expected);
  }
  return Status::success();
}

/// Ranks of one program are replicas or hold other blocks, so that programs
/// alone need to be looked at.
Status plan::checkNumbers(const fb::Plan &plan) {
  // The owning program by parameter; -1: none so far.
  std::vector<int64_t> owner(plan.parameters()->size(), -1);
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    const fb::Program &program = *plan.programs()->Get(i);
    if (!program.shards())
      continue;
    for (const fb::Shard *shard : *program.shards()) {
      PLAIT_RETURN_IF_ERROR(checkShape(plan, i, *shard));
      if (!shard->owner())
        continue;
      int64_t &previous = owner[shard->parameter()];
      if (previous >= 0)
        return fail("parameter '",
                    plan.parameters()->Get(shard->parameter())->name()->str(),
                    "' is owned by programs ", previous, " and ", i);
      previous = i;
    }
  }
  for (uint32_t i = 0; i < owner.size(); ++i)
    if (owner[i] < 0)
      return fail("parameter '", plan.parameters()->Get(i)->name()->str(),
                  "' is owned by no program");
  return Status::success();
}
