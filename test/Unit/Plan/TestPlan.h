//===- TestPlan.h - Small plans for tests -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLAN_TESTPLAN_H
#define PLAIT_TEST_UNIT_PLAN_TESTPLAN_H

#include "plait/Plan/Plan_generated.h"

#include <memory>
#include <string>
#include <vector>

namespace plait::test {

namespace fb = plan::fb;

/// Two stages of two tensor-parallel ranks, two microbatches, all kinds of
/// steps but all_gather and its like. Stage 0 computes, for microbatch i with
/// first token t, a b_local summed over tp, times t, plus 1 in the first
/// microbatch; stage 1 adds these up in the gradient of "sum".
///  - "weight" [8, 6], rows split over tp, on stage 0; initialised to normals
///  - "sum" [3, 6], replicated, on stage 1; constant 0.5
/// The metrics are (2, 3, 8) on every rank, by a maximum over pp.
fb::PlanT makePlan();

/// One program of `ranks` tensor-parallel ranks that does nothing; each has an
/// arena of `bytes`.
fb::PlanT makeArenaPlan(uint32_t ranks, uint64_t bytes);

/// The file of such a plan of one rank, whose arena has `workspace` bytes and
/// behind them `bytes` for libraries.
std::vector<uint8_t> packWorkspacePlan(uint64_t workspace, uint64_t bytes);

/// Appends a table to a vector of the object API and returns it.
template <typename T>
T &append(std::vector<std::unique_ptr<T>> &list, T value = {}) {
  list.push_back(std::make_unique<T>(std::move(value)));
  return *list.back();
}

/// What the checker says of a plan; empty: it is sound.
std::string findFault(const fb::PlanT &plan);

/// Returns a step of a program of such a plan, by its function and its place.
template <typename T> T &stepOf(fb::ProgramT &program, int function, int step) {
  return *static_cast<T *>(
      program.functions[function]->steps[step]->step.value);
}

/// A fresh directory, removed when the process ends.
std::string makeDirectory();

std::vector<uint8_t> readFile(const std::string &path);
void writeFile(const std::string &path, const std::vector<uint8_t> &bytes);

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_PLAN_TESTPLAN_H
