//===- Cluster.h - The machines that a training runs on ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cluster is nodes of equal devices. Inside of a node every device reaches
// every other over `intra` (NVLink, Infinity Fabric, shared memory); nodes
// reach each other over `inter` (InfiniBand, Ethernet). "Node" means the domain
// of the fast links, whatever the box looks like: an NVL72 rack is one node of
// 72 devices.
//
// All figures come from hardware files, one per device type, embedded into the
// library (lib/Planner/Cluster/hardware/*.json; docs/Hardware.md describes the
// fields); no constant of any hardware is in code. Seconds, bytes, FLOP/s.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_CLUSTER_H
#define PLAIT_PLANNER_CLUSTER_H

#include "plait/Planner/Configuration.h"
#include "plait/Planner/Work.h"
#include "plait/Support/Status.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace plait::planner {

/// How a collective library moves data: around a ring, along a double binary
/// tree, by the switch that adds up in flight (NVLS), or directly, each member
/// sending every other its part (ranks on processors).
enum class Algorithm : uint8_t { Ring, Tree, InSwitch, Direct };
inline constexpr int algorithmCount = 4;

/// How a message is cut: NCCL's LL and LL128 send data and flag in one store
/// (low latency, part of the bandwidth), Simple sends large chunks and then
/// synchronises.
enum class Protocol : uint8_t { LL, LL128, Simple };
inline constexpr int protocolCount = 3;

/// One algorithm with one protocol on one kind of link. A fraction of 0 says
/// that the combination does not exist there.
struct Channel {
  double base = 0;     // seconds, once per collective
  double hop = 0;      // seconds of each step from one member to the next
  double fraction = 0; // of Fabric::bandwidth that arrives
  /// The seconds that filling a deep pipeline of chunks adds: up to `fill`
  /// seconds, half of it at `fillBytes`.
  double fill = 0, fillBytes = 1;
};

/// A measured curve: (bytes of the full tensor, seconds), both ascending.
struct Curve {
  CollectiveKind collective = CollectiveKind::AllReduce;
  int members = 0;
  std::vector<std::pair<double, double>> points;
};

/// The links between the devices of one node, or between nodes.
struct Fabric {
  std::string name;     // "NVLink 4", for reports
  double bandwidth = 0; // bytes/s that one device can send, one direction
  /// The bandwidth that a small group reaches where links run from device to
  /// device and there is no switch: (members, bytes/s), ascending; holds for
  /// groups of up to that many members. Larger groups get `bandwidth`.
  std::vector<std::pair<int, double>> byMembers;
  std::array<std::array<Channel, protocolCount>, algorithmCount> channels{};
  /// Seconds that the start of a collective costs beside Channel::base: its
  /// launch, and that the members are never ready at the same moment.
  double startSeconds = 0;
  /// Tells of links between nodes how much longer the steps of a ring with
  /// large chunks take where a ring crosses them (1: no longer).
  double ringPlateau = 1;
  /// The fewest members for which the switch adds up.
  int inSwitchMembers = 0;
  /// Seconds of a point-to-point message of no bytes, and what part of
  /// `bandwidth` a large one gets.
  double transferLatency = 0, transferFraction = 1;
  /// Part of the device's arithmetic that is lost while a collective over these
  /// links runs beside it (its kernels take multiprocessors).
  double computeLoss = 0;
  /// They replace the model for groups of just these members: all in one node
  /// for the links of a node, filling their nodes for the links between nodes.
  std::vector<Curve> curves;
};

/// A tile of the result that one block of the matrix library computes.
struct Tile {
  int m = 0, n = 0;
  /// The part of the device's peak that its main loop reaches on data at hand.
  double efficiency = 0;
};

/// How matmuls run on the device; see lib/Planner/Cost/Matmul.cpp.
struct MatrixUnit {
  std::vector<Tile> tiles;
  int tileK = 1; // contraction of one trip of the main loop
  /// Trips of the main loop that a block's prologue and epilogue cost.
  double rampTrips = 0;
  /// The part of the peak that the power limit lets the device hold.
  double sustainedFraction = 1;
  /// Part of the shorter of arithmetic and memory traffic that does not hide
  /// behind the longer.
  double serialFraction = 0;
  int maximumSplits = 1; // of the contraction, over blocks
  /// (bytes, factor), ascending: what remains of the speed when the dimensions
  /// are multiples of that many bytes and no more; of one matmul, and of a
  /// batch of them.
  std::vector<std::pair<int, double>> alignment, batchedAlignment;
};

/// Fused attention; see lib/Planner/Cost/Attention.cpp.
struct AttentionUnit {
  /// (head size, fraction of the peak), ascending: long sequences, of the
  /// arithmetic that is done. Empty: there is no fused attention.
  std::vector<std::pair<int, double>> forward, backward;
  int tileQueries = 1, tileKeys = 1; // of a block, forward and backward
  /// Head sizes are padded to a multiple of this.
  int headMultiple = 1;
  /// The part of the longest block's time that the device idles at the end.
  double tail = 0;
};

/// Figures of a device about another place than its arena; 0: not known.
struct PlaceLink {
  /// Bytes/s that copies to there reach while the other devices of the node
  /// copy as well, and as many at once from there. The host's memory is
  /// page-locked.
  double bandwidth = 0;
  double bytes = 0; // this device's share
};

/// One accelerator, or one rank's share of a CPU.
struct Device {
  std::string name;
  /// The architecture that code is compiled for, "sm_90"; empty: not known.
  std::string target;
  /// A share of this machine's processor, beside other ranks.
  bool isProcessor = false;
  /// How many times as fast a rank may compute while other ranks of the same
  /// processor rest: its share of the cores grows up to a whole one.
  double burst = 1;
  std::array<double, 3> peakFlops{}; // by Precision; dense
  /// The peak of elementwise arithmetic.
  double vectorFlops = 0;
  double memoryBytes = 0;
  /// Context, communication buffers, what the allocator cannot use.
  double reservedBytes = 0;
  double memoryBandwidth = 0; // bytes/s, as specified
  double memoryFraction = 1;  // of it that large kernels reach
  /// Bytes at which a memory-bound kernel reaches half of that.
  double memoryHalfBytes = 0;
  PerPlace<PlaceLink> places; // beside the arena
  /// The power that it draws at most, by its specification; 0: not known.
  double powerWatts = 0;
  int multiprocessors = 1;
  double launchSeconds = 0; // of a kernel, back to back on a stream
  MatrixUnit matrix;
  AttentionUnit attention;

  double usableBytes() const { return memoryBytes - reservedBytes; }
  /// Returns the bytes that plans may have in a place; of others than the arena
  /// 0: not known.
  double getRoom(MemoryPlace place) const {
    return place == MemoryPlace::Arena ? usableBytes() : places[place].bytes;
  }
  double peak(Precision precision) const {
    return peakFlops[size_t(precision)];
  }
};

struct Cluster {
  std::string name;
  /// The name or path that was given, without the size: "h100", "selene.json".
  std::string source;
  /// The device; of a mixed cluster, the worst of every figure over its node
  /// types. In synchronous training all wait for the slowest, and one plan has
  /// to fit into the smallest memory.
  Device device;
  int nodes = 1, devicesPerNode = 1;
  Fabric intra, inter;
  /// Slowdown of links between nodes that share a switch's uplinks, when groups
  /// span more than `podNodes` nodes (0: full bisection everywhere).
  int podNodes = 0;
  double podOversubscription = 1;
  /// Equal parts of the nodes that are far apart, each a site; 0: none is.
  int sites = 0;
  /// Bytes/s that a site can send to another one, all of its devices together,
  /// and the seconds that a message takes beside.
  double siteBandwidth = 0, siteLatency = 0;

  int devices() const { return nodes * devicesPerNode; }
  /// Returns what parseCluster reads as this cluster with another size.
  std::string withSize(int nodes, int devicesPerNode) const {
    return source + ":" + std::to_string(nodes) + "x" +
           std::to_string(devicesPerNode);
  }
};

/// Reads a cluster: "h100:64x8" (preset:NODESxDEVICES), "cpu:8" (a number alone
/// is of devices: one node, or whole nodes of the usual size), the path of a
/// cluster file ("selene.json"), or either kind of file with a size of its own
/// ("selene.json:16x8", "my-cpu.json:4"). Fails with one line that names the
/// culprit, what was given and what is possible.
Result<Cluster> parseCluster(const std::string &text);

/// The names of the embedded hardware files, sorted.
std::vector<std::string> getDevicePresets();

} // namespace plait::planner

#endif // PLAIT_PLANNER_CLUSTER_H
