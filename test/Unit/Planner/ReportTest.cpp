//===- ReportTest.cpp - What the planner tells ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Report.h"
#include "TransformerSource.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <unistd.h>

using namespace plait;
using namespace plait::planner;
using nlohmann::json;

namespace {

class Report : public testing::Test {
protected:
  void SetUp() override {
    TransformerShape shape;
    shape.layers = 24;
    shape.hidden = 4096;
    shape.heads = 32;
    shape.vocabulary = 32000;
    shape.sequence = training.sequence = 2048;
    training.globalBatch = 32;
    SearchSpace space;
    space.schedule = {"gpipe", "1f1b"};
    space.recompute = {Recompute::None, Recompute::Full};
    space.sequenceParallel = {false, true};
    source = std::make_unique<TransformerSource>(shape);
    Pins pins;
    pins.mesh[Axis::PP] = 4;
    auto found = search(*source, cluster, training, space, pins);
    ASSERT_TRUE(found.ok()) << found.status().message();
    result = std::move(*found);
  }
  ReportInput input() const { return {result, cluster, training, "a <model>"}; }

  static std::string readAndRemove(const std::string &path) {
    std::ifstream file(path);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    std::filesystem::remove(path);
    return text;
  }
  static std::string getPath(const char *name) {
    return testing::TempDir() + std::to_string(getpid()) + name;
  }

  static void expectScreen(const std::string &text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }

  Cluster cluster = *parseCluster("a100-80g:2x4");
  Training training;
  std::unique_ptr<TransformerSource> source;
  SearchResult result;
};

std::set<std::string> keysOf(const json &object) {
  std::set<std::string> keys;
  for (const auto &[key, value] : object.items())
    keys.insert(key);
  return keys;
}

TEST_F(Report, JsonHasTheFieldsThatAreDocumented) {
  json content = json::parse(toJson(input()));
  EXPECT_EQ(keysOf(content),
            (std::set<std::string>{"model",
                                   "iteration_seconds",
                                   "tokens_per_second",
                                   "tokens_per_second_per_device",
                                   "flops_per_second_per_device",
                                   "mfu",
                                   "model_flops",
                                   "bubble_fraction",
                                   "exposed_comm_seconds",
                                   "breakdown_seconds",
                                   "roofline_seconds",
                                   "memory_bytes",
                                   "memory_limit_bytes",
                                   "configuration",
                                   "idle_devices",
                                   "search",
                                   "alternatives",
                                   "variants",
                                   "unmeasured",
                                   "band",
                                   "exchanges"}));
  EXPECT_EQ(keysOf(content["exposed_comm_seconds"]),
            (std::set<std::string>{"tp", "pp", "replicate", "dp", "cp", "ep"}));
  EXPECT_EQ(keysOf(content["roofline_seconds"]),
            (std::set<std::string>{"arithmetic", "memory", "launches", "tp",
                                   "pp", "replicate", "dp", "cp", "ep",
                                   "bubble", "wait", "overhead"}));
  EXPECT_EQ(keysOf(content["configuration"]),
            (std::set<std::string>{"pp",
                                   "replicate",
                                   "dp",
                                   "ep",
                                   "tp",
                                   "cp",
                                   "chunks",
                                   "schedule",
                                   "micro_batch",
                                   "microbatches",
                                   "recompute",
                                   "zero",
                                   "sequence_parallel",
                                   "context_parallel",
                                   "expert_exchange",
                                   "offload",
                                   "layers",
                                   "global_batch",
                                   "sequence",
                                   "precision",
                                   "attention",
                                   "dropout",
                                   "framework",
                                   "cluster"}));
  EXPECT_EQ(
      keysOf(content["search"]),
      (std::set<std::string>{"considered", "estimated", "pruned",
                             "lower_bound_seconds", "within_percent",
                             "band_percent", "within_band", "ideal_seconds"}));
  ASSERT_EQ(content["memory_bytes"].size(), 4u);
  EXPECT_EQ(keysOf(content["memory_bytes"][0]),
            (std::set<std::string>{"peak", "parameters", "gradients",
                                   "optimizer", "activations", "workspace",
                                   "communicators", "reserved", "host"}));
  EXPECT_EQ(content["iteration_seconds"].get<double>(),
            result.estimate.iterationSeconds);
  EXPECT_EQ(content["configuration"]["layers"].size(), 4u);
}

/// breakdown_seconds and exposed_comm_seconds are one sum, roofline_seconds is
/// another.
TEST_F(Report, JsonAddsUp) {
  json content = json::parse(toJson(input()));
  auto add = [&](const char *group) {
    double sum = 0;
    for (const auto &[key, value] : content[group].items())
      sum += value.get<double>();
    return sum;
  };
  double step = content["iteration_seconds"].get<double>();
  EXPECT_NEAR(add("breakdown_seconds") + add("exposed_comm_seconds"), step,
              1e-9 * step);
  EXPECT_NEAR(add("roofline_seconds"), step, 1e-9 * step);
  for (const json &stage : content["memory_bytes"])
    EXPECT_NEAR(stage["peak"].get<double>(),
                stage["parameters"].get<double>() +
                    stage["gradients"].get<double>() +
                    stage["optimizer"].get<double>() +
                    stage["activations"].get<double>() +
                    stage["workspace"].get<double>() +
                    stage["communicators"].get<double>(),
                1);
}

TEST_F(Report, GoalIsProjected) {
  ReportInput asked = input();
  EXPECT_FALSE(json::parse(toJson(asked)).contains("projection"));
  asked.goal = Goal{300e9, 2.5};
  json content = json::parse(toJson(asked))["projection"];
  EXPECT_EQ(keysOf(content),
            (std::set<std::string>{
                "tokens", "steps", "seconds", "days", "device_hours", "joules",
                "price", "money", "model_flops", "rule", "parameters",
                "optimal_tokens", "band_days", "band_money"}));
  EXPECT_EQ(keysOf(content["rule"]),
            (std::set<std::string>{"flops", "rate", "seconds"}));
  std::string text = explainText(asked);
  EXPECT_NE(text.find("the whole training, 300e9 tokens"), text.npos) << text;
  std::string path = getPath("goal.html");
  ASSERT_TRUE(writeHtmlReport(asked, path).ok());
  EXPECT_NE(readAndRemove(path).find("The whole training"), std::string::npos);
  // What is not known is left out.
  Cluster unknown = cluster;
  unknown.device.powerWatts = 0;
  ReportInput plain{result, unknown, training};
  plain.goal = Goal{300e9, {}};
  content = json::parse(toJson(plain))["projection"];
  EXPECT_FALSE(content.contains("joules") || content.contains("money"));
}

TEST_F(Report, ClustersStandSideBySide) {
  std::vector<Compared> compared(2);
  compared[0].cluster = "a100-80g:2x4";
  compared[0].report.emplace(input());
  compared[0].report->goal = Goal{300e9, 2.5};
  compared[1].cluster = "v100:1x1";
  compared[1].failure = "nothing fits into memory: even the smallest of all "
                        "configurations needs 161.4 GB";
  std::string text = compareText(compared);
  for (const char *part :
       {"cluster ", "a100-80g:2x4 ", "tokens/s", "v100:1x1\n", "nothing fits",
        "the whole training, 300e9 tokens", "device-hours"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  expectScreen(text);
  json clusters = json::parse(compareJson(compared))["clusters"];
  ASSERT_EQ(clusters.size(), 2u);
  EXPECT_EQ(clusters[0]["cluster"], "a100-80g:2x4");
  json alone = clusters[0];
  alone.erase("cluster");
  EXPECT_EQ(alone, json::parse(toJson(*compared[0].report)));
  EXPECT_EQ(keysOf(clusters[1]), (std::set<std::string>{"cluster", "error"}));
  std::string path = getPath("compared.html");
  ASSERT_TRUE(writeHtmlComparison(compared, "asked <so>", path).ok());
  std::string page = readAndRemove(path);
  for (const char *part :
       {"Training a &lt;model&gt;: 2 cases compared", "asked &lt;so&gt;",
        "There is no plan for v100:1x1.", "nothing fits", "<h2>Words</h2>"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
}

/// The first sentences are for somebody who knows none of the words.
TEST_F(Report, PageBeginsWithTheAnswer) {
  ReportInput asked = input();
  asked.asked = "plaitc 0.1.0, 1 January 1970: plaitc model";
  asked.goal = Goal{300e9, 2.5, "$"};
  std::string path = getPath("plain.html");
  ASSERT_TRUE(writeHtmlReport(asked, path).ok());
  std::string page = readAndRemove(path);
  for (const char *part :
       {"train a &lt;model&gt; on 300 billion tokens in ", "costs $",
        "at $2.50 for a device and hour", "Steps of 8 of 10 runs are ",
        "1 January 1970", "<h2>Words</h2>"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  // Below the title, before any table.
  EXPECT_LT(page.find("300 billion"), page.find("<table>"));
}

TEST_F(Report, WallClockIsOnlyThereWhenAskedFor) {
  ReportInput asked = input();
  asked.withSearchSeconds = true;
  json search = json::parse(toJson(asked))["search"];
  EXPECT_TRUE(search.contains("seconds") && search.contains("per_second"));
  EXPECT_NE(describeSearch(result).find("considered "), std::string::npos);
}

TEST_F(Report, TextFitsTheScreen) {
  ReportInput asked = input();
  asked.goal = Goal{300e9, 2.5};
  std::string text = explainText(asked);
  for (const char *part :
       {"plan ", "where a step goes", "what bounds it", "memory of each stage",
        "runners-up", "one thing changed", "within 0.00 %"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  expectScreen(text);
}

TEST_F(Report, ComparesSideBySide) {
  Pins pins;
  pins.mesh[Axis::TP] = 8;
  auto answer = whyNot(result, *source, cluster, training, {}, pins);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  std::string text = explainText(*answer, result);
  for (const char *part : {"pick ", "other ", "difference", "step ",
                           "tp communication", "peak memory"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  // Only what was placed is exact: one column of the two.
  auto count = [](const std::string &text) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(" about ", at)) != text.npos; ++at)
      ++found;
    return found;
  };
  size_t both = count(text);
  result.estimate.isPlaced = true;
  EXPECT_GT(both, 0u);
  EXPECT_EQ(2 * count(explainText(*answer, result)), both);
}

TEST_F(Report, SummaryIsTheAnswer) {
  std::string text = summaryText(input());
  for (const char *part :
       {"plan ", "step ", " tokens/s/GPU, ", " TFLOP/s/GPU", "memory "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("the whole training"), std::string::npos) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 15);
}

TEST_F(Report, LayersAreThoseOfEachStageInOrder) {
  auto lineOf = [&](const std::vector<int> &layers) {
    result.configuration.layers = layers;
    std::string text = summaryText(input());
    size_t begin = text.find("layers      ");
    if (begin == std::string::npos)
      return text;
    begin += std::string("layers      ").size();
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(lineOf({24}), "24 on one stage");
  EXPECT_EQ(lineOf({6, 6, 6, 6}), "6 on each of 4 stages");
  EXPECT_EQ(lineOf({7, 10, 10, 5}),
            "7 on one stage, then 10 on each of 2, then 5 on one");
  EXPECT_EQ(lineOf({7, 7, 5, 5}), "7 on each of 2 stages, then 5 on each of 2");
  // A stage may have an end of the model alone.
  EXPECT_EQ(lineOf({0, 12, 12}), "0 on one stage, then 12 on each of 2");
}

TEST_F(Report, RunnersUpOfOneMeshShareARow) {
  ASSERT_GE(result.runnersUp.size(), 2u);
  Alternative first = result.runnersUp.front(), second = first, third = first;
  second.configuration.chunks += 1;
  second.why = "another why";
  third.configuration.mesh[Axis::TP] *= 2;
  third.configuration.offload = Offload::Optimizer;
  result.runnersUp = {first, second, third};
  std::string text = explainText(input(), {.width = 1000}); // unbroken
  EXPECT_NE(text.find("; 1 more with this mesh"), text.npos) << text;
  EXPECT_EQ(text.find("another why"), text.npos) << text;
  EXPECT_NE(text.find("(unmeasured)"), text.npos) << text;
  EXPECT_EQ(json::parse(toJson(input()))["alternatives"].size(), 3u);
}

TEST_F(Report, SaysWhatIsTooCloseToCall) {
  SearchResult none = result;
  for (Alternative &other : none.runnersUp)
    other.estimate.iterationSeconds = 2 * none.estimate.iterationSeconds;
  std::string text = describeClose(none);
  EXPECT_EQ(text.find("0 of the "), 0u) << text;
  EXPECT_EQ(text.find("too close"), std::string::npos) << text;
  none.runnersUp.front().estimate = none.estimate;
  text = describeClose(none);
  EXPECT_EQ(text.find("1 of the "), 0u) << text;
  EXPECT_NE(text.find("is within 4 %: too close to call"), text.npos) << text;
}

TEST_F(Report, PageIsSelfContained) {
  std::string path = getPath("report.html");
  ReportInput measured = input();
  measured.measured.emplace();
  measured.measured->source = "a run";
  measured.measured->iterationSeconds = 2 * result.estimate.iterationSeconds;
  Status status = writeHtmlReport(measured, path);
  ASSERT_TRUE(status.ok()) << status.message();
  std::string page = readAndRemove(path);
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0u);
  for (const char *part :
       {"<title>Training a &lt;model&gt; on ", "Where time goes", "Timeline",
        "Memory", "Runners-up", "Predicted against measured", "-50.0 %"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  for (const char *outside : {"http", "<script", "src=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  // Tags that are opened are closed.
  auto count = [&](const std::string &what) {
    int found = 0;
    for (size_t at = page.find(what); at != std::string::npos;
         at = page.find(what, at + 1))
      ++found;
    return found;
  };
  for (const std::string tag : {"svg", "table", "tr", "g", "body", "html"})
    EXPECT_EQ(count("<" + tag + " ") + count("<" + tag + ">"),
              count("</" + tag + ">"))
        << tag;
  EXPECT_EQ(count("rank 3</text>"), 2); // timeline and memory
}

TEST_F(Report, PageHasWhatLiesOnTheHost) {
  std::string path = getPath("report.html");
  auto getPage = [&] {
    EXPECT_TRUE(writeHtmlReport(input(), path).ok());
    return readAndRemove(path);
  };
  std::string page = getPage();
  EXPECT_NE(page.find("<td>offload</td><td>none</td>"), std::string::npos);
  EXPECT_EQ(page.find("on the host"), std::string::npos);
  result.configuration.offload = Offload::Optimizer;
  result.estimate.memory[1].offloaded[MemoryPlace::Host] = 3e9;
  page = getPage();
  EXPECT_NE(page.find("<td>offload</td><td>optimizer</td>"), std::string::npos);
  EXPECT_NE(page.find("<th class=\"n\">on the host</th>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"n\">3.0 GB</td></tr>"), std::string::npos);
}

TEST_F(Report, TimelineEndsWhereTheStepDoes) {
  training.globalBatch = 8192; // more microbatches than are drawn
  Pins pins;
  pins.mesh[Axis::PP] = 4;
  pins.mesh[Axis::DP] = 1;
  SearchSpace space;
  space.schedule = {"1f1b"};
  auto found = search(*source, cluster, training, space, pins);
  ASSERT_TRUE(found.ok()) << found.status().message();
  result = std::move(*found);
  std::string path = getPath("report.html");
  Status status = writeHtmlReport(input(), path);
  ASSERT_TRUE(status.ok()) << status.message();
  std::string page = readAndRemove(path);
  EXPECT_NE(page.find(" are left out"), std::string::npos);
  size_t end = page.find(" a step, ");
  size_t begin = page.rfind('>', end) + 1;
  std::string label = ">" + page.substr(begin, end - begin) + "</text>";
  // The last place of both axes: the timeline's and the memory's.
  size_t first = page.find(label);
  EXPECT_NE(first, std::string::npos) << label;
  EXPECT_NE(page.find(label, first + 1), std::string::npos) << label;
}

TEST_F(Report, TraceIsAStep) {
  std::string path = getPath("trace.json");
  Status status = writeTrace(input(), path);
  ASSERT_TRUE(status.ok()) << status.message();
  json trace = json::parse(readAndRemove(path));
  double end = 0;
  std::set<int> rows;
  std::set<std::string> counters;
  double highest = 0;
  std::map<int, int64_t> ends; // of each row, in nanoseconds
  for (const json &event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      int64_t &last = ends[event["tid"].get<int>()];
      int64_t begin = std::llround(1e3 * event["ts"].get<double>());
      EXPECT_GE(begin, last) << event;
      last = begin + std::llround(1e3 * event["dur"].get<double>());
      rows.insert(event["tid"].get<int>());
      end =
          std::max(end, event["ts"].get<double>() + event["dur"].get<double>());
    } else if (event["ph"] == "C") {
      counters.insert(event["name"].get<std::string>());
      double bytes = 0;
      for (const auto &[name, value] : event["args"].items())
        bytes += value.get<double>();
      highest = std::max(highest, bytes);
    }
  }
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_EQ(counters.size(), 4u);
  // estimate() continues a line where this simulates: 1 % apart at most.
  EXPECT_NEAR(end, 1e6 * result.estimate.iterationSeconds, 0.01 * end);
  EXPECT_NEAR(highest, result.estimate.peakMemory(), 0.02 * highest);
}

TEST_F(Report, FailsWithoutAPlaceToWrite) {
  EXPECT_FALSE(writeHtmlReport(input(), "/nonexistent/report.html").ok());
  EXPECT_FALSE(writeTrace(input(), "/nonexistent/trace.json").ok());
}

} // namespace
