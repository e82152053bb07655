//===- SearchTest.cpp - The search against trying everything --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Search/Bounds.h"
#include "Simulator/Estimator.h"
#include "TryAll.h"
#include "plait/Schedule/Generators.h"

#include <cstdlib>
#include <map>
#include <set>

using namespace plait;
using namespace plait::planner;

namespace {

//===----------------------------------------------------------------------===//
// Against trying everything
//===----------------------------------------------------------------------===//

/// Everything is tried of fewer sizes, unless PLAIT_LONG_TESTS is set.
template <typename Size>
void setSizes(std::vector<Size> &sizes, std::initializer_list<int> few,
              std::initializer_list<int> many) {
  const auto &given = std::getenv("PLAIT_LONG_TESTS") ? many : few;
  sizes.assign(given.begin(), given.end());
}

TEST(Search, IsExact) { checkExact(Setting()); }

/// What is cut depends on microbatch and mesh.
TEST(Search, IsExactWhereCollectivesAreCut) {
  Setting setting;
  setting.training.tensorOverlap = 4;
  checkExact(setting);
  setting.space = SearchSpace::all();
  setting.space.chunks = {1, 2};
  setSizes(setting.space.microBatch, {1, 4}, {1, 2, 4});
  checkExact(setting);
}

void useProcessor(Setting &setting) {
  setting.cluster = *parseCluster("cpu:8");
  setting.shape.hidden = 256;
  setting.shape.heads = 8;
  setting.shape.vocabulary = 256;
  setting.shape.sequence = setting.training.sequence = 128;
  setting.training.precision = Precision::FP32;
  setting.training.flashAttention = false;
}

TEST(Search, IsExactWhereRanksShareAProcessor) {
  Setting setting;
  useProcessor(setting);
  checkExact(setting);
}

/// Of ZeRO 3 a rank gathers what of ZeRO 2 it has: neither needs less memory
/// than the other for every plan.
TEST(Search, IsExactWhereZeroStagesFitInNoOrder) {
  Setting setting;
  useProcessor(setting);
  setting.shape.vocabulary = 8192;
  setting.space = SearchSpace::all();
  setting.space.schedule = {"1f1b", "v-min"};
  setting.space.chunks = {1, 2};
  setting.space.microBatch = {1, 2, 4};
  for (double megabytes : {90, 100, 120}) {
    SCOPED_TRACE(megabytes);
    setting.cluster.device.memoryBytes = 1e6 * megabytes;
    checkExact(setting);
  }
}

TEST(Search, IsExactWhereMemoryIsShort) {
  Setting setting;
  setting.shape.layers = 24;
  setting.training.globalBatch = 32;
  checkExact(setting);
}

/// Scores of a mixture's attention that is not fused, from what most plans have
/// room for down to what few have: then bounds on memory decide, also of what
/// lies on hosts.
TEST(Search, IsExactWhereScoresFillMemory) {
  Setting setting;
  setting.training.flashAttention = false;
  setting.shape.heads = 64;
  setting.shape.experts = {.experts = 8, .choices = 2, .ffn = 4096};
  setting.training.globalBatch = 16;
  setting.cluster = *parseCluster("h100:1x8");
  setting.space = SearchSpace::all();
  setting.space.mesh[Axis::EP] = {1};
  setting.space.schedule = {"1f1b", "interleaved-1f1b"};
  setSizes(setting.space.chunks, {1, 2}, {1, 2, 5});
  setting.space.mesh[Axis::CP] = {1, 2};
  setSizes(setting.space.microBatch, {1, 4}, {1, 2, 4, 8});
  std::set<std::string> picked;
  for (double gigabytes : {40, 20, 12}) {
    SCOPED_TRACE(gigabytes);
    setting.cluster.device.memoryBytes = 1e9 * gigabytes;
    checkExact(setting);
    picked.insert(print(setting.run().configuration));
  }
  EXPECT_EQ(picked.size(), 3u);
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
  setSizes(setting.space.chunks, {1, 3}, {1, 2, 3});
  setSizes(setting.space.mesh[Axis::CP], {1, 2}, {1, 2, 4});
  setSizes(setting.space.microBatch, {1, 3}, {1, 2, 3, 8});
  checkExact(setting);
  setting.training.flashAttention = false;
  setting.shape.layers = 24;
  setting.cluster = *parseCluster("v100:2x4");
  checkExact(setting);
  setting.space.recompute.push_back(Recompute::Auto);
  checkExact(setting);
}

/// Memory from what all of it needs on devices down to what nothing fits into.
TEST(Search, IsExactWithWhatLiesOnHosts) {
  Setting setting;
  setting.space = SearchSpace::all();
  setting.space.schedule = {"1f1b", "zb-h1", "zb-auto"};
  setting.space.chunks = {1};
  setting.space.zero = {0, 1, 3};
  setting.space.microBatch = {1, 2};
  setting.space.mesh[Axis::CP] = {1};
  setting.cluster = *parseCluster("a100-80g:1x4");
  setting.training.globalBatch = 16;
  std::set<Offload> picked;
  for (double gigabytes : {60, 24, 16, 12, 8, 6, 5})
    for (double bandwidth : {20e9, 200e9, 2e12}) {
      SCOPED_TRACE(std::to_string(gigabytes) + " " + std::to_string(bandwidth));
      setting.cluster.device.memoryBytes = 1e9 * (gigabytes + 2);
      setting.cluster.device.places[MemoryPlace::Host].bandwidth = bandwidth;
      if (setting.message().empty()) {
        checkExact(setting);
        picked.insert(setting.run().configuration.offload);
      }
    }
  EXPECT_TRUE(picked.count(Offload::None));
  EXPECT_TRUE(picked.count(Offload::Activations));
  EXPECT_TRUE(picked.count(Offload::Both));
}

/// No configuration is faster with anything on hosts, which the search relies
/// on; but for layers that are chosen for memory, and orders for costs.
TEST(Search, NoCopyMakesAStepShorter) {
  Setting setting;
  setting.cluster = *parseCluster("h100:2x2");
  setting.cluster.inter.bandwidth /= 30; // much to hide
  setting.cluster.device.places[MemoryPlace::Host].bandwidth /= 10;
  setting.space = SearchSpace::all();
  std::erase(setting.space.schedule, "zb-auto");
  setting.space.microBatch = {1, 2};
  setting.space.mesh[Axis::CP] = {1, 2};
  setting.space.chunks = {1, 2};
  setting.shape.tied = true;
  double plain = 0;
  int64_t count = 0, longer = 0;
  forEachConfiguration(
      setting, [&](const Work &, const Configuration &c, const Estimate &e) {
        if (c.offload == Offload::None)
          plain = e.iterationSeconds;
        EXPECT_GE(e.iterationSeconds, plain * (1 - 1e-12)) << print(c);
        longer += e.iterationSeconds > 1.01 * plain;
        ++count;
      });
  EXPECT_GT(count, 1000);
  EXPECT_GT(longer, count / 4);
}

/// What hosts have not room for does not fit.
TEST(Search, HostsAreBounded) {
  Setting setting;
  setting.space.offload = {Offload::None, Offload::Optimizer};
  setting.shape.layers = 24;
  setting.cluster = *parseCluster("a100-80g:1x1");
  setting.pins.recompute = Recompute::Full;
  SearchResult result = setting.run();
  ASSERT_EQ(result.configuration.offload, Offload::Optimizer);
  double host = result.estimate.getNeeds()[MemoryPlace::Host];
  EXPECT_GT(host, 0);
  setting.cluster.device.places[MemoryPlace::Host].bytes = 1.001 * host;
  EXPECT_EQ(setting.run().configuration.offload, Offload::Optimizer);
  setting.cluster.device.places[MemoryPlace::Host].bytes = 0.999 * host;
  EXPECT_NE(setting.message(), "");
  setting.pins.offload = Offload::Optimizer;
  EXPECT_NE(setting.message().find(" of the host's memory, has "),
            std::string::npos)
      << setting.message();
}

/// What has the same bound as `c`, or a larger one: the search bounds all of
/// them by this one.
Configuration getLike(Configuration c) {
  const schedule::Generator &row = **schedule::findGenerator(c.schedule);
  bool turns = row.placement == schedule::Placement::VShape && c.chunks == 2;
  c.schedule = turns                ? "zb-v"
               : row.splitsBackward ? "zb-h1"
                                    : "interleaved-1f1b";
  c.chunks = turns ? 2 : row.splitsBackward ? 1 : 8;
  c.layers.clear();
  return c;
}

/// Every bound against the estimate of each configuration.
void checkBounds(Setting setting) {
  setting.space = SearchSpace::all();
  setting.space.mesh[Axis::CP] = {1, 2};
  setSizes(setting.space.microBatch, {1, 4}, {1, 2, 4});
  Bounds bounds(setting.cluster, setting.training);
  int count = 0;
  // Works of the visitor live for one visit; bounds know them by address.
  std::map<std::pair<int, bool>, Work> works;
  forEachConfiguration(setting, [&](const Work &given, const Configuration &c,
                                    const Estimate &e) {
    const Work &work =
        works.try_emplace({c.mesh[Axis::TP], c.sequenceParallel}, given)
            .first->second;
    bool splits = (*schedule::findGenerator(c.schedule))->splitsBackward;
    const Result<Probe> &probe = bounds.getProbe(work, c, splits);
    ASSERT_TRUE(probe.ok());
    double seconds = bounds.getSeconds(work, *probe, c, splits);
    EXPECT_LE(seconds, e.iterationSeconds) << print(c);
    EXPECT_LE(bounds.getSeconds(work, *probe, getLike(c), splits), seconds)
        << print(c);
    double beside = bounds.getStepSeconds(work, *probe, c, e.iterationSeconds);
    EXPECT_LE(seconds + beside, e.iterationSeconds) << print(c);
    EXPECT_LE(bounds.getBytes(*probe, c, bounds.getGathered(work, c)),
              e.peakMemory())
        << print(c);
    double bytes = 0;
    bool fits = e.peakMemory() <= setting.cluster.device.usableBytes();
    EXPECT_FALSE(fits &&
                 bounds.isBeaten(work, c, splits,
                                 e.iterationSeconds * (1 + 1e-6), bytes))
        << print(c);
    EXPECT_LE(bytes, e.peakMemory()) << print(c);
    // Nor where there is no more memory than that: bounds look at the cluster.
    Device device = setting.cluster.device;
    setting.cluster.device.memoryBytes =
        e.peakMemory() * (1 + 1e-9) + device.reservedBytes;
    EXPECT_FALSE(bounds.isBeaten(work, c, splits,
                                 e.iterationSeconds * (1 + 1e-6), bytes))
        << print(c);
    setting.cluster.device = device;
    ++count;
  });
  EXPECT_GT(count, 1000);
}

TEST(Search, BoundsHold) { checkBounds(Setting()); }

/// A pipeline whose memory is full cannot be fast: what a microbatch keeps it
/// keeps until it has been through all stages behind. Found by the bound alone,
/// of a schedule that is searched for and of which it knows no more than that.
TEST(Search, BoundsCountHowLongMemoryIsHeld) {
  Setting setting;
  setting.shape.layers = 16;
  Work work = buildTransformerWork(setting.shape, 1, false);
  Configuration c;
  c.mesh[Axis::PP] = 8;
  c.schedule = "zb-auto";
  auto estimate = planner::estimate(work, setting.cluster, setting.training, c);
  ASSERT_TRUE(estimate.ok());
  double resident = 0;
  for (const StageMemory &memory : estimate->memory)
    resident = std::max(resident, memory.peak() - memory.activations);
  double held = estimate->memory.front().activations;
  auto isBeaten = [&](double activations) {
    Cluster cluster = setting.cluster;
    cluster.device.memoryBytes =
        resident + activations + cluster.device.reservedBytes;
    double bytes = 0;
    // 0: it may well fit, but not in this time.
    return Bounds(cluster, setting.training)
               .isBeaten(work, c, true, estimate->iterationSeconds * (1 + 1e-6),
                         bytes) &&
           bytes == 0;
  };
  EXPECT_FALSE(isBeaten(held));
  EXPECT_TRUE(isBeaten(held / 6));
}

/// The moments of schedules that are not searched for are known, and so are
/// what gradients of weights that run apart still need and what ZeRO 3 gathers:
/// what does not fit takes no estimate. Of orders that are searched for no more
/// is known than of any.
TEST(Search, BoundsKnowWhatIsHeld) {
  Setting setting;
  setting.shape.experts = {.experts = 8, .choices = 2, .ffn = 4096};
  Work work = buildTransformerWork(setting.shape, 1, false);
  Bounds bounds(setting.cluster, setting.training);
  Configuration c;
  c.mesh[Axis::PP] = 4;
  c.mesh[Axis::DP] = 2;
  int count = 0, loose = 0;
  for (const char *name : {"1f1b", "gpipe", "interleaved-1f1b", "zb-h1",
                           "zb-h2", "zb-v", "v-half", "v-min", "zb-auto"})
    for (Recompute recompute : {Recompute::None, Recompute::Full})
      for (int zero = 0; zero <= 3; ++zero) {
        c.schedule = name;
        const schedule::Generator &row = **schedule::findGenerator(name);
        c.chunks = int(row.minChunks);
        c.recompute = recompute;
        c.zero = zero;
        auto e = estimate(work, setting.cluster, setting.training, c);
        ASSERT_TRUE(e.ok()) << print(c);
        Cluster less = setting.cluster;
        less.device.memoryBytes = 0.3 * e->peakMemory();
        double bytes = 0;
        Bounds(less, setting.training)
            .isBeaten(work, c, row.splitsBackward, 1e300, bytes);
        EXPECT_LE(bytes, e->peakMemory()) << print(c);
        loose += bytes < 0.999 * e->peakMemory() && !row.searches;
        ++count;
      }
  EXPECT_EQ(loose, 0);
  EXPECT_EQ(count, 72);
}

/// Replicas exchange more than work hides, also where they share nodes.
TEST(Search, BoundsHoldWhereReplicasExchangeMuch) {
  Setting setting;
  setting.cluster = *parseCluster("h100:4x2");
  setting.cluster.inter.bandwidth /= 30;
  setting.training.globalBatch = 16;
  setting.shape.layers = 7;
  setting.shape.tied = true;
  checkBounds(setting);
}

TEST(Search, BoundsHoldWhereRanksShareAProcessor) {
  Setting setting;
  useProcessor(setting);
  checkBounds(setting);
}

/// The head is worth 0.65 layers, and each rank would have two of 16: the
/// fastest cut leaves a rank with both. In whole layers the bound sees that,
/// as it sees that ranks wait for those in front.
TEST(Search, BoundsCountWholeLayersAndEnds) {
  Setting setting;
  setting.shape.layers = 16;
  Work work = buildTransformerWork(setting.shape, 1, false);
  Bounds bounds(setting.cluster, setting.training);
  Configuration c;
  c.mesh[Axis::PP] = 8;
  for (const char *name : {"1f1b", "zb-h1"}) {
    SCOPED_TRACE(name);
    c.schedule = name;
    c.layers.clear();
    bool splits = c.schedule != "1f1b";
    auto getRatio = [&] {
      auto estimate =
          planner::estimate(work, setting.cluster, setting.training, c);
      return bounds.getSeconds(work, *bounds.getProbe(work, c, splits), c,
                               splits) /
             estimate->pipelineSeconds;
    };
    EXPECT_LE(getRatio(), 1);
    EXPECT_GT(getRatio(), 0.85); // 0.75 if layers could be divided
    // Stages that are left out wait for nobody.
    c.layers = {0, 0, 0, 4, 4, 4, 4, 0};
    EXPECT_LE(getRatio(), 1);
  }
}

/// To the last bit, in whatever order they are asked for.
TEST(Search, EstimatesThatShareTimesAreTheSame) {
  Setting setting;
  setting.space = SearchSpace::all();
  setting.space.mesh[Axis::CP] = {1, 2};
  setting.space.microBatch = {1, 4};
  setting.space.schedule = {"1f1b", "zb-h1"};
  setting.space.zero = {0};
  BlockTimes times;
  std::map<std::pair<int, bool>, Work> works; // times know them by address
  int count = 0;
  forEachConfiguration(setting, [&](const Work &given, const Configuration &c,
                                    const Estimate &alone) {
    const Work &work =
        works.try_emplace({c.mesh[Axis::TP], c.sequenceParallel}, given)
            .first->second;
    Context context{work, setting.cluster, setting.training, c};
    context.blockTimes = &times;
    Result<Estimate> shared = planner::estimate(context);
    ASSERT_TRUE(shared.ok());
    EXPECT_EQ(shared->iterationSeconds, alone.iterationSeconds) << print(c);
    EXPECT_EQ(shared->layers, alone.layers) << print(c);
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
        setting.pins.mesh[Axis::TP] = tensor;
        setting.pins.sequenceParallel = sp;
        double best = setting.run().estimate.iterationSeconds;
        double bound =
            getTensorBound(*source.get({from, 1, sp}, 1, reason), tensor, 8,
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

} // namespace
