//===- CheckMessages.cpp - What compressed messages of sites say ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A message is of whole chunks of parameters, so that what it says does not
// follow from the mesh; what it leaves out is kept with the same parameter.
//
//===----------------------------------------------------------------------===//

#include "SiteDeeds.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Ranks.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

std::optional<uint64_t> plan::stateOf(const fb::Shard &shard,
                                      std::string_view name) {
  for (uint32_t i = 0; i < length(shard.state()); ++i)
    if (shard.state()->Get(i)->name()->string_view() == name)
      return shard.state()->Get(i)->offset();
  return std::nullopt;
}

/// Masters that ranks divide element by element end anywhere.
static bool hasWholeChunks(const fb::Plan &plan, const fb::Shard &shard,
                           int64_t chunk) {
  bool isMaster = shard.compute_dtype() == fb::DType::BF16;
  if (isMaster && shard.division())
    return false;
  const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
  RankGrid mesh(plan);
  std::vector<int64_t> shape(parameter.shape()->begin(),
                             parameter.shape()->end()),
      blocks;
  for (const fb::DimSharding *dim : dimsOf(shard, isMaster)) {
    int64_t count = 1;
    for (uint32_t i = 0; i < length(dim->axes()); ++i)
      count *= mesh.size(dim->axes()->Get(i));
    blocks.push_back(count);
  }
  return plait::hasWholeChunks(shape, blocks, chunk);
}

Status plan::checkMessage(const fb::Plan &plan, const Outer &outer,
                          const Done &one, std::vector<SentShard> shards) {
  const auto &pieces = *one.encode->pieces();
  SiteCompression compress = outer.getCompression();
  std::ranges::sort(shards, {}, &SentShard::begin);
  if (pieces.size() != 2 * shards.size())
    return fail("a message has ", pieces.size() / 2, " pieces, expected ",
                shards.size());
  int64_t chunks = 0;
  uint32_t next = 0;
  for (const SentShard &sent : shards) {
    const fb::Parameter &parameter =
        *plan.parameters()->Get(sent.shard->parameter());
    std::string name = "'" + parameter.name()->str() + "'";
    uint64_t before = sent.begin - one.value.offset;
    uint64_t elements = weightRange(plan, *sent.shard).elements;
    if (pieces[next] * sizeof(float) != before || pieces[next + 1] != elements)
      return fail("piece ", next / 2, " of a message is not ", name);
    if (!::hasWholeChunks(plan, *sent.shard, compress.chunk))
      return fail("a split of ", name, " cuts chunks of ", compress.chunk,
                  " elements");
    if (one.error && *one.error + before != sent.error)
      return fail("a message of ", name,
                  " uses the error of another parameter");
    chunks += compress.countChunks(int64_t(elements));
    next += 2;
  }
  int64_t words = chunks * compress.countChunkWords();
  return int64_t(one.encode->words()) == words
             ? Status::success()
             : fail("a message has ", one.encode->words(), " words, expected ",
                    words);
}
