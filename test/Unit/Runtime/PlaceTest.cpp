//===- PlaceTest.cpp - Copies that go to a neighbour ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint/Place.h"

#include "MPI/Engine.h"
#include "TestPlan.h"

#include <filesystem>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// A network on which everything has arrived at once.
class Instant : public MpiLibrary {
public:
  Result<World> start() override {
    World world;
    world.count = 2;
    return world;
  }
  Status begin(const MpiTransfer &, void *cookie) override {
    begun.push_back(cookie);
    return Status::success();
  }
  Status poll(std::vector<void *> &finished) override {
    finished.swap(begun);
    return Status::success();
  }
  void warn() override {}
  void answer(uint32_t) override {}
  Status readNotices(Notices &) override { return Status::success(); }
  void finish() override {}

private:
  std::vector<void *> begun;
};

/// The first of two hosts with a process and a rank each.
class TwoHosts : public Rendezvous {
public:
  TwoHosts() : Rendezvous({"test", 0, 2, 0, "a", {0, 1}, 0}) {
    spread(2);
    auto started =
        MpiEngine::start(std::make_unique<Instant>(), std::chrono::seconds(9));
    transfers = std::move(*started);
  }
  ~TwoHosts() override { transfers->leave(); }

  Result<std::vector<std::string>> gather(const std::string &) override {
    return Status::failure("nobody is there");
  }
  Result<std::string> broadcast(const std::string &) override {
    return Status::failure("nobody is there");
  }
  Status sendToFirst(uint32_t, std::span<const std::byte>) override {
    return Status::success();
  }
  Status receiveFrom(uint32_t, std::span<std::byte>) override {
    return Status::success();
  }
  void disconnect() override {}
  MpiEngine *engine() override { return transfers.get(); }
  Status openEngine(std::span<const uint32_t>) override {
    return Status::success();
  }

private:
  std::unique_ptr<MpiEngine> transfers;
};

TEST(HostFolderPlace, SaysWhatItCannotSend) {
  std::string base = test::makeDirectory();
  TwoHosts processes;
  auto groups = HostGroups::of(&processes);
  ASSERT_TRUE(groups.ok());
  HostFolderPlace place({base, "d", "1", "a"}, base, *groups, &processes);
  std::string name = rankFileName(0);
  std::string folder = place.store.partialPathOf(1);
  std::filesystem::create_directories(folder);
  // One without bytes has to be there as well.
  for (uint64_t bytes : {uint64_t(0), uint64_t(8)}) {
    StoredFiles files = {{name, {name, bytes, 0}}};
    Status status = place.spread(1, files);
    ASSERT_FALSE(status.ok()) << bytes;
    EXPECT_EQ(status.message(), "cannot open '" + folder + "/" + name +
                                    "': No such file or directory");
  }
  test::writeFile(folder + "/" + name, {1, 2, 3});
  EXPECT_EQ(place.spread(1, {{name, {name, 8, 0}}}).message(),
            "cannot read '" + folder + "/" + name + "': it is too short");
  EXPECT_TRUE(place.spread(1, {{name, {name, 3, 0}}}).ok());
}

} // namespace
