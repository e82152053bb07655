//===- BoxesTest.cpp - Boxes of global tensors ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoxDraws.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

TEST(Boxes, AreTheRunsInTheirOrder) {
  Draw draw(1);
  for (int trial = 0; trial < 2000; ++trial) {
    Shape shape = draw.shape(0, 4);
    int64_t elements = Box{shape, shape}.count();
    BoxBuilder builder(shape);
    std::vector<int64_t> expected;
    int64_t begin = draw.from(0, 2);
    while (begin < elements) {
      int64_t count = draw.from(1, elements - begin);
      builder.add(begin, count);
      for (int64_t i = 0; i < count; ++i)
        expected.push_back(begin + i);
      begin += count + draw.from(0, 3);
    }
    EXPECT_EQ(expand(builder.boxes(), shape), expected);
  }
}

TEST(Boxes, RowsOfABlockAreOneBox) {
  BoxBuilder builder({3, 8, 10});
  for (int64_t plane : {1, 2})
    for (int64_t row : {4, 5, 6})
      builder.add((plane * 8 + row) * 10 + 3, 4);
  EXPECT_EQ(builder.boxes(), (std::vector<Box>{{{1, 4, 3}, {2, 3, 4}}}));
}

/// Cuts a tensor into boxes, at random.
void cut(Draw &draw, Box box, std::vector<Box> &boxes) {
  size_t dims = box.shape.size();
  if (dims == 0 || draw.chance(20)) {
    boxes.push_back(std::move(box));
    return;
  }
  size_t dim = draw.from(0, dims - 1);
  int64_t left = draw.from(0, box.shape[dim]);
  Box other = box;
  box.shape[dim] = left;
  other.begin[dim] += left;
  other.shape[dim] -= left;
  for (const Box &part : {box, other})
    if (part.count())
      cut(draw, part, boxes);
}

TEST(BoxMap, FindsEveryElement) {
  Draw draw(2);
  for (int trial = 0; trial < 300; ++trial) {
    Shape shape = draw.shape(0, 4);
    std::vector<Box> boxes;
    cut(draw, {Shape(shape.size(), 0), shape}, boxes);
    std::shuffle(boxes.begin(), boxes.end(), draw.engine);
    size_t missing = draw.chance(30) ? 0 : SIZE_MAX;
    Box hole = boxes[0];
    if (missing == 0)
      boxes.erase(boxes.begin());
    auto map = BoxMap::create(shape, boxes);
    ASSERT_TRUE(map.ok()) << map.status().message();
    std::vector<std::vector<int64_t>> contents;
    for (const Box &box : boxes)
      contents.push_back(expand({box}, shape));
    uint32_t hint = 0;
    int64_t elements = Box{shape, shape}.count();
    int64_t holes = 0;
    for (int64_t i = 0; i < elements; ++i) {
      BoxMap::Found found = map->find(i, elements - i, hint);
      if (found.box == UINT32_MAX) {
        ++holes;
        continue;
      }
      ASSERT_GE(found.count, 1);
      for (int64_t j = 0; j < found.count; ++j)
        EXPECT_EQ(contents[found.box].at(found.begin + j), i + j);
    }
    EXPECT_EQ(holes, missing == 0 ? hole.count() : 0);
    EXPECT_EQ(map->count(), elements - holes);
  }
}

TEST(BoxMap, RefusesWhatIsTwiceOrOutside) {
  Draw draw(3);
  for (int trial = 0; trial < 300; ++trial) {
    Shape shape = draw.shape(1, 4);
    std::vector<Box> boxes;
    cut(draw, {Shape(shape.size(), 0), shape}, boxes);
    // One element more, which some box has.
    Box extra = {Shape(shape.size()), Shape(shape.size(), 1)};
    for (size_t dim = 0; dim < shape.size(); ++dim)
      extra.begin[dim] = draw.from(0, shape[dim] - 1);
    boxes.insert(boxes.begin() + draw.from(0, boxes.size()), extra);
    auto map = BoxMap::create(shape, boxes);
    ASSERT_FALSE(map.ok());
    EXPECT_NE(map.status().message().find("has elements twice: "),
              std::string::npos);
  }
  EXPECT_EQ(BoxMap::create({4}, {{{3}, {2}}}).status().message(),
            "has a slice that is not inside of it");
  EXPECT_FALSE(BoxMap::create({4}, {{{-1}, {2}}}).ok());
  EXPECT_FALSE(BoxMap::create({4}, {{{0, 0}, {2, 1}}}).ok());
  EXPECT_FALSE(BoxMap::create({4}, {{{2}, {INT64_MAX}}}).ok());
}

} // namespace
