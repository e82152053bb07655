//===- Boxes.cpp - Boxes of global tensors --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Boxes.h"

#include <algorithm>
#include <numeric>

using namespace plait;
using namespace plait::runtime;

/// How far apart elements are that are neighbours in dimension `dim`.
static int64_t strideOf(const Shape &shape, size_t dim) {
  return std::accumulate(shape.begin() + dim + 1, shape.end(), int64_t(1),
                         std::multiplies<>());
}

/// The indices of element `index` of a tensor of `shape`.
static Shape locate(const Shape &shape, int64_t index) {
  Shape point(shape.size());
  for (size_t dim = shape.size(); dim-- > 0; index /= shape[dim])
    point[dim] = index % shape[dim];
  return point;
}

int64_t Box::count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                         std::multiplies<>());
}

bool Box::contains(std::span<const int64_t> point) const {
  for (size_t dim = 0; dim < begin.size(); ++dim)
    if (point[dim] < begin[dim] || point[dim] >= begin[dim] + shape[dim])
      return false;
  return true;
}

bool Box::overlaps(const Box &other) const {
  for (size_t dim = 0; dim < begin.size(); ++dim)
    if (begin[dim] >= other.begin[dim] + other.shape[dim] ||
        other.begin[dim] >= begin[dim] + shape[dim])
      return false;
  return true;
}

std::string runtime::formatBox(const Box &box) {
  std::string text = "[";
  for (size_t dim = 0; dim < box.begin.size(); ++dim)
    text += (dim ? ", " : "") + std::to_string(box.begin[dim]) + ":" +
            std::to_string(box.begin[dim] + box.shape[dim]);
  return text + "]";
}

//===----------------------------------------------------------------------===//
// From runs to boxes and back
//===----------------------------------------------------------------------===//

/// Grows `box` by `next` where its elements followed by those of `next` are a
/// box's, row-major: they are neighbours in one dimension, alike in those
/// inside of it, and have one index in those outside.
static bool join(Box &box, const Box &next) {
  size_t dims = box.begin.size(), dim = 0;
  for (; dim < dims && box.begin[dim] == next.begin[dim]; ++dim)
    if (box.shape[dim] != 1 || next.shape[dim] != 1)
      return false;
  if (dim == dims || box.begin[dim] + box.shape[dim] != next.begin[dim])
    return false;
  for (size_t inner = dim + 1; inner < dims; ++inner)
    if (box.begin[inner] != next.begin[inner] ||
        box.shape[inner] != next.shape[inner])
      return false;
  box.shape[dim] += next.shape[dim];
  return true;
}

/// Takes the run [begin, begin + count) of row-major element numbers:
/// 1. cut off the longest part from `begin` on that is a box: whole slices of
///    the outermost dimension on whose stride `begin` lies and of which one
///    slice fits; a single element where there is none;
/// 2. merge it backwards while the last two boxes make one. More than one merge
///    may follow: rows that have become a plane may complete a larger box.
void BoxBuilder::add(int64_t begin, int64_t count) {
  while (count > 0) {
    Box box = {locate(shape, begin), Shape(shape.size(), 1)};
    // 1. The outermost dimension that takes whole slices from here on.
    int64_t taken = 1;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      int64_t stride = strideOf(shape, dim);
      if (begin % stride || count < stride)
        continue;
      box.shape[dim] = std::min(shape[dim] - box.begin[dim], count / stride);
      std::copy(shape.begin() + dim + 1, shape.end(),
                box.shape.begin() + dim + 1);
      taken = box.shape[dim] * stride;
      break;
    }
    begin += taken;
    count -= taken;
    list.push_back(std::move(box));
    // 2.
    while (list.size() > 1 && join(list[list.size() - 2], list.back()))
      list.pop_back();
  }
}

/// The inverse of BoxBuilder: the longest runs of row-major element numbers, in
/// ascending order. Several dimensions make one run only where the inner ones
/// span the whole tensor.
void runtime::forEachRun(
    const Box &box, const Shape &shape,
    const std::function<void(int64_t begin, int64_t count)> &visit) {
  // Dimensions from `inner` on lie side by side.
  size_t inner = shape.size();
  int64_t run = 1;
  while (inner > 0) {
    run *= box.shape[--inner];
    if (box.shape[inner] != shape[inner])
      break;
  }
  Box outside = {Shape(box.begin.begin(), box.begin.begin() + inner),
                 Shape(box.shape.begin(), box.shape.begin() + inner)};
  int64_t rows = outside.count();
  for (int64_t row = 0; row < rows; ++row) {
    Shape point = locate(outside.shape, row);
    int64_t index = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim)
      index =
          index * shape[dim] + box.begin[dim] + (dim < inner ? point[dim] : 0);
    visit(index, run);
  }
}

//===----------------------------------------------------------------------===//
// Finding boxes
//===----------------------------------------------------------------------===//

/// The pairs of boxes that share indices of dimension `dim`.
static uint64_t countPairs(const std::vector<Box> &boxes, size_t dim) {
  std::vector<int64_t> begins, ends;
  for (const Box &box : boxes) {
    begins.push_back(box.begin[dim]);
    ends.push_back(box.begin[dim] + box.shape[dim]);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  uint64_t pairs = 0;
  size_t closed = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    while (ends[closed] <= begins[i])
      ++closed;
    pairs += i - closed;
  }
  return pairs;
}

/// The dimension along which boxes are told apart best: that of the slices
/// where a tensor was sliced.
static size_t chooseDimension(size_t dims, const std::vector<Box> &boxes) {
  size_t best = 0;
  uint64_t fewest = UINT64_MAX;
  for (size_t dim = 0; boxes.size() > 1 && dim < dims && fewest; ++dim)
    if (uint64_t pairs = countPairs(boxes, dim); pairs < fewest) {
      fewest = pairs;
      best = dim;
    }
  return best;
}

/// 1. Every box must lie within `shape`. The test subtracts rather than adds,
///    since numbers from a file may overflow.
/// 2. Sort by the first index of a dimension.
/// 3. Sweep along it and compare each box with those still open only.
/// `reach` is the running maximum of the ends, hence ascending, so that
/// findBox can search it by bisection though boxes of different heights mix.
Result<BoxMap> BoxMap::create(const Shape &shape, std::vector<Box> boxes) {
  BoxMap map;
  // 1.
  for (const Box &box : boxes) {
    bool inside =
        box.begin.size() == shape.size() && box.shape.size() == shape.size();
    for (size_t dim = 0; inside && dim < shape.size(); ++dim)
      inside = box.begin[dim] >= 0 && box.shape[dim] > 0 &&
               box.begin[dim] < shape[dim] &&
               box.shape[dim] <= shape[dim] - box.begin[dim];
    if (!inside)
      return Status::failure("has a slice that is not inside of it");
    map.elements += box.count();
  }
  size_t along = map.along = chooseDimension(shape.size(), boxes);
  auto first = [&](uint32_t i) {
    return shape.empty() ? 0 : boxes[i].begin[along];
  };
  auto last = [&](uint32_t i) {
    return shape.empty() ? 1 : boxes[i].begin[along] + boxes[i].shape[along];
  };
  // 2.
  map.order.resize(boxes.size());
  std::iota(map.order.begin(), map.order.end(), 0);
  std::stable_sort(map.order.begin(), map.order.end(),
                   [&](uint32_t a, uint32_t b) { return first(a) < first(b); });
  // 3. Boxes that share indices along it with the one that is looked at.
  std::vector<uint32_t> open;
  for (uint32_t box : map.order) {
    std::erase_if(open,
                  [&](uint32_t other) { return last(other) <= first(box); });
    for (uint32_t other : open)
      if (boxes[other].overlaps(boxes[box]))
        return fail("has elements twice: ", formatBox(boxes[other]), " and ",
                    formatBox(boxes[box]));
    open.push_back(box);
    map.reach.push_back(
        std::max(map.reach.empty() ? 0 : map.reach.back(), last(box)));
  }
  map.shape = shape;
  map.boxes = std::move(boxes);
  return map;
}

/// The number of the box that has `point`, or UINT32_MAX. Neighbouring queries
/// mostly hit one box, which `hint` names. Boxes before the bisected position
/// all end before the row, those from the `break` on begin after it.
uint32_t BoxMap::findBox(std::span<const int64_t> point, uint32_t hint) const {
  if (hint < boxes.size() && boxes[hint].contains(point))
    return hint;
  int64_t row = shape.empty() ? 0 : point[along];
  auto i = std::upper_bound(reach.begin(), reach.end(), row) - reach.begin();
  for (; i < int64_t(order.size()); ++i) {
    const Box &box = boxes[order[i]];
    if (!shape.empty() && box.begin[along] > row)
      break;
    if (box.contains(point))
      return order[i];
  }
  return UINT32_MAX;
}

/// Finds where element `index` of the tensor lies within its box, and how many
/// elements from there on (at most `most`) are consecutive in both the box and
/// the tensor.
BoxMap::Found BoxMap::find(int64_t index, int64_t most, uint32_t &hint) const {
  Shape point = locate(shape, index);
  uint32_t number = findBox(point, hint);
  if (number == UINT32_MAX)
    return {number, 0, 0};
  hint = number;
  const Box &box = boxes[number];
  // Outside of `dim` a neighbour in the box is not one in the tensor.
  Found found = {number, 0, 1};
  size_t dims = shape.size(), dim = dims ? dims - 1 : 0;
  while (dim > 0 && box.shape[dim] == shape[dim])
    --dim;
  int64_t run = 1, skipped = 0;
  for (size_t i = 0; i < dims; ++i) {
    int64_t inside = point[i] - box.begin[i];
    found.begin = found.begin * box.shape[i] + inside;
    if (i < dim)
      continue;
    run *= box.shape[i];
    skipped = skipped * box.shape[i] + inside;
  }
  found.count = std::min(most, run - skipped);
  return found;
}
