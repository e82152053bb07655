//===- Check.h - Proves a plan sound ----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compiler runs the checker before it writes a plan and the runtime after
// it has read one, so that a plan that exists is a plan that runs. Four parts,
// each relying on the ones before it:
//
//  structure      every index, reference and size is in range, so that the
//                 runtime may use them without looking;
//  memory         no two regions of an arena share bytes while both live;
//  communication  the action lists of all programs, executed together, end;
//                 every message is received once; every collective over the
//                 pipeline axis is entered by all of its members alike;
//  numbers        parameters have one owner, and shards the shapes that their
//                 shardings imply.
//
// The cost is about linear in the number of actions and does not depend on the
// sizes of the data- and tensor-parallel axes: ranks that differ only there
// run the same program.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_CHECK_H
#define PLAIT_PLAN_CHECK_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Support/Status.h"

namespace plait::plan {

/// All parts, and the same for the reference plan. `plan` must have passed the
/// FlatBuffers verifier.
Status checkPlan(const fb::Plan &plan);

Status checkStructure(const fb::Plan &plan);
Status checkMemory(const fb::Plan &plan);
Status checkCommunication(const fb::Plan &plan);
Status checkNumbers(const fb::Plan &plan);

/// The order in which a GPU executes what NCCL launches.
enum class LaunchOrder {
  Routes, ///< Messages of one route, in one direction, after one another.
  Serial, ///< One at a time, as before CUDA 12.9 in recorded steps.
};

/// Fails where sends that wait for their receives make ranks wait in a circle,
/// and tells who waits for whom. Part of checkPlan() for plans for GPUs, with
/// LaunchOrder::Routes.
Status checkProgress(const fb::Plan &plan, LaunchOrder order);

/// The size of one element in bytes.
constexpr uint64_t elementBytes(fb::DType type) {
  return type == fb::DType::BF16 ? 2 : 4;
}

} // namespace plait::plan

#endif // PLAIT_PLAN_CHECK_H
