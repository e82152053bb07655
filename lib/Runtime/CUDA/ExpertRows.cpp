//===- ExpertRows.cpp - Rows of experts on a GPU --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpertRows.h"

#include "RowKernels.h"
#include "plait/Plan/Check.h"

#include <algorithm>
#include <vector>

using namespace plait;
using namespace plait::runtime;

RowExtents::RowExtents(const CollectiveShape &shape, const RowChoice &choice,
                       int64_t members, int64_t index)
    : members(members), index(index), rows(shape.chunk / choice.width),
      choices(choice.choices), experts(choice.experts),
      scatters(choice.scatters),
      bytes(choice.width * int64_t(plan::elementBytes(shape.type))) {}

Result<std::shared_ptr<const ExpertRows>>
ExpertRows::load(std::shared_ptr<CudaContext> context) {
  auto module = CudaModule::load(std::move(context), rowKernelsPtx);
  if (!module.ok())
    return module.status();
  std::shared_ptr<ExpertRows> result(new ExpertRows());
  const std::pair<const char *, CUfunction *> functions[] = {
      {PLAIT_CLEAR_ROWS, &result->clears},
      {PLAIT_TAKE_ROWS, &result->takes},
      {PLAIT_LIST_ROWS, &result->makesLists},
      {PLAIT_PACK_ROWS, &result->packs},
      {PLAIT_UNPACK_ROWS, &result->unpacks}};
  for (auto [symbol, function] : functions) {
    auto found = (*module)->find(symbol);
    if (!found.ok())
      return found.status();
    *function = *found;
  }
  result->module = std::move(*module);
  return std::shared_ptr<const ExpertRows>(std::move(result));
}

/// `given` are the parameters in front of the extents.
template <typename... Given>
static Status launch(CudaStream &stream, CUfunction function, uint64_t blocks,
                     unsigned threads, RowExtents extents, Given... given) {
  void *params[] = {&given...,         &extents.members, &extents.index,
                    &extents.rows,     &extents.choices, &extents.experts,
                    &extents.scatters, &extents.bytes};
  return stream.launch(function, blocks, threads, params);
}

Status ExpertRows::clear(CudaStream &stream, const RowExtents &extents,
                         std::byte *out, const int32_t *ids) const {
  int64_t rows = extents.rows * (extents.scatters ? 1 : extents.members);
  return launch(stream, clears, rowBlocks(rows), rowThreads, extents, out, ids);
}

Status ExpertRows::take(CudaStream &stream, const RowExtents &extents,
                        int64_t source, std::byte *out, const std::byte *in,
                        const int32_t *ids) const {
  return launch(stream, takes, rowBlocks(extents.rows), rowThreads, extents,
                out, in, ids, source);
}

Status ExpertRows::list(CudaStream &stream, const RowExtents &extents,
                        int32_t *lists, int32_t *counts,
                        const int32_t *ids) const {
  return launch(stream, makesLists, 2 * extents.members, listThreads, extents,
                lists, counts, ids);
}

Status ExpertRows::pack(CudaStream &stream, const RowExtents &extents,
                        RowRound round, std::byte *packed, const std::byte *in,
                        const int32_t *lists, const int32_t *counts) const {
  return launch(stream, packs, rowBlocks(extents.members * round.most),
                rowThreads, extents, packed, in, lists, counts, round.first,
                round.most);
}

Status ExpertRows::unpack(CudaStream &stream, const RowExtents &extents,
                          RowRound round, std::byte *out,
                          const std::byte *packed, const int32_t *lists,
                          const int32_t *counts) const {
  return launch(stream, unpacks, rowBlocks(extents.members * round.most),
                rowThreads, extents, out, packed, lists, counts, round.first,
                round.most);
}
