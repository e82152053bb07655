//===- PartMarks.cpp - When a block needs its parameters ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A profile does not say whose matrices a matmul reads, but both are in the
// order of the forward pass.
//
//===----------------------------------------------------------------------===//

#include "PartMarks.h"

#include <algorithm>
#include <limits>
#include <ranges>

using namespace plait;
using namespace plait::planner;

PartMarker::PartMarker(const Block &block, bool split)
    : block(block), split(split), forward(block.parameters.size()),
      backward(block.parameters.size()) {}

void PartMarker::addReader(double elements, bool isForward, double begin,
                           double end) {
  size_t count = block.parameters.size();
  All &all = isForward ? forward : backward;
  for (size_t i = 0; i < count; ++i) {
    size_t part = isForward ? i : count - 1 - i;
    if (block.parameters[part].elements != elements || all[part].read >= 0)
      continue;
    all[part].read = begin;
    all[part].used = end;
    return;
  }
}

void PartMarker::addGradient(double elements, double made, double seconds) {
  for (size_t part = block.parameters.size(); part-- > 0;)
    if (Times &times = backward[part];
        block.parameters[part].elements == elements && times.made < 0) {
      times.made = made;
      times.gradient = seconds;
      return;
    }
}

void PartMarker::add(const Operation &op, double begin, double end) {
  if (op.again)
    return;
  bool isForward = op.pass == Pass::Forward;
  if (op.kind == OperationKind::Attention)
    attention[!isForward] = begin;
  if (op.kind != OperationKind::Matmul)
    return;
  double batch = double(op.batch);
  if (op.pass != Pass::BackwardWeight)
    return addReader(batch * double(op.n) * double(op.k), isForward, begin,
                     end);
  for (int64_t i = 0; i < op.joined; ++i)
    addGradient(batch * double(op.m) * double(op.n), begin,
                (end - begin) / double(op.joined));
}

/// Fills in what no matmul reads; `all` is in the order of the pass.
template <typename Range> static void fillReads(Range &&all) {
  double read = 0, used = 0;
  for (auto &times : all) {
    if (times.read < 0) {
      times.read = read;
      times.used = used;
    }
    read = times.read;
    used = times.used;
  }
}

bool PartMarker::isOfWeights(size_t part) const {
  if (backward[part].gradient > 0)
    return true;
  bool isVector = block.parameters[part].sizes.size() == 1;
  return !isVector &&
         std::ranges::any_of(block.operations, [](const Operation &op) {
           return op.kind == OperationKind::Matmul &&
                  op.pass == Pass::BackwardWeight;
         });
}

void PartMarker::fillMade() {
  constexpr double end = std::numeric_limits<double>::infinity();
  double last = end;
  for (size_t part = backward.size(); part-- > 0;) {
    double &made = backward[part].made;
    if (made < 0)
      made = part == 0 || isOfWeights(part) ? end : last;
    last = made;
  }
}

/// Inserts each exchange in front of what may be read or computed when it
/// begins.
void PartMarker::insertExchanges(std::vector<PartMark> &marks) const {
  for (const PartMark &exchange : exchanges) {
    auto isBehind = [&](const PartMark &mark) {
      return mark.seconds > exchange.seconds ||
             (mark.seconds == exchange.seconds &&
              mark.what != PartMark::What::Used);
    };
    marks.insert(std::ranges::find_if(marks, isBehind), exchange);
  }
}

PartMarks PartMarker::take() {
  using What = PartMark::What;
  fillReads(forward);
  fillReads(std::views::reverse(backward));
  fillMade();
  auto count = uint32_t(forward.size());
  PartMarks marks;
  // A search keeps those of many thousand blocks.
  marks.forward.reserve(2 * count + 1);
  marks.input.reserve((split ? 2 : 3) * count + 1);
  for (uint32_t part = 0; part < count; ++part) {
    marks.forward.push_back({forward[part].read, What::Read, part});
    marks.forward.push_back({forward[part].used, What::Used, part});
  }
  for (uint32_t part = count; part-- > 0;) {
    marks.input.push_back({backward[part].read, What::Read, part});
    marks.input.push_back({backward[part].used, What::Used, part});
    const auto &[read, used, made, gradient] = backward[part];
    if (split && isOfWeights(part))
      marks.weight.push_back(
          {gradient > 0 ? 0 : made, What::Made, part, gradient});
    else
      marks.input.push_back({made, What::Made, part, gradient});
  }
  if (attention[0] >= 0)
    marks.forward.push_back({attention[0], What::Attention, 0});
  if (attention[1] >= 0) {
    if (gather.takes > 0)
      marks.input.push_back({std::max(0.0, attention[1] - gather.seconds),
                             What::Gather, 0, gather.takes});
    marks.input.push_back({attention[1], What::Attention, 0});
  }
  for (auto *pass : {&marks.forward, &marks.input, &marks.weight})
    std::ranges::stable_sort(*pass, {}, &PartMark::seconds);
  insertExchanges(marks.input);
  return marks;
}
