//===- MemoryLimitTest.cpp - Plans that exceed their cluster --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Driver.h"
#include "plait/Plan/Files.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <filesystem>
#include <unistd.h>

using namespace plait;

namespace {

/// Two stages of the MLP for a machine with `bytes` of memory, of which 1000
/// are reserved, on each of two ranks.
class MemoryLimit : public testing::Test {
protected:
  MemoryLimit() {
    std::filesystem::create_directory(folder);
    options.model = PLAIT_MODELS "/mlp.mlir";
    options.mesh = "pp=2";
    options.pins.globalBatch = 8;
    options.pins.microBatch = 4;
    options.pins.sequence = 32;
    options.output = folder / "mlp.plan";
  }
  ~MemoryLimit() override { std::filesystem::remove_all(folder); }

  bool compileWith(int64_t bytes) {
    std::string file = folder / "small.json";
    EXPECT_TRUE(writeTextFile(file, R"({"extends": "cpu", "name": "small",
        "device": {"reservedBytes": 2000, "memoryBytes": )" +
                                        std::to_string(2 * bytes) + "}}")
                    .ok());
    options.cluster = file + ":2";
    return compile(options);
  }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("plait-memory-limit-" + std::to_string(getpid()));
  CompileOptions options;
};

} // namespace

TEST_F(MemoryLimit, PlanThatFitsIsWritten) {
  EXPECT_TRUE(compileWith(100'000'000));
  EXPECT_TRUE(std::filesystem::exists(options.output));
}

TEST_F(MemoryLimit, PlanThatDoesNotNamesStageAndFigures) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(compileWith(500'000));
  std::string error = testing::internal::GetCapturedStderr();
  // Two layers of 64 x 128 and a table of 256 x 64, four copies each in f32:
  // more than 500,000 bytes.
  EXPECT_NE(error.find("stage 0 needs "), error.npos) << error;
  EXPECT_NE(error.find(" has 499000: 500000 less 1000 for"), error.npos)
      << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  EXPECT_FALSE(std::filesystem::exists(options.output));
}
