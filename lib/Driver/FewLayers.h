//===- FewLayers.h - Memory of many layers from few -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layers of the same kinds, however many, take the same each, but for what is
// rounded up. So what a deep model needs follows from three shallow ones, which
// are placed in a fraction of the time; that the three lie on a line is seen.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_DRIVER_FEWLAYERS_H
#define PLAIT_LIB_DRIVER_FEWLAYERS_H

#include "plait/Planner/Estimate.h"
#include "plait/Planner/Work.h"

#include <array>
#include <optional>
#include <vector>

namespace plait {

/// A model with several depths, each pipeline stage a unit of layers that
/// repeats more than the depth before.
class FewLayers {
public:
  static constexpr int kDepths = 3;
  /// The memory that a depth takes, by rank, and the bytes that are live at
  /// each action.
  struct Placed {
    std::vector<planner::StageMemory> memory;
    std::vector<std::vector<int64_t>> live;
  };

  /// Finds depths of a model whose stages have `cut` layers each, one stage a
  /// rank; nothing where they together have more than half of the layers.
  static std::optional<FewLayers> find(const planner::Work &work,
                                       const std::vector<int> &cut);

  /// The layers of each stage.
  std::vector<int> getCut(int depth) const;
  /// The layers that a depth is without, of those of the model, or of those of
  /// a depth that has more; in ascending order.
  std::vector<int64_t> getLeftOut(int depth,
                                  std::optional<int> of = std::nullopt) const;

  /// The memory by rank of the whole model, on the line through a depth and the
  /// one before it.
  std::vector<planner::StageMemory> extend(const Placed &before,
                                           const Placed &at, int depth) const;
  /// The memory by rank of the whole model, of what is placed of each depth.
  /// Nothing where depths are not on a line, or where with all layers the most
  /// is live at another action: a thousandth of the sum is left for rounding.
  std::optional<std::vector<planner::StageMemory>>
  follow(const std::array<Placed, kDepths> &depths) const;

private:
  struct Stage {
    int layers = 0;
    int unit = 1; // layers that repeat up to the end of the stage
    int gone = 0; // units that the least depth is without

    int countGone(int depth) const { return unit * std::max(0, gone - depth); }
  };
  std::vector<Stage> stages;
};

} // namespace plait

#endif // PLAIT_LIB_DRIVER_FEWLAYERS_H
