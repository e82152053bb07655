//===- Reader.h - The tensors of a checkpoint -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_READER_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_READER_H

#include "Index.h"
#include "plait/Runtime/Safetensors.h"

#include <map>
#include <span>

namespace plait::runtime {

/// A complete checkpoint, mapped. Reading is safe from all threads.
class CheckpointReader {
public:
  /// Where the elements of one slot of a tensor are.
  struct Slot {
    BoxMap map;
    std::vector<const FileTensor *> sources; // by box
    std::vector<uint32_t> files;             // by box, of the index
  };

  /// Fails where the index does not hold, a file is missing or has another
  /// size, or boxes are not where the index says or overlap.
  static Result<CheckpointReader> open(const std::string &path);

  const std::string &getPath() const { return path; }
  const CheckpointIndex &index() const { return parts; }

  /// Reads file `file` of the index and compares its checksum.
  Status verify(uint32_t file) const;

  /// Fails unless the checkpoint has each element of each tensor and slot of
  /// `plan`, and nothing else.
  Status checkFits(const fb::Plan &plan) const;

  /// Null: there is none.
  const Slot *find(const std::string &tensor, const std::string &slot) const;

  /// Reads one slot, a part at a time. For one thread.
  class Cursor {
  public:
    Cursor(const CheckpointReader &reader, const Slot &slot)
        : reader(&reader), slot(&slot) {}

    /// Elements [begin, begin + target.size()) of the global tensor.
    Status read(int64_t begin, std::span<float> target);

    /// The same of the first of these elements that lie side by side in one
    /// file, and where they are.
    struct Part {
      uint32_t file; // of the index
      int64_t count;
    };
    Result<Part> readPart(int64_t begin, std::span<float> target);

  private:
    const CheckpointReader *reader;
    const Slot *slot;
    uint32_t hint = 0;
    int64_t unreleased = 0; // elements read
  };

private:
  Status openFiles();
  Status checkTensor(const std::string &name, const StoredTensor &tensor);
  Status checkCovered(const std::string &name, const std::string &slotName,
                      const Shape &shape, const std::vector<Box> &boxes) const;

  std::string path;
  CheckpointIndex parts;
  std::vector<WeightFiles> files; // by file of the index
  std::map<std::pair<std::string, std::string>, Slot> slots;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_READER_H
