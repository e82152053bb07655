//===- OuterTest.cpp - What is said of sites ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Configuration.h"

#include <gtest/gtest.h>

using namespace plait;

TEST(Outer, IsReadAndWritten) {
  for (const char *text :
       {"none",
        "average:1",
        "average:16777216",
        "diloco:30",
        "diloco:30,rate=0.5",
        "diloco:2,momentum=0",
        "average:8+sites:4",
        "diloco:30,rate=1,momentum=0.5+sites:2",
        "median:2+sites:3",
        "trimmed:4,drop=2",
        "clip:4,radius=0.5",
        "clip:1,radius=1e30,rate=0.5+sites:2",
        "gossip:ring",
        "gossip:one-peer+sites:6",
        "gossip:grid,every=3,average=2",
        "streaming:3",
        "scaffold:4",
        "tracking:exponential,every=2",
        "awc:ring",
        "streaming:8,fragments=3,delay=0,mix=0,rate=1+sites:2",
        "sparseloco:30",
        "sparseloco:30,rate=0.5,chunk=64,k=3+sites:2",
        "average:8,compress=int8+sites:2",
        "diloco:8,compress=topk,k=9",
        "streaming:8,compress=e3m0,chunk=512,decay=0.5",
        "gossip:[0.5 0.5/0.5 0.5|1 0/0 1],average=4+sites:2"}) {
    Outer value;
    Status status = parse("outer", text, value);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(print(value), text);
  }
  // What means the same is the same.
  for (auto [text, same] :
       {std::pair("diloco:3,rate=0.7", "diloco:3"),
        {"diloco:3,momentum=0.90,rate=0.70", "diloco:3"},
        {"trimmed:3,drop=1", "trimmed:3"},
        {"clip:3,rate=1,radius=2.50", "clip:3,radius=2.5"},
        {"clip:3,radius=1e+5+sites:2", "clip:3,radius=1e05+sites:2"},
        {"sparseloco:3,compress=topk2,k=64,decay=0.95", "sparseloco:3"},
        {"diloco:3,decay=1,k=2,chunk=128,compress=topk",
         "diloco:3,compress=topk,chunk=128"},
        {"gossip:ring,average=2,every=1", "gossip:ring,average=2"},
        {"diloco:3,momentum=0,rate=2", "diloco:3,rate=2,momentum=0"}}) {
    Outer value;
    ASSERT_TRUE(parse("outer", text, value).ok());
    EXPECT_EQ(print(value), same);
  }
}

TEST(Outer, SaysWhatItCannotRead) {
  for (auto [text, message] :
       {std::pair("", "outer is \"\", expected none, average, diloco, median, "
                      "trimmed, clip, gossip, streaming, sparseloco, scaffold, "
                      "tracking or awc"),
        {"mean:2", "outer is \"mean\", expected none, average, diloco, median, "
                   "trimmed, clip, gossip, streaming, sparseloco, scaffold, "
                   "tracking or awc"},
        {"none:2", "outer is \"none\", expected none, average, diloco, median, "
                   "trimmed, clip, gossip, streaming, sparseloco, scaffold, "
                   "tracking or awc"},
        {"streaming:8,fragments=0",
         "outer has fragments \"0\", expected 1 to 16777216"},
        {"streaming:8,delay=-1",
         "outer has delay \"-1\", expected 0 to 16777216"},
        {"streaming:8,mix=1",
         "outer has mix \"1\", expected 0 or more, and below 1"},
        {"streaming:2+sites:2",
         "outer has fragments 2 and delay 1, expected at most 2 together, the "
         "steps from one agreement to the next"},
        {"streaming:999,fragments=86+sites:2",
         "outer has fragments 86 and delay 1, which takes 258 lists of "
         "actions, expected at most 253"},
        {"gossip:ring,every=0",
         "outer has every \"0\", expected 1 to 16777216"},
        {"gossip:ring,drop=1", "outer has option \"drop=1\", expected every=E "
                               "or average=A, each once"},
        {"gossip:[1;0]", "outer has ';' in a matrix, expected numbers"},
        {"gossip:[1 0]+sites:2",
         "outer has a matrix of 1 row, expected 2, one for each site"},
        {"trimmed:2,drop=2+sites:4",
         "outer has drop 2, which takes more than 4 sites, not 4"},
        {"clip:2", "outer has no radius, expected one, as in clip:8,radius=1"},
        {"clip:2,rate=1",
         "outer has no radius, expected one, as in clip:8,radius=1"},
        {"clip", "outer is \"clip\", expected the steps behind it, as "
                 "clip:8,radius=1"},
        {"clip:0,radius=1", "outer has steps \"0\", expected 1 to 16777216"},
        {"clip:2,radius=0",
         "outer has radius \"0\", expected above 0 and at most 1e30"},
        {"clip:2,radius=-1",
         "outer has radius \"-1\", expected above 0 and at most 1e30"},
        {"clip:2,radius=nan",
         "outer has radius \"nan\", expected above 0 and at most 1e30"},
        {"clip:2,radius=inf",
         "outer has radius \"inf\", expected above 0 and at most 1e30"},
        {"clip:2,radius=",
         "outer has radius \"\", expected above 0 and at most 1e30"},
        {"clip:2,radius=1,radius=1",
         "outer has option \"radius=1\", expected radius=R or rate=R, each "
         "once"},
        {"clip:2,radius=1,drop=1",
         "outer has option \"drop=1\", expected radius=R or rate=R, each once"},
        {"average:2,radius=1",
         "outer has option \"radius=1\", expected compress=NAME, chunk=C, k=K "
         "or decay=D, each once"},
        {"gossip:ring,every=4096,average=4097+sites:2",
         "outer has average 4097 of every 4096 steps, expected 16777216 steps "
         "at most"},
        {"average", "outer is \"average\", expected the steps behind it, as "
                    "average:8"},
        {"average:", "outer has steps \"\", expected 1 to 16777216"},
        {"average:0", "outer has steps \"0\", expected 1 to 16777216"},
        {"average:-1", "outer has steps \"-1\", expected 1 to 16777216"},
        {"average:1.5", "outer has steps \"1.5\", expected 1 to 16777216"},
        {"average:2,rate=1",
         "outer has option \"rate=1\", expected compress=NAME, chunk=C, k=K "
         "or decay=D, each once"},
        {"average:2,compress=zip",
         "outer has compress \"zip\", expected int8, int4, e3m0, sign, topk or "
         "topk2"},
        {"average:2,chunk=64",
         "outer has chunk 64, k 0 and decay 0, but no compress"},
        {"sparseloco:2,chunk=33",
         "outer has chunk 33, expected a power of two from 32 to 4096"},
        {"sparseloco:2,k=4097", "outer has k \"4097\", expected 1 to 4096"},
        {"sparseloco:2,decay=nan", "outer has decay \"nan\", expected 0 to 1"},
        {"diloco:2,", "outer is \"diloco:2,\", which ends with a comma"},
        {"diloco:2,lr=1",
         "outer has option \"lr=1\", expected rate=R, momentum=M, "
         "compress=NAME, chunk=C, k=K or decay=D, each once"},
        {"diloco:2,rate=1,rate=1",
         "outer has option \"rate=1\", expected rate=R, momentum=M, "
         "compress=NAME, chunk=C, k=K or decay=D, each once"},
        {"diloco:2,rate", "outer has rate \"\", expected above 0 and at most "
                          "10"},
        {"diloco:2,rate=0", "outer has rate \"0\", expected above 0 and at "
                            "most 10"},
        {"diloco:2,rate=nan", "outer has rate \"nan\", expected above 0 and at "
                              "most 10"},
        {"diloco:2,momentum=1", "outer has momentum \"1\", expected 0 or more, "
                                "and below 1"},
        {"average:2+sites", "outer has sites \"\", expected 1 to 16777216"},
        {"average:2+feedback",
         "outer has \"feedback\" behind the scheme, expected sites:N"}}) {
    Outer value;
    EXPECT_EQ(parse("outer", text, value).message(), message);
  }
}

static std::string take(std::string mesh, const char *outer) {
  Outer value;
  EXPECT_TRUE(parse("outer", outer, value).ok());
  Status status = takeSites(mesh, value);
  return status.ok() ? mesh + " " + print(value) : status.message();
}

TEST(Outer, TakesSitesOfTheMesh) {
  EXPECT_EQ(take("dp=2,sites=4,tp=2", "average:2"),
            "dp=2,tp=2 average:2+sites:4");
  EXPECT_EQ(take("sites=1", "average:2"), " average:2+sites:1");
  EXPECT_EQ(take("dp=2", "none"), "dp=2 none");
  // Once more: nothing is left to take.
  EXPECT_EQ(take("dp=2", "average:2+sites:4"), "dp=2 average:2+sites:4");
  EXPECT_EQ(take("sites=4", "average:2+sites:4"), " average:2+sites:4");
  EXPECT_EQ(take("sites=2", "average:2+sites:4"),
            "`mesh` has 2 sites, but `outer` is average:2+sites:4");
  EXPECT_EQ(take("sites=2", "none"),
            "`mesh` has 2 sites, but no `outer` says what flows between them, "
            "such as average:8");
  EXPECT_EQ(take("dp=2", "average:2"),
            "`outer` is average:2, but `mesh` has no sites, as in "
            "dp=2,sites=2");
  EXPECT_EQ(take("sites=2,sites=2", "average:2"),
            "mesh \"sites=2,sites=2\" names axis \"sites\" twice");
  EXPECT_EQ(take("sites", "average:2"),
            "mesh has sites \"\", expected 1 to 16777216");
}

TEST(Outer, DividesTheBatch) {
  TrainingConfiguration configuration;
  ASSERT_TRUE(setField(configuration, "outer", "average:2+sites:3").ok());
  configuration.globalBatch = 24;
  configuration.microBatch = 2;
  Result<int64_t> count = countMicrobatches(configuration, 2);
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 2);
  configuration.globalBatch = 8;
  EXPECT_EQ(countMicrobatches(configuration, 2).status().message(),
            "global batch 8 is not divisible by micro batch 2 times 2 replicas "
            "times "
            "sites 3 = 12");
}

TEST(Outer, ExcludesWhatLeavesNoWeights) {
  TrainingConfiguration configuration;
  ASSERT_TRUE(setField(configuration, "outer", "diloco:2+sites:2").ok());
  configuration.zero = 2;
  EXPECT_TRUE(checkExecutable(configuration).ok());
  configuration.zero = 3;
  EXPECT_EQ(checkExecutable(configuration).message(),
            "outer is diloco:2+sites:2, which takes zero 0 to 2, not 3");
  configuration.zero = 0;
  configuration.offload = Offload::Both;
  EXPECT_EQ(checkExecutable(configuration).message(),
            "outer is diloco:2+sites:2, which takes no offload of the "
            "optimizer, but it is optimizer+activations");
  configuration.offload = Offload::Activations;
  EXPECT_TRUE(checkExecutable(configuration).ok());
  ASSERT_TRUE(setField(configuration, "compress", "int8+feedback").ok());
  EXPECT_EQ(checkExecutable(configuration).message(),
            "outer is diloco:2+sites:2, which takes no feedback, but compress "
            "is int8+feedback");
  ASSERT_TRUE(setField(configuration, "compress", "powersgd").ok());
  EXPECT_EQ(checkExecutable(configuration).message(),
            "outer is diloco:2+sites:2, which takes no factors of matrices, "
            "but compress is powersgd");
}

TEST(Outer, CountsWhatIsKept) {
  for (auto [text, bytes] : {std::pair("none", 0),
                             {"average:2", 0},
                             {"diloco:2", 8},
                             {"diloco:2,momentum=0", 4},
                             {"streaming:3", 12},
                             {"sparseloco:3", 8},
                             {"average:2,compress=int8", 8},
                             {"average:2,compress=int8,decay=0", 4},
                             {"streaming:3,compress=e3m0", 16},
                             {"scaffold:2", 4},
                             {"awc:ring", 4},
                             {"tracking:ring", 8}}) {
    Outer value;
    ASSERT_TRUE(parse("outer", text, value).ok());
    EXPECT_EQ(value.getStateBytes(), bytes);
  }
}

TEST(Outer, CountsWordsOfMessages) {
  // 64 positions of 12 bits, a scale, and 64 codes of 2 bits.
  for (auto [text, words] : {std::pair("sparseloco:3", 24 + 1 + 4),
                             {"diloco:3,compress=int8", 1 + 64},
                             {"diloco:3,compress=e3m0,chunk=32", 1 + 4},
                             {"diloco:3,compress=sign", 1 + 128},
                             // A bit for each element takes less.
                             {"diloco:3,compress=topk,chunk=64,k=32", 2 + 32},
                             {"diloco:3,compress=topk,chunk=64,k=1", 1 + 1}}) {
    Outer value;
    ASSERT_TRUE(parse("outer", text, value).ok());
    EXPECT_EQ(value.getCompression().countChunkWords(), words) << text;
  }
}

TEST(Outer, SaysWhichSplitsCutChunks) {
  // Shape, blocks of each dimension, elements of a chunk.
  EXPECT_TRUE(hasWholeChunks(std::vector<int64_t>{3, 5},
                             std::vector<int64_t>{1, 1}, 4096));
  EXPECT_TRUE(hasWholeChunks(std::vector<int64_t>{8, 128},
                             std::vector<int64_t>{1, 2}, 64));
  EXPECT_FALSE(hasWholeChunks(std::vector<int64_t>{8, 128},
                              std::vector<int64_t>{1, 2}, 128));
  EXPECT_TRUE(hasWholeChunks(std::vector<int64_t>{8, 128},
                             std::vector<int64_t>{2, 1}, 512));
  // The last row of padding would begin inside of a chunk.
  EXPECT_FALSE(hasWholeChunks(std::vector<int64_t>{7, 128},
                              std::vector<int64_t>{2, 1}, 512));
  EXPECT_TRUE(hasWholeChunks(std::vector<int64_t>{7, 128},
                             std::vector<int64_t>{2, 1}, 128));
}
