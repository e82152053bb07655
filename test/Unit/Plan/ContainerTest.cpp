//===- ContainerTest.cpp - The frame of a plan file -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Container.h"
#include "plait/Plan/Level.h"

#include "TestPlan.h"

#include <filesystem>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::test;

namespace {

class ContainerTest : public ::testing::Test {
protected:
  std::string directory = makeDirectory();
  std::string path = directory + "/a.plan";

  void SetUp() override {
    Status status = plan::writePlan(path, makePlan());
    ASSERT_TRUE(status.ok()) << status.message();
    bytes = readFile(path);
  }

  /// The error of opening a file with these bytes, or "" if there is none.
  std::string open(const std::vector<uint8_t> &content) {
    writeFile(path, content);
    auto file = plan::PlanFile::open(path);
    return file.ok() ? "" : file.status().message();
  }

  std::vector<uint8_t> bytes;
};

TEST_F(ContainerTest, RoundTripsByteForByte) {
  auto file = plan::PlanFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->plan().model_type()->str(), "test");
  fb::PlanT copy;
  file->plan().UnPackTo(&copy);
  ASSERT_TRUE(plan::writePlan(directory + "/b.plan", copy).ok());
  EXPECT_EQ(readFile(directory + "/b.plan"), bytes);
}

TEST_F(ContainerTest, RefusesTruncatedFiles) {
  for (size_t size : {size_t(0), size_t(1), size_t(63), size_t(64), size_t(65),
                      bytes.size() / 2, bytes.size() - 1}) {
    std::vector<uint8_t> part(bytes.begin(), bytes.begin() + size);
    EXPECT_NE(open(part).find("truncated"), std::string::npos) << size;
  }
}

TEST_F(ContainerTest, RefusesAnyChangedHeaderByte) {
  for (size_t i = 0; i < plan::containerHeaderBytes; ++i) {
    auto changed = bytes;
    changed[i] ^= 0x40;
    EXPECT_NE(open(changed), "") << "byte " << i;
  }
}

TEST_F(ContainerTest, RefusesChangedPayload) {
  for (size_t i = plan::containerHeaderBytes; i < bytes.size(); i += 97) {
    auto changed = bytes;
    changed[i] ^= 1;
    EXPECT_NE(open(changed).find("corrupt"), std::string::npos) << i;
  }
}

/// A file of a later release, which uses what nobody knows here.
TEST_F(ContainerTest, RefusesLaterLevels) {
  auto later = bytes;
  later[12] = plan::formatLevel + 1;
  EXPECT_NE(open(later).find("needs format level " +
                             std::to_string(plan::formatLevel + 1)),
            std::string::npos);
}

/// With less than its level an earlier program would run it, and go wrong.
TEST_F(ContainerTest, RefusesLessThanItsLevel) {
  fb::PlanT plan = makePlan();
  plan.named_losses = {"z"};
  ASSERT_TRUE(plan::writePlan(path, plan).ok());
  auto changed = readFile(path);
  ASSERT_EQ(changed[12], 1);
  changed[12] = 0;
  EXPECT_NE(
      open(changed).find("says format level 0, what it has needs level 1"),
      std::string::npos);
}

TEST_F(ContainerTest, NamesWhatIsWrong) {
  EXPECT_NE(open({'h', 'e', 'l', 'l', 'o'}).find("truncated"),
            std::string::npos);
  EXPECT_NE(open(std::vector<uint8_t>(200, 'x')).find("not a plan file"),
            std::string::npos);
  auto longer = bytes;
  longer.push_back(0);
  EXPECT_NE(open(longer).find("1 bytes after"), std::string::npos);
  EXPECT_NE(plan::PlanFile::open(directory + "/none")
                .status()
                .message()
                .find("No such file"),
            std::string::npos);
}

TEST_F(ContainerTest, WritesNothingButCompletePlans) {
  fb::PlanT unsound = makePlan();
  unsound.mesh[0]->name = "dp";
  Status status = plan::writePlan(directory + "/bad.plan", unsound);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("'dp', not 'pp'"), std::string::npos);
  EXPECT_FALSE(plan::writePlan(directory + "/no/such/place", makePlan()).ok());
  size_t files = 0;
  for ([[maybe_unused]] auto &entry :
       std::filesystem::directory_iterator(directory))
    ++files;
  EXPECT_EQ(files, 1u);
}

TEST_F(ContainerTest, TellsACertificateOfAnotherPlan) {
  fb::PlanT plan = makePlan();
  plan.certificate = std::make_unique<fb::CertificateT>();
  plan.certificate->prover = "plaitc";
  plan::certifyPlan(plan);
  ASSERT_TRUE(plan::writePlan(path, plan).ok());
  EXPECT_TRUE(plan::describeProof(plan::PlanFile::open(path)->plan())
                  .starts_with("plaitc has proven"));
  // What a certificate says is a part of the plan, too.
  for (std::string *text : {&plan.model_type, &plan.certificate->prover}) {
    std::string before = std::exchange(*text, "another");
    Status status = plan::writePlan(path, plan);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.message().starts_with(
        "it was changed: its certificate is of plan "));
    *text = before;
  }
  EXPECT_TRUE(plan::writePlan(path, plan).ok());
}

TEST_F(ContainerTest, ChecksTheReference) {
  fb::PlanT outer = makePlan();
  outer.reference = plan::packPlan(makePlan());
  Status status = plan::writePlan(path, outer);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "reference plan: runs on 4 ranks, not on 1");
}

} // namespace
