//===- FakeRows.cpp - Rows of experts of a GPU, on the CPU ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What CUDA/RowKernels.h says of its kernels. That the kernels do the same is
// for PlaitCodegenPtxTests, which execute their PTX.
//
//===----------------------------------------------------------------------===//

#include "FakeRows.h"

#include "CUDA/RowKernels.h"

#include <cstring>
#include <set>

using namespace plait::fake;
using namespace plait::runtime;

namespace {

struct Extents {
  explicit Extents(LaunchParams &next)
      : members(next), index(next), rows(next), choices(next), experts(next),
        scatters(next), bytes(next) {}

  int64_t members, index, rows, choices, experts, scatters, bytes;

  /// The member that has expert `id`; -1: none.
  int64_t ownerOf(int id) const {
    return id < 0 || id >= members * experts ? -1 : id / experts;
  }
  bool goes(const int *ids, int64_t source, int64_t target, int64_t row) const {
    const int *own =
        ids + ((scatters ? target : source) * rows + row) * choices;
    std::set<int64_t> owners;
    for (int64_t choice = 0; choice < choices; ++choice)
      owners.insert(ownerOf(own[choice]));
    return owners.contains(scatters ? source : target);
  }
  char *out(char *output, int64_t source, int64_t row) const {
    return output + (scatters ? row : source * rows + row) * bytes;
  }
  const char *in(const char *input, int64_t target, int64_t row) const {
    return input + (scatters ? target * rows + row : row) * bytes;
  }
};

std::function<void()> clearRows(void **params, unsigned blocks) {
  LaunchParams next(params);
  char *out = next;
  const int *ids = next;
  Extents extents(next);
  if (blocks !=
      rowBlocks(extents.rows * (extents.scatters ? 1 : extents.members)))
    return nullptr;
  return [=] {
    for (int64_t i = 0; i < (extents.scatters ? 1 : extents.members); ++i)
      for (int64_t row = 0; row < extents.rows; ++row) {
        bool arrives = false;
        for (int64_t j = 0; j < extents.members; ++j)
          if (extents.scatters || i == j)
            arrives |= extents.goes(ids, j, extents.index, row);
        if (!arrives)
          std::memset(extents.out(out, i, row), 0, extents.bytes);
      }
  };
}

std::function<void()> takeRows(void **params, unsigned blocks) {
  LaunchParams next(params);
  char *out = next;
  const char *in = next;
  const int *ids = next;
  int64_t source = next;
  Extents extents(next);
  if (blocks != rowBlocks(extents.rows))
    return nullptr;
  return [=] {
    for (int64_t row = 0; row < extents.rows; ++row)
      if (extents.goes(ids, source, extents.index, row))
        std::memcpy(extents.out(out, source, row),
                    extents.in(in, extents.index, row), extents.bytes);
  };
}

std::function<void()> listRows(void **params, unsigned blocks) {
  LaunchParams next(params);
  int *lists = next, *counts = next;
  const int *ids = next;
  Extents extents(next);
  if (blocks != 2 * extents.members)
    return nullptr;
  return [=] {
    for (int64_t list = 0; list < 2 * extents.members; ++list) {
      int64_t member = list % extents.members;
      bool sends = list < extents.members;
      counts[list] = 0;
      for (int64_t row = 0; row < extents.rows; ++row)
        if (extents.goes(ids, sends ? extents.index : member,
                         sends ? member : extents.index, row))
          lists[list * extents.rows + counts[list]++] = int(row);
    }
  };
}

/// Copies a round of rows from where they are to where they are packed, or from
/// there to where they belong.
template <bool Unpacks>
std::function<void()> packRows(void **params, unsigned blocks) {
  LaunchParams next(params);
  char *to = next;
  const char *from = next;
  const int *lists = next, *counts = next;
  int64_t first = next, most = next;
  Extents extents(next);
  if (blocks != rowBlocks(extents.members * most))
    return nullptr;
  return [=] {
    for (int64_t member = 0; member < extents.members; ++member)
      for (int64_t i = 0; i < most && member != extents.index; ++i) {
        int64_t list = member + Unpacks * extents.members;
        if (first + i >= counts[list])
          break;
        int64_t row = lists[list * extents.rows + first + i];
        int64_t packed = (member * most + i) * extents.bytes;
        if (Unpacks)
          std::memcpy(extents.out(to, member, row), from + packed,
                      extents.bytes);
        else
          std::memcpy(to + packed, extents.in(from, member, row),
                      extents.bytes);
      }
  };
}

} // namespace

const std::map<std::string, GroupedKernel> &plait::fake::rowKernels() {
  static const std::map<std::string, GroupedKernel> kernels = {
      {PLAIT_CLEAR_ROWS, clearRows},
      {PLAIT_TAKE_ROWS, takeRows},
      {PLAIT_LIST_ROWS, listRows},
      {PLAIT_PACK_ROWS, packRows<false>},
      {PLAIT_UNPACK_ROWS, packRows<true>}};
  return kernels;
}
