//===- ExchangesTest.cpp - What a predicted step exchanges ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulator/BlockTime.h"

#include "SearchSetting.h"

#include <algorithm>
#include <functional>
#include <span>

using namespace plait;
using namespace plait::planner;

namespace {

/// A configuration whose list is asked for.
struct Listing : SmallModel {
  Configuration configuration;

  Listing() : SmallModel(64) {
    shape.layers = 16;
    cluster = *parseCluster("a100-80g:8x8");
  }
  Work makeWork() const {
    return buildTransformerWork(shape, configuration.mesh[Axis::TP],
                                configuration.sequenceParallel);
  }
  std::vector<ExchangeList> run(const Work &work) const {
    auto lists = listExchanges(work, cluster, training, configuration);
    EXPECT_TRUE(lists.ok()) << lists.status().message();
    return lists.ok() ? *lists
                      : std::vector<ExchangeList>(
                            size_t(configuration.mesh[Axis::PP]));
  }
};

/// Adds up `amount` of the exchanges that `isMeant` accepts.
template <typename Predicate, typename Amount>
double addUp(const ExchangeList &list, Predicate isMeant, Amount amount) {
  double sum = 0;
  for (const Exchange &exchange : list.get())
    if (isMeant(exchange))
      sum += std::invoke(amount, exchange);
  return sum;
}

/// How many parameters, or parts of them, a rank gathers over dp.
double countGathers(const ExchangeList &list, Moment moment) {
  auto isMeant = [&](const Exchange &exchange) {
    return exchange.axis == Axis::DP && exchange.moment == moment &&
           exchange.carrier == Carrier::AllGather;
  };
  return addUp(list, isMeant, &Exchange::count);
}

/// Looking up rows of a table needs none of them for its gradient.
void forgetEmbedding(Work &work) {
  for (ParameterGroup &group : work.blocks.front().parameters)
    group.readBackward = group.readAgain = false;
}

/// What is listed is what takes the time, whatever else is in the step.
TEST(Exchanges, AddUpToWhatIsExposed) {
  Listing listing;
  listing.configuration.mesh[Axis::DP] = 2;
  listing.configuration.mesh[Axis::CP] = 2;
  listing.configuration.mesh[Axis::TP] = 4;
  Work work = listing.makeWork();
  for (Recompute kind : {Recompute::None, Recompute::Full})
    for (ContextParallel way :
         {ContextParallel::Gather, ContextParallel::Heads}) {
      listing.configuration.recompute = kind;
      listing.configuration.contextParallel = way;
      auto step = estimate(work, listing.cluster, listing.training,
                           listing.configuration);
      ASSERT_TRUE(step.ok());
      std::vector<ExchangeList> lists = listing.run(work);
      ASSERT_EQ(lists.size(), 1u);
      for (Axis axis : {Axis::CP, Axis::TP}) {
        auto isMeant = [&](const Exchange &exchange) {
          return exchange.axis == axis && exchange.moment <= Moment::Backward;
        };
        double exposed = step->breakdown.exposed[axis];
        EXPECT_NEAR(addUp(lists.front(), isMeant, &Exchange::seconds) -
                        addUp(lists.front(), isMeant, &Exchange::hidden),
                    exposed, 1e-9 * exposed);
      }
    }
}

/// GPUs gather keys and values in one launch, which waits for both.
TEST(Exchanges, OfContextAreGatheredInOneLaunch) {
  Listing listing;
  listing.configuration.mesh[Axis::CP] = 2;
  listing.shape.sequence = listing.training.sequence = 64;
  Work work = listing.makeWork();
  // Values are made by the last matmul in front of attention, alone.
  std::vector<Operation> &layer = work.blocks[1].operations;
  auto attention =
      std::ranges::find(layer, OperationKind::Attention, &Operation::kind);
  ASSERT_NE(attention, layer.end());
  auto last = std::find_if(
      std::make_reverse_iterator(attention), layer.rend(),
      [](const Operation &op) { return op.kind == OperationKind::Matmul; });
  ASSERT_NE(last, layer.rend());
  last->n = attention->keyValueHeads * attention->headSize;
  double bytes = double(attention->keys) * double(attention->keyValueHeads) *
                 double(attention->headSize) *
                 elementBytes(listing.training.precision);
  ASSERT_LE(bytes, 1 << 20);
  Context context{work, listing.cluster, listing.training,
                  listing.configuration};
  auto getSeconds = [&](double all) {
    return collectiveSeconds(CollectiveKind::AllGather, all,
                             context.group(Axis::CP), listing.cluster);
  };
  ExchangeList list = listing.run(work).front();
  for (Moment moment : {Moment::Forward, Moment::Backward}) {
    auto isMeant = [&](const Exchange &exchange) {
      return exchange.axis == Axis::CP && exchange.moment == moment &&
             exchange.carrier == Carrier::AllGather;
    };
    double pairs = addUp(list, isMeant, &Exchange::count) / 2;
    ASSERT_GT(pairs, 0);
    EXPECT_NEAR(addUp(list, isMeant, &Exchange::seconds),
                pairs * getSeconds(2 * bytes), 1e-9);
    EXPECT_EQ(addUp(list, isMeant, &Exchange::hidden) > 0,
              moment == Moment::Backward);
  }
}

/// Where ranks of cp own parts of gradients, these are beside no attention,
/// which waits for them. What is gathered for it is on its way before, as
/// elsewhere.
TEST(Exchanges, OfContextWaitForGradientsOfTheSameRanks) {
  Listing listing;
  listing.configuration.mesh[Axis::CP] = 4;
  Work work = listing.makeWork();
  auto isMeant = [](const Exchange &exchange) {
    return exchange.axis == Axis::CP && exchange.moment == Moment::Backward &&
           exchange.carrier == Carrier::AllGather;
  };
  for (int zero : {1, 2}) {
    listing.configuration.zero = zero;
    auto step = estimate(work, listing.cluster, listing.training,
                         listing.configuration);
    ASSERT_TRUE(step.ok());
    ExchangeList list = listing.run(work).front();
    EXPECT_GT(addUp(list, isMeant, &Exchange::hidden), 0);
    const StageTime &time = step->stages.front();
    EXPECT_EQ(time.drained > 0, zero == 2);
    EXPECT_LT(time.drained, 0.5 * time.backwardInput);
  }
}

/// Gradients of weights wait to be computed beside sums over tp, but where they
/// are sent to their owners as soon as they are there.
TEST(Exchanges, SumsHaveNoGradientsBesideThatAreSent) {
  Listing listing;
  listing.configuration.mesh[Axis::DP] = 2;
  listing.configuration.mesh[Axis::TP] = 4;
  Work work = listing.makeWork();
  auto isMeant = [](const Exchange &exchange) {
    return exchange.axis == Axis::TP && exchange.moment == Moment::Backward &&
           exchange.carrier == Carrier::AllReduce;
  };
  for (int zero : {1, 2}) {
    listing.configuration.zero = zero;
    ExchangeList list = listing.run(work).front();
    EXPECT_GT(addUp(list, isMeant, &Exchange::seconds), 0);
    EXPECT_EQ(addUp(list, isMeant, &Exchange::hidden) > 0, zero == 1);
  }
}

/// Keys that are kept on a host come back no sooner than they are needed, and
/// are gathered behind that.
TEST(Exchanges, OfContextWaitForKeysFromAHost) {
  Listing listing;
  listing.configuration.mesh[Axis::CP] = 4;
  Work work = listing.makeWork();
  auto isMeant = [](const Exchange &exchange) {
    return exchange.axis == Axis::CP && exchange.moment == Moment::Backward &&
           exchange.carrier == Carrier::AllGather;
  };
  for (bool isKept : {true, false}) {
    listing.configuration.offload =
        isKept ? Offload::Optimizer : Offload::Activations;
    ExchangeList list = listing.run(work).front();
    EXPECT_GT(addUp(list, isMeant, &Exchange::seconds), 0);
    EXPECT_EQ(addUp(list, isMeant, &Exchange::hidden) > 0, isKept);
  }
}

/// In a V the middle of the model is on one rank, and the ends are on another.
TEST(Exchanges, GoWhereStagesAre) {
  Listing listing;
  listing.configuration.mesh[Axis::PP] = 2;
  Work work = listing.makeWork();
  auto countSends = [&](const char *schedule, int chunks) {
    listing.configuration.schedule = schedule;
    listing.configuration.chunks = chunks;
    std::vector<double> counts;
    for (const ExchangeList &list : listing.run(work))
      counts.push_back(addUp(
          list,
          [](const Exchange &exchange) {
            return exchange.carrier == Carrier::Send;
          },
          &Exchange::count));
    return counts;
  };
  double m = 64; // microbatches of one sequence
  EXPECT_EQ(countSends("1f1b", 1), (std::vector{m, m}));
  EXPECT_EQ(countSends("zb-v", 2), (std::vector{2 * m, 2 * m}));
  EXPECT_EQ(countSends("interleaved-1f1b", 2), (std::vector{3 * m, 3 * m}));
}

/// ZeRO 3, and a table that is tied. What is computed again reads parameters
/// again: a shift, say, of which nothing else in the backward pass knows.
TEST(Exchanges, GatherWhatBackwardPassesRead) {
  Listing listing;
  listing.configuration.mesh[Axis::DP] = 2;
  listing.configuration.zero = 3;
  Work work = listing.makeWork();
  forgetEmbedding(work);
  std::vector<ParameterGroup> &layer = work.blocks[1].parameters;
  ASSERT_GE(layer.size(), 4u);
  for (ParameterGroup &group : std::span(layer).first(3))
    group.readBackward = false;
  layer[2].readAgain = false;
  work.cheapBlocks = work.blocks;
  work.cheapBlocks[1].parameters[0].readBackward = true;
  // In any order: what is cheap is profiled by itself.
  std::ranges::reverse(work.cheapBlocks[1].parameters);
  double m = 32, layers = double(listing.shape.layers);
  double inLayer = double(layer.size());
  double inHead = double(work.blocks[2].parameters.size()); // with the table
  double inEmbedding = double(work.blocks[0].parameters.size()) - 1;
  for (auto [kind, unread] :
       {std::pair(Recompute::None, 3.0), std::pair(Recompute::Selective, 2.0),
        std::pair(Recompute::Full, 1.0)}) {
    listing.configuration.recompute = kind;
    ExchangeList list = listing.run(work).front();
    EXPECT_EQ(countGathers(list, Moment::Backward),
              m * (layers * (inLayer - unread) + inHead));
    EXPECT_EQ(countGathers(list, Moment::Forward),
              m * (layers * inLayer + inHead + inEmbedding));
  }
}

/// In a V the first and the last stage are on one rank, which has one table.
/// Each gathers it for its own pass; only the last reads it backward.
TEST(Exchanges, GatherATableForEachStage) {
  Listing listing;
  listing.configuration.mesh[Axis::PP] = 2;
  listing.configuration.mesh[Axis::DP] = 2;
  listing.configuration.schedule = "zb-v";
  listing.configuration.chunks = 2;
  listing.configuration.zero = 3;
  auto count = [&](bool tied, Moment moment) {
    listing.shape.tied = tied;
    Work work = listing.makeWork();
    forgetEmbedding(work);
    return countGathers(listing.run(work).front(), moment);
  };
  for (Moment moment : {Moment::Forward, Moment::Backward}) {
    EXPECT_GT(count(true, moment), 0);
    EXPECT_EQ(count(true, moment), count(false, moment));
  }
}

/// With ZeRO 2 each stage adds up what its blocks leave of a gradient, and
/// reduces that: two in a V, and one where both ends are one stage.
TEST(Exchanges, ReduceATableForEachStage) {
  Listing listing;
  listing.configuration.mesh[Axis::DP] = 2;
  listing.configuration.zero = 2;
  listing.shape.tied = true;
  Work work = listing.makeWork();
  double m = 32, inBlocks = 0; // but for the table
  for (int block : work.order)
    inBlocks += double(std::ranges::count_if(
        work.blocks[block].parameters,
        [](const ParameterGroup &group) { return !group.tied; }));
  auto count = [&] {
    double sum = 0;
    for (const ExchangeList &list : listing.run(work))
      sum += addUp(
          list,
          [](const Exchange &exchange) {
            return exchange.axis == Axis::DP &&
                   exchange.carrier == Carrier::ReduceScatter;
          },
          &Exchange::count);
    return sum;
  };
  EXPECT_EQ(count(), m * (inBlocks + 1));
  listing.configuration.mesh[Axis::PP] = 2;
  listing.configuration.schedule = "zb-v";
  listing.configuration.chunks = 2;
  EXPECT_EQ(count(), m * (inBlocks + 2));
}

/// Of what ranks of tp have parts of, the sums over tp are of as much as ZeRO
/// leaves of it, in one pack or, with ZeRO 2, one by one.
TEST(Exchanges, SumOverTensorParallelism) {
  Listing listing;
  listing.configuration.mesh[Axis::TP] = 4;
  listing.configuration.sequenceParallel = true;
  auto isMeant = [](const Exchange &exchange) {
    return exchange.axis == Axis::TP && exchange.moment == Moment::Reduce;
  };
  Work work = listing.makeWork();
  for (int dp : {1, 2}) {
    listing.configuration.mesh[Axis::DP] = dp;
    EXPECT_EQ(addUp(listing.run(work).front(), isMeant, &Exchange::count), 0);
  }
  double elements = 0, parameters = 0;
  for (int block : work.order)
    for (ParameterGroup &group : work.blocks[block].parameters)
      if (group.replicated) {
        group.partial = true;
        elements += group.elements;
        ++parameters;
      }
  ASSERT_GT(parameters, 1);
  auto expect = [&](int dp, int zero, double count) {
    listing.configuration.mesh[Axis::DP] = dp;
    listing.configuration.zero = zero;
    ExchangeList list = listing.run(work).front();
    EXPECT_EQ(addUp(list, isMeant, &Exchange::count), count) << dp << zero;
    // Packs end with whole rows, of 4,096 elements.
    EXPECT_NEAR(addUp(list, isMeant, &Exchange::bytes),
                4 * elements / (zero ? dp : 1), zero == 2 ? 0 : 4 * 4096)
        << dp << zero;
  };
  expect(1, 0, 1);
  expect(2, 0, 1);
  expect(2, 1, 1);
  expect(2, 2, parameters);
  expect(2, 3, 1);
}

/// Each rank that ZeRO divides state among sums its part of a table that two
/// stages hold.
TEST(Exchanges, SumTiedTablesInParts) {
  Listing listing;
  listing.configuration.mesh[Axis::PP] = 2;
  listing.configuration.mesh[Axis::DP] = 4;
  Work work = listing.makeWork();
  double table = 4.0 * listing.shape.vocabulary * listing.shape.hidden;
  auto isMeant = [](const Exchange &exchange) {
    return exchange.axis == Axis::PP && exchange.moment == Moment::Reduce;
  };
  for (int zero : {0, 1, 2, 3}) {
    listing.configuration.zero = zero;
    for (const ExchangeList &list : listing.run(work)) {
      EXPECT_EQ(addUp(list, isMeant, &Exchange::count), 1) << zero;
      EXPECT_EQ(addUp(list, isMeant, &Exchange::bytes),
                zero ? table / 4 : table)
          << zero;
    }
  }
}

} // namespace
