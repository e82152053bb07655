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

#include <functional>
#include <map>
#include <optional>
#include <span>

namespace plait::runtime {

/// A complete checkpoint, mapped. Reading is safe from all threads.
class CheckpointReader {
public:
  /// The places of the elements of one slot of a tensor.
  struct Slot {
    BoxMap map;
    std::vector<const FileTensor *>
        sources;                 // by box; null: the file is not here
    std::vector<uint32_t> files; // by box, of the index
  };

  /// Fails where the index does not hold, a file is missing or has another
  /// size, or boxes are not where the index says or overlap.
  static Result<CheckpointReader> open(const std::string &path);
  /// One whose index is known, and that has some of its files at `path`: those
  /// of `here`, by number. Empty: all.
  static Result<CheckpointReader> open(const std::string &path,
                                       CheckpointIndex index,
                                       const std::vector<bool> &here);

  const std::string &getPath() const { return path; }
  const CheckpointIndex &index() const { return parts; }

  /// Reads file `file` of the index, which is here, and compares its checksum.
  /// It may have lost its name since it was opened.
  Status verify(uint32_t file) const;
  /// Verifies the checksum of a file in the folder `path`, and its size.
  static Status verify(const std::string &path, const StoredFile &file);

  /// Fails unless the checkpoint has each element of each tensor and slot of
  /// `plan`, and nothing else; but of sites that have just agreed there may be
  /// more or fewer. `beginsFeedback`: what replicas feed back may be missing on
  /// all of them, and begins at zero.
  Status checkFits(const fb::Plan &plan, bool beginsFeedback) const;

  /// Null: there is none. Of n sites, what is site i's own is that of site i
  /// mod n.
  const Slot *find(const std::string &tensor, const std::string &slot) const;

  /// Gets elements of a file that is not here: the next ones of those that this
  /// cursor, and others of its rank, have not asked for.
  using Fetch = std::function<Status(uint32_t file, std::span<float> target)>;

  /// Reads one slot, a part at a time. For one thread.
  class Cursor {
  public:
    Cursor(const CheckpointReader &reader, const Slot &slot, Fetch fetch = {})
        : reader(&reader), slot(&slot), fetch(std::move(fetch)) {}

    /// Elements [begin, begin + target.size()) of the global tensor.
    Status read(int64_t begin, std::span<float> target);

    /// The same of the first of these elements that lie side by side in one
    /// file, and where they are.
    struct Part {
      uint32_t file; // of the index
      int64_t count;
    };
    Result<Part> readPart(int64_t begin, std::span<float> target);

    /// Finds where the first of these elements are; readFound() reads what is
    /// here.
    Result<BoxMap::Found> find(int64_t begin, int64_t most);
    void readFound(const BoxMap::Found &found, std::span<float> target);
    uint32_t fileOf(const BoxMap::Found &found) const {
      return slot->files[found.box];
    }

  private:
    const CheckpointReader *reader;
    const Slot *slot;
    Fetch fetch;
    uint32_t hint = 0;
    int64_t unreleased = 0; // elements read
  };

private:
  Status openFiles(const std::vector<bool> &here);
  Status checkTensor(const std::string &name, const StoredTensor &tensor);
  Status checkCovered(const std::string &name, const std::string &slotName,
                      const Shape &shape, const std::vector<Box> &boxes) const;
  Status checkSites(const fb::Plan &plan, int64_t mine, int64_t own) const;

  std::string path;
  CheckpointIndex parts;
  // By file of the index; nothing: it is not here.
  std::vector<std::optional<WeightFiles>> files;
  std::map<std::pair<std::string, std::string>, Slot> slots;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_READER_H
