//===- Schemes.cpp - What schemes of sites take ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A scheme changes what is trained, so nobody chooses it but a person. Here
// stands what each would take for as many tokens: the pick is predicted once
// more for each of them.
//
//===----------------------------------------------------------------------===//

#include "Report/Schemes.h"

#include "Search/Parts.h"
#include "plait/Configuration/Mesh.h"
#include "plait/Configuration/Mixing.h"
#include "plait/Support/Quantities.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;
using json = nlohmann::ordered_json;

/// They go from exchanges in each step to few of them.
static constexpr std::string_view kCompared[] = {
    "average:1",      "average:8",
    "average:32",     "average:128",
    "diloco:100",     "diloco:100,compress=int8",
    "streaming:100",  "streaming:100,compress=e3m0",
    "sparseloco:100", "gossip:ring",
    "gossip:one-peer"};

namespace {

/// The step of the pick by some scheme, on some link.
struct Predicted {
  double seconds = 0, sent = 0;
};

} // namespace

/// None where the scheme is not for so many sites.
static std::optional<Predicted>
predict(const ReportInput &input, const Outer &outer, const Cluster &cluster) {
  Training training = input.training;
  training.outer = outer;
  Result<double> messages = countMessages("outer", outer);
  if (!messages.ok())
    return std::nullopt;
  training.siteMessages = *messages;
  const Work &work = *input.result.work;
  const Configuration &pick = input.result.configuration;
  Result<Estimate> step = estimate(work, cluster, training, pick);
  Result<std::vector<ExchangeList>> lists =
      listExchanges(work, cluster, training, pick);
  if (!step.ok() || !lists.ok())
    return std::nullopt;
  Predicted predicted = {step->iterationSeconds, 0};
  // The rank that sends the most.
  for (const ExchangeList &list : *lists) {
    double sent = 0;
    for (const Exchange &exchange : list.get())
      if (exchange.moment == Moment::Agreement && !exchange.axis)
        sent += exchange.getSent();
    predicted.sent = std::max(predicted.sent, sent);
  }
  return predicted;
}

/// A site that never meets others.
static double getAlone(const ReportInput &input) {
  std::optional<Predicted> alone = predict(input, Outer(), input.cluster);
  return alone ? alone->seconds : 0;
}

/// Those that are compared, and what was asked for behind them where it is none
/// of these.
static std::vector<Outer> getCompared(const ReportInput &input) {
  std::vector<Outer> all;
  for (std::string_view text : kCompared) {
    Outer outer;
    if (!parse("outer", text, outer).ok())
      continue;
    outer.sites = input.training.outer.sites;
    if (check("outer", outer).ok())
      all.push_back(outer);
  }
  if (std::ranges::find(all, input.training.outer) == all.end())
    all.push_back(input.training.outer);
  return all;
}

/// Matrices of a file are too long for a table.
static std::string nameOf(Outer outer) {
  outer.sites = 0;
  if (outer.getGraph().starts_with('['))
    outer.scheme = std::string(outer.getName()) + ":[...]";
  return print(outer);
}

std::vector<SchemeCost> planner::rankSchemes(const ReportInput &input) {
  std::vector<SchemeCost> rows;
  if (!input.training.outer.isOn())
    return rows;
  double alone = getAlone(input);
  for (const Outer &outer : getCompared(input))
    if (auto own = predict(input, outer, input.cluster))
      rows.push_back(
          {nameOf(outer), own->seconds, own->sent, alone / own->seconds});
  std::ranges::stable_sort(rows, {}, &SchemeCost::seconds);
  return rows;
}

/// Solves, with x seconds of a mean, r of what sites tell each other and wait
/// for the slowest in each step and s of the step of a site,
/// r + x / H <= (s + r + x / H) / 20. A message that is smaller has the same
/// latency.
Enough planner::findEnough(const ReportInput &input) {
  double alone = getAlone(input), allowed = alone / 19;
  auto predictMean = [&](int32_t every, const Cluster &cluster) {
    Outer mean;
    mean.scheme = "average";
    mean.every = every;
    mean.sites = input.training.outer.sites;
    std::optional<Predicted> own = predict(input, mean, cluster);
    return own ? own->seconds - alone : 0;
  };
  constexpr int32_t never = Mesh::kMostRanks;
  double told = predictMean(never, input.cluster);
  double whole = predictMean(1, input.cluster) - told;
  Enough enough;
  if (told < allowed)
    enough.every =
        std::max<int64_t>(1, int64_t(std::ceil(whole / (allowed - told))));
  Cluster fast = input.cluster;
  fast.siteBandwidth = fast.inter.bandwidth = 1e30;
  double latency = predictMean(1, fast);
  if (latency < allowed)
    enough.smaller =
        std::max(1.0, (whole + told - latency) / (allowed - latency));
  return enough;
}

std::string planner::describe(const Enough &enough) {
  if (!enough.every)
    return "5 % of a step and more whatever the scheme is, as loss and norm "
           "alone, which sites add up in each step, take that long";
  if (enough.every == 1)
    return "less than 5 % of a step also with means of each step";
  std::string text = "less than 5 % of a step with means every " +
                     std::to_string(*enough.every) +
                     " steps, or with messages ";
  return text + (enough.smaller
                     ? printNumber(*enough.smaller, 0) +
                           " times smaller than weights in fp32 in each step"
                     : "in each step never, as latency alone takes longer");
}

/// Rates go from 10 Mbit/s to 1 Tbit/s, in steps of a fifth of ten times as
/// much.
std::vector<Utilisation> planner::findUtilisation(const ReportInput &input) {
  std::vector<Utilisation> curves;
  if (!input.cluster.sites || !input.training.outer.isOn())
    return curves;
  double alone = getAlone(input);
  for (const Outer &outer : getCompared(input)) {
    Utilisation curve = {nameOf(outer), {}, {}};
    for (int i = 0; i <= 25; ++i) {
      Cluster cluster = input.cluster;
      cluster.siteBandwidth = 1e7 / 8 * std::pow(10, i / 5.0);
      std::optional<Predicted> own = predict(input, outer, cluster);
      if (!own)
        break;
      curve.bandwidths.push_back(cluster.siteBandwidth);
      curve.parts.push_back(alone / own->seconds);
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

json planner::getSchemes(const ReportInput &input) {
  json rows = json::array();
  for (const SchemeCost &row : rankSchemes(input))
    rows.push_back({{"outer", row.outer},
                    {"iteration_seconds", row.seconds},
                    {"sent_bytes", row.sent},
                    {"utilisation", row.utilisation}});
  json curves = json::array();
  for (const Utilisation &curve : findUtilisation(input))
    curves.push_back({{"outer", curve.outer},
                      {"bandwidths", curve.bandwidths},
                      {"utilisations", curve.parts}});
  Enough enough = findEnough(input);
  json content = {{"schemes", rows}};
  if (enough.every)
    content["every"] = *enough.every;
  if (enough.smaller)
    content["smaller"] = *enough.smaller;
  content["utilisation"] = curves;
  return content;
}
