//===- MemoryLimitTest.cpp - Plans that exceed their cluster --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Listener.h"
#include "plait/Driver/Session.h"
#include "plait/Plan/Files.h"
#include "gtest/gtest.h"

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
    options.mesh = "pp=2";
    options.pins.globalBatch = 8;
    options.pins.microBatch = 4;
    options.pins.sequence = 32;
  }
  ~MemoryLimit() override { std::filesystem::remove_all(folder); }

  Status compileWith(int64_t bytes) {
    std::string file = folder / "small.json";
    EXPECT_TRUE(writeTextFile(file, R"({"extends": "cpu", "name": "small",
        "device": {"reservedBytes": 2000, "memoryBytes": )" +
                                        std::to_string(2 * bytes) + "}}")
                    .ok());
    options.cluster = file + ":2";
    auto model = session.import({.model = PLAIT_MODELS "/mlp.mlir"});
    return model.ok() ? session.compile(*model, options).status()
                      : model.status();
  }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("plait-memory-limit-" + std::to_string(getpid()));
  Listener listener;
  Session session{listener};
  CompileOptions options;
};

} // namespace

TEST_F(MemoryLimit, PlanThatFitsIsCompiled) {
  EXPECT_TRUE(compileWith(100'000'000).ok()) << listener.getText();
}

TEST_F(MemoryLimit, PlanThatDoesNotNamesStageAndFigures) {
  Status status = compileWith(500'000);
  ASSERT_EQ(status.code(), Code::DoesNotFit) << listener.getText();
  // Two layers of 64 x 128 and a table of 256 x 64, four copies each in f32:
  // more than 500,000 bytes.
  const std::string &error = status.message();
  EXPECT_NE(error.find("stage 0 needs "), error.npos) << error;
  EXPECT_NE(error.find(" has 499000: 500000 less 1000 for context and "
                       "libraries"),
            error.npos)
      << error;
  ASSERT_EQ(listener.heard.size(), 1u) << listener.getText();
  EXPECT_EQ(listener.heard[0].code, Code::DoesNotFit);
  EXPECT_EQ(listener.heard[0].text, error);
}
