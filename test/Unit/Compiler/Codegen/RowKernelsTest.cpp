//===- RowKernelsTest.cpp - Rows of experts on a GPU, interpreted ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CUDA/RowKernels.h"
#include "PtxInterpreter.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace plait::runtime;
using namespace plait::test;

namespace {

/// Extents of a gather or scatter, and which experts each row of all blocks
/// has.
struct RowCase {
  int64_t members, rows, choices, experts;
  bool scatters;
  int64_t bytes;
  std::vector<int32_t> ids = {};

  bool has(int64_t member, int64_t row) const {
    const int32_t *own = ids.data() + row * choices;
    return std::any_of(own, own + choices, [&](int32_t id) {
      return id >= member * experts && id < (member + 1) * experts;
    });
  }
  bool goes(int64_t source, int64_t target, int64_t row) const {
    return has(scatters ? source : target,
               (scatters ? target : source) * rows + row);
  }
  int64_t inputRows() const { return scatters ? members * rows : rows; }
  int64_t outputRows() const { return scatters ? rows : members * rows; }
  std::vector<int64_t> scalars(int64_t index) const {
    return {members, index, rows, choices, experts, scatters, bytes};
  }
};

class RowKernelsTest : public testing::Test {
protected:
  void SetUp() override { ASSERT_EQ(module.parse(rowKernelsPtx), ""); }

  /// `given` come in front of the extents.
  void launch(const char *symbol, int64_t blocks, const RowCase &what,
              int64_t index, const std::vector<PtxBuffer> &buffers,
              std::vector<int64_t> given = {}) {
    for (int64_t scalar : what.scalars(index))
      given.push_back(scalar);
    reversed = !reversed;
    ASSERT_EQ(module.launch(symbol, blocks, buffers, given, reversed), "");
  }

  template <typename T> static PtxBuffer result(std::vector<T> &list) {
    return {list.data(), list.size() * sizeof(T)};
  }
  template <typename T> static PtxBuffer operand(const std::vector<T> &list) {
    return {const_cast<T *>(list.data()), list.size() * sizeof(T), false};
  }

  /// Each member's input, of bytes that tell whose they are and where.
  static std::vector<std::vector<uint8_t>> makeInputs(const RowCase &what) {
    std::vector<std::vector<uint8_t>> inputs(what.members);
    for (int64_t j = 0; j < what.members; ++j)
      for (int64_t i = 0; i < what.inputRows() * what.bytes; ++i)
        inputs[j].push_back(uint8_t(1 + (i * 31 + i / 256 + j * 77) % 255));
    return inputs;
  }

  /// By the words of RowSelection.
  static std::vector<uint8_t>
  expect(const RowCase &what, int64_t index,
         const std::vector<std::vector<uint8_t>> &inputs) {
    std::vector<uint8_t> out(what.outputRows() * what.bytes);
    for (int64_t j = 0; j < what.members; ++j)
      for (int64_t row = 0; row < what.rows; ++row)
        if (what.goes(j, index, row))
          std::copy_n(
              inputs[j].begin() +
                  (what.scatters ? index * what.rows + row : row) * what.bytes,
              what.bytes,
              out.begin() +
                  (what.scatters ? row : j * what.rows + row) * what.bytes);
    return out;
  }

  /// As ranks that read each other's memory.
  void expectTaken(const RowCase &what) {
    auto inputs = makeInputs(what);
    for (int64_t index = 0; index < what.members; ++index) {
      std::vector<uint8_t> out(what.outputRows() * what.bytes, 0xee);
      launch(PLAIT_CLEAR_ROWS, rowBlocks(what.outputRows()), what, index,
             {result(out), operand(what.ids)});
      for (int64_t j = 0; j < what.members; ++j)
        launch(PLAIT_TAKE_ROWS, rowBlocks(what.rows), what, index,
               {result(out), operand(inputs[j]), operand(what.ids)}, {j});
      EXPECT_EQ(out, expect(what, index, inputs));
    }
  }

  struct Lists {
    std::vector<int32_t> rows, counts;
  };
  Lists list(const RowCase &what, int64_t index) {
    Lists lists = {std::vector<int32_t>(2 * what.members * what.rows, -1),
                   std::vector<int32_t>(2 * what.members, -1)};
    launch(PLAIT_LIST_ROWS, 2 * what.members, what, index,
           {result(lists.rows), result(lists.counts), operand(what.ids)});
    return lists;
  }

  /// As ranks that send: in rounds of `most` rows a pair.
  void expectSent(const RowCase &what, int64_t most) {
    auto inputs = makeInputs(what);
    std::vector<Lists> lists;
    std::vector<std::vector<uint8_t>> outs, packed, received;
    size_t slot = size_t(most * what.bytes);
    for (int64_t index = 0; index < what.members; ++index) {
      lists.push_back(list(what, index));
      std::vector<uint8_t> &out =
          outs.emplace_back(what.outputRows() * what.bytes, 0xee);
      packed.emplace_back(what.members * slot);
      received.emplace_back(what.members * slot);
      launch(PLAIT_CLEAR_ROWS, rowBlocks(what.outputRows()), what, index,
             {result(out), operand(what.ids)});
      launch(PLAIT_TAKE_ROWS, rowBlocks(what.rows), what, index,
             {result(out), operand(inputs[index]), operand(what.ids)}, {index});
    }
    for (int64_t first = 0; first < what.rows; first += most) {
      for (int64_t index = 0; index < what.members; ++index)
        launch(PLAIT_PACK_ROWS, rowBlocks(what.members * most), what, index,
               {result(packed[index]), operand(inputs[index]),
                operand(lists[index].rows), operand(lists[index].counts)},
               {first, most});
      for (int64_t index = 0; index < what.members; ++index) {
        for (int64_t j = 0; j < what.members; ++j) {
          // Both ends count the same.
          ASSERT_EQ(lists[index].counts[what.members + j],
                    lists[j].counts[index]);
          std::copy_n(packed[j].begin() + index * slot, slot,
                      received[index].begin() + j * slot);
        }
        launch(PLAIT_UNPACK_ROWS, rowBlocks(what.members * most), what, index,
               {result(outs[index]), operand(received[index]),
                operand(lists[index].rows), operand(lists[index].counts)},
               {first, most});
      }
    }
    for (int64_t index = 0; index < what.members; ++index)
      EXPECT_EQ(outs[index], expect(what, index, inputs));
  }

  void expectAll(RowCase what, const std::function<int32_t(int64_t)> &idOf) {
    for (int64_t i = 0; i < what.members * what.rows * what.choices; ++i)
      what.ids.push_back(idOf(i));
    expectTaken(what);
    expectSent(what, what.rows);
    expectSent(what, std::max<int64_t>(1, what.rows / 3));
  }

  PtxModule module;
  bool reversed = false;
};

/// Rows of one element in bf16, of an odd number, and of what is copied at
/// once; as many ranks as there are choices, fewer and more.
TEST_F(RowKernelsTest, MoveAsIdsSay) {
  std::mt19937 generator(3);
  for (bool scatters : {false, true})
    for (RowCase what : {RowCase{1, 3, 2, 2, false, 8},
                         {2, 9, 2, 3, false, 2},
                         {3, 5, 4, 1, false, 6},
                         {4, 6, 1, 2, false, 560}}) {
      what.scatters = scatters;
      what.choices = scatters ? 1 : what.choices;
      // Some are of no expert, on either side.
      int64_t all = what.members * what.experts;
      expectAll(what, [&](int64_t) {
        return int32_t(generator() % uint32_t(all + 2)) - 1;
      });
    }
}

/// All rows go to one rank, or nowhere; others have none.
TEST_F(RowKernelsTest, MoveToOneRank) {
  for (bool scatters : {false, true})
    for (int32_t id : {5, 0, -1}) {
      RowCase what = {3, 4, scatters ? 1 : 2, 2, scatters, 16};
      expectAll(what, [&](int64_t) { return id; });
    }
}

/// Several stretches of a block's warps, in the order of the rows.
TEST_F(RowKernelsTest, ListsKeepTheOrder) {
  std::mt19937 generator(5);
  RowCase what = {2, 3 * listThreads + 7, 1, 2, false, 4};
  for (int64_t i = 0; i < what.members * what.rows; ++i)
    what.ids.push_back(int32_t(generator() % 4));
  Lists lists = list(what, 1);
  for (int64_t i = 0; i < 2 * what.members; ++i) {
    bool sends = i < what.members;
    std::vector<int32_t> expected;
    for (int64_t row = 0; row < what.rows; ++row)
      if (what.goes(sends ? 1 : i % 2, sends ? i % 2 : 1, row))
        expected.push_back(int32_t(row));
    auto begin = lists.rows.begin() + i * what.rows;
    EXPECT_EQ(std::vector<int32_t>(begin, begin + lists.counts[i]), expected);
  }
}

} // namespace
