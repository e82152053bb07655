//===- AddMessages.cpp - Compressed messages of sites ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What sites add up, by themselves or as messages of whole chunks.
//
//===----------------------------------------------------------------------===//

#include "SiteBuilder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace plait;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// Masters of bf16 copies lie as the optimizer's state does.
static llvm::SmallVector<int64_t> getBlocks(const fb::PlanT &plan,
                                            const fb::ShardT &shard) {
  bool isDivided =
      shard.compute_dtype == fb::DType::BF16 && !shard.state_dims.empty();
  llvm::SmallVector<int64_t> blocks;
  for (const auto &dim : isDivided ? shard.state_dims : shard.dims) {
    blocks.push_back(1);
    for (uint8_t axis : dim->axes)
      blocks.back() *= plan.mesh[axis]->size;
  }
  return blocks;
}

uint64_t plait::countHeld(const fb::PlanT &plan, const fb::ShardT &shard) {
  if (shard.division && shard.compute_dtype == fb::DType::BF16)
    return shard.division->elements;
  uint64_t elements = 1;
  for (auto [size, blocks] : llvm::zip_equal(
           plan.parameters[shard.parameter]->shape, getBlocks(plan, shard)))
    elements *= llvm::divideCeil(size, blocks);
  return elements;
}

/// Looks at the splits of each parameter that is trained.
Status plait::checkChunks(const fb::PlanT &plan, const Outer &outer) {
  SiteCompression compress = outer.getCompression();
  int64_t chunk = compress.chunk;
  for (const auto &program : plan.programs)
    for (const auto &shard : program->shards) {
      const fb::ParameterT &parameter = *plan.parameters[shard->parameter];
      bool isMaster = shard->compute_dtype == fb::DType::BF16;
      if (!compress.isOn() || parameter.frozen)
        continue;
      if (isMaster && shard->division)
        return fail("`outer` is ", print(outer),
                    ", but ranks divide the "
                    "masters of '",
                    parameter.name,
                    "' (ZeRO 1 in bf16), which "
                    "cuts chunks anywhere, expected `zero` 0 or 2");
      if (!hasWholeChunks(parameter.shape, getBlocks(plan, *shard), chunk))
        return fail("`outer` has chunk ", chunk, ", but a split of '",
                    parameter.name,
                    "' cuts chunks of its neighbours: what a "
                    "rank has of them must be a multiple, as of a smaller one");
    }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// A message of the longest range or fragment's part, and those of all sites.
void SiteBuilder::placeMessages() {
  uint64_t most = 0;
  for (const SentRange &range : ranges)
    most = std::max(most, countWords(outer.keepsDifference()
                                         ? getPart(range.place)
                                         : llvm::SmallVector{&range}));
  scratchBytes = llvm::alignTo(most * sizeof(uint32_t), 64);
  // Beside a step nothing of it is free.
  auto place = [&](uint64_t bytes) {
    return outer.delay
               ? allocate("messages of sites", bytes, fb::Category::Workspace)
               : addScratch(bytes);
  };
  scratch[0] = place(scratchBytes);
  scratch[1] = place(scratchBytes * outer.sites);
}

/// Padding lies beside them in a range.
void SiteBuilder::findPieces() {
  for (const auto &shard : program.shards) {
    if (plan.parameters[shard->parameter]->frozen)
      continue;
    SentRange &range = *llvm::find_if(ranges, [&](const SentRange &one) {
      return one.contains(shard->weight);
    });
    range.pieces[shard->weight - range.begin] = countHeld(plan, *shard);
  }
}

uint64_t SiteBuilder::countWords(llvm::ArrayRef<const SentRange *> sent) const {
  uint64_t chunks = 0;
  for (const SentRange *range : sent)
    for (auto [begin, elements] : range->pieces)
      chunks += compress.countChunks(elements);
  return chunks * compress.countChunkWords();
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// The sum of what ranges have at `value`, side by side from there on, as
/// messages say it.
void SiteBuilder::addMessage(fb::FunctionT &function,
                             llvm::ArrayRef<const SentRange *> sent,
                             uint64_t value) {
  std::vector<uint64_t> pieces;
  uint64_t elements = 0, words = countWords(sent);
  for (const SentRange *range : sent) {
    for (auto [begin, count] : range->pieces)
      pieces.insert(pieces.end(), {elements + begin / sizeof(float), count});
    elements += range->elements();
  }
  auto add = [&](fb::OuterKind kind) -> fb::OuterStepT & {
    fb::OuterStepT &step = addOuter(function, kind, value, elements);
    step.words = words;
    step.pieces = pieces;
    return step;
  };
  auto [own, all, _] = scratch;
  fb::OuterStepT &encode = add(fb::OuterKind::Encode);
  encode.mixed = at(own);
  if (compress.keepsError())
    encode.error = at(sent.front()->error);
  addCollective(function, CollectiveKind::AllGather, own, all, words,
                fb::DType::I32);
  add(fb::OuterKind::Decode).others = at(all);
}

llvm::SmallVector<const SentRange *>
SiteBuilder::getPart(FragmentPlace place) const {
  llvm::SmallVector<const SentRange *> part;
  for (const SentRange &range : ranges)
    if (range.place == place)
      part.push_back(&range);
  return part;
}

/// One message.
void SiteBuilder::addSums(fb::FunctionT &function, FragmentPlace place) {
  llvm::SmallVector<const SentRange *> part = getPart(place);
  uint64_t elements = 0;
  for (const SentRange *range : part)
    elements += range->elements();
  if (part.empty())
    return;
  if (compress.isOn())
    return addMessage(function, part, part.front()->difference);
  addSum(function, part.front()->difference, elements);
}
