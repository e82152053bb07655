//===- RankFile.cpp - The files of a checkpoint, written ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one file that each rank writes, and the index of all of them. Its layout
// follows from the plan alone, so that header, size and position of each box
// are known before the first element is read; a file is then written from its
// beginning to its end. The index follows from the plan as well, and every
// process computes the same one; a run adds sizes and checksums.
//
//===----------------------------------------------------------------------===//

#include "RankFile.h"

using namespace plait;
using namespace plait::runtime;

RankFile RankFile::of(const fb::Plan &plan, const plan::RankGrid &mesh,
                      uint32_t rank) {
  std::vector<StoredPiece> contents = contentsOf(plan, mesh, rank);
  SafetensorsLayout layout = layOut(layOutContents(contents));
  return {rankFileName(rank), std::move(contents), std::move(layout)};
}

/// The header, then the pieces in the order of layOutContents(). `write` has to
/// give exactly as many bytes as the layout has for a piece; the total is
/// compared at the end, as an element too few would shift all tensors behind
/// it.
Result<WrittenFile> runtime::writeRankFile(const std::string &folder,
                                           const RankFile &source,
                                           const PieceWriter &write,
                                           const std::atomic<bool> *isAwaited) {
  Result<FileWriter> file =
      FileWriter::create(folder + "/" + source.name, isAwaited);
  if (!file.ok())
    return file.status();
  PLAIT_RETURN_IF_ERROR(file->append(std::as_bytes(
      std::span(source.layout.header.data(), source.layout.header.size()))));
  for (const StoredPiece &piece : source.contents)
    PLAIT_RETURN_IF_ERROR(write(piece, *file));
  Result<uint64_t> hash = file->finish();
  if (!hash.ok())
    return hash.status();
  if (file->bytes() != source.layout.bytes)
    return fail("'", source.name, "' has ", file->bytes(),
                " bytes, its header says ", source.layout.bytes);
  StoredFile entry = {source.name, file->bytes(), *hash};
  return WrittenFile{std::move(*file), std::move(entry)};
}

/// Whether every element that the plan has is in exactly one box.
/// Counting is enough: boxes are disjoint, and those of a rank lie in the boxes
/// of its parameters. This catches an error of the compiler's sharding before a
/// run relies on checkpoints.
static Status checkComplete(const fb::Plan &plan,
                            const CheckpointIndex &index) {
  for (const auto &[name, needed] : neededBy(plan))
    for (const auto &[slotName, boxes] : needed.slots) {
      auto describe = [&, &name = name, &slotName = slotName](auto... what) {
        return fail("cannot store ", slotName, " of '", name, "': it ",
                    what...);
      };
      auto tensor = index.tensors.find(name);
      if (tensor == index.tensors.end() ||
          !tensor->second.slots.contains(slotName))
        return describe("is in no rank");
      Result<BoxMap> map =
          BoxMap::create(needed.shape, tensor->second.slots.at(slotName).boxes);
      if (!map.ok())
        return describe(map.status().message());
      int64_t expected = 0;
      for (const Box &box : boxes)
        expected += box.count();
      if (map->count() != expected)
        return describe("has ", expected, " elements, the ranks store ",
                        map->count());
    }
  return Status::success();
}

/// The index without what only a run knows: its record, and the sizes and
/// checksums of the files.
/// It follows from the plan alone, so that no rank has to ask another one what
/// it stores.
Result<CheckpointIndex> runtime::makeIndex(const fb::Plan &plan,
                                           const PlanIdentity &identity) {
  CheckpointIndex index;
  index.plan = identity;
  plan::RankGrid mesh(plan);
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<StoredPiece> contents = contentsOf(plan, mesh, rank);
    if (contents.empty())
      continue;
    uint32_t file = index.files.size();
    index.files.push_back({rankFileName(rank)});
    for (const StoredPiece &stored : contents) {
      const auto &shape = *stored.parameter.file_shape();
      StoredTensor &tensor = index.tensors[stored.parameter.file_name()->str()];
      tensor.shape.assign(shape.begin(), shape.end());
      StoredTensor::Slot &slot = tensor.slots[stored.slot];
      slot.boxes.insert(slot.boxes.end(), stored.boxes.begin(),
                        stored.boxes.end());
      // One entry a box, all those that have just been added.
      slot.files.resize(slot.boxes.size(), file);
    }
  }
  PLAIT_RETURN_IF_ERROR(checkComplete(plan, index));
  return index;
}

/// Synced at once: it is the last file, and the folder gets its name next.
Status runtime::writeIndex(const CheckpointStore &store,
                           const CheckpointIndex &index) {
  Result<FileWriter> file =
      FileWriter::create(store.partialPathOf(index.run.step) + "/" + indexName);
  if (!file.ok())
    return file.status();
  std::string text = index.print();
  PLAIT_RETURN_IF_ERROR(
      file->append(std::as_bytes(std::span(text.data(), text.size()))));
  if (auto hash = file->finish(); !hash.ok())
    return hash.status();
  return file->sync();
}
