//===- FewLayers.cpp - Memory of many layers from few ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FewLayers.h"

#include "LoweredModel.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

using namespace plait;
using planner::StageMemory;

/// Layers of a stage that stay at the least depth: its ends differ from what is
/// between them, and what is not live in the middle may be there.
static constexpr int kFewest = 4;
/// The longest sequence of kinds that is looked for, as five windows and a full
/// attention.
static constexpr int kLongestUnit = 8;

/// Counts how many of the last `kinds` repeat with a period of `unit`.
static int countRepeated(llvm::ArrayRef<int> kinds, int unit) {
  int count = std::min<int>(unit, int(kinds.size()));
  while (count < int(kinds.size()) &&
         kinds[kinds.size() - 1 - count] ==
             kinds[kinds.size() - 1 - count + unit])
    ++count;
  return count;
}

std::optional<FewLayers> FewLayers::find(const planner::Work &work,
                                         const std::vector<int> &cut) {
  FewLayers few;
  llvm::ArrayRef<int> kinds = work.order;
  kinds = kinds.drop_front(work.before).drop_back(work.after);
  if (std::accumulate(cut.begin(), cut.end(), size_t(0)) != kinds.size())
    return std::nullopt;
  for (int layers : cut) {
    Stage best{layers};
    llvm::ArrayRef<int> own = kinds.take_front(layers);
    kinds = kinds.drop_front(layers);
    for (int unit = 1; unit <= kLongestUnit; ++unit) {
      int stay = std::max(2, (kFewest + unit - 1) / unit);
      int gone = countRepeated(own, unit) / unit - stay;
      if (gone >= kDepths && unit * gone > best.unit * best.gone)
        best = {layers, unit, gone};
    }
    few.stages.push_back(best);
  }
  int placed = 0;
  for (int depth = 0; depth < kDepths; ++depth)
    for (int layers : few.getCut(depth))
      placed += layers;
  return placed <= int(work.layers()) / 2 ? std::optional(std::move(few))
                                          : std::nullopt;
}

std::vector<int> FewLayers::getCut(int depth) const {
  std::vector<int> cut;
  for (const Stage &stage : stages)
    cut.push_back(stage.layers - stage.countGone(depth));
  return cut;
}

std::vector<int64_t> FewLayers::getLeftOut(int depth,
                                           std::optional<int> of) const {
  std::vector<int64_t> leftOut;
  int64_t end = 0;
  for (const Stage &stage : stages) {
    int gone = of ? stage.countGone(*of) : 0;
    end += stage.layers - gone;
    for (int64_t layer = end - (stage.countGone(depth) - gone); layer < end;
         ++layer)
      leftOut.push_back(layer);
  }
  return leftOut;
}

std::vector<StageMemory> FewLayers::extend(const Placed &before,
                                           const Placed &at, int depth) const {
  std::vector<StageMemory> whole;
  for (auto [rank, stage] : llvm::enumerate(stages))
    whole.push_back(continueMemory(before.memory[rank], at.memory[rank],
                                   std::max(0, stage.gone - depth)));
  return whole;
}

/// Returns the most that is live at any action, on the lines of each; nothing
/// where the depths do not have the same actions.
static std::optional<double> followLive(llvm::ArrayRef<int64_t> fewer,
                                        llvm::ArrayRef<int64_t> more,
                                        double steps) {
  if (fewer.size() != more.size())
    return std::nullopt;
  double most = 0;
  for (auto [before, after] : llvm::zip_equal(fewer, more))
    most = std::max(most, double(after) + steps * double(after - before));
  return most;
}

std::optional<std::vector<StageMemory>>
FewLayers::follow(const std::array<Placed, kDepths> &depths) const {
  constexpr double share = 1e-3; // of rounding
  const auto &[least, fewer, more] = depths;
  std::vector<StageMemory> whole = extend(fewer, more, kDepths - 1);
  for (auto [rank, stage] : llvm::enumerate(stages)) {
    double steps = std::max(0, stage.gone - (kDepths - 1));
    for (const MemoryPlaceFacts &facts : memoryPlaces) {
      auto get = [&](const Placed &placed) {
        return placed.memory[rank].getNeed(facts.place);
      };
      double bend = get(more) - 2 * get(fewer) + get(least);
      if (steps * std::abs(bend) > share * whole[rank].getNeed(facts.place))
        return std::nullopt;
    }
    std::optional<double> live =
        followLive(fewer.live[rank], more.live[rank], steps);
    if (!live || *live > (1 + share) * whole[rank].peak())
      return std::nullopt;
  }
  return whole;
}
