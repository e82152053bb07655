//===- Index.h - The index of a checkpoint ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_INDEX_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_INDEX_H

#include "Boxes.h"
#include "Store.h"
#include "plait/Runtime/Checkpoint.h"

#include <map>
#include <string>

namespace plait::runtime {

struct StoredFile {
  std::string name; // in the folder
  uint64_t bytes = 0;
  uint64_t hash = 0; // XXH3-64 of them
};

struct StoredTensor {
  struct Slot {
    std::vector<Box> boxes;
    std::vector<uint32_t> files; // of each box, among those of the index
  };

  Shape shape;
  std::map<std::string, Slot> slots; // by name
};

/// 16 hexadecimal digits.
std::string printHash(uint64_t hash);

/// The content of index.json. The text ends with a checksum of itself.
struct CheckpointIndex {
  RunRecord run;
  PlanIdentity plan; // that wrote it
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor> tensors; // by name in the model file

  std::string print() const;
  /// Fails, with the end of a sentence, where `text` is not what print() gives.
  /// What it returns can be used without looking: sizes are possible, files
  /// are there and beside the index.
  static Result<CheckpointIndex> parse(std::span<const uint8_t> text);
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_INDEX_H
