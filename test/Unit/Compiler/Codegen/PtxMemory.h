//===- PtxMemory.h - Memory that watches who uses it ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXMEMORY_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXMEMORY_H

#include "PtxInterpreter.h"

#include <memory>

namespace plait::test {

/// The buffers of a launch and the shared memory of its current block. Notes
/// for every word which threads read and wrote it: between barriers, if they
/// are of one block, and else for the whole launch.
class PtxMemory {
public:
  explicit PtxMemory(const std::vector<PtxBuffer> &buffers);

  void startBlock(uint64_t sharedBytes);
  void passBarrier();
  /// An empty string, or why `thread` may not access these bytes.
  std::string check(uint64_t address, uint64_t bytes, bool shared, bool writes,
                    int64_t thread);
  uint64_t load(uint64_t address, unsigned size, bool shared) const;
  void store(uint64_t address, unsigned size, bool shared, uint64_t value);

private:
  static constexpr int64_t kNobody = -1, kMany = -2;
  /// Of the smallest element.
  static constexpr uint64_t kWordBytes = 2;
  struct Word {
    int64_t writer = kNobody, reader = kNobody;
    int64_t block = kNobody; // global memory: whose threads these are
    int64_t barrier = 0;     // and the last one that they had passed
    bool written = false;    // shared memory: ever
  };
  /// Kept in pages, made when they are first used: most of a large buffer may
  /// never be.
  struct Area {
    static constexpr uint64_t kPageWords = 1024;
    uint64_t start = 0, count = 0; // in words
    bool isResult = false;
    std::vector<std::unique_ptr<Word[]>> pages;

    void resize(uint64_t words);
    Word &at(uint64_t index);
  };

  Area *find(uint64_t address, uint64_t bytes, bool shared);
  void forgetOrdered(Word &word) const;

  std::vector<Area> areas;
  Area sharedArea;
  std::vector<uint8_t> sharedBytes;
  int64_t block = 0, barrier = 0; // as many as there were
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXMEMORY_H
