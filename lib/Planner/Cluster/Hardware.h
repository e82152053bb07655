//===- Hardware.h - Contents of hardware files ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_CLUSTER_HARDWARE_H
#define PLAIT_PLANNER_CLUSTER_HARDWARE_H

#include "plait/Planner/Cluster.h"
#include "plait/Planner/Json.h"

#include <map>
#include <string_view>

namespace plait::planner {

/// One device type and the links that it usually comes with.
struct Hardware {
  Device device; // alone on its node
  /// Totals that the devices of a node share.
  PerPlace<PlaceLink> shares;
  Fabric intra, inter;
  int devicesPerNode = 1;    // the usual number
  int maximumDevices = 1024; // that the links of a node join
  /// Memory, arithmetic and their bandwidths are of a node and its ranks share
  /// them, as the ranks of a CPU do.
  bool shared = false;
  int cores = 1; // of a node, where it is shared
};

/// The text of each embedded file, by the name of its device; generated.
const std::map<std::string, std::string_view> &getEmbeddedHardware();

/// The fields of a preset, or of a file where `name` ends with ".json"; with
/// "extends" resolved: a file holds what differs from the one it extends.
/// Relative paths are of `folder`.
Result<Json> loadHardware(const std::string &name, const std::string &folder);

/// The same for an object that stands in place of a name.
Result<Json> resolveHardware(Json object, const std::string &what,
                             const std::string &folder);

/// Reads resolved fields; `what` begins messages: "hardware file 'h100'".
Result<Hardware> parseHardware(const Json &object, const std::string &what);

/// Bytes of this machine's memory that the process may use: all, or the limit
/// of its control groups. 0: cannot be told.
double getMachineMemory();

/// Reads what an object says of links into `fabric`; `where` begins messages.
Status parseFabric(const Json &object, const std::string &where,
                   Fabric &fabric);

/// Checks what every collective's cost begins with: a bandwidth, and a row for
/// the algorithm that has one for each kind. `isShared`: ranks share a
/// processor, and know one algorithm alone.
Status checkLinks(const Fabric &fabric, bool isShared,
                  const std::string &where);

/// The worst of every figure of two node types.
Hardware getWorst(const Hardware &a, const Hardware &b);

} // namespace plait::planner

#endif // PLAIT_PLANNER_CLUSTER_HARDWARE_H
