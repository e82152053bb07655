//===- WeightsTest.cpp - Safetensors, slices and initial values -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Weights.h"

#include "TestPlan.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Random.h"
#include "plait/Runtime/Slices.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

using Shape = std::vector<int64_t>;

void writeTensors(const std::string &path,
                  const std::vector<TensorShape> &tensors) {
  auto writer = WeightWriter::create(path, tensors, FileTensor::Type::F32);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  float next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t count = 1;
    for (int64_t size : tensors[i].shape)
      count *= size;
    for (int64_t j = 0; j < count; ++j, ++next)
      ASSERT_TRUE(writer->write(i, j, std::span(&next, 1)).ok());
  }
  ASSERT_TRUE(writer->commit().ok());
}

std::string openError(const std::string &path) {
  auto files = WeightFiles::open(path);
  return files.ok() ? "" : files.status().message();
}

std::string findError(const WeightFiles &files, const std::string &name,
                      const Shape &shape) {
  auto tensor = files.find(name, shape);
  return tensor.ok() ? "" : tensor.status().message();
}

std::vector<uint8_t> makeFile(const std::string &header,
                              const std::vector<uint8_t> &data) {
  uint64_t length = header.size();
  std::vector<uint8_t> bytes(8);
  std::memcpy(bytes.data(), &length, 8);
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

TEST(Safetensors, RoundTrip) {
  std::string path = makeDirectory() + "/a.safetensors";
  writeTensors(path, {{"transformer.h.0.x", {2, 3}}, {"scalar", {}}});
  auto files = WeightFiles::open(path);
  ASSERT_TRUE(files.ok()) << files.status().message();
  for (const char *name : {"h.0.x", "transformer.h.0.x"}) {
    auto tensor = files->find(name, Shape{2, 3});
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    std::vector<float> part(4);
    (*tensor)->read(2, part);
    EXPECT_EQ(part, (std::vector<float>{2, 3, 4, 5}));
  }
  EXPECT_TRUE(files->find("scalar", {}).ok());
}

TEST(Safetensors, NarrowTypes) {
  std::string path = makeDirectory() + "/a.safetensors";
  writeFile(path,
            makeFile(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},
                 "b":{"dtype":"F16","shape":[3],"data_offsets":[4,10]},
                 "mask":{"dtype":"BOOL","shape":[1],"data_offsets":[10,11]}})",
                     {0x80, 0x3f, 0x40, 0xc0, 0x00, 0x3c, 0x01, 0x00, 0x00,
                      0xfc, 1}));
  auto files = WeightFiles::open(path);
  ASSERT_TRUE(files.ok()) << files.status().message();
  std::vector<float> a(2), b(3);
  (*files->find("model.a", Shape{2}))->read(0, a);
  (*files->find("b", Shape{3}))->read(0, b);
  EXPECT_EQ(a, (std::vector<float>{1, -3}));
  EXPECT_EQ(b, (std::vector<float>{1, 0x1p-24f, -INFINITY}));
}

TEST(Safetensors, NamesWhatIsWrong) {
  std::string directory = makeDirectory();
  std::string path = directory + "/a.safetensors";
  EXPECT_NE(openError(directory).find("' has neither model.safetensors nor "
                                      "model.safetensors.index.json"),
            std::string::npos);
  EXPECT_NE(openError(path).find("No such file"), std::string::npos);
  writeTensors(path, {{"a", {2, 3}}});
  auto files = WeightFiles::open(path);
  EXPECT_EQ(findError(*files, "b", {2, 3}),
            "weights '" + path + "' has no tensor 'b'");
  EXPECT_EQ(findError(*files, "a", {3, 2}),
            "weights '" + path +
                "': tensor 'a' has shape [2, 3], expected [3, 2]");
  // Factors of dimensions are dimensions of the same tensor; others are not.
  EXPECT_EQ(findError(*files, "a", {2, 3, 1}), "");
  EXPECT_EQ(findError(*files, "a", {1, 2, 1, 3}), "");
  EXPECT_NE(findError(*files, "a", {3, 2, 1}), "");
  EXPECT_NE(findError(*files, "a", {2, 3, 2}), "");
  EXPECT_NE(findError(*files, "a", {2}), "");
  std::vector<uint8_t> bytes = readFile(path);
  for (size_t size : {size_t(0), size_t(7), size_t(20), bytes.size() - 1}) {
    writeFile(path, {bytes.begin(), bytes.begin() + size});
    EXPECT_NE(openError(path).find("is truncated: "), std::string::npos)
        << size;
  }
  writeFile(path, {1, 2, 3});
  EXPECT_NE(openError(path).find("is truncated: it has 3 bytes"),
            std::string::npos);
  writeFile(path, {100, 0, 0, 0, 0, 0, 0, 0, '{'});
  EXPECT_NE(openError(path).find(
                "is truncated: it has 9 bytes, its header alone 100"),
            std::string::npos);
  writeFile(path, makeFile("{]", {}));
  EXPECT_NE(openError(path).find("is not a safetensors file: its header is "),
            std::string::npos)
      << openError(path);
  writeFile(path, std::vector<uint8_t>(100, 0xff));
  EXPECT_NE(openError(path).find("is not a safetensors file: its header would "
                                 "have 18446744073709551615 bytes"),
            std::string::npos);
  writeFile(path, makeFile("[]", {}));
  EXPECT_NE(openError(path).find("is not a safetensors file: its header is not "
                                 "a JSON object"),
            std::string::npos);
  writeFile(path, makeFile(R"({"a":{"dtype":"F32","shape":[2]}})", {}));
  EXPECT_NE(openError(path).find("is malformed: the header's entry for 'a' "
                                 "lacks dtype, shape or data_offsets"),
            std::string::npos);
  writeFile(
      path,
      makeFile(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
               {0, 0, 0, 0}));
  EXPECT_NE(openError(path).find("has 4 bytes, its shape [2] needs 8"),
            std::string::npos);
  const struct {
    const char *header, *message;
  } entries[] = {{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
                  "data_offsets [4,0], expected two whole numbers in order"},
                 {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
                  "is malformed: tensor 'a' has an impossible shape"},
                 {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  "is malformed: tensors "}};
  for (const auto &entry : entries) {
    writeFile(path, makeFile(entry.header, {0, 0, 0, 0}));
    EXPECT_NE(openError(path).find(entry.message), std::string::npos)
        << openError(path);
  }
  // Whatever the values: readers differ in which one counts.
  const std::string entry =
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  writeFile(path, makeFile("{" + entry + "," + entry + "}", {0, 0, 0, 0}));
  EXPECT_NE(openError(path).find("has the key \"a\" twice in one object"),
            std::string::npos);
}

TEST(Safetensors, Directories) {
  std::string directory = makeDirectory();
  writeTensors(directory + "/one.safetensors", {{"a", {1}}});
  writeTensors(directory + "/two.safetensors", {{"b", {2}}});
  std::string index =
      R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})";
  writeFile(directory + "/model.safetensors.index.json",
            {index.begin(), index.end()});
  auto files = WeightFiles::open(directory);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_TRUE(files->find("a", Shape{1}).ok());
  EXPECT_TRUE(files->find("b", Shape{2}).ok());
  EXPECT_TRUE(files->has("model.b"));
  EXPECT_FALSE(files->has("c"));
  EXPECT_TRUE(
      WeightFiles::open(directory + "/model.safetensors.index.json").ok());
  index.insert(index.find("\"b\""), R"("a":"two.safetensors",)");
  writeFile(directory + "/model.safetensors.index.json",
            {index.begin(), index.end()});
  EXPECT_NE(openError(directory).find("has the key \"a\" twice"),
            std::string::npos);
  auto indexError = [&](const std::string &text) {
    std::string path = directory + "/model.safetensors.index.json";
    writeFile(path, {text.begin(), text.end()});
    return openError(directory);
  };
  EXPECT_TRUE(indexError("{}").ends_with("' has no weight_map"));
  EXPECT_TRUE(indexError(R"({"weight_map":{"a":1}})")
                  .ends_with("' names no file for 'a'"));
}

/// A commit that leads out of the folder, or to nothing, is none.
TEST(Safetensors, CachesOfHuggingFace) {
  std::string directory = makeDirectory();
  std::filesystem::create_directories(directory + "/refs");
  std::filesystem::create_directories(directory + "/snapshots/5a");
  writeTensors(directory + "/snapshots/5a/model.safetensors", {{"a", {1}}});
  for (std::string commit : {"5a", "5a\n"}) {
    writeFile(directory + "/refs/main", {commit.begin(), commit.end()});
    EXPECT_EQ(openError(directory), "");
  }
  for (std::string commit : {"", "6b", "../snapshots/5a"}) {
    writeFile(directory + "/refs/main", {commit.begin(), commit.end()});
    EXPECT_NE(openError(directory).find("has neither"), std::string::npos);
  }
}

TEST(Philox, KnownAnswers) {
  // From the authors' test vectors.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                     0x9b00dbd8}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420,
                                     0x24126ea1}));
}

TEST(NormalStream, AnyPartGivesTheSameNumbers) {
  std::vector<float> all(10000);
  NormalStream(7, "x", 0, 1).generate(0, all);
  double sum = 0, squares = 0;
  for (float value : all)
    sum += value, squares += value * value;
  EXPECT_NEAR(sum / all.size(), 0, 0.05);
  EXPECT_NEAR(squares / all.size(), 1, 0.05);
  NormalStream stream(7, "x", 0, 1);
  for (size_t begin : {5000, 1, 3, 4, 9990}) {
    std::vector<float> part(10);
    stream.generate(begin, part);
    EXPECT_EQ(part, std::vector<float>(all.begin() + begin,
                                       all.begin() + begin + 10));
  }
  std::vector<float> other(10000);
  NormalStream(8, "x", 0, 1).generate(0, other);
  EXPECT_NE(other, all);
}

/// A view [2, 3, 5] of the box [6, 5] at (1, 2) of a file tensor [8, 9], split
/// over tp in dimension `dim`.
struct Sliced {
  fb::PlanT plan = makePlan();
  std::vector<uint8_t> bytes;

  explicit Sliced(int dim) {
    fb::ParameterT &parameter = *plan.parameters[0];
    parameter.shape = {2, 3, 5};
    parameter.file_shape = {8, 9};
    parameter.box_begin = {1, 2};
    parameter.box_shape = {6, 5};
    fb::ShardT &shard = *plan.programs[0]->shards[0];
    shard.dims.resize(3);
    shard.local_shape = parameter.shape;
    for (int i = 0; i < 3; ++i) {
      shard.dims[i] = std::make_unique<fb::DimShardingT>();
      if (i == dim) {
        shard.dims[i]->axes = {1};
        shard.local_shape[i] = (shard.local_shape[i] + 1) / 2;
      }
    }
    bytes = plan::packPlan(plan);
  }
};

TEST(Slices, MapEveryElementOfTheBoxOnce) {
  for (int dim : {-1, 0, 1, 2}) {
    Sliced sliced(dim);
    const fb::Plan &plan = *fb::GetPlan(sliced.bytes.data());
    const fb::Parameter &parameter = *plan.parameters()->Get(0);
    const fb::Shard &shard = *plan.programs()->Get(0)->shards()->Get(0);
    std::vector<int> seen(72);
    for (uint32_t rank : {0, 1})
      forEachFileRun(plan::RankGrid(plan), rank, parameter, *shard.dims(),
                     [&](const runtime::Run &run) {
                       EXPECT_LE(run.local + run.count,
                                 elementCount(*shard.local_shape()));
                       for (int64_t i = 0; i < run.count; ++i)
                         ++seen[run.global + i];
                     });
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 9; ++column) {
        bool inside = row >= 1 && row < 7 && column >= 2 && column < 7;
        EXPECT_EQ(seen[row * 9 + column], inside * (dim < 0 ? 2 : 1));
      }
  }
}

TEST(Slices, WholeBlocksAreOneRun) {
  fb::PlanT source = makePlan();
  auto bytes = plan::packPlan(source);
  const fb::Plan &plan = *fb::GetPlan(bytes.data());
  std::vector<runtime::Run> runs;
  forEachFileRun(plan::RankGrid(plan), 1, *plan.parameters()->Get(0),
                 *plan.programs()->Get(0)->shards()->Get(0)->dims(),
                 [&](const runtime::Run &run) { runs.push_back(run); });
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].global, 24);
  EXPECT_EQ(runs[0].count, 24);
}

} // namespace
