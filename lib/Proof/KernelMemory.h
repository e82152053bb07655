//===- KernelMemory.h - Tensors of drawn numbers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory to run kernels on. What a kernel reads are the same few pages of drawn
// numbers, mapped one behind the other, so that a tensor of gigabytes costs
// nothing; what it writes is shared with the process that runs it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_KERNELMEMORY_H
#define PLAIT_LIB_PROOF_KERNELMEMORY_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

namespace plait::proof {

/// Memory of numbers that repeat, to read only: multiples of 1/16 up to 2,
/// which f32 and bf16 hold exactly and whose sums f32 mostly does. Tensors
/// share it.
class DrawnPages {
public:
  DrawnPages() = default;
  DrawnPages(const DrawnPages &) = delete;
  ~DrawnPages();

  struct Drawn {
    char *start = nullptr; // null: there is no memory
    /// The same numbers, again and again: byte i of them is that of number
    /// (i + first) modulo its size. To look at many pages takes longer. Empty:
    /// the numbers are no drawn ones.
    llvm::ArrayRef<char> round;
    size_t first = 0;
  };
  /// `bytes` of them. Behind them begins a page that nobody may read; another
  /// `number` has others.
  Drawn get(bool isHalf, bool isPositive, unsigned number, size_t bytes);
  size_t countMaps() const { return maps; }
  /// Gives everything back.
  void clear();

private:
  struct File {
    int descriptor = -1;
    std::vector<char> round; // a prime number of pages: rows do not repeat
    size_t rounds = 0;       // how often the file has them
  };
  /// Tensors end where their region does. What is mapped of it grows towards
  /// lower addresses as larger ones come.
  struct Region {
    char *end = nullptr;
    size_t reserved = 0, mapped = 0; // bytes before the end
  };
  File &getFile(bool isHalf, bool isPositive, size_t rounds);
  static bool reserve(Region &region, size_t bytes);
  bool grow(Region &region, const File &file, size_t first, size_t bytes);

  std::map<std::array<bool, 2>, File> files;
  /// By file, number, and size as a power of two.
  std::map<std::array<unsigned, 4>, Region> regions;
  size_t maps = 0;
};

/// The memory of one tensor, which ends with the page that it ends in.
class TensorMemory {
public:
  /// Of an operand or a result of a cluster, with its pitch.
  explicit TensorMemory(mlir::Value value);
  TensorMemory(TensorMemory &&other);
  ~TensorMemory();

  /// Numbers that repeat, to read only as long as there are `pages`; tensors of
  /// another `number` have others. False: there is no memory.
  bool draw(DrawnPages &pages, bool isPositive, unsigned number);
  /// Zeros that other processes see and may change.
  bool share();

  void *getStart() const { return numbers.start; }
  /// The element of this row-major number; integers as they are.
  double load(int64_t element) const;
  void store(int64_t element, double value);
  /// Marks an element that is to be written.
  void mark(int64_t element);
  bool isMarked(int64_t element) const;

private:
  size_t getOffset(int64_t element) const;
  char *find(int64_t element) const {
    return numbers.start + getOffset(element);
  }
  const char *findDrawn(int64_t element) const;

  enum class Kind { Float, Half, Integer };
  Kind kind;
  int64_t row, pitch; // elements
  size_t bytes, mapped = 0;
  char *map = nullptr; // its own, if it shares
  DrawnPages::Drawn numbers;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_KERNELMEMORY_H
