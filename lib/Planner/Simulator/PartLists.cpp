//===- PartLists.cpp - What ZeRO exchanges of a block ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gathers and reductions of parameters, one by one, and sums of them over a
// model.
//
//===----------------------------------------------------------------------===//

#include "PartLists.h"
#include "GatherBatch.h"
#include "StepEndTime.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

bool planner::overlapsParts(const Framework &framework, const Device &device) {
  return framework.overlapGradients && framework.overlapsParts &&
         !device.isProcessor;
}

namespace {

/// Makes one list.
class ListMaker {
public:
  ListMaker(const BlockPass &pass, const Context &context)
      : pass(pass), context(context), exchanges(context),
        entry{pass.block, 1, pass.recompute} {}

  PartList make();

private:
  ExchangedPart makePart(const ParameterGroup &group, bool isRead);

  const BlockPass &pass;
  const Context &context;
  ExchangesAlone exchanges;
  GatherBatch batch;
  StageBlocks::Entry entry; // one block for the batch
};

} // namespace

/// Gradients that replicas compress are summed at the end of the step.
ExchangedPart ListMaker::makePart(const ParameterGroup &group, bool isRead) {
  ExchangedPart part;
  part.isDivided = true;
  part.isVector = group.sizes.size() == 1;
  const ExchangesAlone::Both &alone = exchanges.get(group);
  if (context.zero(group.experts) >= 3 && isRead) {
    part.gather = alone.gather;
    double bytes = group.elements * elementBytes(context.training.precision);
    if (context.hasHost())
      part.gather = batch.add(part.gather, bytes, group, &entry, context);
  }
  if (group.frozen || context.training.compress.isOn())
    return part;
  part.reduce = alone.reduce;
  if (context.configuration.microbatches(context.training) > 1)
    part.adding = getAddingCost(group, context).seconds;
  return part;
}

/// ZeRO 2 reduces one sum of a tied table.
PartList ListMaker::make() {
  PartList list;
  list.readsTable = pass.isTableThere;
  const Block &block = context.block(pass.block, pass.recompute);
  for (const ParameterGroup &group : block.parameters) {
    if (!context.dividesByStage(group)) {
      list.parts.emplace_back();
      continue;
    }
    bool isRead = !pass.isBackward ||
                  (pass.recompute == Recompute::Full ? group.readAgain
                                                     : group.readBackward);
    isRead &= !group.tied || !list.readsTable;
    ExchangedPart &part = list.parts.emplace_back(makePart(group, isRead));
    list.readsTable |= group.tied && isRead;
    if (group.tied && context.zero(group.experts) < 3 && !pass.isFirst)
      part.reduce = {};
  }
  return list;
}

/// Made outside of the lock, as block times are.
PartLists::List PartLists::get(const BlockPass &pass, const Context &context) {
  const Configuration &configuration = context.configuration;
  const Block &block = context.block(pass.block, pass.recompute);
  bool isTied = std::ranges::any_of(block.parameters, &ParameterGroup::tied);
  Mesh mesh = configuration.mesh;
  mesh[Axis::PP] = std::min(mesh[Axis::PP], 2);
  Key key(&context.work, pass.block, context.recomputesCheap(pass.recompute),
          pass.recompute == Recompute::Full, pass.isBackward,
          isTied && pass.isFirst, isTied && pass.isTableThere,
          configuration.microbatches(context.training) > 1,
          configuration.sequenceParallel, configuration.zero, mesh);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  auto made = std::make_shared<const PartList>(ListMaker(pass, context).make());
  std::lock_guard<std::mutex> lock(mutex);
  // Neighbours in a search ask for the same ones.
  if (known.size() >= most)
    known.clear();
  return known.try_emplace(key, std::move(made)).first->second;
}

/// A tied table counts once: stages may share a rank.
static PartSums sumOf(Recompute kind, const Context &context) {
  PartSums sums;
  std::vector<bool> isLayer = findLayers(context.work);
  std::vector<int> counts(context.work.blocks.size());
  for (int block : context.work.order)
    ++counts[block];
  bool isTableThere[2] = {};
  bool isFirst = true;
  for (int block = 0; block < int(counts.size()); ++block)
    for (bool isBackward : {false, true}) {
      BlockPass pass{block, isLayer[block] ? kind : Recompute::None, isBackward,
                     isFirst, isTableThere[isBackward]};
      PartList list = ListMaker(pass, context).make();
      isTableThere[isBackward] = list.readsTable;
      isFirst &= !isBackward;
      for (const ExchangedPart &part : list.parts)
        for (const AxisFacts &facts : kAxes) {
          double gather = counts[block] * part.gather.seconds[facts.axis];
          double reduce = counts[block] * part.reduce.seconds[facts.axis];
          if (isBackward)
            sums.backward[facts.axis] += gather + reduce;
          else
            sums.forward[facts.axis] += gather;
        }
    }
  return sums;
}

PartSums planner::sumParts(std::optional<Recompute> kind,
                           const Context &context) {
  if (kind)
    return sumOf(*kind, context);
  PartSums least = sumOf(Recompute::None, context);
  for (Recompute other : {Recompute::Selective, Recompute::Full}) {
    PartSums sums = sumOf(other, context);
    for (const AxisFacts &facts : kAxes) {
      least.forward[facts.axis] =
          std::min(least.forward[facts.axis], sums.forward[facts.axis]);
      least.backward[facts.axis] =
          std::min(least.backward[facts.axis], sums.backward[facts.axis]);
    }
  }
  return least;
}
