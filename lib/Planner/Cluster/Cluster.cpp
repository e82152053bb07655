//===- Cluster.cpp - Names and files of clusters --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Makes a cluster of what a user names: a preset or a hardware file with a
// size, or a cluster file, which may have one of its own. However it is named,
// it ends in build(), which checks the size against the hardware and gives
// ranks that share a machine their part of it. Nothing behind this knows where
// a cluster came from.
//
//===----------------------------------------------------------------------===//

#include "Cluster/Hardware.h"

#include <charconv>
#include <optional>

using namespace plait;
using namespace plait::planner;

namespace {

constexpr int maximumNodes = 1'000'000;

/// Nodes and devices of a node; or devices of all nodes, whose number build()
/// then finds.
struct Size {
  int nodes = 0; // 0: only the number of devices was given
  int devices = 0;
};

/// A whole number with nothing behind it, from 1 on.
std::optional<int> parseCount(std::string_view text, int maximum) {
  int number = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 ||
      number > maximum)
    return std::nullopt;
  return number;
}

/// "64x8" or "512".
Result<Size> parseSize(const std::string &cluster, std::string_view text) {
  size_t cross = text.find('x');
  auto bad = [&](const char *what, std::string_view part, int maximum) {
    return fail("cluster '", cluster, "': ", what,
                " must be a whole number of 1 to ", maximum, ", not '", part,
                "'");
  };
  if (cross == text.npos) {
    // The limit is that of nodes, each of which has at least one device.
    auto devices = parseCount(text, maximumNodes);
    if (!devices)
      return bad("the number of devices", text, maximumNodes);
    return Size{0, *devices};
  }
  auto nodes = parseCount(text.substr(0, cross), maximumNodes);
  if (!nodes)
    return bad("the number of nodes", text.substr(0, cross), maximumNodes);
  auto devices = parseCount(text.substr(cross + 1), 1024);
  if (!devices)
    return bad("devices per node", text.substr(cross + 1), 1024);
  return Size{*nodes, *devices};
}

/// Ranks of one machine share what it has: rates and bytes of the processor, of
/// its memory and of its links are divided evenly. Latencies are not:
/// they are of each rank's own calls. Where there are more ranks than cores, a
/// rank that rests leaves its share to others, up to a whole core each: that is
/// the burst.
void divideAmongRanks(Hardware &hardware, int ranks) {
  Device &device = hardware.device;
  for (double &peak : device.peakFlops)
    peak /= ranks;
  device.vectorFlops /= ranks;
  device.memoryBytes /= ranks;
  device.reservedBytes /= ranks;
  device.memoryBandwidth /= ranks;
  for (const MemoryPlaceFacts &facts : otherPlaces)
    device.places[facts.place].bandwidth /= ranks;
  device.powerWatts /= ranks;
  device.burst = std::max(1.0, double(ranks) / hardware.cores);
  for (Fabric *fabric : {&hardware.intra, &hardware.inter}) {
    fabric->bandwidth /= ranks;
    for (auto &[members, bandwidth] : fabric->byMembers)
      bandwidth /= ranks;
  }
}

/// All devices of a node copy at the same times of a step, whatever each could
/// alone.
void sharePlaces(const PerPlace<PlaceLink> &shares, int devices,
                 Device &device) {
  for (const MemoryPlaceFacts &facts : otherPlaces) {
    const PlaceLink &share = shares[facts.place];
    PlaceLink &link = device.places[facts.place];
    if (share.bandwidth > 0)
      link.bandwidth = std::min(link.bandwidth, share.bandwidth / devices);
    link.bytes = share.bytes / devices;
  }
}

/// A number of devices without nodes fills whole nodes of the usual size, or
/// part of one. The links of a node bound how many devices it may have, since a
/// node of another size has other links.
Result<Cluster> build(const std::string &name, Hardware hardware, Size size) {
  if (size.nodes == 0) {
    // A few devices are a node of their own, however many the usual one has.
    int usual = hardware.devicesPerNode;
    if (size.devices <= usual)
      size.nodes = 1;
    else if (size.devices % usual == 0)
      size = {size.devices / usual, usual};
    else
      return fail("cluster '", name, "': ", size.devices,
                  " devices are no whole number of nodes of ", usual);
  }
  // Also where the size is a file's own: the links are the hardware's.
  if (size.devices > hardware.maximumDevices)
    return fail("cluster '", name, "': the links of a node join at most ",
                hardware.maximumDevices, " devices of ", hardware.device.name,
                ", not ", size.devices);
  hardware.device.isProcessor = hardware.shared;
  if (hardware.shared)
    divideAmongRanks(hardware, size.devices);
  else
    sharePlaces(hardware.shares, size.devices, hardware.device);
  Cluster cluster;
  cluster.name = name;
  cluster.nodes = size.nodes;
  cluster.devicesPerNode = size.devices;
  cluster.device = std::move(hardware.device);
  cluster.intra = std::move(hardware.intra);
  cluster.inter = std::move(hardware.inter);
  return cluster;
}

/// A device as a preset's name, a path, or an object in place.
Result<Hardware> readDevice(const Json &value, const std::string &what,
                            const std::string &folder) {
  if (value.is_string()) {
    std::string name = value.get<std::string>();
    Result<Json> fields = loadHardware(name, folder);
    if (!fields.ok())
      return fail(what, ": ", fields.status().message());
    return parseHardware(*fields, "hardware file '" + name + "'");
  }
  if (!value.is_object())
    return fail(what, ": device must be a name or an object, not ",
                value.dump());
  Result<Json> fields = resolveHardware(value, what + ": device", folder);
  if (!fields.ok())
    return fields.status();
  return parseHardware(*fields, what + ": device");
}

/// Nodes of one kind.
struct NodeGroup {
  Hardware hardware;
  Size size;
};

/// Takes device, nodes and devicesPerNode from `fields`.
/// A field that is required and missing has made `fields` fail: finish() then
/// returns the failure.
Result<NodeGroup> readGroup(Fields &fields, const std::string &what,
                            const std::string &folder) {
  const Json *device = fields.require("device").get("device");
  Size size;
  fields.require("nodes").read("nodes", size.nodes, {1, maximumNodes});
  fields.read("devicesPerNode", size.devices, {1, 1024});
  if (!device)
    return fields.finish(); // a failure: the field is required
  Result<Hardware> hardware = readDevice(*device, what, folder);
  if (!hardware.ok())
    return hardware.status();
  if (size.devices == 0)
    size.devices = hardware->devicesPerNode;
  return NodeGroup{std::move(*hardware), size};
}

/// The nodes of a mixed cluster: all of them, as bad as the worst.
/// Nodes need the same number of devices, because a mesh cannot lie on nodes of
/// different sizes evenly.
Result<NodeGroup> readGroups(const Json &groups, const std::string &what,
                             const std::string &folder) {
  if (!groups.is_array() || groups.empty())
    return fail(what, ": groups must be a list that is not empty");
  // The groups so far, as one. Each may have as many nodes as all of them.
  std::optional<NodeGroup> all;
  int64_t nodes = 0;
  for (const Json &entry : groups) {
    // Each group is an object of its own, in which unknown fields are found as
    // well.
    Fields fields(entry, what + ": groups");
    Result<NodeGroup> group = readGroup(fields, what, folder);
    if (!group.ok())
      return group;
    PLAIT_RETURN_IF_ERROR(fields.finish());
    nodes += group->size.nodes;
    if (!all) {
      all = std::move(*group);
      continue;
    }
    if (group->size.devices != all->size.devices)
      return fail(what, ": all groups must have the same devicesPerNode, not ",
                  all->size.devices, " and ", group->size.devices);
    // One plan runs on all of them.
    if (group->hardware.shared != all->hardware.shared)
      return fail(what,
                  ": groups must be all of GPUs or all of processors, "
                  "not of ",
                  all->hardware.device.name, " and ",
                  group->hardware.device.name);
    all->hardware = getWorst(all->hardware, group->hardware);
  }
  if (nodes > maximumNodes)
    return fail(what, ": groups must have at most ", maximumNodes,
                " nodes together, not ", nodes);
  all->size.nodes = int(nodes);
  return *all;
}

/// The file's links are applied on top of the device's, and a size behind the
/// name replaces the file's: the same description at another scale.
Result<Cluster> parseClusterFile(const Json &object, const std::string &path,
                                 const std::string &folder,
                                 std::optional<Size> override) {
  std::string what = "cluster file '" + path + "'";
  Fields fields(object, what + ":");
  // A file that states no name is called by its path.
  std::string name = path;
  fields.read("name", name);
  // With groups the fields device, nodes and devicesPerNode are not asked for,
  // and so are unknown beside them.
  const Json *groups = fields.get("groups");
  Result<NodeGroup> group = groups ? readGroups(*groups, what, folder)
                                   : readGroup(fields, what, folder);
  if (!group.ok())
    return group.status();
  Hardware &hardware = group->hardware;
  std::pair<const char *, Fabric *> links[] = {{"intra", &hardware.intra},
                                               {"inter", &hardware.inter}};
  for (auto &[field, fabric] : links)
    if (const Json *value = fields.get(field)) {
      PLAIT_RETURN_IF_ERROR(parseFabric(*value, fields.path(field), *fabric));
      PLAIT_RETURN_IF_ERROR(
          checkLinks(*fabric, hardware.shared, fields.path(field)));
    }
  // Without pods all nodes see the same bandwidth.
  int podNodes = 0;
  double oversubscription = 1;
  fields.read("podNodes", podNodes, {0, maximumNodes});
  fields.read("podOversubscription", oversubscription, {1, 1000});
  PLAIT_RETURN_IF_ERROR(fields.finish());
  if (podNodes == 0 && oversubscription != 1)
    return fail(what, ": podOversubscription is ", oversubscription,
                ", but podNodes, of how many nodes a pod is, is missing or 0");
  Result<Cluster> cluster =
      build(name, hardware, override ? *override : group->size);
  if (!cluster.ok())
    return cluster;
  cluster->podNodes = podNodes;
  cluster->podOversubscription = oversubscription;
  return cluster;
}

/// Reads what parseCluster() does; a site has no sites itself.
Result<Cluster> readCluster(const std::string &given, bool isSite);

/// Reads what each site is, and how many there are. All of their nodes are one
/// cluster, of which a site is an equal part.
Result<Cluster> readSites(const Json &sites, const std::string &what,
                          const std::string &folder) {
  if (!sites.is_array() || sites.size() != 1)
    return fail(what, ": sites must be a list of one object, as all sites are "
                      "equal");
  Fields fields(sites.front(), what + ": sites");
  std::string name;
  int count = 0;
  fields.require("cluster").read("cluster", name);
  fields.require("count").read("count", count, {2, maximumNodes});
  PLAIT_RETURN_IF_ERROR(fields.finish());
  bool isPath = name.find(".json") != name.npos && name.front() != '/';
  Result<Cluster> cluster =
      readCluster(isPath ? folder + name : name, /*isSite=*/true);
  if (!cluster.ok())
    return fail(what, ": sites: ", cluster.status().message());
  if (cluster->nodes > maximumNodes / count)
    return fail(what, ": sites must have at most ", maximumNodes,
                " nodes together, not ", count, " times ", cluster->nodes);
  cluster->nodes *= count;
  cluster->sites = count;
  return cluster;
}

/// Reads sites and what joins them: one link of each, which all of its devices
/// share.
Result<Cluster> parseSites(const Json &object, const std::string &path,
                           const std::string &folder,
                           std::optional<Size> override) {
  std::string what = "cluster file '" + path + "'";
  if (override)
    return fail(what, " has sites, and no size behind its name");
  Fields fields(object, what + ":");
  std::string name = path;
  fields.read("name", name);
  const Json *sites = fields.require("sites").get("sites");
  const Json *link = fields.require("link").get("link");
  PLAIT_RETURN_IF_ERROR(fields.finish());
  Result<Cluster> cluster = readSites(*sites, what, folder);
  if (!cluster.ok())
    return cluster;
  Fields joins(*link, what + ": link");
  joins.require("bandwidth")
      .read("bandwidth", cluster->siteBandwidth, {1, 1e15});
  joins.read("latency", cluster->siteLatency, {0, 1000});
  PLAIT_RETURN_IF_ERROR(joins.finish());
  cluster->name = name;
  return cluster;
}

/// A file holds a cluster unless it only describes a device.
/// A device by name makes a cluster; a device in place is what a hardware file
/// has.
bool isClusterFile(const Json &object) {
  return object.contains("nodes") || object.contains("groups") ||
         (object.contains("device") && object["device"].is_string());
}

/// One text may be a cluster or a device, so that a calibrated hardware file
/// can be used like a preset. Paths in it are relative to its folder.
Result<Cluster> parseFile(const std::string &text, const std::string &path,
                          std::optional<Size> size, bool isSite) {
  Result<Json> json = readJsonFile(path, "cluster file");
  if (!json.ok())
    return json.status();
  size_t slash = path.rfind('/');
  std::string folder = slash == path.npos ? "" : path.substr(0, slash + 1);
  if (json->contains("sites"))
    return isSite ? fail("cluster file '", path, "' has sites itself")
                  : parseSites(*json, path, folder, size);
  if (isClusterFile(*json))
    return parseClusterFile(*json, path, folder, size);
  if (!size)
    return fail("hardware file '", path,
                "' describes a device and needs a number of them, as in '",
                path, ":2x8'");
  std::string what = "hardware file '" + path + "'";
  Result<Json> fields = resolveHardware(std::move(*json), what, folder);
  if (!fields.ok())
    return fields.status();
  Result<Hardware> hardware = parseHardware(*fields, what);
  if (!hardware.ok())
    return hardware.status();
  return build(text, std::move(*hardware), *size);
}

/// An unknown name is reported before a missing size, so that a mistyped device
/// gets the list of devices.
Result<Cluster> parsePreset(const std::string &text, const std::string &name,
                            std::optional<Size> size) {
  Result<Json> fields = loadHardware(name, "");
  if (!fields.ok())
    return fields.status();
  if (!size)
    return fail("cluster '", text, "' needs a size: '", name,
                ":NODESxDEVICES', as in '", name, ":2x8'");
  Result<Hardware> hardware =
      parseHardware(*fields, "hardware file '" + name + "'");
  if (!hardware.ok())
    return hardware.status();
  return build(text, std::move(*hardware), *size);
}

/// "h100:2x8" of "2x8xH100", as people say it: counts in front, then the name.
/// Anything else as it is. Names of presets are in small letters.
std::string putNameFirst(const std::string &text) {
  size_t at = text.find_first_not_of("0123456789x");
  bool isSaid = text.find_first_of(":/.") == text.npos && at != text.npos &&
                at >= 2 && text[at - 1] == 'x';
  if (!isSaid)
    return text;
  std::string name = text.substr(at);
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return std::tolower(letter);
  });
  return name + ":" + text.substr(0, at - 1);
}

/// The colon is looked for behind ".json": a path may have one. `source` is the
/// name without its size, from which withSize() names others of the same kind.
Result<Cluster> readCluster(const std::string &given, bool isSite) {
  std::string text = putNameFirst(given);
  size_t extension = text.rfind(".json");
  bool isFile = extension != text.npos;
  size_t colon = text.find(':', isFile ? extension : 0);
  std::string name = text.substr(0, colon);
  std::optional<Size> size;
  if (colon != text.npos) {
    Result<Size> parsed =
        parseSize(text, std::string_view(text).substr(colon + 1));
    if (!parsed.ok())
      return parsed.status();
    size = *parsed;
  }
  Result<Cluster> cluster = isFile ? parseFile(text, name, size, isSite)
                                   : parsePreset(text, name, size);
  if (cluster.ok())
    cluster->source = name;
  return cluster;
}

} // namespace

Result<Cluster> planner::parseCluster(const std::string &given) {
  return readCluster(given, /*isSite=*/false);
}
