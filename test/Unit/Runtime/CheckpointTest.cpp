//===- CheckpointTest.cpp - Folders, and any plan from any ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Checkpoint.h"

#include "BoxDraws.h"
#include "Checkpoint/Contents.h"
#include "Checkpoint/Index.h"
#include "Checkpoint/RankFile.h"
#include "Checkpoint/Reader.h"
#include "Checkpoint/ReplicaFolder.h"
#include "Checkpoint/Store.h"
#include "Core/Shards.h"
#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"
#include "plait/Runtime/Executor.h"
#include "plait/Support/BFloat16.h"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;
namespace fs = std::filesystem;

namespace {

//===----------------------------------------------------------------------===//
// Plans that place the same parameters at random
//===----------------------------------------------------------------------===//

constexpr const char *slotNames[] = {"moment1", "moment2"};

/// What element `index` of a slot is.
float valueOf(const std::string &slot, int64_t index) {
  float base = slot == weightSlot ? 1 : slot == slotNames[0] ? 1000 : 2000;
  return base + float(index) / 7;
}

/// Two parameters in one file tensor and one that is so large that ranks share
/// the writing, on 1 to 12 ranks: split, divided by ranges or by blocks, with
/// bf16 copies, some of them tied.
class RandomPlan {
public:
  explicit RandomPlan(Draw &draw) : draw(draw) {
    uint32_t stages = draw.from(1, 2);
    for (auto [name, size] : {std::pair<const char *, int64_t>("pp", stages),
                              {"dp", draw.from(1, 3)},
                              {"tp", draw.from(1, 2)}}) {
      fb::MeshAxisT &axis = append(source.mesh);
      axis.name = name;
      axis.size = size;
    }
    source.model_type = "test";
    source.schedule = source.recompute = "none";
    source.optimizer = "adamw";
    // Views [2, 3, 5] and [2, 4] of boxes of [9, 8].
    addParameter("first", "matrix", {2, 3, 5}, {9, 8}, {1, 2}, {6, 5});
    addParameter("second", "matrix", {2, 4}, {9, 8}, {0, 0}, {1, 8});
    addParameter("table", "table", {211, 97}, {211, 97}, {0, 0}, {211, 97});
    for (uint32_t i = 0; i < stages; ++i)
      append(source.programs).arena_bytes = 0;
    for (uint32_t i = 0; i < source.parameters.size(); ++i)
      place(i, draw.from(0, stages - 1), stages > 1 && draw.chance(30));
    bytes = plan::packPlan(source);
  }

  const fb::Plan &plan() const { return *fb::GetPlan(bytes.data()); }

  Result<std::unique_ptr<Executor>> start() const {
    return Executor::create(plan(), {1, std::chrono::seconds(60)});
  }

private:
  void addParameter(const char *name, const char *file, Shape shape,
                    Shape fileShape, Shape begin, Shape box) {
    fb::ParameterT &parameter = append(source.parameters);
    parameter.name = name;
    parameter.file_name = file;
    parameter.shape = shape;
    parameter.file_shape = fileShape;
    parameter.box_begin = begin;
    parameter.box_shape = box;
  }

  static uint64_t take(fb::ProgramT &program, int64_t bytes) {
    uint64_t offset = program.arena_bytes;
    program.arena_bytes += (bytes + 63) / 64 * 64;
    return offset;
  }

  int64_t splits(const fb::DimShardingT &dim) const {
    int64_t count = 1;
    for (uint8_t axis : dim.axes)
      count *= source.mesh[axis]->size;
    return count;
  }

  int64_t count(const fb::ParameterT &parameter,
                const std::vector<std::unique_ptr<fb::DimShardingT>> &dims) {
    int64_t elements = 1;
    for (size_t i = 0; i < dims.size(); ++i)
      elements *=
          (parameter.shape[i] + splits(*dims[i]) - 1) / splits(*dims[i]);
    return elements;
  }

  /// Over one or both of the axes that split no part of it.
  std::unique_ptr<fb::DivisionT> makeDivision(const std::vector<uint8_t> &free,
                                              int64_t elements) {
    auto division = std::make_unique<fb::DivisionT>();
    division->axis = free[0];
    division->begin = draw.from(0, 20);
    int64_t size = source.mesh[free[0]]->size;
    if (free.size() > 1 && draw.chance(50)) {
      division->inner_axes = {free[1]};
      size *= source.mesh[free[1]]->size;
    }
    int64_t pack = division->begin + elements + draw.from(0, 9);
    division->elements = (pack + size - 1) / size;
    return division;
  }

  void place(uint32_t index, uint32_t stage, bool isTied) {
    const fb::ParameterT &parameter = *source.parameters[index];
    fb::ShardT shard;
    shard.parameter = index;
    for (size_t i = 0; i < parameter.shape.size(); ++i)
      append(shard.dims);
    std::vector<uint8_t> free;
    for (uint8_t axis : {1, 2})
      if (draw.chance(50))
        shard.dims[draw.from(0, shard.dims.size() - 1)]->axes.push_back(axis);
      else
        free.push_back(axis);
    for (size_t i = 0; i < shard.dims.size(); ++i)
      shard.local_shape.push_back(
          (parameter.shape[i] + splits(*shard.dims[i]) - 1) /
          splits(*shard.dims[i]));
    int64_t elements = count(parameter, shard.dims), state = elements;
    if (!free.empty() && draw.chance(50)) {
      shard.division = makeDivision(free, elements);
      state = shard.division->elements;
    } else if (!free.empty() && draw.chance(50)) {
      for (const auto &dim : shard.dims)
        append(shard.state_dims).axes = dim->axes;
      shard.state_dims[draw.from(0, shard.dims.size() - 1)]->axes.push_back(
          free[0]);
      state = count(parameter, shard.state_dims);
    }
    bool dividesSlots = !free.empty() && !shard.division &&
                        shard.state_dims.empty() && draw.chance(50);
    bool isMixed = draw.chance(50);
    shard.compute_dtype = isMixed ? fb::DType::BF16 : fb::DType::F32;
    for (uint32_t i = 0; i < source.programs.size(); ++i) {
      if (i != stage && !isTied)
        continue;
      fb::ProgramT &program = *source.programs[i];
      fb::ShardT &placed = append(program.shards, fb::ShardT(shard));
      placed.owner = i == stage;
      placed.weight = take(program, (isMixed ? state : elements) * 4);
      placed.compute_weight = take(program, isMixed ? elements * 2 : 0);
      for (const char *name : slotNames) {
        fb::StateSlotT &slot = append(placed.state);
        slot.name = name;
        bool isByItself = dividesSlots && draw.chance(50);
        if (isByItself)
          slot.division = makeDivision(free, elements);
        slot.offset =
            take(program, (isByItself ? slot.division->elements : state) * 4);
      }
    }
  }

  Draw &draw;
  fb::PlanT source;
  std::vector<uint8_t> bytes;
};

/// Calls `visit(piece, slot)` for all that a rank holds.
template <typename Visit> Status forEachHeld(Executor &executor, Visit visit) {
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &parameter) {
    PLAIT_RETURN_IF_ERROR(
        visit(rank, shard, parameter, weightOf(shard), weightSlot));
    for (const fb::StateSlot *slot : *shard.state())
      PLAIT_RETURN_IF_ERROR(visit(rank, shard, parameter, stateOf(shard, *slot),
                                  slot->name()->c_str()));
    return Status::success();
  });
}

void fillAll(Executor &executor) {
  Status status =
      forEachHeld(executor, [&](uint32_t rank, const fb::Shard &shard,
                                const fb::Parameter &parameter,
                                const ShardTensor &tensor, const char *slot) {
        return setTensor({executor, rank}, shard, parameter, tensor,
                         [&](int64_t begin, std::span<float> target) {
                           for (float &value : target)
                             value = valueOf(slot, begin++);
                           return Status::success();
                         });
      });
  ASSERT_TRUE(status.ok()) << status.message();
}

/// How many elements are not what fillAll() sets; padding must be zero.
uint64_t countWrong(Executor &executor) {
  std::atomic<uint64_t> wrong = 0, seen = 0;
  Status status =
      forEachHeld(executor, [&](uint32_t rank, const fb::Shard &shard,
                                const fb::Parameter &parameter,
                                const ShardTensor &tensor, const char *slot) {
        Piece piece(executor.mesh(), rank, shard, parameter, tensor);
        std::vector<float> expected(piece.part.count), found(expected.size());
        forEachFileRun(executor.mesh(), rank, parameter, piece.splits,
                       [&](const runtime::Run &whole) {
                         runtime::Run run = clip(whole, piece.part);
                         for (int64_t i = 0; i < run.count; ++i)
                           expected[run.local + i] =
                               valueOf(slot, run.global + i);
                       });
        PLAIT_RETURN_IF_ERROR(executor.device(rank).read(
            piece.offset, std::as_writable_bytes(std::span(found))));
        for (size_t i = 0; i < found.size(); ++i, ++seen)
          wrong += found[i] != expected[i];
        return Status::success();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(seen, 0u);
  return wrong;
}

uint64_t countWrongCopies(Executor &executor) {
  std::atomic<uint64_t> wrong = 0;
  Status status = forEachShard(executor, [&](uint32_t rank,
                                             const fb::Shard &shard,
                                             const fb::Parameter &parameter) {
    if (shard.compute_dtype() != fb::DType::BF16)
      return Status::success();
    int64_t elements =
        plan::countElements(executor.mesh(), *parameter.shape(), *shard.dims());
    std::vector<BFloat16> found(elements), expected(elements);
    forEachFileRun(executor.mesh(), rank, parameter, *shard.dims(),
                   [&](const runtime::Run &run) {
                     for (int64_t i = 0; i < run.count; ++i)
                       expected[run.local + i] =
                           BFloat16(valueOf(weightSlot, run.global + i));
                   });
    PLAIT_RETURN_IF_ERROR(executor.device(rank).read(
        shard.compute_weight(), std::as_writable_bytes(std::span(found))));
    for (int64_t i = 0; i < elements; ++i)
      wrong += float(found[i]) != float(expected[i]);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return wrong;
}

RunRecord makeRecord(uint64_t step) {
  return {step, step - 1, step * 4,       double(step) * 100,
          7,    "data",   R"({"lr":0.1})"};
}

/// Writes checkpoints of `steps` and waits for each.
std::string save(Executor &executor, const std::string &directory,
                 std::initializer_list<uint64_t> steps, uint64_t keep = 0) {
  CheckpointOptions options;
  options.directory = directory;
  options.keep = keep;
  auto saver = Checkpointer::create(
      executor, options, PlanIdentity::of(executor.plan(), 1), std::nullopt);
  if (!saver.ok())
    return saver.status().message();
  for (uint64_t step : steps)
    if (Status status = (*saver)->finish(makeRecord(step)); !status.ok())
      return status.message();
  return "";
}

std::string resumeError(Executor &executor, const std::string &path) {
  auto resumed = resume(executor, path, false);
  return resumed.ok() ? "" : resumed.status().message();
}

std::vector<std::string> namesIn(const std::string &directory) {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

TEST(Contents, AllRanksStoreEachElementOnce) {
  Draw draw(4);
  for (int trial = 0; trial < 300; ++trial) {
    RandomPlan random(draw);
    plan::RankGrid mesh(random.plan());
    std::map<std::string, std::vector<int>> seen;
    for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
      for (const StoredPiece &stored : contentsOf(random.plan(), mesh, rank)) {
        const auto &dims = *stored.parameter.file_shape();
        Shape shape(dims.begin(), dims.end());
        auto &counts =
            seen[stored.parameter.file_name()->str() + "/" + stored.slot];
        counts.resize(Box{shape, shape}.count());
        for (int64_t index : expand(stored.boxes, shape))
          ++counts[index];
      }
    ASSERT_EQ(seen.size(), 6u);
    for (const auto &[name, counts] : seen)
      for (size_t i = 0; i < counts.size(); ++i) {
        size_t row = i / 8, column = i % 8;
        bool isThere = name.starts_with("table") || row == 0 ||
                       (row <= 6 && column >= 2 && column < 7);
        ASSERT_EQ(counts[i], isThere) << name << " " << i;
      }
    EXPECT_TRUE(makeIndex(random.plan(), {}).ok());
  }
}

TEST(Checkpoint, AnyPlanResumesAnyPlans) {
  Draw draw(5);
  for (int trial = 0; trial < 60; ++trial) {
    RandomPlan first(draw), second(draw);
    std::string directory = makeDirectory();
    auto writer = first.start();
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    fillAll(**writer);
    ASSERT_EQ(save(**writer, directory, {3}), "");
    auto reader = second.start();
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    auto resumed = resume(**reader, directory, false);
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    EXPECT_EQ((*resumed)->run, makeRecord(3));
    EXPECT_EQ(countWrong(**reader), 0u);
    EXPECT_EQ(countWrongCopies(**reader), 0u);
  }
}

TEST(Checkpoint, ReshardingGivesWhatTheOtherPlanWouldWrite) {
  Draw draw(6);
  for (int trial = 0; trial < 30; ++trial) {
    RandomPlan first(draw), second(draw);
    std::string from = makeDirectory(), to = makeDirectory(),
                expected = makeDirectory();
    auto writer = first.start();
    fillAll(**writer);
    ASSERT_EQ(save(**writer, from, {3}), "");
    auto other = second.start();
    fillAll(**other);
    ASSERT_EQ(save(**other, expected, {3}), "");
    auto report =
        reshard(from, second.plan(), PlanIdentity::of(second.plan(), 1), to);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->elements, 3u * (38 + 211 * 97));
    EXPECT_EQ(namesIn(to + "/step-00000003"),
              namesIn(expected + "/step-00000003"));
    for (const std::string &name : namesIn(to + "/step-00000003"))
      EXPECT_EQ(readFile(to + "/step-00000003/" + name),
                readFile(expected + "/step-00000003/" + name));
  }
}

class CheckpointFolders : public ::testing::Test {
protected:
  Draw draw{8};
  RandomPlan random{draw};
  std::string directory = makeDirectory();
  std::unique_ptr<Executor> executor;

  void SetUp() override {
    auto started = random.start();
    ASSERT_TRUE(started.ok());
    executor = std::move(*started);
    fillAll(*executor);
  }

  std::string folder(uint64_t step) {
    return CheckpointStore(directory).pathOf(step);
  }

  /// The largest file of a rank.
  std::string rankFile(uint64_t step) {
    for (const std::string &name : namesIn(folder(step)))
      if (name.starts_with("rank-"))
        return folder(step) + "/" + name;
    return "";
  }

  std::string stepResumed() {
    auto resumed = resume(*executor, directory, false);
    return resumed.ok() ? std::to_string((*resumed)->run.step)
                        : resumed.status().message();
  }
};

TEST_F(CheckpointFolders, KeepsTheNewest) {
  ASSERT_EQ(save(*executor, directory, {1, 2, 10, 100}, 2), "");
  EXPECT_EQ(namesIn(directory),
            (std::vector<std::string>{"step-00000010", "step-00000100"}));
  EXPECT_EQ(stepResumed(), "100");
}

TEST_F(CheckpointFolders, GoesBackWhereTheNewestIsDamaged) {
  ASSERT_EQ(save(*executor, directory, {1, 2, 3, 4, 5}), "");
  // A byte, an end, a file and the index of the newest one.
  auto bytes = readFile(rankFile(5));
  bytes.back() ^= 1;
  writeFile(rankFile(5), bytes);
  EXPECT_EQ(stepResumed(), "4");
  fs::resize_file(rankFile(4), 100);
  EXPECT_EQ(stepResumed(), "3");
  fs::remove(rankFile(3));
  EXPECT_EQ(stepResumed(), "2");
  auto index = readFile(folder(2) + "/index.json");
  for (size_t i = 0; i < index.size(); i += 37) {
    auto other = index;
    other[i] ^= 1;
    writeFile(folder(2) + "/index.json", other);
    EXPECT_EQ(stepResumed(), "1") << i;
  }
  writeFile(folder(1) + "/index.json", {});
  EXPECT_EQ(stepResumed(), "no checkpoint in '" + directory + "' is whole");
  EXPECT_EQ(resumeError(*executor, folder(5)),
            "checkpoint '" + rankFile(5) +
                "' is damaged: its checksum does not hold");
}

TEST_F(CheckpointFolders, GoesOnInADirectory) {
  ASSERT_EQ(save(*executor, directory, {1, 2, 3}), "");
  fs::create_directory(folder(7) + ".partial");
  EXPECT_NE(save(*executor, directory, {4}).find("of another run"),
            std::string::npos);
  fs::remove(rankFile(3));
  auto resumed = resume(*executor, directory, false);
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ((*resumed)->damaged, std::vector<uint64_t>{3});
  CheckpointOptions options;
  options.directory = directory;
  options.every.steps = 2;
  PlanIdentity identity = PlanIdentity::of(executor->plan(), 1);
  auto saver = Checkpointer::create(*executor, options, identity, *resumed);
  ASSERT_TRUE(saver.ok()) << saver.status().message();
  auto second = Checkpointer::create(*executor, options, identity, *resumed);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("in use"), std::string::npos);
  for (uint64_t step : {3, 4, 5})
    ASSERT_TRUE((*saver)->afterStep(makeRecord(step)).ok());
  ASSERT_TRUE((*saver)->finish(makeRecord(5)).ok());
  EXPECT_EQ(namesIn(directory),
            (std::vector<std::string>{"step-00000001", "step-00000002",
                                      "step-00000003.damaged", "step-00000004",
                                      "step-00000005"}));
}

/// The checkpoint of step 4 is written again, also where it is the last one.
TEST_F(CheckpointFolders, GoesBackToBeforeADamagedOne) {
  for (bool isLast : {false, true}) {
    fs::remove_all(directory);
    CheckpointOptions options;
    options.directory = directory;
    options.every.steps = 2;
    PlanIdentity identity = PlanIdentity::of(executor->plan(), 1);
    auto saver =
        Checkpointer::create(*executor, options, identity, std::nullopt);
    ASSERT_TRUE(saver.ok()) << saver.status().message();
    for (uint64_t step : {1, 2, 3, 4})
      ASSERT_TRUE((*saver)->afterStep(makeRecord(step)).ok());
    ASSERT_TRUE((*saver)->settle().ok());
    fs::resize_file(rankFile(4), 100);
    auto resumed = resume(*executor, directory, false);
    ASSERT_TRUE(resumed.ok());
    EXPECT_EQ((*resumed)->run.step, 2u);
    Status status = (*saver)->goBackTo(**resumed);
    ASSERT_TRUE(status.ok()) << status.message();
    status = isLast ? (*saver)->finish(makeRecord(4))
                    : (*saver)->afterStep(makeRecord(4));
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE((*saver)->settle().ok());
    EXPECT_EQ(namesIn(directory),
              (std::vector<std::string>{"step-00000002", "step-00000004",
                                        "step-00000004.damaged"}));
    EXPECT_EQ(stepResumed(), "4");
  }
}

TEST_F(CheckpointFolders, SaysWhatIsNotThere) {
  EXPECT_EQ(resumeError(*executor, directory),
            "'" + directory +
                "' has no checkpoint: neither index.json nor folders "
                "step-00000001 and so on");
  EXPECT_EQ(CheckpointStore(directory + "/x").list().status().message(),
            "cannot read directory '" + directory +
                "/x': No such file or directory");
  EXPECT_NE(resumeError(*executor, directory + "/x").find("No such file"),
            std::string::npos);
  auto none = resume(*executor, directory + "/x", true);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST_F(CheckpointFolders, SaysWhatDoesNotFit) {
  ASSERT_EQ(save(*executor, directory, {1}), "");
  auto expect = [&](const char *part, auto change) {
    fb::PlanT other;
    executor->plan().UnPackTo(&other);
    change(other);
    auto bytes = plan::packPlan(other);
    auto started = Executor::create(*fb::GetPlan(bytes.data()),
                                    {1, std::chrono::seconds(60)});
    ASSERT_TRUE(started.ok());
    std::string error = resumeError(**started, directory);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect("has tensor 'table', which the plan's model lacks",
         [](fb::PlanT &plan) { plan.parameters[2]->file_name = "other"; });
  expect("tensor 'table' has shape [211, 97], in the plan [212, 97]",
         [](fb::PlanT &plan) { plan.parameters[2]->file_shape = {212, 97}; });
  expect("is of optimizer adamw and keeps moment1, moment2 of 'matrix'; the "
         "plan's optimizer lion keeps momentum",
         [](fb::PlanT &plan) {
           plan.optimizer = "lion";
           for (auto &program : plan.programs)
             for (auto &shard : program->shards) {
               shard->state.resize(1);
               shard->state[0]->name = "momentum";
             }
         });
  expect("lacks element",
         [](fb::PlanT &plan) { plan.parameters[0]->box_begin = {2, 2}; });
}

/// What a checksum holds together may still make no sense.
TEST(CheckpointIndexTest, NamesWhatIsWrong) {
  auto parse = [](const std::string &text) {
    auto parsed = CheckpointIndex::parse(
        {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
    return parsed.ok() ? "" : parsed.status().message();
  };
  CheckpointIndex index;
  index.tensors["w"].shape = {2, 3};
  std::string text = index.print();
  EXPECT_EQ(parse(text), "");
  EXPECT_EQ(parse(text.substr(1)), "is damaged, or no index of a checkpoint: "
                                   "its checksum does not hold");
  index.tensors["w"].shape = {int64_t(1) << 62, 8};
  EXPECT_EQ(parse(index.print()), "gives tensor 'w' an impossible shape");
}

TEST_F(CheckpointFolders, IsOfOneRun) {
  int other = open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(save(*executor, directory, {1}), "checkpoint directory '" +
                                                 directory +
                                                 "' is in use by another run");
  close(other);
}

/// In a folder where everybody may write somebody else may be first.
TEST_F(CheckpointFolders, CopiesAreInFoldersOfOnesOwn) {
  ReplicaFolder folder = {directory, "d", "i", "h"};
  std::filesystem::create_directory(directory + "/theirs");
  std::filesystem::create_directory_symlink(directory + "/theirs",
                                            folder.path());
  EXPECT_EQ(folder.make().message(),
            "'" + folder.path() + "' is not a directory of this user");
}

TEST(CheckpointEvery, IsStepsOrTime) {
  auto steps = parseCheckpointEvery("120");
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->steps, 120u);
  for (auto [text, seconds] :
       {std::pair("45s", 45), {"30m", 1800}, {"2h", 7200}}) {
    auto time = parseCheckpointEvery(text);
    ASSERT_TRUE(time.ok()) << text;
    EXPECT_EQ(time->seconds.count(), seconds);
  }
  for (const char *text :
       {"", "0", "m", "0m", "3d", "-1", "1.5h", "m3", "9999999999", "30 m"})
    EXPECT_FALSE(parseCheckpointEvery(text).ok()) << text;
}

} // namespace
