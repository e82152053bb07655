//===- ContainerTest.cpp - The frame of a plan file -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Container.h"
#include "plait/Plan/Level.h"

#include "TestPlan.h"

#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

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

TEST_F(ContainerTest, SaysHowMuchIsLeft) {
  std::string size = std::to_string(bytes.size() - 64);
  EXPECT_TRUE(open({bytes.begin(), bytes.begin() + 65})
                  .ends_with("is truncated: the payload has 1 bytes, the "
                             "header announces " +
                             size));
  EXPECT_TRUE(open({bytes.begin(), bytes.begin() + 9})
                  .ends_with("9 bytes, the header alone has 64"));
}

/// A file with this payload, whose header is right.
std::vector<uint8_t> wrap(const std::vector<uint8_t> &whole,
                          std::vector<uint8_t> payload) {
  std::vector<uint8_t> file(whole.begin(), whole.begin() + 16);
  file.resize(plan::containerHeaderBytes);
  uint64_t words[] = {payload.size(),
                      XXH3_64bits(payload.data(), payload.size())};
  std::memcpy(file.data() + 16, words, sizeof(words));
  file.insert(file.end(), payload.begin(), payload.end());
  return file;
}

TEST_F(ContainerTest, LooksBehindARightHeader) {
  std::vector<uint8_t> payload(bytes.begin() + 64, bytes.end());
  EXPECT_EQ(open(wrap(bytes, payload)), "");
  std::fill(payload.begin(), payload.begin() + 16, 0xff);
  EXPECT_TRUE(open(wrap(bytes, payload))
                  .ends_with(" is malformed: not a valid plan table"));
  fb::PlanT unsound = makePlan();
  unsound.global_batch = 5;
  EXPECT_NE(open(wrap(bytes, plan::packPlan(unsound)))
                .find("' is unsound: global_batch is 5"),
            std::string::npos);
}

TEST_F(ContainerTest, RefusesAnyChangedHeaderByte) {
  for (size_t i = 0; i < plan::containerHeaderBytes; ++i) {
    auto changed = bytes;
    changed[i] ^= 0x40;
    EXPECT_NE(open(changed), "") << "byte " << i;
  }
  bytes[40] = 1; // of those that have no meaning
  EXPECT_TRUE(open(bytes).ends_with(
      "is corrupt: its header has bytes set that must be zero"));
}

TEST_F(ContainerTest, RefusesChangedPayload) {
  for (size_t i = plan::containerHeaderBytes; i < bytes.size(); i += 97) {
    auto changed = bytes;
    changed[i] ^= 1;
    EXPECT_TRUE(
        open(changed).ends_with("is corrupt: the hash of its payload differs"))
        << i;
  }
}

/// A file of a later release, which uses what nobody knows here.
TEST_F(ContainerTest, RefusesLaterLevels) {
  auto later = bytes;
  later[12] = plan::getFormatLevel() + 1;
  EXPECT_NE(open(later).find("needs format level " +
                             std::to_string(plan::getFormatLevel() + 1)),
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
  EXPECT_NE(open(std::vector<uint8_t>(200, 'x')).find("' is not a plan file"),
            std::string::npos);
  auto longer = bytes;
  longer.push_back(0);
  EXPECT_NE(open(longer).find("has 1 bytes after its payload"),
            std::string::npos);
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
  EXPECT_NE(status.message().find("mesh axis 0 is 'dp', not 'pp'"),
            std::string::npos);
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
