//===- StepTest.cpp - What replicas exchange ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchSetting.h"
#include "plait/Planner/Cost.h"

#include <cmath>

using namespace plait;
using namespace plait::planner;

namespace {

struct Setting : SmallModel {
  Configuration configuration;

  Setting() : SmallModel(48) {}

  Estimate run() const {
    Work work =
        buildTransformerWork(shape, configuration.mesh[Axis::TP], false);
    auto estimate = planner::estimate(work, cluster, training, configuration);
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate.ok() ? *estimate : Estimate();
  }
};

/// The seconds of the gathers over four replicas of the parameters of `work`
/// that `isMeant` names, 2 bytes an element: neighbours in a block are one, as
/// long as a rank gives no more than `most` bytes.
template <typename IsMeant>
double sumGathers(const Work &work, const Cluster &cluster, double most,
                  IsMeant isMeant) {
  double seconds = 0;
  for (int index : work.order) {
    std::vector<double> batches;
    for (const ParameterGroup &group : work.blocks[index].parameters) {
      double bytes = 2 * group.elements;
      if (!isMeant(group))
        continue;
      if (!batches.empty() && (batches.back() + bytes) / 4 <= most)
        batches.back() += bytes;
      else
        batches.push_back(bytes);
    }
    for (double bytes : batches)
      seconds +=
          collectiveSeconds(CollectiveKind::AllGather, bytes, {4, 4}, cluster);
  }
  return seconds;
}

/// A replica that is alone makes codes of its gradients, and sends none.
TEST(Step, ALoneReplicaCompresses) {
  Setting setting;
  EXPECT_EQ(setting.run().dataSeconds, 0);
  ASSERT_TRUE(
      parse("compress", "int8+feedback", setting.training.compress).ok());
  EXPECT_GT(setting.run().dataSeconds, 0);
}

/// Halves of a backward pass find gradients in places of their own, so that
/// matmuls of one operand are calls of their own, unless copies from a host
/// bring these side by side.
TEST(Step, HalvesCallMatmulsOneByOne) {
  Setting setting;
  setting.shape.hidden = 1024;
  setting.shape.heads = 8;
  setting.cluster.device.places[MemoryPlace::Host].bandwidth = 1e15;
  Work joined = buildTransformerWork(setting.shape, 1, false), apart = joined;
  for (Block &block : joined.blocks)
    for (Operation &op : block.operations)
      if (op.kind == OperationKind::Matmul && op.pass == Pass::BackwardWeight)
        op.joined = 3;
  for (Block &block : apart.blocks) {
    std::vector<Operation> all;
    for (const Operation &op : block.operations) {
      bool isMeant =
          op.kind == OperationKind::Matmul && op.pass == Pass::BackwardWeight;
      all.insert(all.end(), isMeant ? 3 : 1, op);
    }
    block.operations = all;
  }
  auto gain = [&](const char *schedule, MemoryPlace activations) {
    setting.configuration.schedule = schedule;
    setting.configuration.offload.activations = activations;
    auto run = [&](const Work &work) {
      auto made = estimate(work, setting.cluster, setting.training,
                           setting.configuration);
      EXPECT_TRUE(made.ok()) << made.status().message();
      return made.ok() ? made->stages[0].backwardWeight : 0;
    };
    return run(apart) / run(joined) - 1;
  };
  EXPECT_GT(gain("1f1b", MemoryPlace::Arena), 0.01);
  EXPECT_NEAR(gain("zb-h1", MemoryPlace::Arena), 0, 1e-9);
  EXPECT_GT(gain("zb-h1", MemoryPlace::Host), 0.01);
}

/// On GPUs gathers of up to 1 MiB of a rank are launched together, and have the
/// latency of one. On processors, which have no library for that, each is
/// alone.
TEST(Step, SmallGathersHaveOneLatency) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.configuration.zero = 3;
  setting.shape.tied = false;
  setting.shape.hidden = 256;
  setting.shape.heads = 4;
  setting.training.framework.overlapsParts = false;
  Work work = buildTransformerWork(setting.shape, 1, false);
  auto all = [](const ParameterGroup &) { return true; };
  auto gather = [&](double most) {
    return sumGathers(work, setting.cluster, most, all);
  };
  double reduce = 0, microbatches = 48.0 / 4;
  auto expect = [&](double gathers) {
    reduce = 0;
    for (int index : work.order)
      for (const ParameterGroup &group : work.blocks[index].parameters)
        reduce +=
            collectiveSeconds(CollectiveKind::ReduceScatter, group.elements * 4,
                              {4, 4}, setting.cluster);
    double expected = microbatches * (reduce + 2 * gathers);
    EXPECT_NEAR(setting.run().dataSeconds, expected, 1e-9 * expected);
  };
  EXPECT_LT(gather(1 << 20), 0.8 * gather(0));
  expect(gather(1 << 20));
  setting.cluster.device.isProcessor = true;
  expect(gather(0));
}

/// What ZeRO 2 and 3 divide is reduced and gathered parameter by parameter,
/// each with its latency if it is large. PyTorch's flat buffers are not.
TEST(Step, ZeroExchangesParameterByParameter) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.shape.tied = false;
  Work work = buildTransformerWork(setting.shape, 1, false);
  auto sum = [&](CollectiveKind kind, double bytes) {
    double seconds = 0;
    for (int index : work.order)
      for (const ParameterGroup &group : work.blocks[index].parameters)
        seconds += collectiveSeconds(kind, group.elements * bytes, {4, 4},
                                     setting.cluster);
    return seconds;
  };
  double gather = sumGathers(work, setting.cluster, 1 << 20,
                             [](const ParameterGroup &) { return true; });
  double reduce = sum(CollectiveKind::ReduceScatter, 4);
  double microbatches = 48.0 / 4;
  setting.training.framework.overlapsParts = false;
  setting.training.framework.overlapParameters = false;
  auto seconds = [&](int zero) {
    setting.configuration.zero = zero;
    return setting.run().dataSeconds;
  };
  double expected = microbatches * reduce + gather;
  EXPECT_NEAR(seconds(2), expected, 1e-9 * expected);
  expected = microbatches * (reduce + 2 * gather);
  EXPECT_NEAR(seconds(3), expected, 1e-9 * expected);
  setting.training.framework.dividesParameters = false;
  EXPECT_LT(seconds(3), expected);
}

/// What is frozen is gathered by ZeRO 3, as others are, and never reduced; the
/// rank that has the most to gather is the last to be done.
TEST(Step, FrozenParametersAreGatheredAlone) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.shape.tied = false;
  setting.training.framework.overlapsParts = false;
  setting.training.framework.overlapParameters = false;
  Work work = buildTransformerWork(setting.shape, 1, false);
  for (int index = work.before; index < int(work.blocks.size()) - work.after;
       ++index)
    for (ParameterGroup &group : work.blocks[index].parameters)
      group.frozen = true;
  auto sum = [&](CollectiveKind kind, double bytes, bool frozen) {
    double seconds = 0;
    for (int index : work.order)
      for (const ParameterGroup &group : work.blocks[index].parameters)
        if (group.frozen == frozen)
          seconds += collectiveSeconds(kind, group.elements * bytes, {4, 4},
                                       setting.cluster);
    return seconds;
  };
  auto sumOf = [&](bool frozen) {
    return sumGathers(
        work, setting.cluster, 1 << 20,
        [&](const ParameterGroup &group) { return group.frozen == frozen; });
  };
  double gather = sumOf(false), frozen = sumOf(true);
  double reduce = sum(CollectiveKind::ReduceScatter, 4, false);
  ASSERT_GT(frozen, 0);
  auto seconds = [&](int zero) {
    setting.configuration.zero = zero;
    auto estimate = planner::estimate(work, setting.cluster, setting.training,
                                      setting.configuration);
    EXPECT_TRUE(estimate.ok()) << estimate.status().message();
    return estimate->dataSeconds;
  };
  double microbatches = 48.0 / 4;
  double expected = microbatches * reduce + gather;
  EXPECT_NEAR(seconds(2), expected, 1e-9 * expected);
  expected = microbatches * (reduce + 2 * (gather + frozen));
  EXPECT_NEAR(seconds(3), expected, 1e-9 * expected);
  // On either stage, whichever of both trains more.
  setting.configuration.mesh[Axis::PP] = 2;
  int layers = int(work.layers());
  setting.configuration.layers = {layers / 2, layers - layers / 2};
  double even = seconds(3);
  for (int first : {1, layers - 1}) {
    setting.configuration.layers = {first, layers - first};
    EXPECT_GT(seconds(3), even) << first;
  }
}

/// What a pass needs first and the last one leaves has nothing beside it: of
/// this model these are the tables of embeddings and of the head.
TEST(Step, ZeroHidesAllButTheLargestParameter) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.configuration.zero = 3;
  setting.shape.tied = false;
  setting.shape.vocabulary = 256000;
  auto exchange = [&](CollectiveKind kind, double bytes) {
    double table = double(setting.shape.vocabulary) * setting.shape.hidden;
    return collectiveSeconds(kind, table * bytes, {4, 4}, setting.cluster);
  };
  double alone = exchange(CollectiveKind::AllGather, 2) +
                 exchange(CollectiveKind::ReduceScatter, 4);
  double microbatches = 48.0 / 4;
  double seconds = setting.run().dataSeconds;
  EXPECT_GT(seconds, microbatches * alone);
  // The head's table is gathered for both passes. In one stream with them wait
  // the layers' parameters: a third as much again.
  double again = exchange(CollectiveKind::AllGather, 2);
  EXPECT_LT(seconds, 1.4 * microbatches * (2 * alone + again));
  setting.training.framework.overlapsParts = false;
  EXPECT_GT(setting.run().dataSeconds, 1.2 * seconds);
}

/// Passes wait for no more than is exchanged, and for that but for what has all
/// of their work beside it.
TEST(Step, PassesWaitForWhatHasNoWorkBesideIt) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.cluster.intra.bandwidth /= 1000;
  for (int zero : {2, 3}) {
    SCOPED_TRACE(zero);
    setting.configuration.zero = zero;
    Estimate slow = setting.run();
    auto lists =
        listExchanges(buildTransformerWork(setting.shape, 1, false),
                      setting.cluster, setting.training, setting.configuration);
    ASSERT_TRUE(lists.ok());
    double all = 0;
    for (const Exchange &exchange : lists->front().get())
      if (exchange.axis == Axis::DP && exchange.moment != Moment::Optimizer)
        all += exchange.seconds;
    EXPECT_LT(slow.dataSeconds, all);
    EXPECT_GT(slow.dataSeconds, all - slow.pipelineSeconds);
  }
}

/// What ZeRO 2 divides is in no pack, and each parameter has kernels of its
/// own.
TEST(Step, ZeroTwoUpdatesParametersOneByOne) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 4;
  setting.configuration.zero = 1;
  double packed = setting.run().optimizerSeconds;
  setting.configuration.zero = 2;
  double kernels = 3 * double(setting.shape.layers);
  EXPECT_GT(setting.run().optimizerSeconds,
            packed + kernels * setting.cluster.device.launchSeconds);
}

/// With collectives that take nothing but their start a gradient goes over one
/// axis and then over another, and is waited for with one other under way: half
/// of what is computed meanwhile has nothing beside it.
TEST(Step, GradientsGoOverTwoAxesInTurn) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 2;
  setting.configuration.mesh[Axis::CP] = 2;
  setting.configuration.zero = 2;
  setting.shape.tied = false;
  Work work = buildTransformerWork(setting.shape, 1, false);
  double parameters = 0;
  for (int index : work.order)
    parameters += double(work.blocks[index].parameters.size());
  setting.cluster.intra.bandwidth = 1e30;
  double microbatches = 48.0 / 2;
  StageTime stage = setting.run().stages[0];
  double backward = stage.backwardInput + stage.backwardWeight;
  // As long as what is computed, over either axis.
  setting.cluster.intra.startSeconds = backward / parameters;
  Estimate estimate = setting.run();
  stage = estimate.stages[0];
  double computed = stage.backwardInput + stage.backwardWeight -
                    stage.exposedBackward() - stage.drained;
  EXPECT_GT(estimate.dataSeconds, microbatches * (backward - 0.5 * computed));
}

/// 4,096 columns are none for three replicas: parameters stay whole.
TEST(Step, ZeroLeavesWholeWhatItCannotDivide) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 3;
  auto run = [&](int zero) {
    setting.configuration.zero = zero;
    return setting.run();
  };
  Estimate one = run(1);
  for (int zero : {2, 3}) {
    EXPECT_DOUBLE_EQ(run(zero).dataSeconds, one.dataSeconds);
    EXPECT_DOUBLE_EQ(run(zero).memory[0].peak(), one.memory[0].peak());
  }
  setting.training.framework.dividesParameters = false;
  EXPECT_LT(run(3).memory[0].peak(), one.memory[0].peak());
}

/// The slowest of all is waited for in each step, as sites tell each other of
/// their loss.
TEST(Step, SitesWaitForTheSlowest) {
  Setting setting;
  setting.configuration.mesh[Axis::DP] = 2;
  auto getShare = [&](const char *outer) {
    EXPECT_TRUE(parse("outer", outer, setting.training.outer).ok());
    Estimate estimate = setting.run();
    return estimate.waitSeconds / estimate.pipelineSeconds;
  };
  double spread = setting.training.framework.spread;
  EXPECT_DOUBLE_EQ(getShare("none"), std::sqrt(2 * std::log(2)) * spread);
  EXPECT_DOUBLE_EQ(getShare("diloco:8+sites:3"),
                   std::sqrt(2 * std::log(6)) * spread);
}

/// On a processor that is slow at arithmetic; memory is none here.
TEST(Step, UpdatesTakeTheirOperations) {
  Setting setting;
  setting.cluster.device.memoryBandwidth = 1e30;
  setting.cluster.device.vectorFlops = 1e9;
  setting.shape.tied = false;
  Work work = buildTransformerWork(setting.shape, 1, false);
  double parameters = 0;
  for (int index : work.order)
    for (const ParameterGroup &group : work.blocks[index].parameters)
      parameters += group.elements;
  for (double states : {1, 2}) {
    setting.training.stateBytes = 4 * states;
    double expected = 13 * states * parameters / 1e9;
    EXPECT_NEAR(setting.run().optimizerSeconds, expected, 1e-3 * expected);
  }
}

/// What is moved before and after messages are made and read takes its time,
/// however long these take.
TEST(Step, AgreementsHideNothingBehindMessages) {
  Setting setting;
  auto getSeconds = [&](double bandwidth, double flops) {
    setting.cluster.device.memoryBandwidth = bandwidth;
    setting.cluster.device.vectorFlops = flops;
    return setting.run().overheadSeconds;
  };
  constexpr double fast = 1e30;
  for (const char *outer : {"diloco:8,compress=int8", "sparseloco:8"}) {
    EXPECT_TRUE(
        parse("outer", outer + std::string("+sites:4"), setting.training.outer)
            .ok());
    double beside = getSeconds(fast, fast);
    double moved = getSeconds(1e12, fast) - beside;
    double computed = getSeconds(fast, 1e12) - beside;
    double both = getSeconds(1e12, 1e12) - beside;
    EXPECT_GT(moved, 0) << outer;
    EXPECT_GT(computed, moved) << outer;
    EXPECT_GT(both, computed + moved / 2) << outer;
    EXPECT_LT(both, computed + moved) << outer;
  }
}

} // namespace
