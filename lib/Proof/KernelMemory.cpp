//===- KernelMemory.cpp - Tensors of drawn numbers ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Address space is plenty and memory is not: a tensor of gigabytes is an
// address range in which nothing is mapped. When a kernel touches it, a handler
// of SIGSEGV maps a window of one small file of drawn numbers there, so a
// tensor costs what is touched of it. A kernel that adds up thousands of rows
// touches all of a tensor, a page fault every few pages. So windows that are no
// longer in use are not given back but moved, with their page tables, to where
// the same numbers are wanted next. The comparison reads drawn numbers from the
// vector they were drawn into. Tensors end at the end of a page, and the next
// page belongs to nobody: a kernel that writes or reads behind its tensor by
// more than the line of the cache it may use crashes instead of passing
// unnoticed.
//
//===----------------------------------------------------------------------===//

#include "KernelMemory.h"

#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Interfaces/OpInterfaces.h"
#include "plait/Support/BFloat16.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/Alignment.h"
#include "llvm/Support/MathExtras.h"
#include <bit>
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// Finds it in the kernel of add(table, scatter), in either order, where both
/// are read by that alone.
std::optional<unsigned> proof::findTable(plan::ClusterOp cluster,
                                         unsigned result) {
  Block &body = cluster.getBody().front();
  Operation *add = body.getTerminator()->getOperand(result).getDefiningOp();
  if (!add || !add->hasTrait<AddsOperands>())
    return std::nullopt;
  for (unsigned own : {0, 1}) {
    Value rows = add->getOperand(own);
    auto table = dyn_cast<BlockArgument>(add->getOperand(1 - own));
    Operation *scatter = rows.getDefiningOp();
    if (table && scatter && getFacts(scatter).scatters && rows.hasOneUse() &&
        table.hasOneUse())
      return table.getArgNumber();
  }
  return std::nullopt;
}

/// Few enough to be drawn at once.
///
/// A prime, so that rows whose length is a power of two do not all begin with
/// the same numbers.
static constexpr size_t kPages = 251;

/// Numbers of the next window begin so many pages later in the round: less than
/// one round for all shifts.
static constexpr size_t kShiftPages = 8;

/// What is mapped at once: what two page tables span, so that they can be moved
/// as a whole. Larger ones are moved less often, and take more faults until all
/// their pages are mapped for the first time.
static constexpr size_t kWindow = 1 << 22;

/// So many windows later one is no longer used, or it is mapped again.
static constexpr uint64_t kInUse = 4;

/// The sizes of regions are powers of two from 1 GiB on, with such exponents:
/// few, so that tensors share them.
static constexpr unsigned kLeastPower = 30, kPowers = 6;

/// Numbers that are not drawn, and that no op makes.
///
/// They are NaNs with a payload; arithmetic gives NaNs of another one.
static constexpr uint32_t kMark = 0x7fc0beef;
static constexpr uint16_t kHalfMark = 0x7fbe;

static size_t getPage() { return sysconf(_SC_PAGESIZE); }

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

static void *reserveAddresses(void *at, size_t bytes, int flags) {
  return mmap(at, bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

AddressRange::~AddressRange() {
  if (end)
    munmap(end - reserved, reserved + getPage());
}

unsigned AddressRange::getPower(size_t bytes) {
  return std::max<unsigned>(kLeastPower,
                            llvm::alignTo(llvm::Log2_64_Ceil(bytes), kPowers));
}

/// Takes addresses and no memory. The end is that of a window, and the page
/// behind stays inaccessible.
char *AddressRange::get(unsigned power, size_t bytes) {
  if (!end) {
    size_t size = size_t(1) << power, needed = size + getPage();
    void *found = reserveAddresses(nullptr, needed + kWindow, 0);
    if (found == MAP_FAILED)
      return nullptr;
    // What is not needed at both ends is given back.
    auto *start = static_cast<char *>(found);
    size_t before = llvm::offsetToAlignedAddr(start, llvm::Align(kWindow));
    if (before > 0)
      munmap(start, before);
    munmap(start + before + needed, kWindow - before);
    end = start + before + size;
    reserved = size;
  }
  used = std::max(used, bytes);
  return end - bytes;
}

//===----------------------------------------------------------------------===//
// What kernels read
//===----------------------------------------------------------------------===//

/// Whose windows the handler maps.
static DrawnPages *served = nullptr;

DrawnPages::~DrawnPages() {
  if (served == this) {
    signal(SIGSEGV, SIG_DFL);
    served = nullptr;
  }
  for (auto &[kind, file] : files)
    if (file.descriptor >= 0)
      close(file.descriptor);
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

/// The round, repeated until a window at the last shift is in the file. After
/// an error its descriptor is -1.
DrawnPages::File &DrawnPages::getFile(Kind kind) {
  auto [it, isNew] = files.try_emplace(kind);
  File &file = it->second;
  if (!isNew)
    return file;
  file.round = drawNumbers(kPages * getPage(), kind[0], kind[1]);
  file.descriptor = memfd_create("drawn", MFD_CLOEXEC);
  size_t size = kShifts * kShiftPages * getPage() + kWindow;
  for (size_t at = 0; file.descriptor >= 0 && at < size;
       at += file.round.size()) {
    auto length = static_cast<ssize_t>(std::min(file.round.size(), size - at));
    if (write(file.descriptor, file.round.data(), length) != length) {
      close(file.descriptor);
      file.descriptor = -1;
    }
  }
  return file;
}

/// Only addresses, and from where serve() may map: a region for each kind,
/// number and class of sizes, so that what is mapped serves many tensors.
DrawnPages::Drawn DrawnPages::get(bool isHalf, bool isPositive, unsigned number,
                                  size_t bytes) {
  Kind kind{isHalf, isPositive};
  File &file = getFile(kind);
  if (file.descriptor < 0)
    return {};
  unsigned power = AddressRange::getPower(bytes);
  char *start = regions[{kind, number, power}].get(power, bytes);
  return {start, bytes, number, file.round};
}

/// The same arithmetic as that of map(): windows are counted from the end, and
/// each begins at its shift in the round.
const char *DrawnPages::Drawn::find(size_t byte) const {
  size_t behind = bytes - 1 - byte, window = behind / kWindow,
         at = getShift(window, number) * kShiftPages * getPage() + kWindow - 1 -
              behind % kWindow;
  return &round[at % round.size()];
}

/// Maps the window in which a tensor has `address`. False: no tensor has it, or
/// the window is there already and what was tried is a write.
///
/// Allocates nothing: a signal handler calls it.
bool DrawnPages::map(const char *address) {
  for (auto &[key, region] : regions) {
    if (!region.has(address))
      continue;
    auto [kind, number, power] = key;
    size_t window = (region.getEnd() - 1 - address) / kWindow;
    return map(files.find(kind)->second, getShift(window, number),
               region.getEnd() - (window + 1) * kWindow);
  }
  return false;
}

/// Moves the oldest window of this shift; as long as that may be in use, a new
/// one is mapped, up to as many as there is place for. Where it was the
/// addresses stay taken, so that nothing else gets there.
bool DrawnPages::map(File &file, unsigned shift, char *place) {
  Window *oldest = nullptr, *unused = nullptr;
  for (Window &window : file.windows[shift]) {
    if (window.place == place)
      return false;
    if (!window.place)
      unused = &window;
    else if (!oldest || window.time < oldest->time)
      oldest = &window;
  }
  ++file.time;
  if (unused && (!oldest || file.time - oldest->time <= kInUse)) {
    *unused = {place, file.time};
    return mmap(place, kWindow, PROT_READ, MAP_SHARED | MAP_FIXED,
                file.descriptor, shift * kShiftPages * getPage()) != MAP_FAILED;
  }
  char *before = std::exchange(oldest->place, place);
  oldest->time = file.time;
  return mremap(before, kWindow, kWindow, MREMAP_MAYMOVE | MREMAP_FIXED,
                place) != MAP_FAILED &&
         reserveAddresses(before, kWindow, MAP_FIXED) != MAP_FAILED;
}

/// What nobody serves is left to the system: the access is repeated, and ends
/// the process.
void DrawnPages::serve() {
  served = this;
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t *info, void *) {
    if (!served->map(static_cast<const char *>(info->si_addr)))
      signal(SIGSEGV, SIG_DFL);
  };
  sigaction(SIGSEGV, &action, nullptr);
}

//===----------------------------------------------------------------------===//
// What kernels write
//===----------------------------------------------------------------------===//

/// Of a block of shared memory; far more than the samples of one kernel.
static constexpr size_t kWords = 1 << 16;

ResultPages::~ResultPages() {
  for (uint32_t *block : blocks)
    munmap(block, kWords * sizeof(uint32_t));
}

/// More of the region becomes accessible as larger results come.
char *ResultPages::get(unsigned number, size_t bytes) {
  unsigned power = AddressRange::getPower(bytes);
  AddressRange &region = regions[{number, power}];
  char *start = region.get(power, bytes);
  size_t usable = llvm::alignTo(bytes, getPage());
  bool isThere = start && mprotect(region.getEnd() - usable, usable,
                                   PROT_READ | PROT_WRITE) == 0;
  return isThere ? start : nullptr;
}

/// MAP_SHARED, so that after fork() the parent sees what the child has written.
uint32_t *ResultPages::share(size_t count) {
  if (count > kWords)
    return nullptr;
  if (count > left) {
    void *found =
        mmap(nullptr, kWords * sizeof(uint32_t), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
      return nullptr;
    blocks.push_back(static_cast<uint32_t *>(found));
    left = kWords;
  }
  left -= count;
  return blocks.back() + left;
}

//===----------------------------------------------------------------------===//
// One tensor
//===----------------------------------------------------------------------===//

/// Only the layout; draw(), allocate() or write() gives it memory. A scalar is
/// a row of one element.
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

/// For what is neither drawn nor written by kernels. Fresh pages are zeros.
bool TensorMemory::allocate() {
  size_t needed = alignToLine(bytes), usable = llvm::alignTo(needed, getPage());
  mapped = usable + getPage();
  void *found = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return false;
  map = static_cast<char *>(found);
  numbers.start = map + usable - needed;
  return mprotect(map + usable, getPage(), PROT_NONE) == 0;
}

bool TensorMemory::write(ResultPages &pages, unsigned number) {
  numbers.start = pages.get(number, alignToLine(bytes));
  return numbers.start;
}

/// In bytes. Between rows there may be elements of no tensor: the pitch.
size_t TensorMemory::getOffset(int64_t element) const {
  return (element / row * pitch + element % row) * getWidth();
}

/// Drawn numbers are not in the memory of the process that compares.
uint32_t TensorMemory::get(int64_t element) const {
  size_t offset = getOffset(element);
  uint32_t bits = 0;
  std::memcpy(&bits,
              numbers.round.empty() ? numbers.start + offset
                                    : numbers.find(offset),
              getWidth());
  return bits;
}

void TensorMemory::set(int64_t element, uint32_t bits) const {
  std::memcpy(numbers.start + getOffset(element), &bits, getWidth());
}

/// All three kinds are exact in a double. A bf16 is the upper half of an f32.
double TensorMemory::decode(uint32_t bits) const {
  if (kind == Kind::Integer)
    return static_cast<int32_t>(bits);
  return std::bit_cast<float>(kind == Kind::Half ? bits << 16 : bits);
}

/// Of a bf16 tensor: numbers that bf16 has.
uint32_t TensorMemory::encode(double value) const {
  if (kind == Kind::Integer)
    return static_cast<int32_t>(value);
  auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return kind == Kind::Half ? bits >> 16 : bits;
}

/// Of an element that is to be written: without it one that a kernel skips
/// would be a plausible number. Compared by the bits, since NaNs are never
/// equal.
uint32_t TensorMemory::getMark() const {
  return kind == Kind::Half ? kHalfMark : kMark;
}
