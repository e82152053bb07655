//===- KernelMemory.cpp - Tensors of drawn numbers ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMemory.h"

#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Support/BFloat16.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Few enough to be drawn at once.
static constexpr size_t kPages = 251;

/// How often a file has the pages at most: each mapping takes some microseconds
/// to make and to copy for another process, which of a tensor of a gigabyte are
/// some hundred now, and a process may have 65530.
static constexpr size_t kRounds = 8;

/// Numbers that are not drawn, and that no op makes.
static constexpr uint32_t kMark = 0x7fc0beef;
static constexpr uint16_t kHalfMark = 0x7fbe;

static size_t getPage() { return sysconf(_SC_PAGESIZE); }

DrawnPages::~DrawnPages() {
  for (auto &[key, own] : drawn)
    close(own.pages.file);
}

static std::vector<char> drawNumbers(size_t bytes, bool isHalf,
                                     bool isPositive) {
  std::minstd_rand generator(7);
  std::vector<char> data(bytes);
  size_t width = isHalf ? 2 : 4;
  for (size_t at = 0; at < bytes; at += width) {
    int drawn = generator() / 64 % 64; // ±1/16 to ±2, without 0
    int sixteenths = isPositive || drawn < 32 ? drawn % 32 + 1 : 31 - drawn;
    float number = sixteenths / 16.0f;
    uint32_t word;
    std::memcpy(&word, &number, 4);
    word >>= isHalf ? 16 : 0;
    std::memcpy(data.data() + at, &word, width);
  }
  return data;
}

DrawnPages::Pages DrawnPages::get(bool isHalf, bool isPositive, size_t bytes) {
  auto &[data, pages] = drawn[{isHalf, isPositive}];
  if (data.empty()) {
    pages.bytes = kPages * getPage();
    data = drawNumbers(pages.bytes, isHalf, isPositive);
    pages.file = memfd_create("drawn", MFD_CLOEXEC);
  }
  // One more, since tensors begin somewhere in the first.
  size_t wanted = std::min(kRounds, bytes / pages.bytes + 1);
  for (; pages.file >= 0 && pages.rounds < wanted; ++pages.rounds)
    if (write(pages.file, data.data(), data.size()) != ssize_t(data.size())) {
      close(pages.file);
      pages.file = -1;
    }
  return pages;
}

TensorMemory::TensorMemory(Value value)
    : kind(getElementTypeOrSelf(value).isInteger() ? Kind::Integer
           : getElementTypeOrSelf(value).isBF16()  ? Kind::Half
                                                   : Kind::Float),
      pitch(plan::getRowPitch(value)), bytes(plan::getStoredBytes(value)) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  row = shape.empty() ? 1 : shape.back();
}

TensorMemory::TensorMemory(TensorMemory &&other)
    : kind(other.kind), row(other.row), pitch(other.pitch), bytes(other.bytes),
      mapped(other.mapped), maps(other.maps),
      map(std::exchange(other.map, nullptr)), start(other.start) {}

TensorMemory::~TensorMemory() {
  if (map)
    munmap(map, mapped);
}

/// Kernels may use a line of the cache to its end, and nothing beyond.
bool TensorMemory::reserve() {
  size_t needed = llvm::alignTo(std::max<size_t>(bytes, 1), 64);
  mapped = llvm::alignTo(needed, getPage()) + getPage();
  void *found = mmap(nullptr, mapped, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return false;
  map = static_cast<char *>(found);
  start = map + mapped - getPage() - needed;
  return true;
}

bool TensorMemory::draw(DrawnPages &pages, bool isPositive, unsigned number) {
  DrawnPages::Pages own = pages.get(kind == Kind::Half, isPositive, bytes);
  if (own.file < 0 || !reserve())
    return false;
  size_t end = mapped - getPage(), from = number % kPages * getPage();
  for (size_t at = 0; at < end; ++maps) {
    size_t length = std::min(own.rounds * own.bytes - from, end - at);
    if (mmap(map + at, length, PROT_READ, MAP_SHARED | MAP_FIXED, own.file,
             from) == MAP_FAILED)
      return false;
    at += length;
    from = 0;
  }
  return true;
}

bool TensorMemory::share() {
  maps = 1;
  return reserve() &&
         mmap(map, mapped - getPage(), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) != MAP_FAILED;
}

char *TensorMemory::find(int64_t element) const {
  return start +
         (element / row * pitch + element % row) * (kind == Kind::Half ? 2 : 4);
}

double TensorMemory::load(int64_t element) const {
  const char *at = find(element);
  if (kind == Kind::Half) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    uint32_t word = uint32_t(bits) << 16;
    float number;
    std::memcpy(&number, &word, 4);
    return number;
  }
  if (kind == Kind::Integer) {
    int32_t number;
    std::memcpy(&number, at, 4);
    return number;
  }
  float number;
  std::memcpy(&number, at, 4);
  return number;
}

/// Of a bf16 tensor: numbers that bf16 has.
void TensorMemory::store(int64_t element, double value) {
  if (kind == Kind::Integer) {
    auto number = static_cast<int32_t>(value);
    std::memcpy(find(element), &number, 4);
    return;
  }
  auto number = static_cast<float>(value);
  uint32_t word;
  std::memcpy(&word, &number, 4);
  uint16_t upper = word >> 16;
  std::memcpy(find(element),
              kind == Kind::Half ? (void *)&upper : (void *)&word,
              kind == Kind::Half ? 2 : 4);
}

void TensorMemory::mark(int64_t element) {
  if (kind == Kind::Half)
    std::memcpy(find(element), &kHalfMark, 2);
  else
    std::memcpy(find(element), &kMark, 4);
}

bool TensorMemory::isMarked(int64_t element) const {
  if (kind == Kind::Half)
    return std::memcmp(find(element), &kHalfMark, 2) == 0;
  return std::memcmp(find(element), &kMark, 4) == 0;
}
