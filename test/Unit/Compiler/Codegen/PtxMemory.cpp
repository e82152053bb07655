//===- PtxMemory.cpp - Memory that watches who uses it --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxMemory.h"

#include <cstring>

using namespace plait;
using namespace plait::test;

PtxMemory::PtxMemory(const std::vector<PtxBuffer> &buffers) {
  // A result may be the buffer of an operand: one area for both.
  for (const PtxBuffer &buffer : buffers) {
    auto start = reinterpret_cast<uint64_t>(buffer.start);
    Area *known = nullptr;
    for (Area &area : areas)
      if (area.start == start)
        known = &area;
    if (!known)
      known = &areas.emplace_back();
    known->start = start;
    known->isResult |= buffer.isResult;
    known->resize(std::max<uint64_t>(known->count, buffer.bytes / kWordBytes));
  }
}

void PtxMemory::Area::resize(uint64_t words) {
  count = words;
  pages.resize((words + kPageWords - 1) / kPageWords);
}

PtxMemory::Word &PtxMemory::Area::at(uint64_t index) {
  std::unique_ptr<Word[]> &page = pages[index / kPageWords];
  if (!page)
    page = std::make_unique<Word[]>(kPageWords);
  return page[index % kPageWords];
}

void PtxMemory::startBlock(uint64_t bytes) {
  sharedBytes.assign(bytes, 0);
  sharedArea.pages.clear();
  sharedArea.resize(bytes / kWordBytes);
  ++block;
}

void PtxMemory::passBarrier() {
  ++barrier;
  for (std::unique_ptr<Word[]> &page : sharedArea.pages)
    for (uint64_t index = 0; page && index < Area::kPageWords; ++index)
      page[index].writer = page[index].reader = kNobody;
}

PtxMemory::Area *PtxMemory::find(uint64_t address, uint64_t bytes,
                                 bool shared) {
  auto inside = [&](const Area &area) {
    return address >= area.start &&
           address + bytes <= area.start + kWordBytes * area.count;
  };
  if (shared)
    return inside(sharedArea) ? &sharedArea : nullptr;
  for (Area &area : areas)
    if (inside(area))
      return &area;
  return nullptr;
}

/// A barrier orders what threads of its block do before and after it, and
/// nothing that another block does.
void PtxMemory::forgetOrdered(Word &word) const {
  if (word.block == block && word.barrier < barrier)
    word.writer = word.reader = kNobody;
  word.block = word.block == kNobody || word.block == block ? block : kMany;
  word.barrier = barrier;
}

std::string PtxMemory::check(uint64_t address, uint64_t bytes, bool shared,
                             bool writes, int64_t thread) {
  if (address % bytes)
    return "is not aligned to " + std::to_string(bytes) + " bytes";
  Area *area = find(address, bytes, shared);
  if (!area)
    return "is outside of all buffers";
  if (writes && !shared && !area->isResult)
    return "writes to what is no result of the step";
  auto other = [&](int64_t owner) {
    return owner != kNobody && owner != thread;
  };
  for (uint64_t offset = 0; offset < bytes; offset += kWordBytes) {
    Word &word = area->at((address + offset - area->start) / kWordBytes);
    if (!shared)
      forgetOrdered(word);
    if (other(word.writer))
      return "thread " + std::to_string(word.writer) + " writes the same word";
    if (writes && other(word.reader))
      return word.reader == kMany
                 ? "several threads read the word"
                 : "thread " + std::to_string(word.reader) + " reads the word";
    if (shared && !writes && !word.written)
      return "nobody has written the word";
    int64_t &user = writes ? word.writer : word.reader;
    user = other(user) ? kMany : thread;
    word.written |= writes;
  }
  return "";
}

uint64_t PtxMemory::load(uint64_t address, unsigned size, bool shared) const {
  uint64_t value = 0;
  std::memcpy(&value,
              shared ? sharedBytes.data() + address
                     : reinterpret_cast<const uint8_t *>(address),
              size);
  return value;
}

void PtxMemory::store(uint64_t address, unsigned size, bool shared,
                      uint64_t value) {
  std::memcpy(shared ? sharedBytes.data() + address
                     : reinterpret_cast<uint8_t *>(address),
              &value, size);
}
