//===- PartLists.h - What ZeRO exchanges of a block -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_PARTLISTS_H
#define PLAIT_LIB_PLANNER_SIMULATOR_PARTLISTS_H

#include "BlockTime.h"
#include "RankMemory.h"
#include "Replicated.h"

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace plait::planner {

/// Exchanges of one parameter in one pass; none where counts are 0.
struct ExchangedPart {
  Replicated gather, reduce;
  double adding = 0; // seconds, of what the reduction leaves
  bool isDivided = false;
  bool isVector = false; // whose gradient is no matmul
};

/// The parts of a block, by parameter.
struct PartList {
  std::vector<ExchangedPart> parts;
  bool readsTable = false; // a tied one, which the pass then has
};

/// A pass over a block.
struct BlockPass {
  int block = 0;
  Recompute recompute = Recompute::None;
  bool isBackward = false;
  bool isFirst = false;      // of the stage
  bool isTableThere = false; // a tied one, which the pass has read before
};

/// Whether passes wait for what ZeRO exchanges parameter by parameter: on
/// processors one thread does all, unless it is told otherwise.
bool overlapsParts(const Framework &framework, const Device &device);
inline bool overlapsParts(const Context &context) {
  return overlapsParts(context.framework(), context.cluster.device);
}

/// Whether they do in an estimate of `context`.
inline bool waitsForParts(const Context &context) {
  return context.configuration.zero >= 2 &&
         context.framework().dividesParameters && overlapsParts(context);
}

/// Whether blocks are asked when they need their parameters: bounds do without.
inline bool needsMarks(const Context &context) {
  return waitsForParts(context) && !context.boundsCuts;
}

/// Lists that estimates of one search share: they depend on the mesh and the
/// ZeRO stage, and on no schedule and no cut. Works, training and cluster are
/// the same for all that ask one object. For any number of threads.
class PartLists {
public:
  using List = std::shared_ptr<const PartList>;
  List get(const BlockPass &pass, const Context &context);

private:
  using Key = std::tuple<const Work *, int, bool, bool, bool, bool, bool, bool,
                         bool, int, Mesh>;
  static constexpr size_t most = 4096; // some 30 MB
  std::mutex mutex;
  std::map<Key, List> known; // emptied when it has grown to the most
};

/// Seconds in which each axis is busy with what one microbatch exchanges on its
/// way through the whole model, whatever its stages are, at least.
struct PartSums {
  PerAxis<double> forward = {}, backward = {};
};

/// `kind` of recomputation; without: whichever exchanges least.
PartSums sumParts(std::optional<Recompute> kind, const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_PARTLISTS_H
