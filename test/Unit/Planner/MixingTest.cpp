//===- MixingTest.cpp - Who averages with whom ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Mixing.h"

#include "gtest/gtest.h"

#include <cmath>
#include <numbers>

using namespace plait;

namespace {

std::vector<Matrix> make(std::string_view graph, int64_t sites) {
  Result<std::vector<Matrix>> made = makeMixings("outer", graph, sites);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *made : std::vector<Matrix>();
}

std::string refuse(std::string_view graph, int64_t sites) {
  return std::string(makeMixings("outer", graph, sites).status().message());
}

/// The most sites that one of them sends to, or receives from.
size_t getDegree(const Matrix &matrix, int64_t sites) {
  size_t degree = 0;
  for (int64_t i = 0; i < sites; ++i) {
    size_t sent = 0, received = 0;
    for (int64_t j = 0; j < sites; ++j) {
      sent += i != j && matrix[j * sites + i] > 0;
      received += i != j && matrix[i * sites + j] > 0;
    }
    degree = std::max({degree, sent, received});
  }
  return degree;
}

/// Adds up what the exchanges say, and checks that each is one message of a
/// site at most.
Matrix addUp(const std::vector<MixingExchange> &exchanges, int64_t sites) {
  Matrix matrix(sites * sites, 0);
  for (const MixingExchange &exchange : exchanges) {
    std::vector<bool> receives(sites, false);
    for (int64_t from = 0; from < sites; ++from) {
      int64_t to = exchange.targets[from];
      if (to < 0)
        continue;
      EXPECT_FALSE(receives[to]);
      receives[to] = true;
      matrix[to * sites + from] += exchange.weights[to];
    }
    for (int64_t to = 0; to < sites; ++to)
      EXPECT_EQ(exchange.weights[to] > 0, receives[to]);
  }
  return matrix;
}

TEST(Mixing, IsSplitIntoAsFewExchangesAsThereCanBe) {
  for (const MixingGraph &graph : getMixingGraphs())
    for (int64_t sites = 1; sites <= 20; ++sites)
      for (const Matrix &matrix : make(graph.name, sites)) {
        SCOPED_TRACE(std::string(graph.name) + std::to_string(sites));
        std::vector<MixingExchange> exchanges = makeExchanges(matrix, sites);
        EXPECT_EQ(exchanges.size(), getDegree(matrix, sites));
        Matrix sum = addUp(exchanges, sites);
        for (int64_t i = 0; i < sites * sites; ++i)
          if (i % sites != i / sites)
            EXPECT_EQ(sum[i], matrix[i]);
      }
}

TEST(Mixing, IsDoublyStochastic) {
  for (const MixingGraph &graph : getMixingGraphs())
    for (int64_t sites = 1; sites <= 20; ++sites)
      for (const Matrix &matrix : make(graph.name, sites))
        for (int64_t i = 0; i < sites; ++i) {
          double row = 0, column = 0;
          for (int64_t j = 0; j < sites; ++j) {
            row += matrix[i * sites + j];
            column += matrix[j * sites + i];
          }
          EXPECT_NEAR(row, 1, 1e-12) << graph.name << " " << sites;
          EXPECT_NEAR(column, 1, 1e-12) << graph.name << " " << sites;
        }
}

/// Formulas of textbooks: a circulant matrix has the Fourier transform of its
/// row; Ying et al. 2021 have the static exponential graph.
TEST(Mixing, ContractsAsTextbooksSay) {
  for (int64_t sites : {2, 3, 5, 8, 16, 33, 64}) {
    double angle = 2 * std::numbers::pi / double(sites);
    EXPECT_NEAR(getContraction(make("ring", sites), sites),
                std::abs(1 + 2 * std::cos(angle)) / 3, 1e-5);
    EXPECT_NEAR(getContraction(make("complete", sites), sites), 0, 1e-7);
  }
  for (int64_t sites : {4, 6, 8, 12, 16, 30, 64}) {
    double hops = std::ceil(std::log2(double(sites)));
    EXPECT_NEAR(getContraction(make("exponential", sites), sites),
                (hops - 1) / (hops + 1), 1e-5);
  }
  for (int64_t sites : {2, 4, 8, 32})
    EXPECT_NEAR(getContraction(make("one-peer", sites), sites), 0, 1e-7);
  EXPECT_GT(getContraction(make("one-peer", 6), 6), 0.1);
}

TEST(Mixing, RefusesWhatDoesNotBringSitesTogether) {
  EXPECT_EQ(refuse("[1 0/0 1]", 2), "outer has a graph that is not connected: "
                                    "nothing of site 0 ever comes to site 1");
  EXPECT_EQ(refuse("[0 1/1 0]", 2),
            "outer has a graph by which sites never agree: what they differ by "
            "shrinks by the factor 1");
  // One after the other they do.
  EXPECT_TRUE(makeMixings("outer",
                          "[.5 .5 0/.5 .5 0/0 0 1|1 0 0/0 .5 .5/0 .5 "
                          ".5]",
                          3)
                  .ok());
}

TEST(Mixing, RefusesWhatIsNotDoublyStochastic) {
  EXPECT_EQ(
      refuse("[1 0/.5 .5]", 2),
      "outer has a matrix that is not doubly stochastic: column 0 adds up "
      "to 1.5, expected 1 up to 1e-05");
  EXPECT_TRUE(makeMixings("outer",
                          "[.333333 .333333 .333333/.333333 .333333 "
                          ".333333/.333333 .333333 .333333]",
                          3)
                  .ok());
  EXPECT_EQ(refuse("star", 2), "outer has graph \"star\", which is unknown");
  EXPECT_EQ(refuse("ring", 257),
            "outer is gossip of 257 sites, expected at most 256");
  EXPECT_EQ(refuse("[.5 .5/.5]", 2),
            "outer has 1 number in row 1 of a matrix, expected 2");
  EXPECT_EQ(refuse("[]", 2),
            "outer has a matrix of 1 row, expected 2, one for each site");
}

} // namespace
