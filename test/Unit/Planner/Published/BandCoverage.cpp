//===- BandCoverage.cpp - Held-out runs against their bands ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"

#include <algorithm>
#include <cmath>

using namespace plait;
using namespace plait::planner;

namespace {

/// A source of the table with its runs.
struct Held {
  BandFact fact;
  std::vector<double> logarithms; // of measured over predicted seconds
};

} // namespace

static std::vector<double> getLogarithms(const PublishedSource &source) {
  std::vector<double> logarithms;
  for (const Comparison &comparison : compare(source).seconds)
    logarithms.push_back(std::log(comparison.published / comparison.predicted));
  return logarithms;
}

std::optional<BandFact> planner::getBandFact(const PublishedSource &source) {
  std::vector<double> logarithms = getLogarithms(source);
  if (logarithms.empty())
    return std::nullopt;
  const PublishedRun &first = source.runs.front();
  BandFact about{source.name.c_str(),
                 first.training.framework.name,
                 first.cluster.device.target.c_str(),
                 0,
                 first.configuration.ranks(),
                 first.configuration.ranks(),
                 0,
                 0,
                 0};
  for (const PublishedRun &run : source.runs) {
    about.fewest = std::min(about.fewest, run.configuration.ranks());
    about.most = std::max(about.most, run.configuration.ranks());
  }
  return makeBandFact(about, logarithms);
}

/// The table's facts, of which those of `sources` are as their runs say.
static std::vector<Held> getHeld(const std::vector<PublishedSource> &sources) {
  std::vector<Held> all;
  for (const BandFact &fact : getBandFacts()) {
    auto source = std::ranges::find_if(
        sources, [&](auto &other) { return other.name == fact.source; });
    if (source != sources.end())
      all.push_back({*getBandFact(*source), getLogarithms(*source)});
  }
  return all;
}

static BandQuestion ask(const BandFact &fact) {
  return {fact.program, fact.target, fact.most};
}

static bool isInside(const Band &band, double logarithm) {
  return std::log(band.low) <= logarithm && logarithm <= std::log(band.high);
}

static double getMiddle(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

BandCoverage planner::checkBands(const std::vector<PublishedSource> &sources) {
  std::vector<Held> all = getHeld(sources);
  std::vector<BandFact> facts(getBandFacts().begin(), getBandFacts().end());
  BandCoverage coverage;
  std::vector<double> ofRuns, ofSources;
  for (const Held &held : all) {
    auto place = std::ranges::find_if(facts, [&](const BandFact &fact) {
      return fact.source == std::string_view(held.fact.source);
    });
    std::vector<BandFact> others = facts;
    others.erase(others.begin() + (place - facts.begin()));
    Band without = getBand(ask(held.fact), others);
    ofSources.push_back(without.getHalfWidth());
    double inside = 0;
    for (size_t i = 0; i < held.logarithms.size(); ++i) {
      double value = held.logarithms[i];
      inside += isInside(without, value);
      std::vector<double> rest = held.logarithms;
      rest.erase(rest.begin() + long(i));
      std::vector<BandFact> known = others;
      if (!rest.empty())
        known.push_back(makeBandFact(held.fact, rest));
      Band band = getBand(ask(held.fact), known);
      ofRuns.push_back(band.getHalfWidth());
      coverage.insideOfRuns += isInside(band, value);
      coverage.widest = std::max(coverage.widest, band.getHalfWidth());
    }
    coverage.insideOfSources += inside / double(held.logarithms.size());
    coverage.widest = std::max(coverage.widest, without.getHalfWidth());
  }
  coverage.runs = ofRuns.size();
  coverage.sources = ofSources.size();
  coverage.insideOfRuns /= double(std::max<size_t>(1, coverage.runs));
  coverage.insideOfSources /= double(std::max<size_t>(1, coverage.sources));
  coverage.halfOfRuns = getMiddle(ofRuns);
  coverage.halfOfSources = getMiddle(ofSources);
  return coverage;
}
