//===- Collective.cpp - Time of collectives and transfers -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The model by which NCCL itself chooses (its src/graph/tuning.cc): every pair
// of an algorithm and a protocol has a start-up time, a time per step and a
// bandwidth; the fastest pair counts. A ring takes n-1 steps a pass and moves
// (n-1)/n of the tensor over every link; a double binary tree takes a number of
// steps that grows with the logarithm of the nodes and moves the whole tensor
// up and down; a switch that adds up needs one step.
//
// Across nodes all members of a node take part in the traffic with their own
// NICs: a ring is as fast as the links inside of a node or as the NICs of a
// node's members together, whichever is slower.
//
// Ranks on processors form no ring. Each sends every other one its part, and so
// as much inside of its node and out of it as it has members there, both at
// once: more bytes leave a node than with a ring, and fewer pass its links.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Cost.h"

#include <algorithm>
#include <bit>

using namespace plait;
using namespace plait::planner;

namespace {

/// A group on a cluster.
struct Place {
  int members, perNode, nodes;
  double intraBandwidth, interBandwidth; // of one member
};

/// The first row with at least as many members; larger groups reach all links.
double getIntraBandwidth(const Fabric &fabric, int members) {
  for (auto [most, bandwidth] : fabric.byMembers)
    if (members <= most)
      return bandwidth;
  return fabric.bandwidth;
}

/// Finds where a group lies. Groups that span more nodes than a pod share the
/// links above it, and get their bandwidth divided by what these are
/// oversubscribed.
Place getPlace(Group group, const Cluster &cluster) {
  int perNode = std::clamp(group.perNode, 1, group.ranks);
  int nodes = (group.ranks + perNode - 1) / perNode;
  double inter = cluster.inter.bandwidth;
  if (cluster.podNodes > 0 && nodes > cluster.podNodes)
    inter /= cluster.podOversubscription;
  return {group.ranks, perNode, nodes,
          getIntraBandwidth(cluster.intra, perNode), inter};
}

/// Steps inside of a node and between nodes, and the bytes over each link. Of
/// what is sent directly, `outside` are those through a member's own NIC.
struct Traffic {
  double intraSteps = 0, interSteps = 0, bytes = 0, outside = 0;
};

/// Counts what an algorithm moves over the busiest link and how many steps that
/// takes. Of a ring's steps, `nodes - 1` a pass go between nodes; a reduction
/// in the switch has no steps that grow with the members.
Traffic getTraffic(Algorithm algorithm, const Place &place, int passes,
                   double bytes) {
  double n = place.members;
  double ringBytes = passes * (n - 1) / n * bytes;
  switch (algorithm) {
  case Algorithm::Ring: {
    double interSteps = passes * (place.nodes - 1.0);
    return {passes * (n - 1) - interSteps, interSteps, ringBytes};
  }
  // Down a chain of a node's members and a tree of the nodes, and up again,
  // with all of the tensor each way.
  case Algorithm::Tree:
    return {2.0 * (place.perNode - 1),
            2.0 * (std::bit_width(unsigned(place.nodes)) - 1), 2 * bytes};
  case Algorithm::InSwitch:
    return {0, 0, ringBytes};
  case Algorithm::Direct: {
    double inside = passes * (place.perNode - 1.0);
    double outside = passes * (n - place.perNode);
    return {inside, outside, inside / n * bytes, outside / n * bytes};
  }
  }
  return {};
}

/// Returns the seconds of the busiest link; infinite where the combination does
/// not exist. `outer` is the channel of the links between nodes, or inside of
/// the only one.
double getSendingSeconds(Algorithm algorithm, const Place &place,
                         const Traffic &traffic, const Channel &intra,
                         const Channel &outer) {
  constexpr double never = 1e300;
  bool crosses = place.nodes > 1;
  double inside =
      place.perNode > 1 ? place.intraBandwidth * intra.fraction : never;
  double outside = crosses ? place.interBandwidth * outer.fraction : never;
  if (std::min(inside, outside) <= 0)
    return never;
  if (algorithm == Algorithm::Direct)
    return std::max(traffic.bytes / inside, traffic.outside / outside);
  // Members have rings of their own through their own NICs, each with its share
  // of the tensor: together they are as wide as all NICs.
  if (crosses)
    inside = std::min(inside, place.perNode * outside);
  return traffic.bytes / inside;
}

double getChannelSeconds(Algorithm algorithm, Protocol protocol,
                         const Place &place, const Cluster &cluster,
                         const Traffic &traffic, double bytes) {
  bool crosses = place.nodes > 1;
  const Fabric &outer = crosses ? cluster.inter : cluster.intra;
  const Channel &intra = cluster.intra.channels[int(algorithm)][int(protocol)];
  const Channel &channel = outer.channels[int(algorithm)][int(protocol)];
  double latency = traffic.intraSteps * intra.hop;
  if (crosses)
    latency += traffic.interSteps * channel.hop;
  if (algorithm == Algorithm::Ring && protocol == Protocol::Simple)
    latency *= outer.ringPlateau;
  return outer.startSeconds + channel.base + latency +
         getSendingSeconds(algorithm, place, traffic, intra, channel) +
         channel.fill * bytes / (bytes + channel.fillBytes);
}

/// Grouped sends and receives: what stays in the node and what leaves it move
/// at the same time.
double getAllToAllSeconds(double bytes, const Place &place,
                          const Cluster &cluster) {
  double n = place.members;
  double inside = (place.perNode - 1) / n * bytes /
                  (place.intraBandwidth * cluster.intra.transferFraction);
  if (place.nodes == 1)
    return cluster.intra.startSeconds + cluster.intra.transferLatency + inside;
  double outside = (n - place.perNode) / n * bytes /
                   (place.interBandwidth * cluster.inter.transferFraction);
  return cluster.inter.startSeconds + cluster.inter.transferLatency +
         std::max(inside, outside);
}

/// Straight lines between the points; below the first one its time, above the
/// last one its rate.
double readCurve(const Curve &curve, double bytes) {
  const auto &points = curve.points;
  if (bytes <= points.front().first)
    return points.front().second;
  if (bytes >= points.back().first)
    return points.back().second * (bytes / points.back().first);
  auto above = std::upper_bound(
      points.begin(), points.end(), bytes,
      [](double value, const auto &point) { return value < point.first; });
  auto below = above - 1;
  double part = (bytes - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

/// Curves between nodes are measured on whole nodes: a group of part of a
/// node's devices uses only its own NICs, and is modelled.
const Curve *findCurve(CollectiveKind kind, const Place &place,
                       const Cluster &cluster) {
  bool crosses = place.nodes > 1;
  if (crosses && place.perNode != cluster.devicesPerNode)
    return nullptr;
  for (const Curve &curve : (crosses ? cluster.inter : cluster.intra).curves)
    if (curve.collective == kind && curve.members == place.members)
      return &curve;
  return nullptr;
}

} // namespace

Group planner::getGroup(int members, int64_t stride, const Cluster &cluster) {
  int64_t perNode = std::max<int64_t>(1, cluster.devicesPerNode / stride);
  return {members, int(std::min<int64_t>(members, perNode))};
}

/// A line through the shortest and a large all-reduce. Sizes in between, where
/// the library changes its protocol, do not lie on it; callers accept that
/// error.
Line planner::fitCollectives(Group group, const Cluster &cluster) {
  // A hidden activation has some ten million bytes.
  constexpr double large = 64 << 20;
  auto getSeconds = [&](double bytes) {
    return collectiveSeconds(CollectiveKind::AllReduce, bytes, group, cluster);
  };
  double latency = getSeconds(1), seconds = getSeconds(large);
  // A measured curve may begin above that.
  double sending = seconds > latency ? seconds - latency : seconds;
  double sent = large * getSentShare(CollectiveKind::AllReduce, group.ranks);
  return {latency, sent / sending};
}

/// A measured curve of just this group is the answer. Otherwise all pairs of
/// algorithm and protocol that exist for it are tried, and the fastest counts.
double planner::collectiveSeconds(CollectiveKind kind, double bytes,
                                  Group group, const Cluster &cluster) {
  if (group.ranks <= 1 || bytes <= 0)
    return 0;
  Place place = getPlace(group, cluster);
  if (const Curve *curve = findCurve(kind, place, cluster))
    return readCurve(*curve, bytes);
  if (kind == CollectiveKind::AllToAll)
    return getAllToAllSeconds(bytes, place, cluster);
  bool reduces = kind == CollectiveKind::AllReduce;
  double best = 1e300;
  for (int a = 0; a < algorithmCount; ++a) {
    Algorithm algorithm = Algorithm(a);
    // Trees and switches are for sums that all members get.
    if ((algorithm == Algorithm::Tree || algorithm == Algorithm::InSwitch) &&
        !reduces)
      continue;
    if (algorithm == Algorithm::InSwitch &&
        (place.nodes > 1 || place.members < cluster.intra.inSwitchMembers))
      continue;
    // The library tries all pairs as well, with the same sums: the best is
    // what it takes.
    Traffic traffic =
        getTraffic(algorithm, place, getFacts(kind).passes, bytes);
    for (int p = 0; p < protocolCount; ++p)
      best = std::min(best, getChannelSeconds(algorithm, Protocol(p), place,
                                              cluster, traffic, bytes));
  }
  return best;
}

/// Processors send rows as they send blocks. On GPUs rows are packed and
/// unpacked, which reads and writes them, in grouped sends, of which the host
/// reads how many rows they have (NcclGroup.cpp): the GPU waits for it.
double planner::rowsSeconds(CollectiveKind kind, double bytes, Group group,
                            const Cluster &cluster) {
  if (cluster.device.isProcessor || group.ranks <= 1 || bytes <= 0)
    return collectiveSeconds(kind, bytes, group, cluster);
  // Zeros, own rows, lists, packing and unpacking.
  constexpr double kernels = 5;
  // Assumption: 30 µs on an H100, of which the copy and the event behind it
  // take a half, and what the host launches next the other.
  constexpr double readLaunches = 10;
  double sent = bytes * (group.ranks - 1) / group.ranks;
  return collectiveSeconds(CollectiveKind::AllToAll, bytes, group, cluster) +
         4 * sent / getMemoryRate(cluster.device) +
         (kernels + readLaunches) * cluster.device.launchSeconds;
}

/// One message between two devices, on links of its own: no algorithm to
/// choose.
double planner::transferSeconds(double bytes, bool sameNode,
                                const Cluster &cluster) {
  if (bytes <= 0)
    return 0;
  const Fabric &fabric = sameNode ? cluster.intra : cluster.inter;
  double bandwidth = sameNode ? getIntraBandwidth(fabric, 2) : fabric.bandwidth;
  return fabric.transferLatency + bytes / (bandwidth * fabric.transferFraction);
}

/// Sites send to all others at once, as much together as in a ring: the latency
/// counts once when they add up, and once when all get the sum.
double planner::siteCollectiveSeconds(CollectiveKind kind, double bytes,
                                      int64_t sites, int64_t sharing,
                                      const Cluster &cluster) {
  if (sites <= 1 || bytes <= 0)
    return 0;
  double sent = bytes * getSentShare(kind, sites) * double(sharing);
  return double(getFacts(kind).passes) * cluster.siteLatency +
         sent / cluster.siteBandwidth;
}

double planner::siteTransferSeconds(double bytes, int64_t sharing,
                                    const Cluster &cluster) {
  return bytes > 0 ? cluster.siteLatency +
                         bytes * double(sharing) / cluster.siteBandwidth
                   : 0;
}
