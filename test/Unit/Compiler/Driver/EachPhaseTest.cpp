//===- EachPhaseTest.cpp - Proofs after each phase of a choice ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Planning.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <unistd.h>

using namespace plait;

/// What is told of a compilation that goes on with the planner's choice.
static std::string compileChoice(bool verifyEachPhase) {
  std::filesystem::path plan =
      std::filesystem::temp_directory_path() /
      ("plait-each-phase-" + std::to_string(getpid()) + ".plan");
  CompileOptions options;
  options.model = PLAIT_MODELS "/gpt2-nano";
  options.cluster = "cpu:2";
  options.pins.globalBatch = 4;
  options.pins.sequence = 16;
  options.output = plan;
  options.reference = false;
  options.verifyEachPhase = verifyEachPhase;
  EXPECT_TRUE(choose(options, PlanningOptions()));
  EXPECT_TRUE(options.lowered);
  options.progress = true;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(compile(options));
  std::filesystem::remove(plan);
  return testing::internal::GetCapturedStderr();
}

// The memory of a choice has been placed, for which it was lowered without
// proofs in between.
TEST(EachPhase, OfAChoiceIsRunAgain) {
  std::string each = compileChoice(true);
  for (const char *phase : {"] import", "] partition", "] schedule", "] lower"})
    EXPECT_NE(each.find(phase), each.npos) << each;
  std::string last = compileChoice(false);
  EXPECT_EQ(last.find("] partition"), last.npos) << last;
  EXPECT_NE(last.find("] steps"), last.npos) << last;
}
