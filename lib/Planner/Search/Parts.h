//===- Parts.h - Breakdown of time and memory -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_PARTS_H
#define PLAIT_LIB_PLANNER_SEARCH_PARTS_H

#include "plait/Planner/Search.h"

namespace plait::planner {

/// Seconds or bytes, with the name that texts and reports give them.
struct Part {
  std::string name;
  double value = 0;
};

/// They add up to the step. The same parts in the same order for every
/// estimate.
std::vector<Part> getTimeParts(const Estimate &estimate);
/// The same sum by what bounds it: the work as a roofline has it, and what
/// getTimeParts has beside the work.
std::vector<Part> getRooflineParts(const Estimate &estimate);
/// They add up to the stage's peak.
std::vector<Part> getMemoryParts(const StageMemory &memory);

/// The rank of the pipeline with the highest peak.
size_t getFullestStage(const Estimate &estimate);

/// "12.3 GB", "41 MB".
std::string printBytes(double bytes);
/// "1.234 s", "12.3 ms".
std::string printSeconds(double seconds);
/// Prints `digits` digits behind the point.
std::string printNumber(double value, int digits);
/// 1234567 -> "1,234,567".
std::string printCount(double value);

/// Alternative::why against `pick`.
std::string explainLoss(const Estimate &pick, const Alternative &other,
                        const Cluster &cluster);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_PARTS_H
