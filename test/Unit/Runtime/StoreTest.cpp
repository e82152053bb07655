//===- StoreTest.cpp - Files that a thread writes, folders used again -----===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint/Store.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;
namespace fs = std::filesystem;

namespace {

constexpr size_t bufferBytes = 1 << 19; // of a file's thread

class StoreTest : public ::testing::Test {
protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "plait-writer-XXXXXX";
    ASSERT_TRUE(mkdtemp(pattern.data()));
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  /// Writes a checkpoint of these files, each `bytes` long.
  void save(uint64_t step, const std::set<std::string> &names, size_t bytes) {
    ASSERT_TRUE(store().begin(step, names).ok());
    std::set<std::string> all = names;
    all.insert(indexName);
    for (const std::string &name : all) {
      auto file = FileWriter::create(store().partialPathOf(step) + "/" + name);
      ASSERT_TRUE(file.ok() && file->append(draw(bytes)).ok());
      ASSERT_TRUE(file->finish().ok() && file->sync().ok());
    }
    ASSERT_TRUE(store().commit(step).ok());
  }
  CheckpointStore store() const { return CheckpointStore(folder); }

  /// Names below a folder, with a slash and the bytes behind those of files.
  std::set<std::string> list(const std::string &path) const {
    std::set<std::string> found;
    for (const auto &entry : fs::directory_iterator(path)) {
      std::string name = entry.path().filename();
      found.insert(entry.is_directory()
                       ? name
                       : name + "/" + std::to_string(entry.file_size()));
    }
    return found;
  }

  static std::vector<std::byte> draw(size_t count);

  std::string folder;
};

std::vector<std::byte> StoreTest::draw(size_t count) {
  std::vector<std::byte> bytes(count);
  uint32_t state = 7;
  for (std::byte &byte : bytes)
    byte = std::byte((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

std::vector<char> read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(StoreTest, WritesFilesOfAllSizesInPiecesOfAllSizes) {
  for (size_t size : {size_t(0), size_t(1), bufferBytes - 1, bufferBytes,
                      bufferBytes + 1, 9 * bufferBytes + 5})
    for (size_t piece : {size_t(1000), bufferBytes, 3 * bufferBytes + 1}) {
      std::vector<std::byte> bytes = draw(size);
      std::string path =
          folder + "/" + std::to_string(size) + "-" + std::to_string(piece);
      auto file = FileWriter::create(path);
      ASSERT_TRUE(file.ok()) << file.status().message();
      for (size_t begin = 0; begin < size; begin += piece)
        ASSERT_TRUE(file->append(std::span(bytes).subspan(
                                     begin, std::min(piece, size - begin)))
                        .ok());
      EXPECT_EQ(file->bytes(), size);
      auto hash = file->finish();
      ASSERT_TRUE(hash.ok()) << hash.status().message();
      EXPECT_EQ(*hash, XXH3_64bits(bytes.data(), size));
      EXPECT_TRUE(file->sync().ok());
      std::vector<char> found = read(path);
      ASSERT_EQ(found.size(), size);
      EXPECT_EQ(memcmp(found.data(), bytes.data(), size), 0);
    }
}

/// Bytes of a file that are in the page cache.
size_t countCached(const std::string &path, size_t bytes) {
  constexpr size_t page = 4096;
  int descriptor = open(path.c_str(), O_RDONLY);
  void *mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  EXPECT_NE(mapped, MAP_FAILED);
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(mapped, bytes, pages.data()), 0);
  munmap(mapped, bytes);
  return page * std::count_if(pages.begin(), pages.end(),
                              [](unsigned char one) { return one & 1; });
}

TEST_F(StoreTest, GoesPastThePageCacheUntilSomebodyWaits) {
  int probe = open((folder + "/probe").c_str(), O_CREAT | O_WRONLY, 0600);
  bool canDo = fcntl(probe, F_SETFL, O_DIRECT) == 0;
  close(probe);
  struct statfs system;
  ASSERT_EQ(statfs(folder.c_str(), &system), 0);
  if (!canDo || system.f_type == TMPFS_MAGIC)
    GTEST_SKIP() << "all files there are in the page cache";
  constexpr size_t bytes = 8 * bufferBytes + 5;
  for (bool waits : {false, true}) {
    std::atomic<bool> isAwaited = waits;
    std::string path = folder + (waits ? "/waits" : "/goes on");
    auto file = FileWriter::create(path, &isAwaited);
    ASSERT_TRUE(file.ok() && file->append(draw(bytes)).ok());
    ASSERT_TRUE(file->finish().ok() && file->sync().ok());
    size_t cached = countCached(path, bytes);
    if (waits)
      EXPECT_GE(cached, bytes);
    else
      EXPECT_LE(cached, bufferBytes); // its end
  }
}

TEST_F(StoreTest, MovesAFileWhileItWrites) {
  std::vector<std::byte> bytes = draw(5 * bufferBytes);
  auto file = FileWriter::create(folder + "/moved");
  ASSERT_TRUE(file.ok() && file->append(bytes).ok());
  FileWriter moved = std::move(*file);
  ASSERT_TRUE(moved.append(bytes).ok() && moved.finish().ok());
  EXPECT_EQ(read(folder + "/moved").size(), 10 * bufferBytes);
}

TEST_F(StoreTest, LeavesAFileUnfinished) {
  auto file = FileWriter::create(folder + "/left");
  ASSERT_TRUE(file.ok() && file->append(draw(9 * bufferBytes)).ok());
}

/// The disk is as good as full.
TEST_F(StoreTest, SaysWhatTheThreadOfAFileCouldNotWrite) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = {3 * bufferBytes / 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string path = folder + "/full";
  auto file = FileWriter::create(path);
  Status status = file.status();
  for (int i = 0; i < 20 && status.ok(); ++i)
    status = file->append(draw(bufferBytes));
  bool isToldEarly = !status.ok();
  auto hash = file->finish();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(isToldEarly); // not when all of a long file has been computed
  ASSERT_FALSE(hash.ok());
  EXPECT_EQ(hash.status().message(),
            "cannot write '" + path + "': File too large");
}

using Names = std::set<std::string>;

TEST_F(StoreTest, WritesOverTheCheckpointThatWasGivenUp) {
  save(1, {"a", "b", "c"}, 3 * bufferBytes);
  save(2, {"a", "b"}, 10);
  save(3, {"a", "b"}, 10);
  EXPECT_TRUE(store().prune(2, /*keepsSpare=*/true).ok());
  EXPECT_EQ(list(folder),
            (Names{"step-00000001.spare", "step-00000002", "step-00000003"}));
  // Of what there is, "c" and the index are not the new one's; "a" is longer.
  save(4, {"a", "b"}, 10);
  EXPECT_EQ(list(folder),
            (Names{"step-00000002", "step-00000003", "step-00000004"}));
  EXPECT_EQ(list(folder + "/step-00000004"),
            (Names{"a/10", "b/10", std::string(indexName) + "/10"}));
}

TEST_F(StoreTest, KeepsOneSpareAtMostAndListsNone) {
  for (uint64_t step : {1, 2, 3, 4})
    save(step, {"a"}, 10);
  EXPECT_TRUE(store().prune(2, /*keepsSpare=*/true).ok());
  EXPECT_EQ(list(folder),
            (Names{"step-00000002.spare", "step-00000003", "step-00000004"}));
  auto entries = store().list();
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->size(), 2u);
  EXPECT_TRUE(store().prune(1, /*keepsSpare=*/true).ok());
  EXPECT_EQ(list(folder), (Names{"step-00000003.spare", "step-00000004"}));
  EXPECT_TRUE(store().removeUnfinished().ok());
  EXPECT_EQ(list(folder), (Names{"step-00000004"}));
  save(5, {"a"}, 10);
  EXPECT_TRUE(store().prune(1, /*keepsSpare=*/false).ok());
  EXPECT_EQ(list(folder), (Names{"step-00000005"}));
}

} // namespace
