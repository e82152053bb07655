//===- BesideMatmuls.cpp - What GPUs do beside a matmul -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two operations may run at once if neither comes before the other, in a stream
// or by what streams wait for. What has to be over before an operation begins
// is, of each stream, some of its first operations: how many is the clock of
// the operation. Of a stream the first operation that is not among them is the
// one that may run beside: those behind it come later.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/BesideMatmuls.h"

#include "plait/Plan/Messages.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

namespace {

class Finder {
public:
  Finder(const fb::Plan &plan, const fb::Program &program,
         const StreamChoice &choice, const MessageBlocks &blocks,
         uint32_t ahead)
      : plan(plan), program(program), choice(choice), blocks(blocks),
        ahead(ahead), streams(choice.streams()), taking(streams),
        places(streams, 0) {}

  /// 1. What each operation is, and its place in its stream.
  /// 2. The clocks.
  /// 3. What may run beside each matmul.
  std::map<const fb::GemmStep *, uint32_t> run() {
    // 1.
    StreamSchedule schedule = scheduleStreams(program, RankGrid(plan), choice);
    clocks.resize(schedule.operations.size() * streams, 0);
    forEachOperation(program, [&](const Operation &op) { add(op); });
    // 2. In the order of the second one, so that the first one's is complete.
    forEachWait(schedule, streams, [&](uint32_t before, uint32_t after) {
      for (uint32_t i = 0; i < streams; ++i)
        clock(after, i) = std::max(clock(after, i), clock(before, i));
      uint32_t stream = schedule.operations[before].stream;
      clock(after, stream) = std::max(clock(after, stream), place[before] + 1);
    });
    // 3.
    for (auto [operation, gemm] : gemms) {
      auto &[sum, calls] = found[gemm];
      sum += countBeside(operation);
      ++calls;
    }
    std::map<const fb::GemmStep *, uint32_t> result;
    for (auto [gemm, counted] : found)
      if (uint32_t average = counted.first / counted.second)
        result[gemm] = average;
    return result;
  }

private:
  /// An operation that takes thread blocks for as long as a matmul.
  struct Taking {
    uint32_t operation, place, blocks;
    uint32_t least; // operations of stream 0 that it comes after in any case
  };

  uint32_t &clock(uint32_t operation, uint32_t stream) {
    return clocks[size_t(operation) * streams + stream];
  }

  uint32_t blocksOf(const Operation &op) const {
    const fb::Step *step = op.get(program);
    if (!step)
      return program.actions()->Get(op.action)->kind() == fb::ActionKind::Recv
                 ? blocks.receive
                 : 0;
    const auto *collective = step->step_as_CollectiveStep();
    return collective && !isBeside(plan, *collective) ? blocks.collective : 0;
  }

  void add(const Operation &op) {
    uint32_t stream = op.streamIn(program, choice);
    place.push_back(places[stream]++);
    const fb::Step *step = op.get(program);
    if (const auto *gemm = step ? step->step_as_GemmStep() : nullptr;
        gemm && stream == 0)
      gemms.push_back({op.index, gemm});
    if (uint32_t taken = stream ? blocksOf(op) : 0)
      taking[stream].push_back({op.index, place.back(), taken,
                                places[0] - std::min(places[0], ahead)});
  }

  uint32_t countBeside(uint32_t operation) {
    uint32_t sum = 0;
    for (uint32_t stream = 1; stream < streams; ++stream) {
      auto next = std::ranges::lower_bound(
          taking[stream], clock(operation, stream), {}, &Taking::place);
      if (next != taking[stream].end() &&
          std::max(clock(next->operation, 0), next->least) <= place[operation])
        sum += next->blocks;
    }
    return sum;
  }

  const fb::Plan &plan;
  const fb::Program &program;
  const StreamChoice &choice;
  MessageBlocks blocks;
  uint32_t ahead, streams;
  std::vector<std::vector<Taking>> taking; // by stream
  std::vector<uint32_t> places;            // how many each stream has
  std::vector<uint32_t> place;             // of each operation in its stream
  std::vector<uint32_t> clocks;            // by operation and stream
  std::vector<std::pair<uint32_t, const fb::GemmStep *>> gemms;
  std::map<const fb::GemmStep *, std::pair<uint32_t, uint32_t>> found;
};

} // namespace

std::map<const fb::GemmStep *, uint32_t>
plan::findBlocksBeside(const fb::Plan &plan, const fb::Program &program,
                       const StreamChoice &choice, const MessageBlocks &blocks,
                       uint32_t ahead) {
  return Finder(plan, program, choice, blocks, ahead).run();
}
