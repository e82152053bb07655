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

TEST(RankGrid, NumbersRanksRowMajor) {
  RankGrid mesh({2, 3, 4});
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

TEST(RankScalars, AddUp) {
  RankGrid mesh({1, 2, 3});
  flatbuffers::FlatBufferBuilder builder;
  std::vector<fb::RankScalar> terms = {{5, 30, 1, false}, {0, 10, 2, false}};
  auto made = builder.CreateVectorOfStructs(terms);
  builder.Finish(made);
  const auto *scalars =
      flatbuffers::GetRoot<RankScalars>(builder.GetBufferPointer());
  for (uint32_t rank = 0; rank < 6; ++rank)
    EXPECT_EQ(valueOf(mesh, rank, scalars), 5 + 10 * int64_t(rank));
  EXPECT_EQ(valueOf(mesh, 3, nullptr), 0);
  EXPECT_TRUE(checkRange(mesh, scalars, 55, "sum").ok());
  EXPECT_EQ(checkRange(mesh, scalars, 54, "sum").message(),
            "sum is up to 55, allowed are 0 to 54");
}

TEST(Blocks, CoverEveryElementOnce) {
  RankGrid mesh({1, 2, 3});
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
  RankGrid mesh({1, 2, 3});
  Sharding sharding({2, 1});
  // Rank 4 has coordinates (0, 1, 1): block 1 * 2 + 1.
  EXPECT_EQ(blockOf(mesh, 4, *sharding, 12).begin, 6);
}

/// A shard of `count` elements from element `begin` on of a pack of which ranks
/// hold `elements` each along axis 1, or along axes 2 and then 1.
class DividedShard {
public:
  DividedShard(int64_t count, uint64_t begin, uint64_t elements,
               bool isFurther = false) {
    fb::ShardT shard;
    shard.local_shape = {1, count};
    shard.division = std::make_unique<fb::DivisionT>();
    shard.division->axis = isFurther ? 2 : 1;
    if (isFurther)
      shard.division->inner_axes = {1};
    shard.division->begin = begin;
    shard.division->elements = elements;
    builder.Finish(fb::CreateShard(builder, &shard));
  }
  const fb::Shard &operator*() const {
    return *flatbuffers::GetRoot<fb::Shard>(builder.GetBufferPointer());
  }

private:
  flatbuffers::FlatBufferBuilder builder;
};

TEST(Parts, CoverEveryElementOnce) {
  RankGrid mesh({2, 3, 2});
  for (uint64_t begin = 0; begin < 9; ++begin)
    for (int64_t count = 1; begin + count <= 12; ++count) {
      DividedShard shard(count, begin, 4);
      std::vector<int64_t> seen(count, 0);
      for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
        if (!isFirstReplica(mesh, rank, *shard, sharingOf(*shard, true)))
          continue;
        Part part = partOf(mesh, rank, (*shard).division(), count);
        for (int64_t i = 0; i < part.count; ++i) {
          // Where the rank has it is where it is in the pack.
          EXPECT_EQ(mesh.index(rank, 1) * 4 + part.offset + i,
                    begin + part.begin + i);
          ++seen[part.begin + i];
        }
      }
      // The programs of two stages, of which one owns the parameter.
      EXPECT_EQ(seen, std::vector<int64_t>(count, 2));
    }
}

/// Axis 2 is the major one; no two ranks of a stage have the same.
TEST(Parts, CoverEveryElementOverTwoAxes) {
  RankGrid mesh({1, 3, 2});
  for (uint64_t begin = 0; begin < 5; ++begin)
    for (int64_t count = 1; begin + count <= 12; ++count) {
      DividedShard shard(count, begin, 2, /*isFurther=*/true);
      std::vector<int64_t> seen(count, 0);
      for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
        EXPECT_TRUE(
            isFirstReplica(mesh, rank, *shard, sharingOf(*shard, true)));
        Part part = partOf(mesh, rank, (*shard).division(), count);
        for (int64_t i = 0; i < part.count; ++i) {
          uint32_t index = mesh.index(rank, 2) * 3 + mesh.index(rank, 1);
          EXPECT_EQ(index * 2 + part.offset + i, begin + part.begin + i);
          ++seen[part.begin + i];
        }
      }
      EXPECT_EQ(seen, std::vector<int64_t>(count, 1));
    }
}

TEST(Parts, AreAllOfWhatIsNotDivided) {
  RankGrid mesh({1, 3, 2});
  DividedShard shard(5, 3, 4);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    Part part = partOf(mesh, rank, nullptr, 5);
    EXPECT_EQ(part.begin, 0);
    EXPECT_EQ(part.count, 5);
    EXPECT_EQ(part.offset, 0);
    EXPECT_EQ(isFirstReplica(mesh, rank, *shard), rank == 0);
  }
}

/// A tensor of 8 x 6: its values are split over axis 2, the state inside of
/// those blocks over axis 1.
TEST(Parts, AreBlocksOfTheState) {
  RankGrid mesh({1, 2, 2});
  fb::ShardT source;
  for (auto *dims : {&source.dims, &source.state_dims})
    for (int dim = 0; dim < 2; ++dim)
      dims->push_back(std::make_unique<fb::DimShardingT>());
  source.dims[0]->axes = {2};
  source.state_dims[0]->axes = {2, 1};
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::CreateShard(builder, &source));
  const auto &shard =
      *flatbuffers::GetRoot<fb::Shard>(builder.GetBufferPointer());
  const int64_t sizes[] = {8, 6};
  flatbuffers::FlatBufferBuilder shapes;
  shapes.Finish(shapes.CreateVector(sizes, 2));
  const auto &shape = *flatbuffers::GetRoot<flatbuffers::Vector<int64_t>>(
      shapes.GetBufferPointer());
  EXPECT_EQ(countElements(mesh, shape, dimsOf(shard, false)), 24);
  EXPECT_EQ(countElements(mesh, shape, dimsOf(shard, true)), 12);
  const int64_t begins[] = {0, 4, 2, 6}; // of (0, 0), (0, 1), (1, 0), (1, 1)
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(blockOf(mesh, rank, *dimsOf(shard, true).Get(0), 8).begin,
              begins[rank]);
    EXPECT_EQ(partOf(mesh, rank, shard.division(), 12).count, 12);
    EXPECT_TRUE(isFirstReplica(mesh, rank, shard, sharingOf(shard, true)));
    EXPECT_EQ(isFirstReplica(mesh, rank, shard), rank < 2);
  }
}

/// Of what each rank along an axis has another one of, those of the other axes
/// hold the same.
TEST(Replicas, OfWhatRanksHaveForThemselves) {
  RankGrid mesh({1, 2, 3});
  fb::ShardT shard;
  shard.local_shape = {4};
  shard.dims.push_back(std::make_unique<fb::DimShardingT>());
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::CreateShard(builder, &shard));
  const auto *own = flatbuffers::GetRoot<fb::Shard>(builder.GetBufferPointer());
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(replicaOf(mesh, rank, *own).index, rank);
    EXPECT_EQ(replicaOf(mesh, rank, *own).count, 6u);
    Replica replica = replicaOf(mesh, rank, *own, {.ownAxis = 1});
    EXPECT_EQ(replica.index, mesh.index(rank, 2));
    EXPECT_EQ(replica.count, 3u);
  }
}

/// Sites are numbered first, wherever their axis stands.
TEST(Sites, FollowEachOther) {
  fb::PlanT source;
  for (auto [name, size] :
       {std::pair("pp", 2), {"dp", 2}, {"tp", 3}, {"sites", 4}}) {
    source.mesh.push_back(std::make_unique<fb::MeshAxisT>());
    source.mesh.back()->name = name;
    source.mesh.back()->size = size;
  }
  source.model_type = source.schedule = source.recompute = "any";
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(fb::CreatePlan(builder, &source));
  const auto &plan =
      *flatbuffers::GetRoot<fb::Plan>(builder.GetBufferPointer());
  RankGrid mesh(plan), site({2, 2, 3});
  EXPECT_EQ(mesh.ranks(), 48u);
  EXPECT_EQ(mesh.sites(), 4u);
  EXPECT_EQ(mesh.programRanks(), 24u);
  EXPECT_EQ(RankGrid::partsOf(plan, Splits::Batch), 8u);
  std::vector<uint32_t> peers(2, 0);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    EXPECT_EQ(mesh.index(rank, 3), rank / 12);
    for (uint32_t axis = 0; axis < 3; ++axis) {
      EXPECT_EQ(mesh.index(rank, axis), site.index(rank % 12, axis));
      EXPECT_EQ(mesh.withIndex(rank, axis, 1),
                rank / 12 * 12 + site.withIndex(rank % 12, axis, 1));
    }
    EXPECT_EQ(mesh.withIndex(rank, 3, 2), 24 + rank % 12);
    EXPECT_EQ(mesh.partOf(plan, rank, Splits::Batch),
              rank / 12 * 2 + site.index(rank % 12, 1));
    uint32_t program = mesh.index(rank, 0);
    EXPECT_EQ(mesh.peerOf(rank), peers[program]++);
    EXPECT_EQ(mesh.rankOf(program, mesh.peerOf(rank)), rank);
  }
}

TEST(Sites, AreOneWhereThereAreNone) {
  RankGrid mesh({2, 3, 2});
  EXPECT_EQ(mesh.sites(), 1u);
  EXPECT_EQ(mesh.sitesAxis(), 0u);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    EXPECT_EQ(mesh.rankOf(rank / 6, rank % 6), rank);
}

} // namespace
