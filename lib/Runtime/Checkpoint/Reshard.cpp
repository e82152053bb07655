//===- Reshard.cpp - A checkpoint as another plan would write it ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `plait-plan reshard`: reads a checkpoint and writes the one that another plan
// would have written, in one process and without that plan's devices. It goes
// through the ranks of the target one after another, and needs a buffer of a
// few MiB, whatever the size of the model.
//
// It trusts neither itself nor the disk: what it has written is opened again,
// verified, and compared with the source bit by bit before it gets its name.
//
//===----------------------------------------------------------------------===//

#include "Contents.h"
#include "RankFile.h"
#include "Reader.h"
#include "plait/Runtime/Checkpoint.h"

#include <algorithm>
#include <cstring>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Elements that are on their way: 4 MiB.
constexpr int64_t bufferElements = 1 << 20;

using Part = CheckpointReader::Cursor::Part;
using Visit = std::function<Status(int64_t begin, const Part &part,
                                   std::span<const float> elements)>;

/// Gives `visit` the elements of `box`, in their order.
/// `elements` of `visit` are valid during the call, lie in one file of the
/// source, and follow `begin`, which counts in the whole tensor. After a
/// failure the rest of the runs is passed over; forEachRun() cannot be stopped.
Status readBox(const CheckpointReader &reader, const std::string &tensor,
               const std::string &slot, const Shape &shape, const Box &box,
               const Visit &visit) {
  const CheckpointReader::Slot *source = reader.find(tensor, slot);
  if (!source)
    return fail("checkpoint '", reader.getPath(), "' has no ", slot, " of '",
                tensor, "'");
  CheckpointReader::Cursor cursor(reader, *source);
  std::vector<float> buffer(std::min(bufferElements, box.count()));
  Status status = Status::success();
  forEachRun(box, shape, [&](int64_t begin, int64_t count) {
    while (count && status.ok()) {
      std::span<float> target(buffer.data(),
                              std::min<int64_t>(count, buffer.size()));
      auto part = cursor.readPart(begin, target);
      status = part.ok() ? visit(begin, *part, target.first(part->count))
                         : part.status();
      begin += part.ok() ? part->count : 0;
      count -= part.ok() ? part->count : count;
    }
  });
  return status;
}

/// One use of reshard(). What is counted on the way goes into `report`.
class Resharder {
public:
  Resharder(CheckpointReader reader, const fb::Plan &plan,
            const std::string &directory)
      : reader(std::move(reader)), plan(plan), mesh(plan), store(directory) {}

  /// 1. Verify all of the source, and that it fits the plan, before the target
  ///    is touched.
  /// 2. Refuse a directory that has checkpoints: they would be another run's.
  /// 3. Write the files and the index under the partial name.
  /// 4. Compare, then give it its name; whatever fails, remove it.
  Result<ReshardReport> run(const PlanIdentity &identity) {
    // 1.
    for (uint32_t i = 0; i < reader.index().files.size(); ++i)
      PLAIT_RETURN_IF_ERROR(reader.verify(i));
    PLAIT_RETURN_IF_ERROR(reader.checkFits(plan, /*beginsFeedback=*/false));
    Result<CheckpointIndex> made = makeIndex(plan, identity);
    if (!made.ok())
      return made.status();
    index = std::move(*made);
    index.run = reader.index().run;
    step = index.run.step;
    // 2.
    PLAIT_RETURN_IF_ERROR(store.make());
    auto there = store.list();
    if (!there.ok())
      return there.status();
    if (!there->empty())
      return fail("'", there->front().path,
                  "' is there already; name another directory");
    // 3.
    PLAIT_RETURN_IF_ERROR(store.begin(step, {}));
    Status status = writeAll();
    // 4.
    if (status.ok())
      status = compare();
    if (status.ok())
      status = store.commit(step);
    if (!status.ok()) {
      store.abandon(step);
      return status;
    }
    describe(identity);
    return report;
  }

private:
  /// The n-th file of the index is that of the n-th rank that stores anything,
  /// which is how makeIndex() counts.
  Status writeAll() {
    report.ranks.resize(mesh.ranks());
    uint32_t next = 0;
    for (uint32_t rank = 0; rank < mesh.ranks(); ++rank) {
      RankFile file = RankFile::of(plan, mesh, rank);
      if (file.contents.empty())
        continue;
      auto written =
          writeRankFile(store.partialPathOf(step), file,
                        [&](const StoredPiece &piece, FileWriter &out) {
                          return writePiece(rank, piece, out);
                        });
      if (!written.ok())
        return written.status();
      PLAIT_RETURN_IF_ERROR(written->file.sync());
      index.files[next++] = written->entry;
      report.ranks[rank].sources =
          std::count(usedFiles.begin(), usedFiles.end(), true);
      usedFiles.clear();
    }
    return writeIndex(store, index);
  }

  /// A rank finds "its own" bytes where the source's file of the same name has
  /// them; the report says how much had to move between ranks.
  Status writePiece(uint32_t rank, const StoredPiece &piece, FileWriter &out) {
    const auto &dims = *piece.parameter.file_shape();
    std::string same = rankFileName(rank);
    ReshardReport::Rank &counts = report.ranks[rank];
    usedFiles.resize(reader.index().files.size());
    counts.boxes += piece.boxes.size();
    for (const Box &box : piece.boxes)
      PLAIT_RETURN_IF_ERROR(readBox(
          reader, piece.parameter.file_name()->str(), piece.slot,
          {dims.begin(), dims.end()}, box,
          [&](int64_t, const Part &part, std::span<const float> elements) {
            usedFiles[part.file] = true;
            counts.bytes += elements.size_bytes();
            if (reader.index().files[part.file].name == same)
              counts.kept += elements.size_bytes();
            return out.append(std::as_bytes(elements));
          }));
    return Status::success();
  }

  /// Reads both back. The new one's boxes are disjoint and as many elements as
  /// the plan needs, see makeIndex(); so are those of the old one. Of sites the
  /// new one may have more or fewer, so its slots are those that are compared.
  Status compare() {
    Result<CheckpointReader> found =
        CheckpointReader::open(store.partialPathOf(step));
    if (!found.ok())
      return found.status();
    for (uint32_t i = 0; i < found->index().files.size(); ++i)
      PLAIT_RETURN_IF_ERROR(found->verify(i));
    PLAIT_RETURN_IF_ERROR(found->checkFits(plan, /*beginsFeedback=*/false));
    for (const auto &[name, tensor] : found->index().tensors)
      for (const auto &[slotName, slot] : tensor.slots)
        for (const Box &box : slot.boxes)
          PLAIT_RETURN_IF_ERROR(
              compareBox(*found, name, slotName, tensor.shape, box));
    return Status::success();
  }

  /// Walks the target's boxes, reads both ones' elements at the same indices
  /// and compares their bits, so that a NaN equals itself.
  Status compareBox(const CheckpointReader &found, const std::string &name,
                    const std::string &slotName, const Shape &shape,
                    const Box &box) {
    CheckpointReader::Cursor cursor(found, *found.find(name, slotName));
    std::vector<float> other;
    report.elements += box.count();
    return readBox(
        reader, name, slotName, shape, box,
        [&](int64_t begin, const Part &, std::span<const float> elements) {
          other.resize(elements.size());
          PLAIT_RETURN_IF_ERROR(cursor.read(begin, other));
          if (std::memcmp(other.data(), elements.data(),
                          elements.size_bytes()) != 0)
            return fail("'", found.getPath(), "' differs from '",
                        reader.getPath(), "' in ", slotName, " of '", name,
                        "' behind element ", begin);
          return Status::success();
        });
  }

  /// Tensors of one model may have different slots; the report has each name
  /// once.
  void describe(const PlanIdentity &identity) {
    report.source = reader.getPath();
    report.target = store.pathOf(step);
    report.run = index.run;
    report.from = reader.index().plan;
    report.to = identity;
    report.tensors = index.tensors.size();
    for (const auto &[name, tensor] : index.tensors)
      for (const auto &[slotName, slot] : tensor.slots)
        if (std::find(report.slots.begin(), report.slots.end(), slotName) ==
            report.slots.end())
          report.slots.push_back(slotName);
    std::sort(report.slots.begin(), report.slots.end());
  }

  CheckpointReader reader;
  const fb::Plan &plan;
  plan::RankGrid mesh;
  CheckpointStore store;
  CheckpointIndex index;
  uint64_t step = 0;
  ReshardReport report;
  std::vector<bool> usedFiles; // by the rank that is written
};

} // namespace

/// A run that writes there may remove what is being opened, and has a newer one
/// by then.
static Result<CheckpointReader> openNewest(const std::string &path) {
  for (int look = 1;; ++look) {
    auto folders = findCheckpoints(path);
    if (!folders.ok())
      return folders.status();
    if (folders->empty())
      return failToFind(path);
    const std::string &newest = folders->front().path;
    auto reader = CheckpointReader::open(newest);
    if (reader.ok() || !wasRemoved(newest) || look == mostLooks)
      return reader;
  }
}

Result<ReshardReport> runtime::reshard(const std::string &path,
                                       const fb::Plan &plan,
                                       const PlanIdentity &identity,
                                       const std::string &directory) {
  auto reader = openNewest(path);
  if (!reader.ok())
    return reader.status();
  return Resharder(std::move(*reader), plan, directory).run(identity);
}
