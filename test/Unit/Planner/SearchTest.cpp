//===- SearchTest.cpp - Picking a configuration ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Search.h"
#include "PublishedRuns.h"
#include "Search/Bounds.h"
#include "TransformerSource.h"
#include "plait/Planner/Report.h"
#include "plait/Schedule/Generators.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

using namespace plait;
using namespace plait::planner;

namespace {

/// What a search is about; small, so that everything can be tried.
struct Setting {
  TransformerShape shape;
  Training training;
  Cluster cluster = *parseCluster("a100-80g:2x4");
  SearchSpace space;
  Pins pins;

  Setting() {
    shape.layers = 10;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = 24;
    space.microBatch = {1, 2, 3, 4, 6, 8, 12, 24};
    space.schedule = {"gpipe", "1f1b"};
    space.recompute = {Recompute::None, Recompute::Full};
    space.sequenceParallel = {false, true};
  }

  Result<SearchResult> tryRun() {
    sources.push_back(std::make_shared<TransformerSource>(shape));
    return search(*sources.back(), cluster, training, space, pins);
  }
  SearchResult run() {
    Result<SearchResult> result = tryRun();
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : SearchResult();
  }
  std::string message() {
    Result<SearchResult> result = tryRun();
    return result.ok() ? "" : result.status().message();
  }

private:
  std::vector<std::shared_ptr<TransformerSource>> sources;
};

//===----------------------------------------------------------------------===//
// Against trying everything
//===----------------------------------------------------------------------===//

/// Visits every configuration of the setting's space that makes sense, with
/// what estimate() says of it. Written without the search's enumeration.
template <typename Visitor>
void forEachConfiguration(const Setting &setting, Visitor visit) {
  int ranks = setting.cluster.devices();
  Configuration c;
  auto innermost = [&](const Work &work) {
    for (int zero : setting.space.zero)
      for (const Recomputation &recompute : setting.space.recompute)
        for (int64_t micro : setting.space.microBatch) {
          c.zero = zero;
          c.recompute = recompute;
          c.microBatch = micro;
          for (bool even : {false, true}) {
            int stages = c.pipeline * c.chunks;
            if (even && setting.shape.layers % stages != 0)
              continue;
            c.layers.assign(even ? size_t(stages) : 0,
                            int(setting.shape.layers) / stages);
            auto e = estimate(work, setting.cluster, setting.training, c);
            if (e.ok())
              visit(work, c, *e);
          }
        }
  };
  auto schedules = [&](const Work &work) {
    for (const std::string &name : setting.space.schedule)
      for (int chunks : setting.space.chunks) {
        const schedule::Generator &row = **schedule::findGenerator(name);
        if (uint32_t(chunks) < row.minChunks ||
            uint32_t(chunks) > row.maxChunks)
          continue;
        c.schedule = name;
        c.chunks = chunks;
        innermost(work);
      }
  };
  for (c.tensor = 1; c.tensor <= ranks; c.tensor *= 2)
    for (bool sp : setting.space.sequenceParallel) {
      c.sequenceParallel = sp;
      Work work = buildTransformerWork(setting.shape, c.tensor, sp);
      for (int cp : setting.space.context)
        for (c.pipeline = 1; c.pipeline <= ranks; ++c.pipeline) {
          c.context = cp;
          for (c.data = 1; c.ranks() <= ranks; ++c.data)
            for (ContextParallel kind : setting.space.contextParallel) {
              c.contextParallel = kind;
              bool isSame = cp == 1 && kind != setting.space.contextParallel[0];
              if (!isSame &&
                  (c.ranks() == ranks || !setting.cluster.device.isProcessor))
                schedules(work);
            }
        }
    }
}

/// What runners-up differ in.
std::string nameFamily(const Configuration &c) {
  std::ostringstream family;
  family << c.pipeline << " " << c.data << " " << c.tensor << " " << c.context
         << " "
         << (c.pipeline > 1 ? c.schedule + std::to_string(c.chunks) : "");
  return family.str();
}

/// Everything about `setting` that trying everything can tell.
void checkExact(Setting setting) {
  SearchResult result = setting.run();
  double usable = setting.cluster.device.usableBytes();
  double best = 1e300, ideal = 1e300;
  std::map<std::string, double> families;
  std::set<std::string> idle;
  double full = 1e300; // the best that uses all devices
  forEachConfiguration(
      setting, [&](const Work &, const Configuration &c, const Estimate &e) {
        ideal = std::min(ideal, e.iterationSeconds);
        if (e.peakMemory() > usable)
          return;
        best = std::min(best, e.iterationSeconds);
        auto [known, isNew] =
            families.try_emplace(nameFamily(c), e.iterationSeconds);
        known->second = std::min(known->second, e.iterationSeconds);
        if (c.ranks() == setting.cluster.devices())
          full = std::min(full, e.iterationSeconds);
        else
          idle.insert(nameFamily(c));
      });
  // A simpler schedule may be picked that is as fast but for one percent.
  std::string pick = nameFamily(result.configuration);
  EXPECT_LE(result.estimate.iterationSeconds, 1.01 * best);
  // And its layers may have moved since.
  EXPECT_LE(result.estimate.iterationSeconds, families[pick] * (1 + 1e-12));
  // The search takes selective recomputation of fused attention for none, which
  // it is, but for rounding.
  EXPECT_LE(result.lowerBoundSeconds, best * (1 + 1e-12));
  EXPECT_LE(result.idealSeconds, ideal);
  EXPECT_GT(result.idealSeconds, 0.2 * ideal); // a bound that says something
  // Where nothing uses all devices there is little to compare with.
  if (full < 1e300)
    EXPECT_GT(result.counts.pruned, result.counts.considered / 3);
  // The runners-up are the best of their kind, in order.
  std::multiset<double> seconds;
  for (const auto &[name, value] : families)
    if (name != pick && (!idle.count(name) || value < full))
      seconds.insert(value);
  EXPECT_EQ(result.idleDevices > 0, best < full);
  EXPECT_EQ(result.allDevices.has_value(), best < full && full < 1e300);
  if (result.allDevices)
    EXPECT_DOUBLE_EQ(result.allDevices->estimate.iterationSeconds, full);
  auto expected = seconds.begin();
  for (const Alternative &runner : result.runnersUp)
    EXPECT_DOUBLE_EQ(runner.estimate.iterationSeconds, *expected++);
  EXPECT_EQ(result.runnersUp.size(), std::min<size_t>(10, seconds.size()));
}

TEST(Search, IsExact) { checkExact(Setting()); }

TEST(Search, IsExactWhereRanksShareAProcessor) {
  Setting setting;
  setting.cluster = *parseCluster("cpu:8");
  setting.shape.hidden = 256;
  setting.shape.heads = 8;
  setting.shape.vocabulary = 256;
  setting.shape.sequence = setting.training.sequence = 128;
  setting.training.precision = Precision::FP32;
  setting.training.flashAttention = false;
  checkExact(setting);
}

TEST(Search, IsExactWhereMemoryIsShort) {
  Setting setting;
  setting.shape.layers = 24;
  setting.training.globalBatch = 32;
  checkExact(setting);
}

/// Devices whose number divides neither layers nor batch well.
TEST(Search, IsExactWithIdleDevices) {
  Setting setting;
  setting.cluster = *parseCluster("a100-80g:1x7");
  checkExact(setting);
  EXPECT_EQ(setting.run().idleDevices, 1);
  setting.training.globalBatch = 5;
  setting.space.microBatch = {1, 5};
  checkExact(setting);
  // Nothing uses all of them.
  setting.shape.layers = 4;
  setting.shape.heads = 4;
  checkExact(setting);
}

TEST(Search, IsExactOverEverything) {
  Setting setting;
  setting.space = SearchSpace::all();
  setting.space.chunks = {1, 2, 3};
  setting.space.context = {1, 2, 4};
  setting.space.microBatch = {1, 2, 3, 8};
  checkExact(setting);
  setting.training.flashAttention = false;
  setting.shape.layers = 24;
  setting.cluster = *parseCluster("v100:2x4");
  checkExact(setting);
  setting.space.recompute.push_back(Recompute::Auto);
  checkExact(setting);
}

/// The bound of each configuration against its estimate.
TEST(Search, BoundsHold) {
  Setting setting;
  setting.space = SearchSpace::all();
  setting.space.context = {1, 2};
  setting.space.microBatch = {1, 2, 4};
  Bounds bounds(setting.cluster, setting.training);
  int count = 0;
  // Works of the visitor live for one visit; bounds know them by address.
  std::map<std::pair<int, bool>, Work> works;
  forEachConfiguration(setting, [&](const Work &given, const Configuration &c,
                                    const Estimate &e) {
    const Work &work =
        works.try_emplace({c.tensor, c.sequenceParallel}, given).first->second;
    bool splits = (*schedule::findGenerator(c.schedule))->splitsBackward;
    const Probe *probe = bounds.getProbe(work, c, splits);
    ASSERT_TRUE(probe);
    EXPECT_LE(bounds.getSeconds(*probe, c, splits), e.iterationSeconds)
        << print(c);
    EXPECT_LE(bounds.getBytes(*probe, c), e.peakMemory()) << print(c);
    double bytes = 0;
    bool fits = e.peakMemory() <= setting.cluster.device.usableBytes();
    EXPECT_FALSE(fits &&
                 bounds.isBeaten(work, c, splits,
                                 e.iterationSeconds * (1 + 1e-6), bytes))
        << print(c);
    EXPECT_LE(bytes, e.peakMemory()) << print(c);
    ++count;
  });
  EXPECT_GT(count, 1000);
}

TEST(Search, TensorBoundHolds) {
  Setting setting;
  TransformerSource source(setting.shape);
  std::string reason;
  for (bool sp : {false, true})
    for (int from : {1, 2})
      for (int tensor : {4, 8}) {
        setting.pins.tensor = tensor;
        setting.pins.sequenceParallel = sp;
        double best = setting.run().estimate.iterationSeconds;
        double bound = getTensorBound(*source.get(from, sp, reason), tensor, 8,
                                      setting.cluster, setting.training);
        EXPECT_LE(bound, best);
        EXPECT_GT(bound, 0.4 * best); // or it says nothing
      }
}

/// Whatever degrees it is about, with sequence parallelism and without.
TEST(Search, TellsOnceWhyAModelCannotBeSplit) {
  Setting setting;
  setting.cluster = *parseCluster("a100-80g:1x8");
  setting.shape.heads = 2;
  SearchResult result = setting.run();
  ASSERT_FALSE(result.notes.empty());
  EXPECT_EQ(result.notes[0], "tp 4, 8: tp does not divide the 2 heads");
}

/// Profiles are dear: a degree that cannot win is not asked for, and one that
/// can is.
TEST(Search, AsksForFewProfiles) {
  Setting setting;
  setting.cluster = *parseCluster("a100-80g:8x2");
  setting.cluster.inter.bandwidth /= 100;
  SearchResult slow = setting.run();
  EXPECT_EQ(slow.counts.profiles, 3); // tp 1, tp 2, tp 2 with sp
  ASSERT_FALSE(slow.notes.empty());
  EXPECT_EQ(slow.notes[0],
            "tp 4, 8, 16: work and communication alone take longer than "
            "the pick");
  setting.cluster.inter = setting.cluster.intra;
  EXPECT_GT(setting.run().counts.profiles, 3);
}

//===----------------------------------------------------------------------===//
// Pins, ties, repetition
//===----------------------------------------------------------------------===//

TEST(Search, KeepsPins) {
  Setting setting;
  setting.pins = *parsePins("tp=2, pp=2, schedule=gpipe, micro-batch=2, "
                            "recompute=full, sp=on");
  Configuration c = setting.run().configuration;
  EXPECT_EQ(print(c),
            "pp 2, dp 2, tp 2, gpipe, micro-batch 2, recompute full, sp");
  EXPECT_EQ(c.layers.size(), 2u);
  setting.pins.pipeline = 3;
  setting.pins.layers = {4, 4, 2};
  setting.pins.data = 1;
  c = setting.run().configuration;
  EXPECT_EQ(c.ranks(), 6); // fewer than the cluster has
  EXPECT_EQ(c.layers, (std::vector{4, 4, 2}));
}

TEST(Search, ReadsPins) {
  const char *text = "pp=2,dp=3,tp=4,cp=1,schedule=zb-v,chunks=2,micro-batch=8,"
                     "recompute=selective,zero=1,sp=off,"
                     "context-parallel=heads";
  EXPECT_EQ(print(*parsePins(text)), text);
  auto message = [](const char *text) {
    Result<Pins> pins = parsePins(text);
    return pins.ok() ? "" : pins.status().message();
  };
  EXPECT_EQ(message("tp"), "'tp' is no pin, expected name=value");
  EXPECT_EQ(message("tp=0"), "tp is \"0\", expected 1 to 16777216");
  EXPECT_EQ(message("tp=4x"), "tp is \"4x\", expected 1 to 16777216");
  EXPECT_EQ(message("zero=4"), "zero is \"4\", expected 0 to 3");
  EXPECT_EQ(message("tp=4,tp=2"), "tp is given twice");
  EXPECT_EQ(message("sp=maybe"),
            "sequence-parallel is \"maybe\", expected true, false, on or off");
  EXPECT_EQ(message("context-parallel=ring"),
            "context-parallel is \"ring\", expected gather or heads");
  EXPECT_EQ(message("recompute=some"),
            "recompute is \"some\", expected none, selective, full or auto");
  EXPECT_EQ(message("depth=4").rfind("unknown pin 'depth', expected one of", 0),
            0u);
  EXPECT_NE(message("schedule=2f2b").find("unknown schedule '2f2b'"),
            std::string::npos);
}

TEST(Search, IsDeterministic) {
  Setting setting;
  setting.space = SearchSpace::all();
  SearchResult one = setting.run(), two = setting.run();
  EXPECT_EQ(toJson({one, setting.cluster, setting.training}),
            toJson({two, setting.cluster, setting.training}));
}

/// Many schedules take any number of chunks: the largest is no number.
TEST(Search, InterleavesWhereTheBubbleIsLarge) {
  Setting setting;
  setting.space.schedule = {"1f1b", "interleaved-1f1b"};
  setting.space.chunks = {1, 2, 5};
  setting.pins = *parsePins("pp=2,tp=4");
  setting.training.globalBatch = 2;
  Configuration c = setting.run().configuration;
  EXPECT_EQ(c.schedule, "interleaved-1f1b");
  EXPECT_GT(c.chunks, 1);
}

/// With free schedules, gpipe and 1f1b take the same time on one stage, and no
/// more is said than what was decided.
TEST(Search, BreaksTies) {
  Setting setting;
  setting.space.schedule = {"zb-h1", "gpipe", "1f1b"};
  setting.pins = *parsePins("pp=1");
  EXPECT_EQ(setting.run().configuration.schedule, "1f1b");
}

/// The more microbatches there are, the less a zero bubble is worth: up to one
/// percent it is not picked.
TEST(Search, PrefersWhatIsSimple) {
  Setting setting;
  setting.space.microBatch = {1};
  int preferred = 0, picked = 0;
  for (int64_t batch = 4; batch <= 2048; batch += batch / 8 + 1) {
    setting.training.globalBatch = batch;
    auto search = [&](std::vector<std::string> schedules) {
      setting.space.schedule = std::move(schedules);
      setting.pins = *parsePins("pp=2,dp=1,tp=4");
      setting.pins.layers = {5, 5}; // they do not move afterwards
      return setting.run();
    };
    SearchResult plain = search({"1f1b"}), split = search({"zb-h2"});
    SearchResult both = search({"zb-h2", "1f1b"});
    double gain = plain.lowerBoundSeconds / split.lowerBoundSeconds - 1;
    bool isPlain = gain <= 0.01;
    EXPECT_EQ(both.configuration.schedule, isPlain ? "1f1b" : "zb-h2") << batch;
    EXPECT_LE(both.withinPercent(), 1);
    bool isTold =
        !both.notes.empty() && both.notes.back().starts_with("schedule 1f1b: ");
    EXPECT_EQ(isTold, isPlain && gain > 0) << batch;
    preferred += isTold;
    picked += !isPlain;
  }
  EXPECT_GT(preferred, 0);
  EXPECT_GT(picked, 0);
}

//===----------------------------------------------------------------------===//
// What Megatron-LM does, by cost
//===----------------------------------------------------------------------===//

/// GPT-3 175B on 64 nodes of 8 A100 (Narayanan et al. 2021, section 5.2:
/// "tensor parallelism of size 8 within a node, pipeline parallelism across
/// nodes"), with batches as there and what that program could do.
Setting makeGpt3() {
  Setting setting;
  setting.shape.layers = 96;
  setting.shape.hidden = 12288;
  setting.shape.heads = 96;
  setting.shape.vocabulary = 51200;
  setting.training.globalBatch = 1536;
  setting.training.precision = Precision::FP16;
  setting.cluster = *parseCluster("a100-80g:64x8");
  return setting;
}

TEST(Search, KeepsTensorParallelismInsideOfANode) {
  SearchResult result = makeGpt3().run();
  EXPECT_EQ(result.configuration.tensor, 8);
  EXPECT_GE(result.configuration.pipeline, 4);
  // Not a rule: with links between nodes as fast as inside, it may leave them.
  Setting setting = makeGpt3();
  setting.cluster.devicesPerNode = 4;
  setting.cluster.nodes = 128;
  EXPECT_LE(setting.run().configuration.tensor, 4);
}

TEST(Search, SplitsTheSequenceWhereActivationsAreShort) {
  SearchResult result = makeGpt3().run();
  EXPECT_TRUE(result.configuration.sequenceParallel);
  Setting setting = makeGpt3();
  setting.pins.sequenceParallel = false;
  EXPECT_GT(setting.run().estimate.iterationSeconds,
            result.estimate.iterationSeconds);
}

TEST(Search, GivesTheEndsFewerLayers) {
  Setting setting;
  setting.shape.vocabulary = 256000;
  setting.shape.layers = 24;
  setting.pins = *parsePins("pp=4,tp=2");
  std::vector<int> layers = setting.run().configuration.layers;
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_LT(layers[3], layers[1]);
}

/// The cut by cost gives a stage in the middle what does not divide; in front
/// fewer wait for it.
TEST(Search, MovesLayersToWhereNobodyWaits) {
  Setting setting;
  setting.shape.layers = 33;
  setting.training.globalBatch = 16;
  setting.space.microBatch = {1};
  setting.pins = *parsePins("pp=8,dp=1,tp=1,schedule=1f1b");
  SearchResult result = setting.run();
  Configuration byCost = result.configuration;
  byCost.layers.clear();
  auto before =
      estimate(*result.work, setting.cluster, setting.training, byCost);
  ASSERT_TRUE(before.ok());
  EXPECT_LT(result.estimate.iterationSeconds, 0.99 * before->iterationSeconds);
  EXPECT_LE(result.estimate.peakMemory(), setting.cluster.device.usableBytes());
  // No further layer is worth moving.
  std::vector<int> best = result.configuration.layers;
  for (size_t from = 0; from < best.size(); ++from)
    for (size_t to = 0; to < best.size(); ++to) {
      Configuration moved = result.configuration;
      moved.layers[from] -= 1, moved.layers[to] += 1;
      auto after =
          estimate(*result.work, setting.cluster, setting.training, moved);
      if (after.ok() && moved.layers[from] > 0)
        EXPECT_GE(after->iterationSeconds,
                  result.estimate.iterationSeconds * (1 - 1e-9));
    }
}

/// Each published run against the planner's own pick on the same cluster, with
/// no more memory than the device has.
TEST(Search, IsNoSlowerThanPublishedRuns) {
  auto sources = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/published_runs.json");
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  int tried = 0;
  for (const PublishedSource &published : *sources)
    for (size_t i = 0; i < published.runs.size() && i < 2; ++i) {
      const PublishedRun &run = published.runs[i];
      Result<Estimate> theirs = run.predict();
      if (!theirs.ok() ||
          theirs->peakMemory() > run.cluster.device.usableBytes() ||
          run.configuration.ranks() != run.cluster.devices())
        continue;
      TransformerSource source(run.shape);
      auto result =
          search(source, run.cluster, run.training, SearchSpace::all());
      ASSERT_TRUE(result.ok()) << run.id << ": " << result.status().message();
      EXPECT_LE(result->estimate.iterationSeconds,
                theirs->iterationSeconds * (1 + 1e-9))
          << run.id;
      ++tried;
    }
  EXPECT_GE(tried, 5);
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

TEST(Search, SaysWhatIsShort) {
  Setting setting;
  setting.shape.layers = 96;
  setting.shape.hidden = 12288;
  setting.shape.heads = 96;
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "nothing fits into memory: ")) << message;
  EXPECT_TRUE(contains(message, "(optimizer ")) << message;
  EXPECT_TRUE(contains(message, " GB short; what fits: ")) << message;
  // What is advised is true, and one node fewer is too few.
  size_t at = message.find("--cluster a100-80g:");
  ASSERT_NE(at, std::string::npos) << message;
  std::string advised = message.substr(at + 10);
  setting.cluster = *parseCluster(advised.substr(0, advised.find(' ')));
  EXPECT_EQ(setting.message(), "");
  --setting.cluster.nodes;
  EXPECT_NE(setting.message(), "");
}

/// More ranks of a processor share its memory; what nothing helps says so.
TEST(Search, AdvisesOnlyWhatHelps) {
  Setting setting;
  setting.cluster = *parseCluster("cpu:1");
  setting.shape.layers = 32;
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "GB short; no change of options or cluster was "
                                "found that fits"))
      << message;
}

TEST(Search, NamesTheOptionThatFits) {
  Setting setting;
  setting.shape.layers = 24;
  setting.pins = *parsePins("pp=1,tp=2,sp=off");
  setting.training.globalBatch = 32;
  // 5.1e9 parameters over two ranks: 16 bytes each but for ZeRO.
  std::string message = setting.message();
  EXPECT_TRUE(message.empty() || contains(message, "what fits: ")) << message;
  setting.pins = *parsePins("pp=1,tp=1");
  setting.shape.layers = 32;
  message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: another --mesh (")) << message;
}

TEST(Search, NamesDividedState) {
  // One layer of one head of 5.1e9 parameters: only the batch can be split.
  Setting setting;
  setting.shape.layers = setting.shape.heads = 1;
  setting.shape.hidden = 20480;
  setting.training.globalBatch = 8;
  setting.pins.zero = 0;
  setting.pins.microBatch = 1;
  setting.space.sequenceParallel = {false};
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: --zero 1 (")) << message;
  setting.space.zero = {0, 1};
  message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: --zero 1 (")) << message;
}

TEST(Search, SaysWhatContradicts) {
  Setting setting;
  setting.pins.zero = 1;
  EXPECT_EQ(setting.message(),
            "zero 1 is not in the search space 'plainest', which has 0");
  setting.pins = *parsePins("schedule=zb-v");
  EXPECT_EQ(setting.message(), "schedule zb-v is not in the search space "
                               "'plainest', which has 1f1b, gpipe");
  setting.pins = *parsePins("pp=4,dp=4,tp=4");
  EXPECT_EQ(setting.message(), "the mesh has 64 ranks, the cluster 8 devices");
  setting.pins = Pins();
  setting.training.globalBatch = 7;
  setting.shape.layers = 1; // and stages for embedding and head: pp up to 3
  setting.shape.heads = 2;
  // GPUs may idle; as many ranks of a processor are wanted as are asked for.
  EXPECT_EQ(setting.message(), "");
  setting.cluster = *parseCluster("cpu:8");
  setting.shape.hidden = 256;
  EXPECT_EQ(setting.message(),
            "no mesh of 8 ranks divides a global batch of 7; possible: "
            "--global-batch 6, --global-batch 8, --cluster cpu:1x7");
  setting.training.globalBatch = 8;
  setting.pins = *parsePins("micro-batch=3");
  EXPECT_TRUE(contains(setting.message(), "no micro-batch"))
      << setting.message();
  setting.pins = *parsePins("tp=8");
  EXPECT_EQ(setting.message(), "the model cannot be split as asked: tp 8: tp "
                               "does not divide the 2 heads");
  setting.pins = *parsePins("tp=3");
  EXPECT_EQ(setting.message(), "tp 3 does not divide 8 ranks");
}

//===----------------------------------------------------------------------===//
// Why not another
//===----------------------------------------------------------------------===//

TEST(Search, SaysWhyNot) {
  Setting setting;
  TransformerSource source(setting.shape);
  auto pick = search(source, setting.cluster, setting.training, setting.space);
  ASSERT_TRUE(pick.ok());
  auto ask = [&](const char *pins) {
    return whyNot(*pick, source, setting.cluster, setting.training,
                  setting.space, *parsePins(pins));
  };
  auto other = ask("tp=8");
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->other.configuration.tensor, 8);
  EXPECT_TRUE(contains(other->other.why, " % slower: ")) << other->other.why;
  EXPECT_TRUE(contains(other->other.why, "tp communication"))
      << other->other.why;
  const Difference &step = other->differences.front();
  EXPECT_EQ(step.part, "step");
  EXPECT_DOUBLE_EQ(step.pick, pick->estimate.iterationSeconds);
  double sum = 0;
  for (size_t i = 1; !other->differences[i].isBytes; ++i)
    sum += other->differences[i].other;
  EXPECT_NEAR(sum, step.other, 1e-9 * step.other);
  // Outside of the space, and impossible.
  EXPECT_TRUE(ask("zero=1").ok());
  auto never = ask("pp=16");
  ASSERT_FALSE(never.ok());
  EXPECT_TRUE(contains(never.status().message(), "no mesh of 8 ranks"))
      << never.status().message();
}

} // namespace
