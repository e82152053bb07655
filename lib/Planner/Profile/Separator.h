//===- Separator.h - What grows with the microbatch ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_PROFILE_SEPARATOR_H
#define PLAIT_LIB_PLANNER_PROFILE_SEPARATOR_H

#include "plait/Planner/Work.h"

namespace plait {

/// Tells what grows with the microbatch from what does not, by the same block
/// at two sizes.
class Separator {
public:
  /// The microbatches have so many sequences; four bytes are `wide` elements of
  /// activations.
  Separator(double small, double large, double wide)
      : small(small), large(large), wide(wide) {}

  /// Leaves `first` per sequence. False where the blocks differ in more than
  /// sizes.
  bool separate(planner::Block &first, const planner::Block &second) const;

private:
  /// A straight line through two points: its slope is what a sequence takes,
  /// and what is left at the smaller size is fixed. A fixed part below 0 comes
  /// from rounding and counts as 0.
  void split(double &value, double atLarge, double *fixed = nullptr,
             double share = 1) const;
  void split(planner::Saved &value, const planner::Saved &atLarge) const;
  void split(planner::Operation &op, const planner::Operation &atLarge) const;
  /// Whether the size grows. A size that differs is taken to be proportional to
  /// the microbatch, as sizes of tensors are, and becomes that of one sequence.
  bool scale(int64_t &size, int64_t atLarge) const;

  double small, large, wide;
};

} // namespace plait

#endif // PLAIT_LIB_PLANNER_PROFILE_SEPARATOR_H
