//===- CostTest.cpp - Costs against measurements --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Cost.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace plait;
using namespace plait::planner;

namespace {

Cluster parse(const std::string &text) {
  Result<Cluster> cluster = parseCluster(text);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return cluster.ok() ? *cluster : Cluster();
}

Operation makeMatmul(int64_t m, int64_t n, int64_t k, bool weightGradient) {
  Operation operation;
  operation.kind = OperationKind::Matmul;
  operation.m = m, operation.n = n, operation.k = k;
  if (weightGradient) {
    operation.pass = Pass::BackwardWeight;
    operation.scaled = Operation::Scaled::K;
  }
  return operation;
}

Operation makeAttention(int64_t heads, int64_t headSize, int64_t sequence,
                        Pass pass) {
  Operation operation;
  operation.kind = OperationKind::Attention;
  operation.pass = pass;
  operation.heads = operation.keyValueHeads = heads;
  operation.headSize = headSize;
  operation.queries = operation.keys = sequence;
  return operation;
}

double getSeconds(const Operation &operation, const Device &device,
                  const CostOptions &options) {
  return operationCost(operation, device, options).seconds;
}

double getMatmulSeconds(int64_t batch, int64_t m, int64_t n, int64_t k,
                        const Device &device, Precision precision) {
  return matmulCost(batch, m, n, k, device, precision).seconds;
}

//===----------------------------------------------------------------------===//
// Matmuls
//===----------------------------------------------------------------------===//

/// bf16; `accumulates`: into fp32, the gradient of a weight. Every ninth (A100
/// PCIe) and twenty-third (B200) of the matmuls that MooreThreads/SimuMax
/// publishes in its system files, by size; efficiency against 312 and 2250
/// TFLOP/s.
struct MeasuredMatmul {
  int64_t m, n, k;
  bool accumulates;
  double efficiency;
};

constexpr MeasuredMatmul a100Matmuls[] = {
    {576, 5120, 4096, true, 0.596},    {4096, 1024, 4096, true, 0.466},
    {1536, 5120, 4096, true, 0.624},   {4096, 1280, 8192, false, 0.663},
    {4096, 4096, 3584, false, 0.727},  {4096, 5120, 3072, false, 0.718},
    {4096, 8192, 2048, false, 0.679},  {4096, 3584, 8192, false, 0.670},
    {4096, 6144, 5120, false, 0.699},  {4096, 5120, 8192, false, 0.755},
    {8192, 7168, 4096, true, 0.700},   {4096, 4096, 16128, false, 0.758},
    {10240, 8192, 4096, true, 0.704},  {4096, 8192, 14336, false, 0.740},
    {33024, 2048, 7168, false, 0.747}, {4096, 18432, 7168, false, 0.757},
    {28672, 8192, 4096, true, 0.707},  {4096, 64256, 4096, false, 0.746},
    {102400, 5120, 4096, true, 0.715}, {129280, 7168, 4096, true, 0.712},
};

constexpr MeasuredMatmul b200Matmuls[] = {
    {576, 5120, 4096, true, 0.224},     {4096, 1536, 5120, false, 0.414},
    {4096, 4096, 3072, false, 0.639},   {2048, 4096, 8192, false, 0.417},
    {8192, 3584, 4096, true, 0.404},    {4096, 16384, 2048, false, 0.487},
    {4096, 14336, 4096, false, 0.559},  {4096, 4096, 16128, false, 0.477},
    {4096, 10240, 8192, false, 0.645},  {28672, 4096, 4096, true, 0.588},
    {4096, 32128, 4096, false, 0.626},  {26624, 16384, 2048, true, 0.413},
    {2048, 8192, 64128, false, 0.505},  {8192, 8192, 16384, false, 0.511},
    {4096, 20480, 16384, false, 0.533}, {16384, 24576, 5120, false, 0.501},
    {16384, 26624, 8192, true, 0.454},  {4096, 128256, 8192, false, 0.487},
    {57344, 8192, 16384, true, 0.469},  {16384, 128256, 8192, false, 0.485},
};

template <size_t count>
double getMeanError(const MeasuredMatmul (&matmuls)[count],
                    const Device &device) {
  double sum = 0;
  for (const MeasuredMatmul &matmul : matmuls) {
    double ideal =
        2.0 * matmul.m * matmul.n * matmul.k / device.peak(Precision::BF16);
    double efficiency =
        ideal /
        getSeconds(makeMatmul(matmul.m, matmul.n, matmul.k, matmul.accumulates),
                   device, {});
    sum += std::abs(efficiency / matmul.efficiency - 1);
  }
  return sum / count;
}

TEST(Matmul, MeasuredEfficiencies) {
  // Over all 183 matmuls the mean error is 3.4 %; the sample's may be larger
  // by its own spread.
  EXPECT_LT(getMeanError(a100Matmuls, parse("a100-pcie:1").device), 0.05);
  // 9 % over all 514: like shapes differ by 30 % in the measurements
  // themselves, which caught the device before and after its power limit acts;
  // the sample has more of those from before.
  EXPECT_LT(getMeanError(b200Matmuls, parse("b200:1").device), 0.15);
}

TEST(Matmul, NeverAboveThePeak) {
  for (const std::string &name : getDevicePresets()) {
    Device device = parse(name + ":1").device;
    for (int64_t size : {1, 7, 64, 1000, 4096, 20000})
      for (Precision precision :
           {Precision::FP32, Precision::BF16, Precision::FP16}) {
        double ideal = 2.0 * size * size * size / device.peak(precision);
        EXPECT_GT(getMatmulSeconds(1, size, size, size, device, precision),
                  ideal)
            << name << " " << size;
      }
  }
}

TEST(Matmul, WavesAreQuantised) {
  // 108 multiprocessors: a 109th tile of 256 x 128 costs a second wave, unless
  // smaller tiles do better; more than a tenth is lost either way.
  Device device = parse("a100-80g:1").device;
  double full =
      getMatmulSeconds(1, 256 * 12, 128 * 9, 8192, device, Precision::BF16);
  double more = getMatmulSeconds(1, 256 * 12, 128 * 9 + 128, 8192, device,
                                 Precision::BF16);
  EXPECT_GT(more / full, 1.1 * 10 / 9);
}

TEST(Matmul, OddHeadSizes) {
  // BLOOM 182B (Le Scao et al. 2022 and the project's chronicles): 128 heads of
  // 108 took 162.7 s a step, 96 heads of 144 took 124.8 s and 64 heads of 216
  // 121.3 s: 108 elements are no multiple of 16 bytes. With 12 layers a stage
  // and 128 + 5 microbatches of 2 sequences, the 38 s are 24 ms a layer:
  // forward, recomputed forward, and backward. The bound is a factor of 1.5
  // either way, because what else differs is not in the figures.
  Device device = parse("a100-80g:8").device;
  CostOptions options = {Precision::BF16, /*flashAttention=*/false,
                         /*dropout=*/false, /*microBatch=*/2, 1};
  auto layerSeconds = [&](int64_t headSize) {
    int64_t heads = 13824 / headSize / 8;
    Operation forward = makeAttention(heads, headSize, 2048, Pass::Forward);
    Operation backward =
        makeAttention(heads, headSize, 2048, Pass::BackwardInput);
    return 2 * getSeconds(forward, device, options) +
           getSeconds(backward, device, options);
  };
  double difference = layerSeconds(108) - layerSeconds(144);
  EXPECT_GT(difference, 24e-3 / 1.5);
  EXPECT_LT(difference, 24e-3 * 1.5);
  EXPECT_LT(layerSeconds(216), layerSeconds(144));
}

TEST(Attention, OnAProcessor) {
  // The user's guide: attention of two of GPT-2's layers, 2 sequences of 1024
  // tokens, took 0.40 s of a step as one operation, on one of the two cores.
  // Between runs that differed by up to a fifth. Otherwise it took 0.84 s; for
  // want of a cause the model says 0.56, which still is the longer time.
  Device device = parse("cpu:2").device;
  auto stepSeconds = [&](Precision precision, bool flash) {
    CostOptions options = {precision, flash, /*dropout=*/false,
                           /*microBatch=*/2, 1};
    double seconds = 0;
    for (Pass pass : {Pass::Forward, Pass::BackwardInput})
      seconds +=
          2 * getSeconds(makeAttention(12, 64, 1024, pass), device, options);
    return seconds;
  };
  double fused = stepSeconds(Precision::FP32, true);
  EXPECT_NEAR(fused, 0.40, 0.08);
  EXPECT_GT(stepSeconds(Precision::FP32, false), 1.25 * fused);
  // It is computed in fp32 whatever is stored.
  EXPECT_NEAR(stepSeconds(Precision::BF16, true), fused, 0.01 * fused);
}

TEST(Matmul, SizesThatScale) {
  Device device = parse("h100:1").device;
  CostOptions two;
  two.microBatch = 2;
  Operation operation = makeMatmul(2048, 4096, 4096, false);
  double fixed = getSeconds(operation, device, two);
  EXPECT_EQ(fixed,
            getMatmulSeconds(1, 2048, 4096, 4096, device, Precision::BF16));
  operation.scaled = Operation::Scaled::M;
  EXPECT_EQ(getSeconds(operation, device, two),
            getMatmulSeconds(1, 4096, 4096, 4096, device, Precision::BF16));
  two.sequenceParts = 4;
  EXPECT_EQ(getSeconds(operation, device, two),
            getMatmulSeconds(1, 1024, 4096, 4096, device, Precision::BF16));
  EXPECT_EQ(getMatmulSeconds(1, 0, 4096, 4096, device, Precision::BF16), 0);
}

/// What a weight's gradient is added to is read and written; a short
/// contraction does not hide all of it.
TEST(Matmul, GradientsOfWeightsMoveTheirSum) {
  Device device = parse("a100-80g:1").device;
  Operation operation = makeMatmul(5120, 20480, 1024, false);
  operation.pass = Pass::BackwardWeight;
  operation.scaled = Operation::Scaled::K;
  CostOptions options;
  double added = getSeconds(operation, device, options);
  options.weightGradientBytes = 2;
  double written = getSeconds(operation, device, options);
  EXPECT_EQ(written,
            getMatmulSeconds(1, 5120, 20480, 1024, device, Precision::BF16));
  double traffic =
      6.0 * 5120 * 20480 / (device.memoryBandwidth * device.memoryFraction);
  EXPECT_NEAR(added - written, device.matrix.serialFraction * traffic,
              1e-3 * added);
}

//===----------------------------------------------------------------------===//
// Attention and kernels
//===----------------------------------------------------------------------===//

TEST(Attention, MeasuredEfficiencies) {
  // Causal, bf16, one sequence of 4096 on A100 PCIe and B200, head size 128;
  // FLOPs of the full mask against the peak, five matmuls backward
  // (MooreThreads/SimuMax). The bound of a quarter is for few heads, where the
  // library's choice of tiles is not public.
  struct {
    const char *device;
    int64_t heads;
    double forward, backward;
  } rows[] = {
      {"a100-pcie:1", 64, 1.187, 1.005}, {"a100-pcie:1", 32, 1.132, .976},
      {"a100-pcie:1", 16, .991, .882},   {"a100-pcie:1", 8, .777, .763},
      {"b200:1", 128, .997, .832},       {"b200:1", 64, .872, .729},
      {"b200:1", 32, .732, .796},        {"b200:1", 16, .578, .755}};
  for (auto &row : rows) {
    Device device = parse(row.device).device;
    for (Pass pass : {Pass::Forward, Pass::BackwardInput}) {
      bool forward = pass == Pass::Forward;
      double flops = (forward ? 4.0 : 10.0) * row.heads * 4096 * 4096 * 128;
      double efficiency =
          flops / device.peak(Precision::BF16) /
          getSeconds(makeAttention(row.heads, 128, 4096, pass), device, {});
      double measured = forward ? row.forward : row.backward;
      EXPECT_NEAR(efficiency / measured, 1, 0.25)
          << row.device << " " << row.heads << (forward ? " fwd" : " bwd");
    }
  }
}

TEST(Attention, RecomputingTheUnfusedCore) {
  // Korthikanti et al. 2022, table 4: recomputing the inside of attention adds
  // 1.3 ms to a layer of the 22B model (h 6144, 64 heads, tp 8, 4 sequences of
  // 2048, dropout). The bound of a fifth is the rounding of the table and of
  // its two terms.
  CostOptions options = {Precision::FP16, false, true, 4, 1};
  double seconds = getSeconds(makeAttention(8, 96, 2048, Pass::Forward),
                              parse("a100-80g:8").device, options);
  EXPECT_NEAR(seconds, 1.3e-3, 0.2 * 1.3e-3);
}

TEST(Attention, FusedSkipsTheMask) {
  Device device = parse("h100:1").device;
  Operation causal = makeAttention(16, 128, 16384, Pass::Forward);
  Operation full = causal;
  full.causal = false;
  // Half, and what the longest blocks leave idle at the end.
  EXPECT_NEAR(getSeconds(causal, device, {}) / getSeconds(full, device, {}),
              0.5, 0.05);
}

/// A GPU launches twice as much, and adds up gradients of half of the keys: two
/// tensors of 16 heads of 128, read twice and written once in bf16.
TEST(Attention, ZigzagOrderIsTwoCallsOnAGpu) {
  Device device = parse("h100:1").device;
  CostOptions even, reordered;
  even.sequenceParts = reordered.sequenceParts = 4;
  reordered.reorderedContext = true;
  auto secondCall = [&](Pass pass, const Device &device) {
    Operation operation = makeAttention(16, 128, 16384, pass);
    return getSeconds(operation, device, reordered) -
           getSeconds(operation, device, even);
  };
  double launch = device.launchSeconds;
  EXPECT_NEAR(secondCall(Pass::Forward, device), launch, 1e-12);
  Operation sum;
  sum.elementsPerSequence = 3.0 * 8192 * 16 * 128;
  EXPECT_NEAR(secondCall(Pass::BackwardInput, device),
              2 * launch + 2 * getSeconds(sum, device, {}), 1e-12);
  EXPECT_EQ(secondCall(Pass::Forward, parse("cpu:1").device), 0);
}

TEST(Kernel, LargeOnesAreBoundByMemorySmallOnesByTheLaunch) {
  Device device = parse("h100:1").device;
  Operation operation;
  operation.elementsPerSequence = 1e9;
  double seconds = getSeconds(operation, device, {});
  EXPECT_NEAR(seconds, 2e9 / (3.35e12 * device.memoryFraction), 0.02 * seconds);
  operation.elementsPerSequence = 1;
  EXPECT_LT(getSeconds(operation, device, {}), 2 * device.launchSeconds);
  EXPECT_GE(getSeconds(operation, device, {}), device.launchSeconds);
  operation.elementsPerSequence = 0;
  EXPECT_EQ(getSeconds(operation, device, {}), 0);
}

TEST(Kernel, FourByteElementsAreAlwaysFourBytes) {
  Device device = parse("h100:1").device;
  Operation two, four;
  two.elementsPerSequence = 2e8;
  four.fourBytePerSequence = 1e8;
  EXPECT_EQ(getSeconds(two, device, {}), getSeconds(four, device, {}));
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

constexpr double mebi = 1048576;

struct MeasuredPoint {
  double bytes, busBandwidth; // GB/s
};

double getMeanError(const std::vector<MeasuredPoint> &points, Group group,
                    const Cluster &cluster) {
  double sum = 0;
  for (auto [bytes, busBandwidth] : points) {
    double measured =
        2.0 * (group.ranks - 1) / group.ranks * bytes / (busBandwidth * 1e9);
    double seconds =
        collectiveSeconds(CollectiveKind::AllReduce, bytes, group, cluster);
    sum += std::abs(seconds / measured - 1);
  }
  return sum / double(points.size());
}

TEST(Collective, MeasuredCurves) {
  // stas00/ml-engineering, network (PyTorch's all_reduce_bench).
  EXPECT_LT(getMeanError({{1 * mebi, 39.93},
                          {4 * mebi, 107.16},
                          {16 * mebi, 219.89},
                          {64 * mebi, 346.51},
                          {256 * mebi, 436.15},
                          {1024 * mebi, 463.58},
                          {16384 * mebi, 482.26}},
                         {8, 8}, parse("h200:1x8")),
            0.06); // 3 % over the curve, most of it at 1 MiB
  EXPECT_LT(getMeanError({{1 * mebi, 36.06},
                          {4 * mebi, 76.48},
                          {16 * mebi, 254.96},
                          {64 * mebi, 400.6},
                          {256 * mebi, 646.11},
                          {1024 * mebi, 723.34},
                          {16384 * mebi, 845.67}},
                         {8, 8}, parse("b200:1x8")),
            0.12); // 8 %; the curve itself is uneven at 4 to 32 MiB
  EXPECT_LT(
      getMeanError({{1 * mebi, 5.37},
                    {16 * mebi, 64.43},
                    {64 * mebi, 156.74},
                    {256 * mebi, 229.09},
                    {1024 * mebi, 361.99},
                    {16384 * mebi, 381.8}},
                   {32, 8},
                   parse(PLAIT_SOURCE_DIR "/examples/clusters/b200-efa.json")),
      0.10); // 6 %
}

TEST(Collective, MeasuredTables) {
  // VIA-Research/vTrain, trace: 2, 4 and 8 members.
  Cluster a100 = parse("a100-80g:1x8"), v100 = parse("v100:1x8");
  // Two machines of the same kind differ by 15 % at 16 to 128 MiB.
  EXPECT_LT(getMeanError(
                {{4 * mebi, 69.61}, {64 * mebi, 166.1}, {1024 * mebi, 196.89}},
                {2, 2}, a100),
            0.10);
  EXPECT_LT(getMeanError(
                {{4 * mebi, 83.0}, {64 * mebi, 186.2}, {1024 * mebi, 221.37}},
                {4, 4}, a100),
            0.10);
  EXPECT_LT(getMeanError(
                {{4 * mebi, 78.06}, {64 * mebi, 202.61}, {1024 * mebi, 229.25}},
                {8, 8}, a100),
            0.10);
  EXPECT_LT(getMeanError(
                {{4 * mebi, 20.14}, {64 * mebi, 22.38}, {1024 * mebi, 22.55}},
                {2, 2}, v100),
            0.10);
  EXPECT_LT(getMeanError(
                {{4 * mebi, 44.54}, {64 * mebi, 83.76}, {1024 * mebi, 85.34}},
                {4, 4}, v100),
            0.10);
  EXPECT_LT(getMeanError(
                {{4 * mebi, 48.55}, {64 * mebi, 128.74}, {1024 * mebi, 134.38}},
                {8, 8}, v100),
            0.10);
}

TEST(Collective, BandwidthTermIsIndependentOfTheNodes) {
  // An all-reduce of M bytes at B bytes/s takes less than 2M/B however many
  // nodes there are, an all-gather and a reduce-scatter less than M/B. What is
  // beyond is latency: the slope between two sizes has none.
  for (int nodes : {2, 4, 16, 64, 512}) {
    Cluster cluster = parse("h100:" + std::to_string(nodes) + "x8");
    double busBandwidth = 8 * cluster.inter.bandwidth;
    Group group = {8 * nodes, 8};
    // So large that 511 steps between nodes make no tree the faster choice.
    double small = 4e12, large = 8e12;
    auto slope = [&](CollectiveKind kind) {
      return (collectiveSeconds(kind, large, group, cluster) -
              collectiveSeconds(kind, small, group, cluster)) /
             (large - small) * busBandwidth;
    };
    double efficiency =
        cluster.inter.channels[int(Algorithm::Ring)][int(Protocol::Simple)]
            .fraction;
    // The links of the node bound it first: 0.8 of 450 GB/s.
    double bound = std::min(efficiency, 0.8 * 450e9 / busBandwidth);
    double part = (8.0 * nodes - 1) / (8.0 * nodes);
    EXPECT_NEAR(slope(CollectiveKind::AllReduce), 2 * part / bound, 0.01);
    EXPECT_NEAR(slope(CollectiveKind::AllGather), part / bound, 0.01);
    EXPECT_NEAR(slope(CollectiveKind::ReduceScatter), part / bound, 0.01);
  }
}

TEST(Collective, OneMemberPerNodeHasOneNic) {
  Cluster cluster = parse("a100-80g:16x8");
  double bytes = 1e9;
  double together =
      collectiveSeconds(CollectiveKind::AllReduce, bytes, {128, 8}, cluster);
  double alone =
      collectiveSeconds(CollectiveKind::AllReduce, bytes, {16, 1}, cluster);
  EXPECT_GT(alone / together, 6);
  EXPECT_LT(alone / together, 8);
}

/// Ranks on processors send each other their parts (MpiGroup.cpp): of B bytes
/// on two nodes of four, B/2 leave a rank through its own NIC in each pass,
/// beside 3B/8 inside. Measured on a bed of eight processes, 10 MB/s between
/// nodes: 1.93 s for 6.5 MB, where a ring over four NICs would take 0.3.
TEST(Collective, ProcessorsSendDirectly) {
  Cluster cluster = parse("cpu:2x4");
  cluster.intra.bandwidth = 47.5e6, cluster.inter.bandwidth = 4.75e6;
  for (Fabric *links : {&cluster.intra, &cluster.inter})
    links->channels[int(Algorithm::Direct)][int(Protocol::Simple)].fraction = 1;
  auto get = [&](CollectiveKind kind, Group group) {
    return collectiveSeconds(kind, 6.5e6, group, cluster);
  };
  double between = 6.5e6 / 2 / 4.75e6, inside = 6.5e6 * 3 / 4 / 47.5e6;
  // A thousandth: starts.
  EXPECT_NEAR(get(CollectiveKind::AllReduce, {8, 4}), 2 * between, 2e-3);
  EXPECT_NEAR(get(CollectiveKind::AllGather, {8, 4}), between, 2e-3);
  EXPECT_NEAR(get(CollectiveKind::ReduceScatter, {8, 4}), between, 2e-3);
  EXPECT_NEAR(get(CollectiveKind::AllReduce, {4, 4}), 2 * inside, 2e-3);
  // With fast links between nodes those inside are the busiest.
  cluster.inter.bandwidth = 4.75e9;
  EXPECT_NEAR(get(CollectiveKind::AllGather, {8, 4}), 6.5e6 * 3 / 8 / 47.5e6,
              2e-3);
}

TEST(Collective, Monotone) {
  CollectiveKind kinds[] = {
      CollectiveKind::AllReduce, CollectiveKind::AllGather,
      CollectiveKind::ReduceScatter, CollectiveKind::AllToAll};
  for (const std::string &name : getDevicePresets()) {
    Cluster cluster = parse(name + ":16x8");
    for (CollectiveKind kind : kinds)
      for (Group group : {Group{2, 2}, Group{8, 8}, Group{16, 1}, Group{128, 8},
                          Group{12, 8}}) {
        double last = 0;
        for (double bytes = 1; bytes < 1e12; bytes *= 1.1) {
          double seconds = collectiveSeconds(kind, bytes, group, cluster);
          ASSERT_GE(seconds, last)
              << name << " " << int(kind) << " " << group.ranks << " " << bytes;
          ASSERT_LT(seconds, 1e6);
          last = seconds;
        }
      }
  }
}

TEST(Collective, NothingToDoCostsNothing) {
  Cluster cluster = parse("h100:2x8");
  EXPECT_EQ(collectiveSeconds(CollectiveKind::AllReduce, 1e9, {1, 1}, cluster),
            0);
  EXPECT_EQ(collectiveSeconds(CollectiveKind::AllReduce, 0, {8, 8}, cluster),
            0);
  EXPECT_EQ(transferSeconds(0, true, cluster), 0);
}

TEST(Collective, PairsOfMi300xHaveOneLink) {
  // stas00/ml-engineering: all-reduce over 8 reaches 312.9 GB/s, over 2 47.7.
  Cluster cluster = parse("mi300x:1x8");
  EXPECT_LT(getMeanError({{16384 * mebi, 312.9}}, {8, 8}, cluster), 0.05);
  EXPECT_LT(getMeanError({{16384 * mebi, 47.7}}, {2, 2}, cluster), 0.10);
}

TEST(Collective, PodsSlowDownWhatLeavesThem) {
  Cluster cluster =
      parse(PLAIT_SOURCE_DIR "/examples/clusters/llama3-h100.json");
  double inside =
      collectiveSeconds(CollectiveKind::AllGather, 1e11, {384, 1}, cluster);
  double across =
      collectiveSeconds(CollectiveKind::AllGather, 1e11, {385, 1}, cluster);
  EXPECT_NEAR(across / inside, 7, 0.1);
}

TEST(Collective, MeasuredCurvesReplaceTheModel) {
  Cluster cluster = parse("h100:2x8");
  Curve curve;
  curve.members = 8;
  curve.points = {{1e6, 1e-3}, {1e9, 2e-2}};
  cluster.intra.curves = {curve};
  auto allReduce = [&](double bytes, Group group) {
    return collectiveSeconds(CollectiveKind::AllReduce, bytes, group, cluster);
  };
  EXPECT_DOUBLE_EQ(allReduce(1e6, {8, 8}), 1e-3);
  EXPECT_DOUBLE_EQ(allReduce(1, {8, 8}), 1e-3);
  EXPECT_DOUBLE_EQ(allReduce(2e9, {8, 8}), 4e-2);
  EXPECT_DOUBLE_EQ(allReduce(5e8 + 5e5, {8, 8}), 1.05e-2);
  EXPECT_NE(allReduce(1e6, {4, 4}), 1e-3);
  EXPECT_NE(allReduce(1e6, {8, 4}), 1e-3);
}

/// A straight line is what passes know of links: near the model for what they
/// send, and exact at its ends.
TEST(Collective, ALineIsNearTheModel) {
  for (const char *name : {"h100:2x8", "a100-80g:2x8", "cpu:8"}) {
    Cluster cluster = parse(name);
    for (Group group : {Group{2, 2}, Group{8, 8}, Group{16, 8}}) {
      Line line = fitCollectives(group, cluster);
      for (double bytes : {1.0, 8 * mebi, 64 * mebi, 256 * mebi}) {
        double seconds =
            collectiveSeconds(CollectiveKind::AllReduce, bytes, group, cluster);
        double sent =
            bytes * getSentShare(CollectiveKind::AllReduce, group.ranks);
        EXPECT_NEAR((line.latency + sent / line.bandwidth) / seconds, 1, 0.35)
            << name << " " << group.ranks << " " << bytes;
      }
    }
  }
}

TEST(Collective, NeighboursShareANode) {
  Cluster cluster = parse("h100:4x8");
  auto get = [&](int members, int stride) {
    Group group = getGroup(members, stride, cluster);
    return std::pair(group.ranks, group.perNode);
  };
  EXPECT_EQ(get(8, 1), std::pair(8, 8));
  EXPECT_EQ(get(16, 1), std::pair(16, 8));
  EXPECT_EQ(get(4, 2), std::pair(4, 4));
  EXPECT_EQ(get(4, 8), std::pair(4, 1));
  EXPECT_EQ(get(2, 16), std::pair(2, 1));
}

/// What passes know of a device: less than its peak, and a good part of it.
TEST(Device, RatesAreBelowThePeak) {
  for (const char *name : {"h100:1", "a100-80g:1", "b200:1", "cpu:2"}) {
    Device device = parse(name).device;
    double peak = device.peak(Precision::BF16);
    EXPECT_LT(getGemmRate(device, Precision::BF16), peak) << name;
    EXPECT_GT(getGemmRate(device, Precision::BF16), 0.4 * peak) << name;
    EXPECT_LT(getMemoryRate(device), device.memoryBandwidth) << name;
  }
}

TEST(Transfer, SlowerBetweenNodes) {
  Cluster cluster = parse("a100-80g:2x8");
  // Two of 300 GB/s inside, one NIC of 25 GB/s outside.
  double ratio = transferSeconds(1e9, false, cluster) /
                 transferSeconds(1e9, true, cluster);
  EXPECT_GT(ratio, 25 / 3.0 * 0.9);
  EXPECT_LT(ratio, 300 / 25.0);
}

} // namespace
