//===- RewriteSteps.h - Passes over the steps of a plan ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLAN_REWRITESTEPS_H
#define PLAIT_LIB_PLAN_REWRITESTEPS_H

#include "plait/Plan/Ranks.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace plait::plan {

/// Calls `rewrite(mesh, program, index, steps)` for every function of every
/// program: `program` is as it was before, `steps` are those of its function
/// `index`, to be changed.
template <typename Rewrite>
void rewriteSteps(fb::PlanT &plan, const Rewrite &rewrite) {
  std::vector<uint32_t> sizes;
  for (const auto &axis : plan.mesh)
    sizes.push_back(axis->size);
  Mesh mesh(sizes);
  for (auto &program : plan.programs) {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::CreateProgram(builder, program.get()));
    const auto &before =
        *flatbuffers::GetRoot<fb::Program>(builder.GetBufferPointer());
    for (size_t i = 0; i < program->functions.size(); ++i)
      rewrite(mesh, before, int32_t(i), program->functions[i]->steps);
  }
}

} // namespace plait::plan

#endif // PLAIT_LIB_PLAN_REWRITESTEPS_H
