//===- Hardware.cpp - Reading hardware files ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranges are what could possibly be: they catch a figure in the wrong unit, not
// an optimistic one.
//
// Reads what a hardware file says of a device and its links (docs/Hardware.md
// has the fields) and puts node types together. Each function takes one object
// of the file, gives every field its range and its default, and leaves what is
// not stated as the struct has it: the defaults are those of Cluster.h. A file
// may extend another one; that is resolved on the JSON, before any field is
// read, so that the readers see one complete object.
//
//===----------------------------------------------------------------------===//

#include "Cluster/Hardware.h"

#include <algorithm>
#include <ranges>

using namespace plait;
using namespace plait::planner;

namespace {

// Both ends included. Bandwidths and FLOP/s have a lower end above 0, because
// they are divided by; fractions that may be divided by start at 0.001.
constexpr Range flops = {1e6, 1e18};
constexpr Range bytes = {0, 1e15};
constexpr Range bandwidth = {1e3, 1e15};
constexpr Range seconds = {0, 1};
constexpr Range part = {0, 1};
/// A switch that adds up moves less than the ring that busbw is counted for.
constexpr Range linkPart = {0, 2};
constexpr Range count = {1, 1e6};

// A table as it stands in a file: rows of numbers.
using Rows = std::vector<std::vector<double>>;

template <typename Key>
void assignPairs(const Rows &rows, std::vector<std::pair<Key, double>> &to) {
  to.clear();
  for (const auto &row : rows)
    to.emplace_back(Key(row[0]), row[1]);
}

/// Tables of pairs are looked up by ascending keys, which is checked here once.
/// A table that is not there keeps its default; one that is there replaces it
/// as a whole, since merged rows of two sources would mean nothing.
template <typename Key>
void readPairs(Fields &fields, const char *name,
               std::vector<std::pair<Key, double>> &to, Range keys,
               Range values) {
  Rows rows;
  if (!fields.get(name))
    return;
  fields.read(name, rows, {keys, values}, /*ascending=*/true);
  assignPairs(rows, to);
}

/// Reads at least one tile: the cost of a matmul is that of the best one. Tiles
/// are in no order.
Status parseMatrix(const Json &object, const std::string &where,
                   MatrixUnit &unit) {
  Fields fields(object, where);
  Rows tiles;
  fields.require("tiles").read("tiles", tiles, {count, count, {0.001, 1}},
                               false);
  unit.tiles.clear();
  for (const auto &tile : tiles)
    unit.tiles.push_back({int(tile[0]), int(tile[1]), tile[2]});
  if (tiles.empty())
    fields.fail(fail(where, ".tiles must not be empty"));
  fields.read("tileK", unit.tileK, count);
  fields.read("rampTrips", unit.rampTrips, {0, 1000});
  fields.read("sustainedFraction", unit.sustainedFraction, {0.001, 1});
  fields.read("serialFraction", unit.serialFraction, part);
  fields.read("maximumSplits", unit.maximumSplits, {1, 64});
  readPairs(fields, "alignment", unit.alignment, count, {0.001, 1});
  readPairs(fields, "batchedAlignment", unit.batchedAlignment, count,
            {0.001, 1});
  return fields.finish();
}

/// Both directions or neither: without a table attention counts as not fused,
/// and half a table would be fused in one pass only.
Status parseAttention(const Json &object, const std::string &where,
                      AttentionUnit &unit) {
  Fields fields(object, where);
  readPairs(fields, "forward", unit.forward, count, {0.001, 1});
  readPairs(fields, "backward", unit.backward, count, {0.001, 1});
  if (unit.forward.empty() != unit.backward.empty())
    fields.fail(fail(where, " needs both forward and backward, or neither"));
  fields.read("tileQueries", unit.tileQueries, count);
  fields.read("tileKeys", unit.tileKeys, count);
  fields.read("headMultiple", unit.headMultiple, count);
  fields.read("tail", unit.tail, {0, 2});
  return fields.finish();
}

/// Peaks, memory and matmul tiles have no default that could be right for an
/// unknown device: they are required. What is reserved has to leave something.
Status parseDevice(const Json &object, const std::string &where,
                   Device &device) {
  Fields fields(object, where);
  // In the order of Precision.
  const char *peaks[] = {"fp32Flops", "bf16Flops", "fp16Flops"};
  for (int i = 0; i < 3; ++i)
    fields.require(peaks[i]).read(peaks[i], device.peakFlops[i], flops);
  fields.read("target", device.target);
  fields.require("vectorFlops").read("vectorFlops", device.vectorFlops, flops);
  fields.require("memoryBytes")
      .read("memoryBytes", device.memoryBytes, {1e6, 1e15});
  fields.read("reservedBytes", device.reservedBytes, bytes);
  if (device.reservedBytes >= device.memoryBytes)
    fields.fail(fail(where, ".reservedBytes must be below memoryBytes, ",
                     device.memoryBytes, ", not ", device.reservedBytes));
  fields.require("memoryBandwidth")
      .read("memoryBandwidth", device.memoryBandwidth, bandwidth);
  fields.read("memoryFraction", device.memoryFraction, {0.001, 1});
  fields.read("memoryHalfBytes", device.memoryHalfBytes, bytes);
  for (const MemoryPlaceFacts &facts : otherPlaces)
    fields.read((std::string(facts.name) + "Bandwidth").c_str(),
                device.places[facts.place].bandwidth, bandwidth);
  fields.read("powerWatts", device.powerWatts, {0, 1e6});
  fields.read("multiprocessors", device.multiprocessors, count);
  fields.read("launchSeconds", device.launchSeconds, seconds);
  // Nested objects have readers of their own, whose failures name the whole
  // path.
  if (const Json *matrix = fields.require("matrix").get("matrix"))
    if (Status bad = parseMatrix(*matrix, where + ".matrix", device.matrix);
        !bad.ok())
      return bad;
  if (const Json *attention = fields.get("attention"))
    if (Status bad =
            parseAttention(*attention, where + ".attention", device.attention);
        !bad.ok())
      return bad;
  return fields.finish();
}

/// "ring": {"ll": [base, hop, fraction, fill, fillBytes], …}
/// A protocol that is not given keeps its fraction of 0, which switches it off.
Status parseChannels(const Json &object, const std::string &where,
                     std::array<Channel, protocolCount> &channels) {
  Fields fields(object, where);
  // In the order of Protocol.
  const char *names[] = {"ll", "ll128", "simple"};
  for (int i = 0; i < protocolCount; ++i) {
    std::vector<double> row;
    fields.read(names[i], row,
                {seconds, seconds, linkPart, seconds, {1, 1e15}});
    if (!row.empty())
      channels[i] = {row[0], row[1], row[2], row[3], row[4]};
  }
  return fields.finish();
}

/// Bus bandwidths, as nccl-tests prints them, become seconds: the bytes that a
/// member sends, by the rate. Seconds may not fall with bytes, so that the
/// model is monotone.
Status parseCurve(const Json &object, const std::string &where, Curve &curve) {
  Fields fields(object, where);
  std::string kind;
  fields.require("collective").read("collective", kind);
  auto *facts = std::find_if(std::begin(collectives), std::end(collectives),
                             [&](const auto &row) { return row.name == kind; });
  if (facts == std::end(collectives))
    fields.fail(fail(
        where, ".collective must be one of ",
        joinNames(std::views::transform(collectives, &CollectiveFacts::name)),
        ", not '", kind, "'"));
  else
    curve.collective = CollectiveKind(facts - collectives);
  fields.require("members").read("members", curve.members, {2, 1e6});
  Rows rows;
  fields.require("points").read("points", rows, {{1, 1e15}, {1, 1e15}}, true);
  if (rows.empty())
    fields.fail(fail(where, ".points must not be empty"));
  if (Status bad = fields.finish(); !bad.ok())
    return bad;
  // Noise must not make a larger message the faster one.
  double last = 0, perByte = getSentShare(curve.collective, curve.members);
  for (const auto &row : rows) {
    last = std::max(last, perByte * row[0] / row[1]);
    curve.points.emplace_back(row[0], last);
  }
  return Status::success();
}

/// Replaces "extends" by what it names. A chain that comes back to itself ends
/// at `depth`.
Result<Json> resolve(Json object, const std::string &what,
                     const std::string &folder, int depth);

std::string getFolder(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

/// ", did you mean a100-40g, a100-80g?" of "a100": presets that begin with
/// `name` or that it begins with, in any case of letters.
std::string suggestDevice(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return std::tolower(letter);
  });
  std::vector<std::string> similar;
  for (const std::string &preset : getDevicePresets())
    if (!name.empty() && (preset.starts_with(name) || name.starts_with(preset)))
      similar.push_back(preset);
  return similar.empty() ? "" : ", did you mean " + joinNames(similar) + "?";
}

/// A preset by its name, or a file by its path. The folder is that of the file
/// that names it, so that files can be moved together.
Result<Json> load(const std::string &name, const std::string &folder,
                  int depth) {
  if (name.ends_with(".json")) {
    std::string path = name[0] == '/' ? name : folder + name;
    Result<Json> json = readJsonFile(path, "hardware file");
    if (!json.ok())
      return json;
    return resolve(std::move(*json), "hardware file '" + path + "'",
                   getFolder(path), depth);
  }
  auto it = getEmbeddedHardware().find(name);
  if (it == getEmbeddedHardware().end())
    return fail("unknown device '", name, "'", suggestDevice(name),
                "; known are: ", joinNames(getDevicePresets()),
                ", or the path of a hardware file that ends with .json");
  return resolve(Json::parse(it->second, nullptr, false),
                 "hardware file '" + name + "'", "", depth);
}

/// The limit on the depth ends a chain of files that extend each other; no real
/// chain has 8.
Result<Json> resolve(Json object, const std::string &what,
                     const std::string &folder, int depth) {
  auto it = object.find("extends");
  if (it == object.end())
    return object;
  if (!it->is_string())
    return fail(what, ": extends must be a text, not ", it->dump());
  if (depth == 0)
    return fail(what, ": extends '", it->get<std::string>(),
                "' leads to more than 8 files");
  Result<Json> base = load(it->get<std::string>(), folder, depth - 1);
  if (!base.ok())
    return base;
  // Merged field by field (RFC 7396): objects deeply, numbers and lists as a
  // whole. A figure with a source replaces one with another source in the same
  // way.
  object.erase("extends");
  base->merge_patch(object);
  return base;
}

} // namespace

/// Also reads what a cluster file changes of its hardware's links: whatever the
/// object does not name stays as `fabric` has it. Lists replace what was there.
Status planner::parseFabric(const Json &object, const std::string &where,
                            Fabric &fabric) {
  Fields fields(object, where);
  fields.read("name", fabric.name);
  fields.read("bandwidth", fabric.bandwidth, bandwidth);
  readPairs(fields, "byMembers", fabric.byMembers, count, bandwidth);
  // In the order of Algorithm.
  const char *algorithms[] = {"ring", "tree", "inSwitch", "direct"};
  for (int i = 0; i < algorithmCount; ++i)
    if (const Json *channels = fields.get(algorithms[i]))
      PLAIT_RETURN_IF_ERROR(parseChannels(*channels, fields.path(algorithms[i]),
                                          fabric.channels[i]));
  fields.read("startSeconds", fabric.startSeconds, seconds);
  fields.read("ringPlateau", fabric.ringPlateau, {1, 10});
  fields.read("inSwitchMembers", fabric.inSwitchMembers, {0, 1e6});
  fields.read("transferLatency", fabric.transferLatency, seconds);
  fields.read("transferFraction", fabric.transferFraction, {0.001, 1});
  fields.read("computeLoss", fabric.computeLoss, {0, 0.999});
  if (const Json *curves = fields.get("curves")) {
    if (!curves->is_array())
      return fail(fields.path("curves"), " must be a list");
    fabric.curves.resize(curves->size());
    for (size_t i = 0; i < curves->size(); ++i)
      PLAIT_RETURN_IF_ERROR(parseCurve(
          (*curves)[i], fields.path("curves[" + std::to_string(i) + "]"),
          fabric.curves[i] = Curve()));
  }
  return fields.finish();
}

Result<Json> planner::loadHardware(const std::string &name,
                                   const std::string &folder) {
  return load(name, folder, 8);
}

Result<Json> planner::resolveHardware(Json object, const std::string &what,
                                      const std::string &folder) {
  return resolve(std::move(object), what, folder, 8);
}

static Status parseShare(const Json &object, const std::string &where,
                         PlaceLink &share) {
  Fields fields(object, where);
  fields.read("bandwidth", share.bandwidth, bandwidth);
  fields.read("memoryBytes", share.bytes, {1e6, 1e18});
  return fields.finish();
}

/// A row that would never be used is refused: its figures were meant to count.
Status planner::checkLinks(const Fabric &fabric, bool isShared,
                           const std::string &where) {
  if (fabric.bandwidth == 0)
    return fail(where, ".bandwidth is missing");
  auto has = [&](Algorithm algorithm, Protocol protocol) {
    return fabric.channels[int(algorithm)][int(protocol)].fraction > 0;
  };
  if (!has(isShared ? Algorithm::Direct : Algorithm::Ring, Protocol::Simple))
    return fail(where, isShared ? ".direct" : ".ring",
                ".simple is missing or has a fraction of 0");
  for (int i = 0; isShared && i < protocolCount; ++i)
    if (has(Algorithm::Ring, Protocol(i)))
      return fail(where, ".ring is given, but ranks on processors send each "
                         "other their parts: its figures belong in 'direct'");
  return Status::success();
}

Result<Hardware> planner::parseHardware(const Json &object,
                                        const std::string &what) {
  Fields fields(object, what + ":");
  Hardware hardware;
  fields.require("name").read("name", hardware.device.name);
  fields.read("devicesPerNode", hardware.devicesPerNode, {1, 1024});
  fields.read("maximumDevices", hardware.maximumDevices, {1, 1024});
  fields.read("cores", hardware.cores, {1, 1e5});
  fields.read("shared", hardware.shared);
  if (const Json *fieldsOfDevice = fields.require("device").get("device"))
    PLAIT_RETURN_IF_ERROR(
        parseDevice(*fieldsOfDevice, fields.path("device"), hardware.device));
  Device &device = hardware.device;
  for (const MemoryPlaceFacts &facts : otherPlaces) {
    std::string name(facts.name);
    if (const Json *share = fields.get(name.c_str()))
      PLAIT_RETURN_IF_ERROR(parseShare(*share, fields.path(name.c_str()),
                                       hardware.shares[facts.place]));
    // A processor copies in its own memory: it reads and writes.
    double &bandwidth = device.places[facts.place].bandwidth;
    if (!facts.isApart(hardware.shared) && bandwidth == 0)
      bandwidth = device.memoryBandwidth * device.memoryFraction / 2;
  }
  // Where the limit of a control group is below what is reserved, or cannot be
  // told, the file's figure stays.
  bool usesMachine = false;
  fields.read("machineMemory", usesMachine);
  if (double own = usesMachine ? getMachineMemory() : 0;
      own > hardware.device.reservedBytes)
    hardware.device.memoryBytes = own;
  std::pair<const char *, Fabric *> links[] = {{"intra", &hardware.intra},
                                               {"inter", &hardware.inter}};
  for (auto &[name, fabric] : links) {
    const Json *value = fields.require(name).get(name);
    if (!value)
      break;
    PLAIT_RETURN_IF_ERROR(parseFabric(*value, fields.path(name), *fabric));
    PLAIT_RETURN_IF_ERROR(
        checkLinks(*fabric, hardware.shared, fields.path(name)));
  }
  PLAIT_RETURN_IF_ERROR(fields.finish());
  return hardware;
}

/// Code for an architecture runs on later ones of its family. Shorter names
/// first, so that sm_90 is older than sm_100. Families that differ have no
/// common architecture: the plan cannot be compiled for both.
static std::string getOlder(const std::string &a, const std::string &b) {
  auto family = [](const std::string &name) {
    return name.substr(0, name.find('_'));
  };
  if (family(a) != family(b))
    return "";
  return std::pair(a.size(), a) < std::pair(b.size(), b) ? a : b;
}

/// Figures that can be compared alone are the worse of the two. Those that only
/// mean something together (tiles and efficiencies, links with their latencies)
/// are taken whole, from the slower type: that links of the faster one may have
/// the higher latency is left out.
Hardware planner::getWorst(const Hardware &a, const Hardware &b) {
  constexpr size_t bf16 = size_t(Precision::BF16);
  // By the precision that most models train in: one of the two lends its matmul
  // and attention tables, which go with its rates.
  bool slower = a.device.peakFlops[bf16] <= b.device.peakFlops[bf16];
  Hardware worst = slower ? a : b;
  const Hardware &other = slower ? b : a;
  Device &device = worst.device;
  auto lower = [](double &to, double value) { to = std::min(to, value); };
  for (size_t i = 0; i < device.peakFlops.size(); ++i)
    lower(device.peakFlops[i], other.device.peakFlops[i]);
  lower(device.vectorFlops, other.device.vectorFlops);
  // What is usable is the smaller of the two.
  if (other.device.usableBytes() < device.usableBytes()) {
    device.memoryBytes = other.device.memoryBytes;
    device.reservedBytes = other.device.reservedBytes;
  }
  if (other.device.memoryBandwidth * other.device.memoryFraction <
      device.memoryBandwidth * device.memoryFraction) {
    device.memoryBandwidth = other.device.memoryBandwidth;
    device.memoryFraction = other.device.memoryFraction;
  }
  // 0 where one of the two is not known.
  for (const MemoryPlaceFacts &facts : otherPlaces) {
    lower(device.places[facts.place].bandwidth,
          other.device.places[facts.place].bandwidth);
    PlaceLink &share = worst.shares[facts.place];
    lower(share.bandwidth, other.shares[facts.place].bandwidth);
    lower(share.bytes, other.shares[facts.place].bytes);
  }
  device.launchSeconds =
      std::max(device.launchSeconds, other.device.launchSeconds);
  // Unknown unless both are known: the figure of one type would be taken for
  // that of the whole cluster.
  bool isKnown = device.powerWatts > 0 && other.device.powerWatts > 0;
  device.powerWatts =
      isKnown ? std::max(device.powerWatts, other.device.powerWatts) : 0;
  device.target = getOlder(device.target, other.device.target);
  if (other.device.name != device.name)
    device.name += "+" + other.device.name;
  worst.maximumDevices = std::min(a.maximumDevices, b.maximumDevices);
  // Links: the slower kind as a whole, with its own latencies.
  if (other.intra.bandwidth < worst.intra.bandwidth)
    worst.intra = other.intra;
  if (other.inter.bandwidth < worst.inter.bandwidth)
    worst.inter = other.inter;
  return worst;
}

std::vector<std::string> planner::getDevicePresets() {
  std::vector<std::string> names;
  for (const auto &[name, text] : getEmbeddedHardware())
    names.push_back(name);
  return names;
}
