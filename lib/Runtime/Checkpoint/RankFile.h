//===- RankFile.h - The files of a checkpoint, written ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_RANKFILE_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_RANKFILE_H

#include "Contents.h"
#include "Index.h"
#include "Store.h"

#include <functional>

namespace plait::runtime {

/// The description of a rank's file before it is written.
struct RankFile {
  std::string name;
  std::vector<StoredPiece> contents; // empty: there is no file
  SafetensorsLayout layout;

  static RankFile of(const fb::Plan &plan, const plan::RankGrid &mesh,
                     uint32_t rank);
};

/// Gives `file` the elements of a piece, in their order.
using PieceWriter =
    std::function<Status(const StoredPiece &piece, FileWriter &file)>;

/// Writes a rank's file into `folder`; it may not be on the disk yet. For
/// `isAwaited` see FileWriter.
struct WrittenFile {
  FileWriter file;
  StoredFile entry;
};
Result<WrittenFile> writeRankFile(const std::string &folder,
                                  const RankFile &file,
                                  const PieceWriter &write,
                                  const std::atomic<bool> *isAwaited = nullptr);

/// The index of what the ranks of `plan` write, but for sizes, checksums and
/// the run. Fails where an element would not be in exactly one place.
Result<CheckpointIndex> makeIndex(const fb::Plan &plan,
                                  const PlanIdentity &identity);

/// Writes the index beside the files of its step, which have no name yet.
Status writeIndex(const CheckpointStore &store, const CheckpointIndex &index);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_RANKFILE_H
