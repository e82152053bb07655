//===- BlockTimes.cpp - Times of all blocks, kept -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The seconds of a work's blocks, kept for all configurations of a search that
// agree in what they depend on.
//
//===----------------------------------------------------------------------===//

#include "BlockTime.h"

#include "BlockTimer.h"
#include "PartLists.h"

using namespace plait;
using namespace plait::planner;

std::vector<bool> planner::findLayers(const Work &work) {
  std::vector<bool> isLayer(work.blocks.size());
  for (size_t i = size_t(work.before); i + work.after < work.order.size(); ++i)
    isLayer[work.order[i]] = true;
  return isLayer;
}

/// Blocks before and after the layers have no recomputation, whatever the kind.
BlockTimes::Times BlockTimes::make(const Context &context, bool split,
                                   Recompute kind) {
  std::vector<bool> isLayer = findLayers(context.work);
  std::vector<BlockTime> times;
  times.reserve(isLayer.size());
  for (int block = 0; block < int(isLayer.size()); ++block)
    times.push_back(getBlockTime(block, context, split, isLayer[block],
                                 isLayer[block] ? kind : Recompute::None));
  return std::make_shared<const std::vector<BlockTime>>(std::move(times));
}

template <typename Key, typename Value, typename Make>
std::shared_ptr<const Value>
BlockTimes::getKnown(std::map<Key, std::shared_ptr<const Value>> &known,
                     const Key &key, Make make) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  std::shared_ptr<const Value> made = make();
  std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(key, std::move(made)).first->second;
}

BlockTimes::Times BlockTimes::get(const Context &context, bool split,
                                  Recompute kind) {
  const Configuration &configuration = context.configuration;
  // All that getBlockTime() asks of a configuration.
  Key key(&context.work, configuration.mesh[Axis::CP],
          configuration.mesh[Axis::TP], configuration.contextParallel,
          configuration.microBatch, context.sendsGradients(),
          context.zero(/*experts=*/false) >= 3,
          configuration.offload.activations, split, kind,
          context.getRunLayers(kind), needsMarks(context));
  return getKnown(known, key, [&] { return make(context, split, kind); });
}

BlockTimes::CostsKey BlockTimes::getCostsKey(const Block &block,
                                             const Context &context,
                                             bool split) {
  const Configuration &configuration = context.configuration;
  return {&block, configuration.mesh[Axis::CP], configuration.contextParallel,
          configuration.microBatch, context.joinsGradients(split)};
}

BlockTimes::Costs
BlockTimes::getCosts(const Block &block, const Context &context, bool split,
                     const std::function<std::vector<Cost>()> &make) {
  return getKnown(knownCosts, getCostsKey(block, context, split), [&] {
    // A search asks for all of a microbatch in a row.
    if (std::lock_guard<std::mutex> lock(mutex); knownCosts.size() >= mostCosts)
      knownCosts.clear();
    return std::make_shared<const std::vector<Cost>>(make());
  });
}

/// Chains end where parameters are gathered between two layers.
std::shared_ptr<const Chains>
BlockTimes::getChains(const Block &block, const Context &context, int runLayers,
                      const std::function<Chains()> &make) {
  // They have no gradients.
  std::tuple key(getCostsKey(block, context, /*split=*/false),
                 context.zero(/*experts=*/false) >= 3, runLayers);
  return getKnown(knownChains, key,
                  [&] { return std::make_shared<const Chains>(make()); });
}
