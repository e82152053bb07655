//===- Floor.h - What a step of a plan could take at best -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The floor of a plan's step is what its arithmetic and bytes cost where
// nothing is lost: matmuls at the rate of the largest ones, or their operands
// at that of copies; attention as the library computes it; of kernels every
// operand once, at the rate of copies; a launch for each step. It is one of the
// model's figures for the device (Cost.h), and says nothing of work that
// another program of the same model would not have.
//
// What is above it is listed by the steps that make it so, and what is known to
// make steps slow is looked for in the plan itself (the lint).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_FLOOR_H
#define PLAIT_PLANNER_FLOOR_H

#include "plait/Planner/PlanCost.h"

namespace plait::planner {

/// The parts that a step's floor is made of.
enum class FloorPart : uint8_t { Matmuls, Attention, Bytes, Communication };

/// Seconds of one training step on one rank, of steps that are alike.
struct FloorEntry {
  FloorPart part = FloorPart::Bytes;
  std::string name; // "nn.matmul h.*.mlp.c_fc", layers as one
  double calls = 0;
  double seconds = 0; // predicted
  double floor = 0;   // without launches
  double launches = 0;

  double getExcess() const { return seconds - floor - launches; }
};

/// The floor of one program: all entries, those with the most above it first.
struct StepFloor {
  std::vector<FloorEntry> entries;

  /// Sums over entries, of one part or of all.
  FloorEntry getSum(std::optional<FloorPart> part = std::nullopt) const;
};

/// Finds the floor of program `index`, whose steps cost `costs` on `cluster`.
StepFloor findFloor(const plan::fb::Plan &plan, uint32_t index,
                    const plan::ReplayCosts &costs, const Cluster &cluster);

/// A sign of lost time: a rule, where it applies, and what it may cost in a
/// step.
struct LintFinding {
  std::string rule; // "below-a-wave"
  std::string where;
  std::string text;
  double seconds = 0;
};

/// The signs that are in program `index`, those that cost most first, once for
/// layers that are alike:
///   below-a-wave    a matmul of fewer tiles than the device has
///   multiprocessors few-blocks      a kernel of fewer blocks than that traffic
///   a kernel that moves over 1.2 times the bytes of its operands written-once
///   a tensor that one kernel writes and one other reads, alone many-nodes a
///   step of more than 50,000 operations, which is recorded
///                   as one graph
/// Only plans for GPUs have waves, blocks and graphs.
std::vector<LintFinding> lintPlan(const plan::fb::Plan &plan, uint32_t index,
                                  const plan::ReplayCosts &costs,
                                  const Cluster &cluster);

} // namespace plait::planner

#endif // PLAIT_PLANNER_FLOOR_H
