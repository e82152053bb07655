//===- Contents.cpp - Contents of a rank's checkpoint ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Who stores what. Every element of every slot has exactly one rank that writes
// it, found without asking anybody: the plan says which program owns a tied
// parameter, and replicas of a block divide it by their index among themselves.
// RankFile.cpp verifies that the result is complete and disjoint; readers know
// nothing of it, as the index names the boxes.
//
//===----------------------------------------------------------------------===//

#include "Contents.h"

#include "plait/Plan/Defaults.h"

#include <cstdio>

using namespace plait;
using namespace plait::runtime;

/// The size that is not worth a second file: 64 KiB.
static constexpr int64_t leastElements = 1 << 14;

static Shape toShape(const flatbuffers::Vector<int64_t> &shape) {
  return {shape.begin(), shape.end()};
}

/// The name of one of those that ranks along `axis` each have.
static std::string nameOf(const std::string &slot, uint32_t axis,
                          uint32_t index) {
  return axis ? slot + "." + std::to_string(index) : slot;
}

/// Sites have weights of their own.
std::string runtime::nameOfWeight(const plan::RankGrid &mesh, uint32_t rank) {
  return ::nameOf(weightSlot, mesh.sitesAxis(),
                  mesh.index(rank, mesh.sitesAxis()));
}

std::string runtime::nameOf(const fb::StateSlot &slot,
                            const plan::RankGrid &mesh, uint32_t rank) {
  return ::nameOf(slot.name()->str(), slot.own_axis(),
                  mesh.index(rank, slot.own_axis()));
}

/// The share of `piece` that its rank stores. Rows of a block stay together, as
/// boxes with few edges.
static Piece shareOf(const plan::RankGrid &mesh, uint32_t rank,
                     const fb::Shard &shard, const fb::Parameter &parameter,
                     const ShardTensor &tensor) {
  Piece piece(mesh, rank, shard, parameter, tensor);
  auto [index, count] = plan::replicaOf(mesh, rank, shard, tensor.sharing);
  int64_t elements = piece.part.count;
  // A box of a few elements in each of many files costs more than it spares.
  if (elements < leastElements)
    return piece.slice(0, index == 0 ? elements : 0);
  // Cuts fall on rows of dimension 0 where the piece is a block. A divided
  // shard is a flat range of elements already, which has no rows to keep.
  int64_t unit = 1;
  if (!tensor.sharing.division && parameter.shape()->size())
    unit = elements / plan::blockOf(mesh, rank, *piece.splits.dims.Get(0),
                                    parameter.shape()->Get(0),
                                    piece.splits.ownAxis)
                          .extent;
  int64_t units = elements / unit;
  // Floors of multiples: the shares of all replicas meet without gaps, and
  // differ by at most one unit.
  int64_t begin = units * index / count * unit;
  int64_t end = units * (index + 1) / count * unit;
  return piece.slice(begin, end - begin);
}

/// `piece` as boxes in the index space of the tensor in the model's file, from
/// which padding is absent: fewer elements than the piece may come out.
static std::vector<Box> boxesOf(const plan::RankGrid &mesh, uint32_t rank,
                                const fb::Parameter &parameter,
                                const Piece &piece) {
  BoxBuilder builder(toShape(*parameter.file_shape()));
  if (piece.part.count)
    forEachFileRun(mesh, rank, parameter, piece.splits, [&](const Run &whole) {
      Run run = clip(whole, piece.part);
      builder.add(run.global, run.count);
    });
  return builder.boxes();
}

/// Pieces come in the order of the program's shards, weight first: the same
/// order as in the file. Programs are shared by ranks that do the same; what
/// differs is the block, which comes from the mesh.
std::vector<StoredPiece> runtime::contentsOf(const fb::Plan &plan,
                                             const plan::RankGrid &mesh,
                                             uint32_t rank) {
  std::vector<StoredPiece> contents;
  const fb::Program &program = *plan.programs()->Get(mesh.index(rank, 0));
  for (uint32_t i = 0; i < plan::length(program.shards()); ++i) {
    const fb::Shard &shard = *program.shards()->Get(i);
    if (!shard.owner())
      continue;
    const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
    auto add = [&](std::string slot, const ShardTensor &tensor) {
      Piece piece = shareOf(mesh, rank, shard, parameter, tensor);
      std::vector<Box> boxes = boxesOf(mesh, rank, parameter, piece);
      if (!boxes.empty()) // all of it may be padding
        contents.push_back(
            {parameter, std::move(slot), piece, std::move(boxes)});
    };
    ShardTensor weight = weightOf(shard);
    weight.sharing.ownAxis = mesh.sitesAxis();
    add(nameOfWeight(mesh, rank), weight);
    for (uint32_t j = 0; j < plan::length(shard.state()); ++j) {
      const fb::StateSlot &slot = *shard.state()->Get(j);
      add(nameOf(slot, mesh, rank), stateOf(shard, slot));
    }
  }
  return contents;
}

TensorShape runtime::storedTensor(const std::string &tensor,
                                  const std::string &slot, const Box &box) {
  return {tensor + "/" + slot + formatBox(box), box.shape};
}

/// A box is a tensor of its own in the file, so that safetensors' readers need
/// not know of boxes.
std::vector<TensorShape>
runtime::layOutContents(const std::vector<StoredPiece> &contents) {
  std::vector<TensorShape> tensors;
  for (const StoredPiece &stored : contents)
    for (const Box &box : stored.boxes)
      tensors.push_back(
          storedTensor(stored.parameter.file_name()->str(), stored.slot, box));
  return tensors;
}

std::string runtime::rankFileName(uint32_t rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05u.safetensors", rank);
  return name;
}

/// Each parameter once, though several programs may hold it: what a checkpoint
/// has is the model's, not the ranks'. Parameters that are views of one file
/// tensor add a box each.
std::map<std::string, NeededTensor> runtime::neededBy(const fb::Plan &plan) {
  std::map<std::string, NeededTensor> needed;
  std::vector<bool> seen(plan.parameters()->size());
  for (const fb::Program *program : *plan.programs())
    for (uint32_t i = 0; i < plan::length(program->shards()); ++i) {
      const fb::Shard &shard = *program->shards()->Get(i);
      if (seen[shard.parameter()])
        continue;
      seen[shard.parameter()] = true;
      const fb::Parameter &parameter =
          *plan.parameters()->Get(shard.parameter());
      NeededTensor &tensor = needed[parameter.file_name()->str()];
      tensor.shape = toShape(*parameter.file_shape());
      Box box = {toShape(*parameter.box_begin()),
                 toShape(*parameter.box_shape())};
      auto add = [&](const std::string &slot, uint32_t axis) {
        uint32_t owners = axis ? plan.mesh()->Get(axis)->size() : 1;
        for (uint32_t index = 0; index < owners; ++index)
          tensor.slots[::nameOf(slot, axis, index)].push_back(box);
      };
      add(weightSlot, plan::RankGrid(plan).sitesAxis());
      for (uint32_t j = 0; j < plan::length(shard.state()); ++j) {
        const fb::StateSlot &slot = *shard.state()->Get(j);
        add(slot.name()->str(), slot.own_axis());
      }
    }
  return needed;
}
