//===- RanksTest.cpp - Ranks, groups and blocks of a mesh -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Ranks.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::plan;

namespace {

/// A DimSharding over `axes` as a table.
class Sharding {
public:
  explicit Sharding(std::vector<uint8_t> axes) {
    builder.Finish(fb::CreateDimShardingDirect(builder, &axes));
  }
  const fb::DimSharding &operator*() const {
    return *flatbuffers::GetRoot<fb::DimSharding>(builder.GetBufferPointer());
  }

private:
  flatbuffers::FlatBufferBuilder builder;
};

TEST(Mesh, NumbersRanksRowMajor) {
  Mesh mesh({2, 3, 4});
  EXPECT_EQ(mesh.ranks(), 24u);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh.index(rank, 0) * 12 + mesh.index(rank, 1) * 4 +
                  mesh.index(rank, 2),
              rank);
    for (uint32_t axis = 0; axis < 3; ++axis)
      EXPECT_EQ(mesh.withIndex(rank, axis, mesh.index(rank, axis)), rank);
  }
  EXPECT_EQ(mesh.withIndex(0, 1, 2), 8u);
}

TEST(Blocks, CoverEveryElementOnce) {
  Mesh mesh({1, 2, 3});
  for (std::vector<uint8_t> axes :
       {std::vector<uint8_t>{}, {1}, {2}, {1, 2}, {2, 1}})
    for (int64_t global = 1; global < 20; ++global) {
      Sharding sharding(axes);
      int64_t holders = mesh.ranks() / blockCount(mesh, *sharding);
      std::vector<int64_t> seen(global, 0);
      for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
        Block block = blockOf(mesh, rank, *sharding, global);
        EXPECT_LE(block.valid, block.extent);
        for (int64_t i = 0; i < block.valid; ++i)
          ++seen[block.begin + i];
      }
      EXPECT_EQ(seen, std::vector<int64_t>(global, holders));
    }
}

TEST(Blocks, MajorAxisComesFirst) {
  Mesh mesh({1, 2, 3});
  Sharding sharding({2, 1});
  // Rank 4 has coordinates (0, 1, 1): block 1 * 2 + 1.
  EXPECT_EQ(blockOf(mesh, 4, *sharding, 12).begin, 6);
}

} // namespace
