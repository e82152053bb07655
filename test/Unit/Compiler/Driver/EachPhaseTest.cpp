//===- EachPhaseTest.cpp - Proofs after each phase of a choice ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Listener.h"
#include "plait/Driver/Session.h"
#include "gtest/gtest.h"

using namespace plait;

/// The phases of a compilation that goes on with the planner's choice.
static std::string compileChoice(bool verifyEachPhase) {
  Listener listener;
  Session session(listener);
  auto model = session.import({.model = PLAIT_MODELS "/gpt2-nano"});
  EXPECT_TRUE(model.ok());
  CompileOptions options;
  options.cluster = "cpu:2";
  options.pins.globalBatch = 4;
  options.pins.sequence = 16;
  options.reference = false;
  options.verifyEachPhase = verifyEachPhase;
  auto choice = session.plan(*model, options);
  EXPECT_TRUE(choice.ok());
  listener.phases.clear();
  EXPECT_TRUE(session.compile(*choice).ok());
  return listener.phases;
}

// The memory of a choice has been placed, for which it was lowered without
// proofs in between.
TEST(EachPhase, OfAChoiceIsRunAgain) {
  std::string each = compileChoice(true);
  for (const char *phase : {"import\n", "partition\n", "schedule\n", "lower\n"})
    EXPECT_NE(each.find(phase), each.npos) << each;
  std::string last = compileChoice(false);
  EXPECT_EQ(last.find("partition"), last.npos) << last;
  EXPECT_NE(last.find("steps"), last.npos) << last;
}
