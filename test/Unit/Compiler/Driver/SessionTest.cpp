//===- SessionTest.cpp - Sessions of a process ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Session.h"
#include "Listener.h"
#include "plait/Support/Fields.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <unistd.h>

using namespace plait;

namespace {

/// What has come out of a session.
struct Outcome {
  std::string plan, explanation, messages, phases;
  bool operator==(const Outcome &) const = default;
};

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Sessions : public testing::Test {
protected:
  Sessions() { std::filesystem::create_directory(folder); }
  ~Sessions() override { std::filesystem::remove_all(folder); }

  /// Imports, plans, and compiles. `name` is of the plan's file.
  Outcome work(const std::string &model, int ranks, const std::string &name) {
    Listener listener;
    Session session(listener);
    Outcome outcome;
    auto imported = session.import({.model = PLAIT_MODELS "/" + model});
    if (imported.ok()) {
      CompileOptions options;
      options.cluster = "cpu:" + std::to_string(ranks);
      options.pins.globalBatch = 8;
      options.pins.sequence = 32;
      auto choice = session.plan(*imported, options);
      if (choice.ok()) {
        outcome.explanation = planner::explainText(choice->describe());
        auto plan = session.compile(*choice);
        std::string path = folder / name;
        if (plan.ok() && plan->save(path).ok())
          outcome.plan = readFile(path);
      }
    }
    outcome.messages = listener.getText();
    outcome.phases = listener.phases;
    return outcome;
  }

  /// Fails with the status of a compilation for one rank.
  Status compileWith(const ModelOptions &model, const CompileOptions &options) {
    Session session(listener);
    auto imported = session.import(model);
    return imported.ok() ? session.compile(*imported, options).status()
                         : imported.status();
  }

  std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                 ("plait-sessions-" + std::to_string(getpid()));
  Listener listener;
};

} // namespace

// Sessions share nothing: at the same time they make what they make one after
// the other, byte for byte, and tell the same.
TEST_F(Sessions, OfTwoThreadsMakeWhatTheyMakeAlone) {
  Outcome first = work("gpt2-nano", 2, "first");
  Outcome second = work("mlp.mlir", 4, "second");
  ASSERT_FALSE(first.plan.empty()) << first.messages;
  ASSERT_FALSE(second.plan.empty()) << second.messages;
  Outcome both[2];
  std::thread threads[] = {
      std::thread([&] { both[0] = work("gpt2-nano", 2, "both-first"); }),
      std::thread([&] { both[1] = work("mlp.mlir", 4, "both-second"); })};
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_TRUE(both[0] == first) << both[0].messages;
  EXPECT_TRUE(both[1] == second) << both[1].messages;
}

// A model is a value: it is compiled as often as one likes, and what went wrong
// in between leaves nothing behind.
TEST_F(Sessions, CompileAModelSeveralTimes) {
  Session session(listener);
  auto model = session.import({.model = PLAIT_MODELS "/mlp.mlir"});
  ASSERT_TRUE(model.ok());
  CompileOptions options;
  options.reference = false;
  auto lower = [&] { return session.lower(*model, options, "steps"); };
  auto before = lower();
  ASSERT_TRUE(before.ok()) << listener.getText();
  options.mesh = "pp=7";
  EXPECT_FALSE(lower().ok());
  options.mesh = "";
  auto after = lower();
  ASSERT_TRUE(after.ok()) << listener.getText();
  EXPECT_EQ(*before, *after);
}

TEST_F(Sessions, CompileAChoiceSeveralTimes) {
  Session session(listener);
  auto model = session.import({.model = PLAIT_MODELS "/gpt2-nano"});
  CompileOptions options;
  options.cluster = "cpu:2";
  options.pins.globalBatch = 4;
  options.pins.sequence = 16;
  auto choice = session.plan(*model, options);
  ASSERT_TRUE(choice.ok()) << listener.getText();
  for (const char *name : {"once", "twice"}) {
    auto plan = session.compile(*choice);
    ASSERT_TRUE(plan.ok()) << listener.getText();
    EXPECT_TRUE(plan->save(folder / name).ok());
  }
  EXPECT_EQ(readFile(folder / "once"), readFile(folder / "twice"));
}

// The status repeats the error that the reporter has heard.
TEST_F(Sessions, TellTheOptionThatIsWrong) {
  CompileOptions options;
  options.backend = "cpu";
  options.target = "sm_90";
  Status status = compileWith({.model = PLAIT_MODELS "/gpt2-nano"}, options);
  EXPECT_EQ(status.code(), Code::InvalidOption);
  EXPECT_EQ(status.field(), "target");
  EXPECT_EQ(status.message(), "`target` sm_90 is for `backend` cuda, not cpu");
  EXPECT_EQ(spellFields(status.message()),
            "--target sm_90 is for --backend cuda, not cpu");
  ASSERT_EQ(listener.heard.size(), 1u);
  EXPECT_EQ(listener.heard[0].severity, Severity::Error);
  EXPECT_EQ(listener.heard[0].code, Code::InvalidOption);
  EXPECT_EQ(listener.heard[0].field, "target");
  EXPECT_EQ(listener.heard[0].text, status.message());
}

TEST_F(Sessions, TellThePlaceInAModel) {
  std::string path = folder / "wrong.mlir";
  std::ofstream(path) << "module {\n  nn.parameter @w\n}\n";
  Status status = compileWith({.model = path}, {});
  EXPECT_EQ(status.code(), Code::InvalidModel);
  ASSERT_FALSE(listener.heard.empty());
  EXPECT_EQ(listener.heard[0].place.find(path + ":"), 0u)
      << listener.heard[0].place;
}

TEST_F(Sessions, RefuseAModelThatIsNotThere) {
  Status status = compileWith({.model = folder / "none"}, {});
  EXPECT_EQ(status.code(), Code::CannotRead);
  EXPECT_EQ(listener.heard.size(), 1u) << listener.getText();
}

TEST_F(Sessions, SayWhatCannotBeCompiled) {
  CompileOptions options;
  options.mesh = "pp=7"; // of two layers
  Status status = compileWith({.model = PLAIT_MODELS "/mlp.mlir"}, options);
  EXPECT_EQ(status.code(), Code::NotCompiled) << listener.getText();
}

// Where a search is tentative nobody hears of an error.
TEST_F(Sessions, MayFindNothing) {
  for (bool isTentative : {false, true}) {
    Listener heard;
    Session session(heard);
    auto model = session.import({.model = PLAIT_MODELS "/gpt2-nano"});
    CompileOptions options;
    options.cluster = "cpu:2";
    options.pins.globalBatch = 4;
    options.pins.sequence = 16;
    PlanningOptions planning;
    planning.pins.mesh[Axis::PP] = 7;
    planning.isTentative = isTentative;
    auto choice = session.plan(*model, options, planning);
    ASSERT_FALSE(choice.ok());
    EXPECT_EQ(choice.status().code(), Code::NothingFits);
    EXPECT_EQ(heard.heard.empty(), isTentative) << heard.getText();
  }
}

TEST(Fields, AreSpeltAsOptions) {
  EXPECT_EQ(spellFields("`mesh` is 1"), "--mesh is 1");
  EXPECT_EQ(spellFields("a smaller `micro-batch`, or `zero` 1", ""),
            "a smaller micro-batch, or zero 1");
  // What is no name of an option stays.
  for (const char *text : {"`", "``", "no `Name`", "`a b`", "'a`b'", ""})
    EXPECT_EQ(spellFields(text), text);
  EXPECT_EQ(spellFields("'a`b' `seq`"), "'a`b' --seq");
}
