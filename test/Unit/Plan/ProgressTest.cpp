//===- ProgressTest.cpp - Schedules end on GPUs ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every schedule that there is, for pipelines of a few ranks, as a plan for
// GPUs whose calls do nothing but read and write what is sent: the checker must
// not find a circle. Buffers are used again as soon as they may, so that there
// are as many waits as in a plan of a model.
//
//===----------------------------------------------------------------------===//

#include "TestPlan.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/StepParts.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/Rendezvous.h"
#include "plait/Schedule/Verify.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <tuple>

using namespace plait;
using namespace plait::schedule;
using namespace plait::test;

namespace {

/// Whether buffers are used again when nobody needs what is in them.
enum class Buffers { Own, Reused };

constexpr uint64_t bufferBytes = 256;

std::optional<Direction> directionOf(const Action &action) {
  if (action.isTransfer())
    return action.direction;
  if (!action.isCompute() || action.kind == ActionKind::BackwardWeight)
    return std::nullopt;
  return action.kind == ActionKind::Forward ? Direction::Forward
                                            : Direction::Backward;
}

/// The program of one rank.
class RankProgram {
public:
  RankProgram(const Schedule &schedule, uint32_t rank, Buffers buffers,
              uint32_t tensors)
      : problem(schedule.problem), rank(rank), actions(schedule.ranks[rank]),
        buffers(buffers), tensors(tensors) {
    findLives();
    place();
  }

  void fill(fb::ProgramT &program) {
    fb::FunctionT &copy = append(program.functions);
    copy.name = "copy";
    for (uint32_t slot = 0; slot < 2 * tensors; slot += 2) {
      copy.slots.insert(copy.slots.end(), {"in", "out"});
      copy.slot_bytes.insert(copy.slot_bytes.end(), 2, bufferBytes);
      fb::CopyStepT step;
      step.source = std::make_unique<fb::Ref>(0, slot);
      step.target = std::make_unique<fb::Ref>(0, slot + 1);
      step.bytes = bufferBytes;
      append(copy.steps).step.Set(std::move(step));
    }
    for (const Action &action : actions)
      add(program, action);
    program.arena_bytes = slots * bufferBytes;
  }

private:
  /// What crosses the boundary behind a virtual stage: direction, the stage
  /// that makes it, microbatch, tensor.
  using Key = std::tuple<Direction, int64_t, uint32_t, uint32_t>;
  struct Life {
    size_t first, last;
    uint64_t offset = 0;
  };

  /// What an action reads and makes of each tensor; a transfer has one of them.
  std::vector<Key> keysOf(const Action &action) const {
    std::optional<Direction> direction = directionOf(action);
    if (!direction)
      return {};
    int64_t stage = problem.stageOf(rank, action.chunk);
    int64_t source = *direction == Direction::Forward ? stage - 1 : stage + 1;
    std::vector<Key> keys;
    for (uint32_t tensor = 0; tensor < tensors; ++tensor) {
      if (!action.isTransfer() || action.kind == ActionKind::Recv)
        keys.push_back({*direction, source, action.microbatch, tensor});
      if (action.kind != ActionKind::Recv)
        keys.push_back({*direction, stage, action.microbatch, tensor});
    }
    return keys;
  }

  void findLives() {
    for (size_t i = 0; i < actions.size(); ++i)
      for (const Key &key : keysOf(actions[i]))
        lives.try_emplace(key, Life{i, i}).first->second.last = i;
  }

  /// First fit, in the order in which they begin.
  void place() {
    std::vector<Life *> order;
    for (auto &[key, life] : lives)
      order.push_back(&life);
    std::ranges::stable_sort(order, {}, &Life::first);
    std::vector<size_t> ends; // of each slot's last life, one behind it
    for (Life *life : order) {
      auto slot = std::ranges::find_if(ends, [&](size_t end) {
        return buffers == Buffers::Reused && end <= life->first;
      });
      if (slot == ends.end())
        slot = ends.insert(slot, 0);
      *slot = life->last + 1;
      life->offset = uint64_t(slot - ends.begin()) * bufferBytes;
    }
    slots = ends.size();
  }

  void add(fb::ProgramT &program, const Action &action) {
    std::vector<Key> keys = keysOf(action);
    if (keys.empty())
      return;
    fb::ActionT added;
    added.kind = fb::ActionKind(action.kind);
    added.microbatch = action.microbatch;
    if (!action.isTransfer()) {
      added.function = 0;
      for (const Key &key : keys)
        added.bindings.push_back(lives.at(key).offset);
      append(program.actions, std::move(added));
      return;
    }
    added.direction = fb::Direction(action.direction);
    added.peer = action.peer;
    added.bytes = bufferBytes;
    for (const Key &key : keys) {
      added.stage = uint32_t(std::get<1>(key));
      added.tensor = std::get<3>(key);
      added.buffer = lives.at(key).offset;
      append(program.actions, added);
    }
  }

  const Problem &problem;
  uint32_t rank;
  const std::vector<Action> &actions;
  Buffers buffers;
  uint32_t tensors; // of each boundary
  std::map<Key, Life> lives;
  size_t slots = 0;
};

/// The file of a plan of `schedule` for GPUs.
std::vector<uint8_t> pack(const Schedule &schedule, Buffers buffers,
                          uint32_t tensors) {
  fb::PlanT plan;
  plan.backend = "cuda";
  fb::MeshAxisT &axis = append(plan.mesh);
  axis.name = "pp";
  axis.size = schedule.problem.stages;
  for (uint32_t rank = 0; rank < schedule.problem.stages; ++rank)
    RankProgram(schedule, rank, buffers, tensors).fill(append(plan.programs));
  return plan::packPlan(plan);
}

/// What the checker says of it; empty: it ends.
std::string findCircle(const Schedule &schedule, Buffers buffers,
                       uint32_t tensors) {
  std::vector<uint8_t> bytes = pack(schedule, buffers, tensors);
  Status status = plan::checkProgress(*fb::GetPlan(bytes.data()),
                                      plan::LaunchOrder::Routes);
  return status.ok() ? "" : status.message();
}

/// What is received when if each message is of so many tensors.
Schedule post(const Schedule &schedule, uint32_t tensors = 1) {
  return postReceives(schedule,
                      [&](Direction, uint32_t) { return tensors > 1; });
}

/// Whether a schedule needed another order, having checked that it ends with
/// the one that it gets and that one that ends without stays as it is.
bool checkEnds(const Schedule &schedule, uint32_t tensors = 1) {
  Schedule posted = post(schedule, tensors);
  Status sound = verify(posted);
  EXPECT_TRUE(sound.ok()) << sound.message();
  bool ends = true;
  for (Buffers buffers : {Buffers::Own, Buffers::Reused}) {
    EXPECT_EQ(findCircle(posted, buffers, tensors), "");
    ends &= findCircle(schedule, buffers, tensors).empty();
  }
  EXPECT_EQ(ends, posted == schedule);
  return !ends;
}

TEST(Progress, EverySchedule) {
  std::map<std::string, int> changed, severalChanged;
  for (const Generator &generator : getGenerators())
    for (uint32_t stages : {2, 3, 4, 5, 8})
      for (uint32_t chunks = generator.minChunks;
           chunks <= std::min(generator.maxChunks, 4u); ++chunks)
        for (uint32_t m = 1; m <= 9; ++m) {
          SCOPED_TRACE(testing::Message()
                       << generator.name << ", " << stages << " ranks, "
                       << chunks << " chunks, " << m << " microbatches");
          auto order = generate(generator.name, {stages, chunks, m});
          ASSERT_TRUE(order.ok()) << order.status().message();
          Schedule complete = insertTransfers(*order);
          changed[generator.name] += checkEnds(complete);
          severalChanged[generator.name] += checkEnds(complete, 2);
        }
  for (auto [name, count] : changed)
    EXPECT_EQ(count > 0, name == "breadth-first") << name;
  for (auto [name, count] : severalChanged)
    EXPECT_EQ(count > 0, name != "gpipe") << name;
}

/// What is searched for depends on the costs: on uneven stages ranks run ahead
/// of each other.
TEST(Progress, SearchedOnUnevenStages) {
  std::mt19937 random(1);
  // From 0.3 to 1.5, the same with every standard library.
  auto draw = [&] { return 0.3 + 1.2 * (random() / 4294967296.0); };
  int changed = 0;
  for (uint32_t stages : {2, 3, 4, 5, 8})
    for (uint32_t chunks : {1, 2})
      for (uint32_t m = 1; m <= 9; ++m)
        for (int trial = 0; trial < 4; ++trial) {
          SCOPED_TRACE(testing::Message()
                       << stages << " ranks, " << chunks << " chunks, " << m
                       << " microbatches, trial " << trial);
          GeneratorOptions options;
          options.costs.transfer = trial % 2 ? draw() / 4 : 0;
          for (uint32_t stage = 0; stage < stages * chunks; ++stage) {
            options.costs.forwards.push_back(draw());
            options.costs.backwardInputs.push_back(draw());
            options.costs.backwardWeights.push_back(draw());
          }
          auto order = generate("zb-auto", {stages, chunks, m}, options);
          ASSERT_TRUE(order.ok()) << order.status().message();
          changed += checkEnds(insertTransfers(*order));
          checkEnds(insertTransfers(*order), 3);
        }
  EXPECT_GT(changed, 0);
}

/// Cut wherever nothing is being received, one rank waits for a message to be
/// taken before it takes one, and so does the other. What is cut all the same
/// ends, in every schedule; one of them has no place for it.
TEST(Progress, CutsOfRecordedSteps) {
  std::map<std::string, size_t> cut;
  bool wouldWait = false;
  for (const Generator &generator : getGenerators()) {
    auto order = generate(generator.name, {4, generator.minChunks, 8});
    ASSERT_TRUE(order.ok()) << order.status().message();
    std::vector<uint8_t> bytes =
        pack(post(insertTransfers(*order)), Buffers::Reused, 1);
    const fb::Plan &plan = *fb::GetPlan(bytes.data());
    auto messages = plan::matchMessages(plan);
    ASSERT_TRUE(messages.ok()) << messages.status().message();
    for (uint32_t most : {1, 4, 16}) {
      plan::StepCuts cuts = plan::cutSteps(plan, *messages, most);
      ASSERT_EQ(cuts.size(), 4u);
      EXPECT_EQ(
          plan::findCircle(plan, *messages, plan::LaunchOrder::Routes, cuts),
          "");
      for (uint32_t p = 0; p < 4; ++p) {
        cut[generator.name] += cuts[p].size();
        const auto &actions = *plan.programs()->Get(p)->actions();
        for (uint32_t at : cuts[p])
          EXPECT_NE(actions.Get(at - 1)->kind(), fb::ActionKind::Recv);
      }
    }
    plan::StepCuts everywhere(4);
    for (uint32_t p = 0; p < 4; ++p)
      for (uint32_t i = 1; i < plan.programs()->Get(p)->actions()->size(); ++i)
        everywhere[p].push_back(i);
    wouldWait |= !plan::findCircle(plan, *messages, plan::LaunchOrder::Routes,
                                   everywhere)
                      .empty();
  }
  for (auto [name, count] : cut)
    EXPECT_EQ(count > 0, name != "breadth-first") << name;
  EXPECT_TRUE(wouldWait);
}

/// The first rank sends all four before it receives any. The second one, whose
/// sends it holds up, receives each one message earlier; nothing else moves.
TEST(Progress, MovesWhatIsWaitedFor) {
  auto order = generate("breadth-first", {2, 2, 4});
  ASSERT_TRUE(order.ok()) << order.status().message();
  Schedule before = insertTransfers(*order), after = post(before);
  EXPECT_EQ(after.ranks[0], before.ranks[0]);
  auto forwards = [](const Schedule &schedule) {
    std::string text = print(std::span(schedule.ranks[1]));
    return text.substr(0, text.find(" F3"));
  };
  EXPECT_EQ(forwards(before), "RECV_F0 F0 SEND_F0 RECV_F1 F1 SEND_F1 RECV_F2 "
                              "F2 WAIT_F0 SEND_F2 RECV_F3");
  EXPECT_EQ(forwards(after), "RECV_F0 F0 SEND_F0 RECV_F1 F1 RECV_F2 SEND_F1 F2 "
                             "WAIT_F0 RECV_F3 SEND_F2");
  EXPECT_EQ(post(after), after);
}

/// Receives in another order than sends are put into that of the sends. What
/// never ends stays as it is.
TEST(Progress, OrdersRoutes) {
  auto parse = [](std::string_view text) {
    auto schedule = parseSchedule({2, 1, 2}, "", text);
    EXPECT_TRUE(schedule.ok());
    return *schedule;
  };
  const std::string first = "F0 SEND_F0 F1 SEND_F1 RECV_B0 B0 RECV_B1 B1 "
                            "WAIT_F0 WAIT_F1 REDUCE OPTIMIZER\n";
  const std::string end = "B0 SEND_B0 B1 SEND_B1 WAIT_B0 WAIT_B1 REDUCE "
                          "OPTIMIZER\n";
  Schedule crossed = parse(first + "RECV_F1 F1 RECV_F0 F0 " + end);
  EXPECT_NE(findCircle(crossed, Buffers::Own, 1), "");
  EXPECT_TRUE(checkEnds(crossed));
  EXPECT_EQ(print(post(crossed)), first + "RECV_F0 RECV_F1 F1 F0 " + end);
  for (std::string text : {std::string("B0 F0 F1 B1\nF0 F1 B0 B1\n"),
                           "RECV_B0 B0 F0 SEND_F0 F1 SEND_F1 RECV_B1 B1 "
                           "WAIT_F0 WAIT_F1 REDUCE OPTIMIZER\n"
                           "RECV_F0 F0 RECV_F1 F1 " +
                               end}) {
    Schedule unsound = parse(text);
    EXPECT_EQ(post(unsound), unsound);
  }
}

} // namespace
