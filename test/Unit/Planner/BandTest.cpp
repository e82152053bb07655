//===- BandTest.cpp - Bands of predictions against held-out runs ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

using namespace plait;
using namespace plait::planner;

namespace {

std::vector<PublishedSource> readAll() {
  std::vector<PublishedSource> all;
  for (const char *file :
       {"published_runs.json", "held_out_runs.json", "fsdp_runs.json"}) {
    auto read = readPublishedRuns(PLAIT_PUBLISHED_RUNS "/" + std::string(file));
    EXPECT_TRUE(read.ok()) << read.status().message();
    if (read.ok())
      all.insert(all.end(), read->begin(), read->end());
  }
  return all;
}

const BandFact *findFact(std::string_view source) {
  for (const BandFact &fact : getBandFacts())
    if (fact.source == source)
      return &fact;
  return nullptr;
}

void expectSame(const BandFact &fact, const BandFact &found) {
  EXPECT_STREQ(fact.program, found.program) << fact.source;
  EXPECT_STREQ(fact.target, found.target) << fact.source;
  EXPECT_EQ(fact.runs, found.runs) << fact.source;
  EXPECT_EQ(fact.fewest, found.fewest) << fact.source;
  EXPECT_EQ(fact.most, found.most) << fact.source;
  EXPECT_NEAR(fact.centre, found.centre, 1e-3) << fact.source;
  EXPECT_NEAR(fact.below, found.below, 1e-3) << fact.source;
  EXPECT_NEAR(fact.above, found.above, 1e-3) << fact.source;
}

/// Every source with seconds has its row, and every row its source.
TEST(Band, FactsAreThoseOfTheRuns) {
  std::set<std::string_view> seen;
  std::vector<PublishedSource> all = readAll();
  for (const PublishedSource &source : all) {
    std::optional<BandFact> found = getBandFact(source);
    if (!found || source.name == "Megatron CI 7B") // deterministic
      continue;
    const BandFact *fact = findFact(source.name);
    ASSERT_NE(fact, nullptr) << source.name;
    expectSame(*fact, *found);
    seen.insert(fact->source);
  }
  EXPECT_EQ(seen.size() + 1, getBandFacts().size()); // and plait's own
}

/// Tokens a second, predicted and measured, of the table in docs/GPU.md.
TEST(Band, FactOfPlaitIsWhatWasMeasured) {
  const std::pair<double, double> measured[] = {{450e3, 498e3},
                                                {549e3, 560e3},
                                                {558e3, 572e3},
                                                {64.3e3, 63.1e3},
                                                {54.6e3, 52.9e3}};
  std::vector<double> logarithms;
  for (auto [predicted, tokens] : measured)
    logarithms.push_back(std::log(predicted / tokens));
  const BandFact *fact = findFact("plait, one H200");
  ASSERT_NE(fact, nullptr);
  expectSame(*fact, makeBandFact({"", "plait", "sm_90", 0, 1, 1, 0, 0, 0},
                                 logarithms));
}

/// The goals of docs/Accuracy.md.
TEST(Band, HeldOutRunsAreInside) {
  BandCoverage coverage = checkBands(readAll());
  EXPECT_GT(coverage.runs, 500u);
  EXPECT_GE(coverage.insideOfRuns, 0.8);
  EXPECT_GE(coverage.insideOfSources, 0.8);
  EXPECT_LE(coverage.halfOfRuns, 0.12);
  EXPECT_LE(coverage.halfOfSources, 0.1);
  EXPECT_LE(coverage.widest, widestBand + 1e-9);
}

/// Two sources as far apart say less than four.
TEST(Band, FewSourcesAreWider) {
  auto make = [](const char *name, double centre) {
    return BandFact{name, "fsdp", "sm_90", 5, 8, 8, centre, 0.02, 0.02};
  };
  std::vector<BandFact> facts = {make("a", -0.05), make("b", 0.05)};
  Band two = getBand({"fsdp", "sm_90", 8}, facts);
  facts.push_back(make("c", -0.05));
  facts.push_back(make("d", 0.05));
  Band four = getBand({"fsdp", "sm_90", 8}, facts);
  EXPECT_EQ(two.sources, 2);
  EXPECT_EQ(four.sources, 4);
  EXPECT_GT(two.getHalfWidth(), four.getHalfWidth());
  EXPECT_LT(two.low, 1);
  EXPECT_GT(two.high, 1);
}

/// What nobody has measured widens it, each by as much as another program is
/// off, up to the most.
TEST(Band, UnmeasuredMechanismsAreWider) {
  BandQuestion question{"megatron-core", "sm_90", 64};
  double half = getBand(question).getHalfWidth();
  for (const char *part : {"CPU offload", "experts"}) {
    question.unmeasured.push_back(part);
    double wider = getBand(question).getHalfWidth();
    EXPECT_GT(wider, half + 0.005);
    half = wider;
  }
  for (int i = 0; i < 100; ++i)
    question.unmeasured.push_back("more");
  EXPECT_NEAR(getBand(question).getHalfWidth(), widestBand, 1e-9);
}

TEST(Band, MoreDevicesThanAnyRunAreUnmeasured) {
  Band band = getBand({"megatron-core", "sm_90", 1 << 20});
  ASSERT_EQ(band.unmeasured.size(), 1u);
  EXPECT_TRUE(band.unmeasured.front().starts_with("more than "));
  EXPECT_GT(band.getHalfWidth(),
            getBand({"megatron-core", "sm_90", 64}).getHalfWidth());
}

/// Programs and architectures without runs of their own have the band of what
/// is nearest.
TEST(Band, TakesTheNearestClass) {
  auto getBasis = [](const char *program, const char *target) {
    std::string basis = getBand({program, target, 8}).basis;
    return basis.substr(basis.rfind(", ") + 2);
  };
  EXPECT_EQ(getBasis("megatron-core", "sm_90"), "megatron-core on sm_90");
  EXPECT_EQ(getBasis("torchtitan", "sm_90"),
            "programs like torchtitan on sm_90");
  EXPECT_EQ(getBasis("deepspeed", "sm_70"), "programs like deepspeed");
  EXPECT_EQ(getBasis("plait", "sm_90"), "all programs on sm_90");
  EXPECT_EQ(getBasis("plait", ""), "all programs");
  for (const Framework &framework : getFrameworks())
    EXPECT_LE(getBand({framework.name, "sm_90", 8}).getHalfWidth(),
              widestBand + 1e-9);
}

} // namespace
