//===- ClusterTest.cpp - Presets, cluster files, errors -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Cluster.h"

#include "Cluster/Hardware.h"

#include "plait/Plan/Files.h"
#include "plait/Planner/Cost.h"

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace plait;
using namespace plait::planner;
using Json = nlohmann::json;

namespace {

const std::string sourceDir = PLAIT_SOURCE_DIR;

Cluster parse(const std::string &text) {
  Result<Cluster> cluster = parseCluster(text);
  EXPECT_TRUE(cluster.ok()) << text << ": " << cluster.status().message();
  return cluster.ok() ? *cluster : Cluster();
}

std::string getError(const std::string &text) {
  Result<Cluster> cluster = parseCluster(text);
  return cluster.ok() ? "no error" : cluster.status().message();
}

/// A file that lives as long as the test.
class TemporaryFile {
public:
  TemporaryFile(const std::string &text) {
    static int number = 0;
    path = testing::TempDir() + "plait-cluster-" + std::to_string(number++) +
           ".json";
    EXPECT_TRUE(writeTextFile(path, text).ok());
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  std::string path;
};

TEST(Cluster, EveryPresetParses) {
  std::vector<std::string> expected = {
      "a100-40g", "a100-80g", "a100-pcie", "b200", "b300",   "cpu", "gb200",
      "gb300",    "h100",     "h200",      "host", "mi300x", "v100"};
  EXPECT_EQ(getDevicePresets(), expected);
  for (const std::string &name : getDevicePresets()) {
    Cluster cluster = parse(name + ":2x4");
    EXPECT_EQ(cluster.device.name, name);
    EXPECT_EQ(cluster.devices(), 8);
    EXPECT_GT(cluster.device.usableBytes(), 0);
    EXPECT_GT(cluster.device.peak(Precision::BF16), 0);
    EXPECT_GT(cluster.intra.bandwidth, 0);
    EXPECT_GT(cluster.inter.bandwidth, 0);
  }
}

TEST(Cluster, DataSheets) {
  // NVIDIA and AMD data sheets: dense 16-bit peaks, memory bandwidths.
  EXPECT_EQ(parse("a100-80g:8").device.peak(Precision::BF16), 312e12);
  EXPECT_EQ(parse("h100:8").device.peak(Precision::BF16), 989e12);
  EXPECT_EQ(parse("mi300x:8").device.peak(Precision::FP16), 1307e12);
  EXPECT_EQ(parse("h200:8").device.memoryBandwidth, 4.8e12);
  // 40 GB and 80 GB devices hold no less, and no more than 7 % above (GiB).
  for (auto [name, bytes] : {std::pair{"a100-40g:8", 40e9},
                             {"a100-80g:8", 80e9},
                             {"h100:8", 80e9},
                             {"h200:8", 141e9}}) {
    EXPECT_GE(parse(name).device.memoryBytes, bytes) << name;
    EXPECT_LE(parse(name).device.memoryBytes, 1.074 * bytes) << name;
  }
}

/// What the limit of power leaves to large matmuls of Blackwell is as the
/// limit.
TEST(Cluster, PowerBoundsMatmuls) {
  Cluster base = parse("b200:8");
  auto getRate = [](const Device &device) {
    return device.peak(Precision::BF16) * device.matrix.sustainedFraction;
  };
  for (const char *name : {"b300:8", "gb200:1x8", "gb300:1x8"}) {
    const Device device = parse(name).device;
    EXPECT_NEAR(getRate(device) / getRate(base.device),
                device.powerWatts / base.device.powerWatts, 0.003)
        << name;
  }
}

TEST(Cluster, Sizes) {
  Cluster cluster = parse("h100:64x8");
  EXPECT_EQ(cluster.nodes, 64);
  EXPECT_EQ(cluster.devicesPerNode, 8);
  EXPECT_EQ(cluster.name, "h100:64x8");
  EXPECT_EQ(parse("h100:64").nodes, 8);
  EXPECT_EQ(parse("h100:4").devicesPerNode, 4);
  EXPECT_EQ(parse("cpu:8").nodes, 1);
  EXPECT_EQ(parse("gb200:2x72").devices(), 144);
}

TEST(Cluster, RanksShareAMachine) {
  Cluster one = parse("cpu:1"), four = parse("cpu:4");
  EXPECT_DOUBLE_EQ(one.device.peak(Precision::FP32), 232e9);
  EXPECT_DOUBLE_EQ(four.device.peak(Precision::FP32), 58e9);
  EXPECT_DOUBLE_EQ(4 * four.device.memoryBytes, one.device.memoryBytes);
  EXPECT_DOUBLE_EQ(4 * four.intra.bandwidth, one.intra.bandwidth);
}

/// However many ranks a node has, they are no faster together than its NIC.
TEST(Cluster, RanksShareTheNicsOfANode) {
  double bytes = 256 << 20;
  auto getSeconds = [&](int perNode) {
    Cluster cluster = parse("cpu:2x" + std::to_string(perNode));
    return collectiveSeconds(CollectiveKind::AllReduce, bytes,
                             {2 * perNode, perNode}, cluster);
  };
  // Of all bytes one of two nodes sends half, twice.
  double nic = parse("cpu:2x1").inter.bandwidth;
  EXPECT_GE(getSeconds(1), bytes / nic);
  EXPECT_GE(getSeconds(2), bytes / nic);
}

/// "host" has the memory of the machine that the test runs on, as far as a
/// control group lets a process have it, and otherwise what "cpu" has.
TEST(Cluster, RanksShareTheLinksOfSmallGroupsToo) {
  TemporaryFile file(R"({"extends": "cpu", "name": "mine",
                         "intra": {"byMembers": [[2, 4e9]]}})");
  auto pairs = parse(file.path + ":8").intra.byMembers;
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].second, 0.5e9);
}

TEST(Cluster, HostHasTheMemoryOfThisMachine) {
  Cluster host = parse("host:2"), cpu = parse("cpu:2");
  double machine =
      double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
  EXPECT_LE(2 * host.device.memoryBytes, machine);
  EXPECT_GT(host.device.usableBytes(), 0);
  EXPECT_EQ(host.device.reservedBytes, cpu.device.reservedBytes);
  EXPECT_EQ(host.device.memoryBandwidth, cpu.device.memoryBandwidth);
  // A file that states no memory of its own has it too, with the flag.
  TemporaryFile file(R"({"extends": "cpu", "name": "mine",
                         "machineMemory": true})");
  EXPECT_EQ(parse(file.path + ":2").device.memoryBytes,
            host.device.memoryBytes);
}

TEST(Cluster, EveryFigureOfAHardwareFileHasASource) {
  int figures = 0;
  std::function<void(const Json &, const std::string &)> visit =
      [&](const Json &value, const std::string &path) {
        if (value.is_object() && value.contains("value")) {
          EXPECT_TRUE(value.contains("source") &&
                      !value["source"].get<std::string>().empty())
              << path;
          ++figures;
        } else if (value.is_object()) {
          for (const auto &[name, field] : value.items())
            visit(field, path + "." + name);
        } else {
          EXPECT_FALSE(value.is_number() || value.is_array()) << path;
        }
      };
  for (const auto &entry : std::filesystem::directory_iterator(
           sourceDir + "/lib/Planner/Cluster/hardware")) {
    auto file = MappedFile::open(entry.path(), "hardware file");
    ASSERT_TRUE(file.ok());
    visit(Json::parse(file->bytes().begin(), file->bytes().end()),
          entry.path().filename());
  }
  EXPECT_GT(figures, 200);
}

TEST(Cluster, ExamplesParse) {
  int examples = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(sourceDir + "/examples/clusters"))
    if (entry.path().extension() == ".json") {
      parse(entry.path());
      ++examples;
    }
  EXPECT_GE(examples, 6);
  Cluster selene = parse(sourceDir + "/examples/clusters/selene.json");
  EXPECT_EQ(selene.name, "selene");
  EXPECT_EQ(selene.devices(), 4480);
  EXPECT_EQ(selene.inter.bandwidth, 25e9);
  // A size of its own.
  EXPECT_EQ(parse(sourceDir + "/examples/clusters/selene.json:16x8").devices(),
            128);
}

TEST(Cluster, SitesAreJoinedByALink) {
  Cluster four = parse(sourceDir + "/examples/clusters/four-sites.json");
  Cluster one = parse("h100:8x8");
  EXPECT_EQ(four.name, "four-sites");
  EXPECT_EQ(four.sites, 4);
  EXPECT_EQ(four.nodes, 32);
  EXPECT_EQ(four.devices(), 4 * one.devices());
  EXPECT_EQ(four.inter.bandwidth, one.inter.bandwidth);
  EXPECT_EQ(four.siteBandwidth, 1.25e9);
  EXPECT_EQ(four.siteLatency, 0.02);
  EXPECT_EQ(one.sites, 0);
}

TEST(Cluster, TheWorstMemberGoverns) {
  Cluster mixed = parse(sourceDir + "/examples/clusters/mixed-a100.json");
  EXPECT_EQ(mixed.devices(), 32);
  EXPECT_EQ(mixed.device.usableBytes(),
            parse("a100-40g:8").device.usableBytes());
  TemporaryFile file(R"({"groups": [
      {"device": "h100", "nodes": 1, "devicesPerNode": 8},
      {"device": "a100-80g", "nodes": 3, "devicesPerNode": 8}]})");
  Cluster two = parse(file.path);
  EXPECT_EQ(two.nodes, 4);
  EXPECT_EQ(two.device.peak(Precision::BF16), 312e12);
  EXPECT_EQ(two.device.memoryBandwidth, 2.039e12);
  EXPECT_EQ(two.device.memoryBytes, parse("h100:8").device.memoryBytes);
  EXPECT_EQ(two.inter.bandwidth, 25e9);
}

/// Those of the faster type as well, whichever comes first.
TEST(Cluster, TheLinksOfEveryMemberBoundANode) {
  std::string a100 = R"({"device": "a100-80g", "nodes": 1,
                         "devicesPerNode": 16})",
              h100 = R"({"device": "h100", "nodes": 1, "devicesPerNode": 16})";
  for (const std::string &groups : {a100 + "," + h100, h100 + "," + a100}) {
    TemporaryFile file("{\"groups\": [" + groups + "]}");
    EXPECT_NE(getError(file.path).find("the links of a node join at most 8 "),
              std::string::npos)
        << getError(file.path);
  }
}

TEST(Cluster, AHardwareFileOverridesWhatItExtends) {
  TemporaryFile file(R"({"extends": "cpu", "name": "mine",
      "device": {"fp32Flops": 1e12, "matrix": {"sustainedFraction": 0.5}},
      "intra": {"startSeconds": {"value": 1e-4, "source": "measured"}}})");
  Cluster cluster = parse(file.path + ":2");
  Cluster base = parse("cpu:2");
  EXPECT_EQ(cluster.device.name, "mine");
  EXPECT_EQ(cluster.device.peak(Precision::FP32), 5e11);
  EXPECT_EQ(cluster.device.matrix.sustainedFraction, 0.5);
  EXPECT_EQ(cluster.device.matrix.tiles.size(),
            base.device.matrix.tiles.size());
  EXPECT_EQ(cluster.intra.startSeconds, 1e-4);
  EXPECT_EQ(cluster.intra.bandwidth, base.intra.bandwidth);
}

/// A device alone on a node has a link of its own, eight share the host's
/// memory.
TEST(Cluster, DevicesOfANodeShareItsHost) {
  Device one = parse("h100:4x1").device, eight = parse("h100:1x8").device;
  EXPECT_EQ(one.places[MemoryPlace::Host].bandwidth, 5e10);
  EXPECT_EQ(eight.places[MemoryPlace::Host].bandwidth, 2.4e11 / 8);
  EXPECT_EQ(one.places[MemoryPlace::Host].bytes,
            8 * eight.places[MemoryPlace::Host].bytes);
  // Of nodes of different types the worse.
  TemporaryFile file(R"({"groups": [
      {"device": "h100", "nodes": 1, "devicesPerNode": 8},
      {"device": "a100-40g", "nodes": 3, "devicesPerNode": 8}]})");
  Device mixed = parse(file.path).device, other = parse("a100-40g:8").device;
  EXPECT_EQ(mixed.places[MemoryPlace::Host].bandwidth,
            other.places[MemoryPlace::Host].bandwidth);
  EXPECT_EQ(mixed.places[MemoryPlace::Host].bytes,
            other.places[MemoryPlace::Host].bytes);
  // Ranks of a processor copy in its memory.
  EXPECT_GT(parse("cpu:2").device.places[MemoryPlace::Host].bandwidth, 0);
  EXPECT_EQ(parse("cpu:2").device.places[MemoryPlace::Host].bytes, 0);
}

TEST(Cluster, SizesThatMakeNoSense) {
  EXPECT_EQ(getError("h100"), "cluster 'h100' needs a size: "
                              "'h100:NODESxDEVICES', as in 'h100:2x8'");
  EXPECT_EQ(getError("h100:0x8"), "cluster 'h100:0x8': the number of nodes "
                                  "must be a whole number of 1 to 1000000, "
                                  "not '0'");
  EXPECT_EQ(getError("h100:2x8x"), "cluster 'h100:2x8x': devices per node must "
                                   "be a whole number of 1 to 1024, not '8x'");
  EXPECT_EQ(getError("h100:-8"), "cluster 'h100:-8': the number of devices "
                                 "must be a whole number of 1 to 1000000, not "
                                 "'-8'");
  EXPECT_EQ(getError("h100:12"), "cluster 'h100:12': 12 devices are no whole "
                                 "number of nodes of 8");
  EXPECT_EQ(getError("h100:1x16"), "cluster 'h100:1x16': the links of a node "
                                   "join at most 8 devices of h100, not 16");
}

TEST(Cluster, UnknownNames) {
  EXPECT_EQ(
      getError("h101:1x8"),
      "unknown device 'h101'; known are: a100-40g, a100-80g, a100-pcie, "
      "b200, b300, cpu, gb200, gb300, h100, h200, host, mi300x, v100, or the "
      "path of a hardware file that ends with .json");
  EXPECT_NE(getError("missing.json")
                .find("cannot open cluster file "
                      "'missing.json'"),
            std::string::npos);
}

/// Parses `text` as a file; the error, without the path.
std::string getFileError(const std::string &text) {
  TemporaryFile file(text);
  std::string error = getError(file.path);
  size_t at = error.find(file.path);
  return at == error.npos ? error : error.erase(at, file.path.size());
}

TEST(Cluster, SitesThatMakeNoSense) {
  auto getSitesError = [](const std::string &sites, const std::string &link) {
    return getFileError("{\"sites\": " + sites + link + "}");
  };
  std::string two = R"([{"cluster": "h100:8x8", "count": 2}])",
              link = R"(, "link": {"bandwidth": 1e9})";
  EXPECT_EQ(getSitesError(two, ""), "cluster file '': link is missing");
  EXPECT_EQ(getSitesError("[]", link),
            "cluster file '': sites must be a list of one object, as all sites "
            "are equal");
  EXPECT_EQ(getSitesError(R"([{"cluster": "h100:8x8", "count": 1}])", link),
            "cluster file '': sites.count must be a number of 2 to 1e+06, not "
            "1");
  EXPECT_EQ(getSitesError(R"([{"count": 2}])", link),
            "cluster file '': sites.cluster is missing");
  EXPECT_EQ(getSitesError(R"([{"cluster": "h100", "count": 2}])", link),
            "cluster file '': sites: cluster 'h100' needs a size: "
            "'h100:NODESxDEVICES', as in 'h100:2x8'");
  EXPECT_EQ(
      getSitesError(R"([{"cluster": "h100:600000x8", "count": 2}])", link),
      "cluster file '': sites must have at most 1000000 nodes together, "
      "not 2 times 600000");
  EXPECT_EQ(getSitesError(two, R"(, "link": {"bandwidth": 0})"),
            "cluster file '': link.bandwidth must be a number of 1 to 1e+15, "
            "not 0");
  EXPECT_EQ(getSitesError(two, R"(, "link": {"latency": 1})"),
            "cluster file '': link.bandwidth is missing");
  EXPECT_EQ(getSitesError(two, link + R"(, "nodes": 2)"),
            "cluster file '': nodes is unknown; the fields here are: link, "
            "name, sites");
  // A file that names itself.
  TemporaryFile file(R"({"sites": [{"cluster": "X", "count": 2}],
                         "link": {"bandwidth": 1e9}})");
  std::ofstream(file.path) << R"({"sites": [{"cluster": ")" << file.path
                           << R"(", "count": 2}], "link": {"bandwidth": 1e9}})";
  EXPECT_EQ(getError(file.path), "cluster file '" + file.path +
                                     "': sites: cluster file '" + file.path +
                                     "' has sites itself");
  EXPECT_EQ(getError(file.path + ":2x8"),
            "cluster file '" + file.path +
                "' has sites, and no size behind its name");
}

TEST(Cluster, FilesThatMakeNoSense) {
  EXPECT_EQ(getFileError("[1]"), "cluster file '' is not a JSON object");
  EXPECT_EQ(getFileError(std::string(100000, '[')),
            "cluster file '' nests deeper than 16 levels");
  EXPECT_EQ(getFileError(R"({"device": "h100"})"),
            "cluster file '': nodes is missing");
  EXPECT_EQ(getFileError(R"({"device": "h100", "nodes": 2.5})"),
            "cluster file '': nodes must be a whole number, not 2.5");
  EXPECT_EQ(getFileError(R"({"device": "h100", "nodes": 2, "nics": 8})"),
            "cluster file '': nics is unknown; the fields here are: device, "
            "devicesPerNode, groups, inter, intra, name, nodes, "
            "podNodes, podOversubscription");
  EXPECT_EQ(
      getFileError(
          R"({"device": "h100", "nodes": 2, "inter": {"bandwidth": -1}})"),
      "cluster file '': inter.bandwidth must be a number of 1000 to "
      "1e+15, not -1");
  EXPECT_EQ(getFileError(R"({"device": "h100", "nodes": 2,
                             "podOversubscription": 3})"),
            "cluster file '': podOversubscription is 3, but podNodes, of how "
            "many nodes a pod is, is missing or 0");
  EXPECT_EQ(getFileError(R"({"device": "z1", "nodes": 2})").substr(0, 44),
            "cluster file '': unknown device 'z1'; known ");
  EXPECT_EQ(getFileError(R"({"device": "h1", "nodes": 2})").substr(0, 51),
            "cluster file '': unknown device 'h1', did you mean ");
  EXPECT_EQ(getFileError(R"({"name": "x", "device": {}})").substr(0, 60),
            "hardware file '' describes a device and needs a number of th");
  EXPECT_EQ(
      getFileError(R"({"device": {"name": "x", "device": {}}, "nodes": 1})"),
      "cluster file '': device: device.fp32Flops is missing");
  EXPECT_EQ(getFileError(R"({"groups": [
                {"device": "h100", "nodes": 1, "devicesPerNode": 2},
                {"device": "cpu", "nodes": 1, "devicesPerNode": 2}]})"),
            "cluster file '': groups must be all of GPUs or all of processors, "
            "not of h100 and cpu");
  // More than 32 bits hold.
  std::string group = R"({"device": "h100", "nodes": 1000000})", groups = group;
  for (int i = 1; i < 2200; ++i)
    groups += "," + group;
  EXPECT_EQ(getFileError("{\"groups\": [" + groups + "]}"),
            "cluster file '': groups must have at most 1000000 nodes together, "
            "not 2200000000");
}

/// Faults that a cluster file may have where it says what differs.
TEST(Cluster, FieldsOfAnotherKind) {
  struct {
    const char *fields, *message;
  } cases[] = {
      {R"("device": 3)", "device must be a name or an object, not 3"},
      {R"("device": {"extends": 3})", "device: extends must be a text, not 3"},
      {R"("device": "h100", "name": 3)", "name must be a text, not 3"},
      {R"("device": "h100", "inter": [])", "inter must be an object, not []"},
      {R"("device": "h100", "inter": {"ring": {"ll": 1}})",
       "inter.ring.ll must be 5 numbers, not 1"},
      {R"("device": "h100", "inter": {"byMembers": 1})",
       "inter.byMembers must be a list, not 1"},
      {R"("device": "h100", "inter": {"byMembers": [[2, 1e9], [2, 1e9]]})",
       "inter.byMembers[1] must be above the one before, 2, not 2"},
      {R"("device": "h100", "inter": {"curves": 1})",
       "inter.curves must be a list"},
      {R"("device": "h100", "inter": {"curves": [
            {"collective": "chat", "members": 2, "points": [[1, 1]]}]})",
       "inter.curves[0].collective must be one of all-reduce, "},
      {R"("device": "h100", "inter": {"curves": [
            {"collective": "all-reduce", "members": 2, "points": []}]})",
       "inter.curves[0].points must not be empty"}};
  for (const auto &one : cases) {
    std::string error =
        getFileError(std::string(R"({"nodes": 2, )") + one.fields + "}");
    EXPECT_NE(error.find(std::string("': ") + one.message), error.npos)
        << error;
  }
  EXPECT_EQ(getFileError(R"({"groups": []})"),
            "cluster file '': groups must be a list that is not empty");
  EXPECT_EQ(getFileError(R"({"groups": [
                {"device": "h100", "nodes": 1, "devicesPerNode": 2},
                {"device": "h100", "nodes": 1, "devicesPerNode": 4}]})"),
            "cluster file '': all groups must have the same devicesPerNode, "
            "not 2 and 4");
}

/// The error of H100s of which `change` has changed the fields.
std::string getDeviceError(const Json &change) {
  Json device = {{"extends", "h100"}};
  device.merge_patch(change);
  return getFileError(Json({{"device", device}, {"nodes", 1}}).dump());
}

TEST(Cluster, DevicesThatMakeNoSense) {
  struct {
    Json change;
    const char *message;
  } cases[] = {
      {{{"shared", 1}}, "shared must be true or false, not 1"},
      {{{"device", {{"reservedBytes", 9e14}, {"memoryBytes", 1e9}}}},
       ".reservedBytes must be below memoryBytes, 1e+09, not 9e+14"},
      {{{"device", {{"attention", {{"forward", Json::array()}}}}}},
       " needs both forward and backward, or neither"},
      {{{"intra", {{"bandwidth", 0}}}}, "intra.bandwidth must be a number"}};
  for (const auto &one : cases)
    EXPECT_NE(getDeviceError(one.change).find(one.message), std::string::npos)
        << getDeviceError(one.change);
  // Whole objects, which a change would be merged into.
  Result<Json> h100 = loadHardware("h100", "");
  ASSERT_TRUE(h100.ok());
  auto getError = [](const Json &device) {
    return getFileError(Json({{"device", device}, {"nodes", 1}}).dump());
  };
  Json noTiles = *h100, noBandwidth = *h100, noRing = *h100;
  noTiles["device"]["matrix"]["tiles"] = Json::array();
  EXPECT_NE(getError(noTiles).find(".tiles must not be empty"),
            std::string::npos)
      << getError(noTiles);
  noBandwidth["intra"].erase("bandwidth");
  EXPECT_NE(getError(noBandwidth).find("intra.bandwidth is missing"),
            std::string::npos)
      << getError(noBandwidth);
  noRing["inter"].erase("ring");
  EXPECT_NE(getError(noRing).find(
                "inter.ring.simple is missing or has a fraction of 0"),
            std::string::npos)
      << getError(noRing);
}

/// A ring's figures would never be used, those that are used are missing.
TEST(Cluster, ProcessorsKnowNoRing) {
  TemporaryFile file(R"({"device": "cpu", "nodes": 2,
      "inter": {"ring": {"simple": [0, 0, 1, 0, 1]}}})");
  EXPECT_NE(getError(file.path).find(
                "inter.ring is given, but ranks on processors send each other "
                "their parts: its figures belong in 'direct'"),
            std::string::npos)
      << getError(file.path);
}

TEST(Cluster, FilesThatExtendThemselves) {
  std::string path = testing::TempDir() + "plait-cluster-loop.json";
  ASSERT_TRUE(writeTextFile(path, "{\"extends\": \"" + path + "\"}").ok());
  EXPECT_NE(getError(path + ":8").find("leads to more than 8 files"),
            std::string::npos);
  std::filesystem::remove(path);
}

} // namespace
