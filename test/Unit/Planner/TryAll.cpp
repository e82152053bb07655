//===- TryAll.cpp - Every configuration of a small space ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TryAll.h"

#include "plait/Schedule/Generators.h"

#include <set>

using namespace plait;
using namespace plait::planner;

/// Whether groups of replicas, if there are several, have some ranks each that
/// fill a node, or four, sixteen, or an odd multiple.
static bool isGrouped(const Setting &setting, const Mesh &mesh) {
  if (mesh[Axis::Replicate] == 1)
    return true;
  int node = setting.cluster.devicesPerNode;
  int replicas = mesh[Axis::DP] * mesh[Axis::EP] * mesh[Axis::CP];
  int ranks = replicas * mesh[Axis::TP];
  while (ranks % (4 * node) == 0)
    ranks /= 4;
  return replicas > 1 && ranks % node == 0 && ranks % (2 * node) != 0;
}

namespace {

/// Walks a space; what is fixed so far is in `c`.
struct Walk {
  const Setting &setting;
  const std::function<void(const Work &, const Configuration &,
                           const Estimate &)> &visit;
  int ranks;
  Configuration c;

  void tensors();
  void meshes(const Work &work);
  void schedules(const Work &work);
  void members(const Work &work);
  void cuts(const Work &work);
};

} // namespace

void Walk::cuts(const Work &work) {
  for (bool even : {false, true}) {
    int stages = c.mesh[Axis::PP] * c.chunks;
    if (even && setting.shape.layers % stages != 0)
      continue;
    c.layers.assign(even ? size_t(stages) : 0,
                    int(setting.shape.layers) / stages);
    for (Offload offload : setting.space.offload) {
      c.offload = offload;
      auto e = estimate(work, setting.cluster, setting.training, c);
      if (e.ok())
        visit(work, c, *e);
    }
  }
}

void Walk::members(const Work &work) {
  for (int zero : setting.space.zero)
    for (const Recomputation &recompute : setting.space.recompute)
      for (int64_t micro : setting.space.microBatch) {
        if (zero == 0 && c.mesh[Axis::Replicate] > 1)
          continue;
        c.zero = zero;
        c.recompute = recompute;
        c.microBatch = micro;
        cuts(work);
      }
}

static bool orders(const schedule::Generator &row, int chunks) {
  return uint32_t(chunks) >= row.minChunks && uint32_t(chunks) <= row.maxChunks;
}

/// Whether a stage alone runs the schedule: nothing is to be ordered, so that
/// of all with whole passes, and of those with halves, it is the plainest.
static bool isPlainest(const schedule::Generator &row, int chunks,
                       const SearchSpace &space) {
  auto key = [](const schedule::Generator &of, int chunks) {
    return std::tuple(chunks, of.searches, std::string_view(of.name));
  };
  for (const std::string &name : space.schedule) {
    const schedule::Generator &other = **schedule::findGenerator(name);
    for (int count : space.chunks)
      if (other.splitsBackward == row.splitsBackward && orders(other, count) &&
          key(other, count) < key(row, chunks))
        return false;
  }
  return true;
}

void Walk::schedules(const Work &work) {
  for (const std::string &name : setting.space.schedule)
    for (int chunks : setting.space.chunks) {
      const schedule::Generator &row = **schedule::findGenerator(name);
      if (!orders(row, chunks) ||
          (c.mesh[Axis::PP] == 1 && !isPlainest(row, chunks, setting.space)))
        continue;
      c.schedule = name;
      c.chunks = chunks;
      members(work);
    }
}

void Walk::meshes(const Work &work) {
  for (int cp : setting.space.mesh[Axis::CP])
    for (c.mesh[Axis::PP] = 1; c.mesh[Axis::PP] <= ranks; ++c.mesh[Axis::PP]) {
      c.mesh[Axis::CP] = cp;
      for (int groups : setting.space.mesh[Axis::Replicate]) {
        c.mesh[Axis::Replicate] = groups;
        for (c.mesh[Axis::DP] = 1; c.ranks() <= ranks; ++c.mesh[Axis::DP])
          for (ContextParallel kind : setting.space.contextParallel) {
            c.contextParallel = kind;
            bool isSame = cp == 1 && kind != setting.space.contextParallel[0];
            if (!isSame && isGrouped(setting, c.mesh) &&
                (c.ranks() == ranks || !setting.cluster.device.isProcessor))
              schedules(work);
          }
      }
    }
}

/// Experts are on ranks of their own where layers are not split otherwise.
void Walk::tensors() {
  for (c.mesh[Axis::TP] = 1; c.mesh[Axis::TP] <= ranks; c.mesh[Axis::TP] *= 2)
    for (bool sp : setting.space.sequenceParallel)
      for (int experts : setting.space.mesh[Axis::EP])
        for (ExpertExchange exchange : setting.space.expertExchange) {
          bool isSame =
              experts == 1 && exchange != setting.space.expertExchange[0];
          bool isSplit = setting.shape.experts.experts >= experts &&
                         c.mesh[Axis::TP] == 1 && !sp;
          if (isSame || (experts > 1 && !isSplit))
            continue;
          c.sequenceParallel = sp;
          c.mesh[Axis::EP] = experts;
          c.expertExchange = experts == 1 ? ExpertExchange::Tokens : exchange;
          Work work = buildTransformerWork(setting.shape, c.mesh[Axis::TP], sp,
                                           experts);
          work.expertExchange = c.expertExchange;
          meshes(work);
        }
}

void planner::forEachConfiguration(
    const Setting &setting,
    const std::function<void(const Work &, const Configuration &,
                             const Estimate &)> &visit) {
  Walk{setting, visit, setting.cluster.devices(), {}}.tensors();
}

/// Names what runners-up differ in. One stage has no schedule, but halves of
/// its backward passes may wait for less of what ZeRO 2 and 3 exchange.
static std::string nameFamily(const Setting &setting, const Configuration &c) {
  bool mayWait = !setting.cluster.device.isProcessor &&
                 setting.space.zero.back() >= 2 &&
                 c.mesh[Axis::DP] * c.mesh[Axis::EP] * c.mesh[Axis::CP] > 1;
  bool halves = (*schedule::findGenerator(c.schedule))->splitsBackward;
  std::string alone = halves && mayWait ? "halves" : "";
  std::ostringstream family;
  family << c.mesh[Axis::PP] << " " << c.mesh[Axis::DP] << " "
         << c.mesh[Axis::EP] << " " << c.mesh[Axis::TP] << " "
         << c.mesh[Axis::CP] << " " << c.mesh[Axis::Replicate] << " "
         << (c.mesh[Axis::PP] > 1 ? c.schedule + std::to_string(c.chunks)
                                  : alone)
         << (c.offload == Offload::None ? "" : " offload");
  return family.str();
}

void planner::checkExact(Setting setting) {
  SearchResult result = setting.run();
  double best = 1e300, ideal = 1e300;
  std::map<std::string, double> families;
  std::set<std::string> idle;
  double full = 1e300; // the best that uses all devices
  // The same with nothing on hosts, by whether it uses all devices.
  double plain[] = {1e300, 1e300};
  forEachConfiguration(
      setting, [&](const Work &, const Configuration &c, const Estimate &e) {
        ideal = std::min(ideal, e.iterationSeconds);
        if (e.isTooLarge(setting.cluster.device))
          return;
        for (bool usesAll : {false, true})
          if (c.offload == Offload::None &&
              (!usesAll || c.ranks() == setting.cluster.devices()))
            plain[usesAll] = std::min(plain[usesAll], e.iterationSeconds);
        best = std::min(best, e.iterationSeconds);
        auto [known, isNew] =
            families.try_emplace(nameFamily(setting, c), e.iterationSeconds);
        known->second = std::min(known->second, e.iterationSeconds);
        if (c.ranks() == setting.cluster.devices())
          full = std::min(full, e.iterationSeconds);
        else
          idle.insert(nameFamily(setting, c));
      });
  // A simpler one may be picked that is slower by less than the band.
  SCOPED_TRACE(print(result.configuration));
  std::string pick = nameFamily(setting, result.configuration);
  EXPECT_LE(result.estimate.iterationSeconds, (1 + robustBand) * best);
  // And its layers may have moved since.
  EXPECT_LE(result.estimate.iterationSeconds, families[pick] * (1 + 1e-12));
  // The search takes selective recomputation of fused attention for none, which
  // it is, but for rounding.
  EXPECT_LE(result.lowerBoundSeconds, best * (1 + 1e-12));
  EXPECT_LE(result.idealSeconds, ideal);
  EXPECT_GT(result.idealSeconds, 0.2 * ideal); // a bound that says something
  // Where nothing uses all devices there is little to compare with, nor is
  // there in a small space.
  if (full < 1e300 && result.counts.considered > 1000)
    EXPECT_GT(result.counts.pruned, result.counts.considered / 3);
  // The runners-up are the best of their kind, in order.
  std::multimap<double, std::string> seconds; // and the names
  for (const auto &[name, value] : families) {
    // Not exactly slower, where copies are hidden: as fast but for rounding.
    bool isPlain = !name.ends_with("offload") ||
                   value < plain[!idle.count(name)] * (1 - 1e-12);
    if (name != pick && (!idle.count(name) || value < full) && isPlain)
      seconds.emplace(value, name);
  }
  EXPECT_EQ(result.idleDevices > 0, best < full);
  EXPECT_EQ(result.allDevices.has_value(), best < full && full < 1e300);
  if (result.allDevices)
    EXPECT_DOUBLE_EQ(result.allDevices->estimate.iterationSeconds, full);
  std::vector<std::pair<double, std::string>> expected(seconds.begin(),
                                                       seconds.end());
  if (expected.size() > 10) {
    // The fastest with nothing on hosts is shown in any case.
    auto first = std::ranges::find_if(
        expected, [](auto &of) { return !of.second.ends_with("offload"); });
    if (pick.ends_with("offload") && first != expected.end() &&
        first - expected.begin() >= 10)
      expected[9] = *first;
    expected.resize(10);
  }
  ASSERT_EQ(result.runnersUp.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Alternative &other = result.runnersUp[i];
    SCOPED_TRACE(expected[i].second + ": " + print(other.configuration));
    EXPECT_DOUBLE_EQ(other.estimate.iterationSeconds, expected[i].first);
    // Any of those that are as fast will do.
    EXPECT_DOUBLE_EQ(other.estimate.iterationSeconds,
                     families[nameFamily(setting, other.configuration)]);
  }
}
