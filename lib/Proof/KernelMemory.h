//===- KernelMemory.h - Tensors of drawn numbers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Memory to run kernels on. What a kernel reads are the same few pages of drawn
// numbers again and again, mapped where it touches them, so that a tensor of
// gigabytes costs nothing; what it writes is its process's own, and one kernel
// writes where another one has written before.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_KERNELMEMORY_H
#define PLAIT_LIB_PROOF_KERNELMEMORY_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace plait::proof {

/// Returns the operand in whose memory a kernel leaves its `result`: a table
/// that it scatters rows into, of which it touches no others.
std::optional<unsigned> findTable(plan::ClusterOp cluster, unsigned result);

/// Addresses of tensors that end where these do. Behind them begins a page that
/// nobody may read.
class AddressRange {
public:
  AddressRange() = default;
  AddressRange(const AddressRange &) = delete;
  ~AddressRange();

  /// A power of two for tensors of so many bytes: they share a region.
  static unsigned getPower(size_t bytes);
  /// Where a tensor of `bytes` begins; null: there are no addresses.
  char *get(unsigned power, size_t bytes);
  bool has(const char *address) const {
    return end - used <= address && address < end;
  }
  char *getEnd() const { return end; }

private:
  char *end = nullptr;
  size_t reserved = 0, used = 0; // bytes before the end
};

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
    size_t bytes = 0;
    unsigned number = 0;
    /// What was drawn, see find(). Empty: the numbers are no drawn ones.
    llvm::ArrayRef<char> round;

    /// What lies at `start` + `byte`, without the memory there.
    const char *find(size_t byte) const;
  };
  /// `bytes` of them. Behind them begins a page that nobody may read; another
  /// `number` has others. Nobody can read them before serve().
  Drawn get(bool isHalf, bool isPositive, unsigned number, size_t bytes);
  /// From now on and in this process alone, what is touched is mapped.
  void serve();

private:
  /// Where numbers are mapped, and since when. Null: nowhere.
  struct Window {
    char *place = nullptr;
    uint64_t time = 0;
  };
  /// Numbers move on with windows, so that a stride of a power of two does not
  /// see the same ones; a prime, for the same reason.
  static constexpr unsigned kShifts = 31;
  struct File {
    int descriptor = -1;
    std::vector<char> round; // a prime number of pages: rows do not repeat
    /// By shift: those of one have the same numbers.
    std::array<std::array<Window, 4>, kShifts> windows;
    uint64_t time = 0; // how many were mapped or moved
  };
  using Kind = std::array<bool, 2>; // half, positive
  static unsigned getShift(size_t window, unsigned number) {
    return (window + number) % kShifts;
  }
  File &getFile(Kind kind);
  bool map(const char *address);
  static bool map(File &file, unsigned shift, char *place);

  std::map<Kind, File> files;
  /// By kind, number, and size as a power of two.
  std::map<std::tuple<Kind, unsigned, unsigned>, AddressRange> regions;
};

/// Memory that kernels write. It is their process's own: what is to be known of
/// it afterwards is put into words that are shared.
class ResultPages {
public:
  ResultPages() = default;
  ResultPages(const ResultPages &) = delete;
  ~ResultPages();

  /// For the result of this number of any kernel: they have the same memory,
  /// one after the other. Null: there is none.
  char *get(unsigned number, size_t bytes);
  /// Words of the process that forks and of those that it forks.
  uint32_t *share(size_t count);

private:
  /// By number, and size as a power of two.
  std::map<std::pair<unsigned, unsigned>, AddressRange> regions;
  std::vector<uint32_t *> blocks;
  size_t left = 0; // words of the last block
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
  /// Zeros of its own.
  bool allocate();
  /// To be written, as long as there are `pages`.
  bool write(ResultPages &pages, unsigned number);

  void *getStart() const { return numbers.start; }
  /// The element of this row-major number; integers as they are.
  double load(int64_t element) const { return decode(get(element)); }
  void store(int64_t element, double value) { set(element, encode(value)); }

  /// The bits of an element, and of numbers that the type has.
  uint32_t get(int64_t element) const;
  void set(int64_t element, uint32_t bits) const;
  double decode(uint32_t bits) const;
  uint32_t encode(double value) const;
  /// Bits that no kernel writes.
  uint32_t getMark() const;

private:
  size_t getOffset(int64_t element) const;
  size_t getWidth() const { return kind == Kind::Half ? 2 : 4; }

  enum class Kind { Float, Half, Integer };
  Kind kind;
  int64_t row, pitch; // elements
  size_t bytes, mapped = 0;
  char *map = nullptr; // its own
  DrawnPages::Drawn numbers;
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_KERNELMEMORY_H
