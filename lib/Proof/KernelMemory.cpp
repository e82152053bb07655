//===- KernelMemory.cpp - Tensors of drawn numbers ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Address space is plenty and memory is not: a tensor of gigabytes is made of
// mappings of one small file of drawn numbers. What costs time is the number of
// mappings and the page faults in each, so tensors of one kind and number share
// a region, whatever their sizes, and the comparison reads drawn numbers from
// the vector they were drawn into instead of through the mapping. Tensors end
// at the end of a page, and the next page is PROT_NONE: a kernel that writes or
// reads behind its tensor by more than the line of the cache it may use crashes
// instead of passing unnoticed.
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
///
/// A prime, so that rows whose length is a power of two do not all begin with
/// the same numbers.
static constexpr size_t kPages = 251;

/// How often a file has the pages at most. More take longer to write, fewer
/// need more mappings.
static constexpr size_t kRounds = 8;

/// The sizes of regions are powers of two with such exponents: few, so that
/// tensors share them.
static constexpr unsigned kPowers = 6;

/// Numbers that are not drawn, and that no op makes.
///
/// They are NaNs with a payload; arithmetic gives NaNs of another one.
static constexpr uint32_t kMark = 0x7fc0beef;
static constexpr uint16_t kHalfMark = 0x7fbe;

static size_t getPage() { return sysconf(_SC_PAGESIZE); }

DrawnPages::~DrawnPages() {
  clear();
  for (auto &[key, file] : files)
    if (file.descriptor >= 0)
      close(file.descriptor);
}

/// The files stay: they are small, and the next batch maps them again. Each
/// Drawn that was given out is invalid after.
void DrawnPages::clear() {
  for (auto &[key, region] : regions)
    if (region.end)
      munmap(region.end - region.reserved, region.reserved + getPage());
  regions.clear();
  maps = 0;
}

/// `bytes` of f32 or, with `isHalf`, of bf16. Always the same numbers, so that
/// a trial can be repeated. 0 is left out: it would hide a factor that is
/// missing, and be divided by.
static std::vector<char> drawNumbers(size_t bytes, bool isHalf,
                                     bool isPositive) {
  std::array<uint32_t, 64> words; // of ±1/16 to ±2, without 0
  for (int i = 0; i < 64; ++i) {
    int sixteenths = isPositive || i < 32 ? i % 32 + 1 : 31 - i;
    float number = sixteenths / 16.0f;
    std::memcpy(&words[i], &number, 4);
    // The upper half of an f32 is the bf16; sixteenths up to 2 have no digits
    // in the lower half.
    words[i] >>= isHalf ? 16 : 0;
  }
  std::vector<char> data(bytes);
  size_t width = isHalf ? 2 : 4;
  uint32_t state = 7; // Numerical Recipes' linear congruences: the upper bits
  for (size_t at = 0; at < bytes; at += width) {
    state = state * 1664525 + 1013904223;
    std::memcpy(data.data() + at, &words[state >> 26], width);
  }
  return data;
}

/// At least `rounds` times the pages. A file only grows, at its end, so what is
/// mapped of it stays as it is. After an error its descriptor is -1.
DrawnPages::File &DrawnPages::getFile(bool isHalf, bool isPositive,
                                      size_t rounds) {
  File &file = files[{isHalf, isPositive}];
  if (file.round.empty()) {
    file.round = drawNumbers(kPages * getPage(), isHalf, isPositive);
    file.descriptor = memfd_create("drawn", MFD_CLOEXEC);
  }
  for (; file.descriptor >= 0 && file.rounds < rounds; ++file.rounds)
    if (write(file.descriptor, file.round.data(), file.round.size()) !=
        ssize_t(file.round.size())) {
      close(file.descriptor);
      file.descriptor = -1;
    }
  return file;
}

/// Takes addresses and no memory: nothing is accessible before grow() maps it.
/// The page behind the region stays inaccessible.
bool DrawnPages::reserve(Region &region, size_t bytes) {
  void *found = mmap(nullptr, bytes + getPage(), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return false;
  region = {static_cast<char *>(found) + bytes, bytes, 0};
  return true;
}

/// Maps until `bytes` before the end are there. The last `first` of them are
/// the beginning of a round, and whole ones lie before.
///
/// What is mapped stays where it is and keeps its numbers, since it is counted
/// from the end. Every mapping ends where a round does, hence it does not
/// matter how many rounds the file had at the time. False: the system refuses a
/// mapping.
bool DrawnPages::grow(Region &region, const File &file, size_t first,
                      size_t bytes) {
  while (region.mapped < bytes) {
    size_t whole = region.mapped == 0 && first > 0
                       ? first
                       : file.rounds * file.round.size();
    size_t length = std::min(whole, region.reserved - region.mapped);
    if (mmap(region.end - region.mapped - length, length, PROT_READ,
             MAP_SHARED | MAP_FIXED, file.descriptor,
             whole - length) == MAP_FAILED)
      return false;
    region.mapped += length;
    ++maps;
  }
  return true;
}

/// 1. The file, long enough that a large tensor needs few mappings.
/// 2. The region: one for each kind, number and class of sizes, so that tensors
///    of similar sizes share what is mapped.
/// 3. Where byte 0 of the tensor is in the round: `bytes` before the end, where
///    the round begins `first` bytes before the end.
DrawnPages::Drawn DrawnPages::get(bool isHalf, bool isPositive, unsigned number,
                                  size_t bytes) {
  // 1. The file, of at most kRounds rounds.
  File &file =
      getFile(isHalf, isPositive,
              std::min(kRounds, llvm::divideCeil(bytes, kPages * getPage())));
  if (file.descriptor < 0)
    return {};
  // 2. The region, of at least a page.
  unsigned power =
      llvm::alignTo(llvm::Log2_64_Ceil(std::max(bytes, getPage())), kPowers);
  Region &region = regions[{isHalf, isPositive, number, power}];
  size_t first = number % kPages * getPage();
  if ((!region.end && !reserve(region, size_t(1) << power)) ||
      !grow(region, file, first, bytes))
    return {};
  // 3. The position in the round. The sum is kept from becoming negative by one
  //    more round.
  size_t size = file.round.size();
  return {region.end - bytes, file.round, (first + size - bytes % size) % size};
}

/// Only the layout; draw() or share() gives it memory. A scalar is a row of one
/// element.
TensorMemory::TensorMemory(Value value)
    : kind(getElementTypeOrSelf(value).isInteger() ? Kind::Integer
           : getElementTypeOrSelf(value).isBF16()  ? Kind::Half
                                                   : Kind::Float),
      pitch(plan::getRowPitch(value)), bytes(plan::getStoredBytes(value)) {
  auto shape = cast<RankedTensorType>(value.getType()).getShape();
  row = shape.empty() ? 1 : shape.back();
}

/// The mapping has one owner. Drawn numbers belong to the pages, so both may
/// have them.
TensorMemory::TensorMemory(TensorMemory &&other)
    : kind(other.kind), row(other.row), pitch(other.pitch), bytes(other.bytes),
      mapped(other.mapped), map(std::exchange(other.map, nullptr)),
      numbers(other.numbers) {}

TensorMemory::~TensorMemory() {
  if (map)
    munmap(map, mapped);
}

/// Kernels may use a line of the cache to its end, and nothing beyond.
static size_t alignToLine(size_t bytes) {
  return llvm::alignTo(std::max<size_t>(bytes, 1), 64);
}

bool TensorMemory::draw(DrawnPages &pages, bool isPositive, unsigned number) {
  numbers =
      pages.get(kind == Kind::Half, isPositive, number, alignToLine(bytes));
  return numbers.start;
}

/// MAP_SHARED, so that after fork() the parent sees what the child has written.
/// Fresh pages are zeros and take no memory until they are touched.
bool TensorMemory::share() {
  size_t needed = alignToLine(bytes), usable = llvm::alignTo(needed, getPage());
  mapped = usable + getPage();
  void *found = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return false;
  map = static_cast<char *>(found);
  numbers.start = map + usable - needed;
  return mprotect(map + usable, getPage(), PROT_NONE) == 0;
}

/// In bytes. Between rows there may be elements of no tensor: the pitch.
size_t TensorMemory::getOffset(int64_t element) const {
  return (element / row * pitch + element % row) * (kind == Kind::Half ? 2 : 4);
}

/// Of drawn numbers the copy in `round`, which is in the cache, and not the
/// mapping, each page of which would cost a fault here.
const char *TensorMemory::findDrawn(int64_t element) const {
  size_t size = numbers.round.size();
  return size == 0
             ? find(element)
             : &numbers.round[(numbers.first + getOffset(element)) % size];
}

/// All three kinds are exact in a double.
double TensorMemory::load(int64_t element) const {
  const char *at = findDrawn(element);
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

/// The mark says that nothing was written there; without it an element that a
/// kernel skips would be a plausible zero.
void TensorMemory::mark(int64_t element) {
  if (kind == Kind::Half)
    std::memcpy(find(element), &kHalfMark, 2);
  else
    std::memcpy(find(element), &kMark, 4);
}

/// By the bits: as numbers NaNs are never equal.
bool TensorMemory::isMarked(int64_t element) const {
  if (kind == Kind::Half)
    return std::memcmp(find(element), &kHalfMark, 2) == 0;
  return std::memcmp(find(element), &kMark, 4) == 0;
}
