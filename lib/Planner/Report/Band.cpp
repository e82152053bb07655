//===- Band.cpp - How far predictions are from runs -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A prediction interval of a run of a source that is not in the table, by the
// usual model of random effects: each source has a centre of its own, and each
// run a distance from that. The class of a question is the narrowest that has
// two sources. What few sources say of how far apart such are is mended by what
// all sources say, which counts as much as `priorSources` of the class; the
// quantile is Student's, and so the wider the fewer there are.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Band.h"
#include "plait/Support/Quantities.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

using namespace plait;
using namespace plait::planner;

/// The part of runs that a band is for, in terms of a normal distribution: a
/// tenth is on either side of it.
static constexpr double tenth = 1.2815515655446004;

/// The weight of what all classes have in common.
static constexpr double priorSources = 3;

/// Programs whose codes are kin.
static std::string_view getFamily(std::string_view program) {
  static constexpr std::pair<std::string_view, std::string_view> families[] = {
      {"megatron-2021", "megatron"}, {"megatron-2022", "megatron"},
      {"megatron-core", "megatron"}, {"megatron-deepspeed", "deepspeed"},
      {"deepspeed", "deepspeed"},    {"fsdp", "fsdp"},
      {"fsdp-compiled", "fsdp"},     {"fsdp-2023", "fsdp"},
      {"torchtitan", "fsdp"}};
  for (auto [name, family] : families)
    if (name == program)
      return family;
  return program;
}

/// Between the two values that are next to it. Expects values.
static double getQuantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  double place = part * double(values.size() - 1);
  size_t lower = size_t(place), upper = std::min(lower + 1, values.size() - 1);
  return values[lower] +
         (place - double(lower)) * (values[upper] - values[lower]);
}

static double getMedian(const std::vector<double> &values) {
  return getQuantile(values, 0.5);
}

BandFact planner::makeBandFact(BandFact about,
                               const std::vector<double> &logarithms) {
  about.runs = int(logarithms.size());
  about.centre = getMedian(logarithms);
  about.below = about.centre - getQuantile(logarithms, 0.1);
  about.above = getQuantile(logarithms, 0.9) - about.centre;
  return about;
}

/// The quantile of Student's distribution that leaves a tenth above it: the
/// expansion by Cornish and Fisher, within 0.2 % from three degrees of freedom
/// on.
static double getStudent(double freedom) {
  double z = tenth, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * freedom) +
         (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) /
             (384 * freedom * freedom * freedom);
}

/// The mean of centres. Expects facts.
static double getMean(std::span<const BandFact *const> facts) {
  double sum = 0;
  for (const BandFact *fact : facts)
    sum += fact->centre;
  return sum / double(facts.size());
}

/// The variance of centres of kin on one architecture about their mean, over
/// all such classes: of medians, since some source is always far off.
static double getUsualVariance(std::span<const BandFact> facts) {
  std::map<std::pair<std::string_view, std::string_view>,
           std::vector<const BandFact *>>
      classes;
  for (const BandFact &fact : facts)
    classes[{getFamily(fact.program), fact.target}].push_back(&fact);
  std::vector<double> distances;
  for (const auto &[name, kin] : classes) {
    double count = double(kin.size());
    for (const BandFact *fact : kin)
      if (count > 1)
        distances.push_back(std::abs(fact->centre - getMean(kin)) *
                            std::sqrt(count / (count - 1)));
  }
  // The median distance of a normal distribution.
  constexpr double normal = 0.6744897501960817;
  double deviation = distances.empty() ? 0 : getMedian(distances) / normal;
  return deviation * deviation;
}

namespace {

/// The facts that a question is answered by.
struct Class {
  std::string name;
  std::vector<const BandFact *> facts;
};

} // namespace

/// Takes the narrowest that has two sources: the program on the architecture,
/// its kin on it, its kin anywhere, whatever ran on it, all.
static Class findClass(const BandQuestion &question,
                       std::span<const BandFact> facts) {
  std::string program(question.program), target(question.target);
  std::string family(getFamily(question.program));
  auto isOn = [&](const BandFact &fact) { return fact.target == target; };
  auto isKin = [&](const BandFact &fact) {
    return getFamily(fact.program) == family;
  };
  std::pair<std::string, std::function<bool(const BandFact &)>> classes[] = {
      {program + " on " + target,
       [&](auto &fact) { return fact.program == program && isOn(fact); }},
      {"programs like " + program + " on " + target,
       [&](auto &fact) { return isKin(fact) && isOn(fact); }},
      {"programs like " + program, isKin},
      {"all programs on " + target, isOn},
      {"all programs", [](auto &) { return true; }}};
  Class found;
  for (auto &[name, contains] : classes) {
    found = {name, {}};
    for (const BandFact &fact : facts)
      if (contains(fact))
        found.facts.push_back(&fact);
    if (found.facts.size() > 1)
      break;
  }
  return found;
}

/// The variance of the centre of a source that the class does not have, about
/// its mean. What nobody has measured is as far off as another program is.
static double getVariance(const Class &found, double usual, double unmeasured,
                          double mean) {
  double sources = double(found.facts.size());
  double sum = priorSources * usual;
  for (const BandFact *fact : found.facts)
    sum += (fact->centre - mean) * (fact->centre - mean);
  return sum / (priorSources + sources - 1) * (1 + 1 / sources + unmeasured);
}

/// That of runs about the centres of their sources, to one side.
static double getVariance(const Class &found, double BandFact::*side) {
  double sum = 0;
  for (const BandFact *fact : found.facts)
    sum += std::pow(fact->*side / tenth, 2);
  return sum / double(found.facts.size());
}

Band planner::getBand(const BandQuestion &question,
                      std::span<const BandFact> facts) {
  Class found = findClass(question, facts);
  Band band;
  band.unmeasured = question.unmeasured;
  band.sources = int(found.facts.size());
  int64_t most = 0;
  for (const BandFact *fact : found.facts) {
    band.runs += fact->runs;
    most = std::max(most, fact->most);
  }
  if (question.devices > most)
    band.unmeasured.push_back("more than " + std::to_string(most) + " devices");
  band.basis = countOf(uint64_t(band.runs), "run") + " of " +
               countOf(uint64_t(band.sources), "source") + ", " + found.name;
  double mean = getMean(found.facts);
  double between = getVariance(found, getUsualVariance(facts),
                               double(band.unmeasured.size()), mean);
  double student = getStudent(priorSources + double(band.sources) - 1);
  auto getDistance = [&](double BandFact::*side) {
    return student * std::sqrt(between + getVariance(found, side));
  };
  double below = getDistance(&BandFact::below),
         above = getDistance(&BandFact::above);
  band.low = std::exp(mean - below);
  band.high = std::exp(mean + above);
  if (band.getHalfWidth() > widestBand) {
    double middle = (band.low + band.high) / 2;
    band.low = middle - widestBand;
    band.high = middle + widestBand;
  }
  return band;
}
