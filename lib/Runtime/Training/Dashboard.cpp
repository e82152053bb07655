//===- Dashboard.cpp - A run as a page ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The file that --dashboard names: a page of constant text (DashboardPage.h)
// with the run's data as JSON in the middle. It is written anew each time,
// under another name first, so that a browser never reads half of one. How
// large it gets does not depend on the length of the run: curves are thinned
// (Curve.h), and only one watched step is shown.
//
//===----------------------------------------------------------------------===//

#include "Dashboard.h"

#include "DashboardPage.h"
#include "RankTimeline.h"
#include "RunSettings.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Json.h"
#include "plait/Support/MemoryPlaces.h"
#include "plait/Support/PageStyle.h"

#include <cmath>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::ordered_json;

/// [[step, mean, …], …]; null where nothing was finite.
template <size_t N> static Json toJson(const Curve<N> &curve) {
  Json points = Json::array();
  for (const auto &point : curve.points()) {
    Json row = {point.step};
    for (size_t i = 0; i < N; ++i)
      row.push_back(point.counts[i] ? Json(point.mean(i)) : Json());
    points.push_back(std::move(row));
  }
  return points;
}

static std::string nameModel(const fb::Plan &plan) {
  return (plan.model_name() ? plan.model_name() : plan.model_type())->str();
}

/// Adds those of `points`, which toJson() has made, that are not of later steps
/// than `last`. Throws what the library throws where they are none.
template <size_t N>
static void restore(Curve<N> &curve, const Json &points, uint64_t perPoint,
                    uint64_t last) {
  for (const Json &row : points) {
    std::array<double, N> means;
    for (size_t i = 0; i < N; ++i)
      means[i] = row.at(i + 1).is_null() ? NAN : row.at(i + 1).get<double>();
    if (uint64_t step = row.at(0); step <= last && perPoint > 0)
      curve.restore(step, means, perPoint);
  }
}

/// Tells what a rank of each program allocates, by what it is for.
/// Ranks of one program allocate the same. Regions that live for a part of a
/// step share bytes with others, so that only lasting ones add up.
static Json describeArenas(const fb::Plan &plan) {
  plan::RankGrid mesh(plan);
  Json rows = Json::array();
  for (uint32_t i = 0; i < plan::length(plan.programs()); ++i) {
    const fb::Program &program = *plan.programs()->Get(i);
    Json parts = Json::object();
    for (uint32_t j = 0; j < plan::length(program.regions()); ++j) {
      const fb::Region &region = *program.regions()->Get(j);
      // Others share their bytes over the step, or are not in the arena.
      if (region.category() > fb::Category::Optimizer ||
          !isInArena(region.offset()))
        continue;
      // Several regions may be of one category.
      auto &bytes = parts[fb::EnumNameCategory(region.category())];
      bytes = (bytes.is_null() ? 0 : bytes.get<uint64_t>()) + region.bytes();
    }
    // Consecutive in each site.
    uint32_t ranks = mesh.programRanks() / mesh.sites();
    for (uint32_t site = 0; site < mesh.sites(); ++site)
      rows.push_back({{"first", mesh.rankOf(i, site * ranks)},
                      {"last", mesh.rankOf(i, (site + 1) * ranks - 1)},
                      {"arena", program.arena_bytes()},
                      {"parts", parts}});
  }
  return rows;
}

/// All of the page's data, in the order that its script expects by name. Every
/// angle bracket is escaped, whatever strings a model or a path consists of.
Status Dashboard::write(const std::string &outcome) {
  auto seconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  written = Clock::now();
  const fb::Plan &plan = run->plan;
  Json page = {
      {"model", nameModel(plan)},
      {"outcome", outcome},
      {"first", run->start.step},
      {"step", last},
      {"steps", run->options.steps},
      {"elapsed", seconds(written - start)},
      {"earlier", earlier},
      {"updated", seconds(std::chrono::system_clock::now().time_since_epoch())},
      {"curves", toJson(steps)},
      {"evaluations", toJson(evaluations)},
      {"per_point", {steps.perPoint(), evaluations.perPoint()}},
      {"ranks", describeArenas(plan)},
      {"timeline", timeline},
      {"watched", ranks}};
  if (!run->options.settings.empty())
    page["settings"] = effectiveSettings(*run);
  std::string data = page.dump();
  // Text within a script ends at the first "</".
  for (size_t at = 0; (at = data.find('<', at)) != std::string::npos;)
    data.replace(at, 1, "\\u003c");
  return writeTextFile(path, std::string(dashboardHead) + pageStyle +
                                 dashboardBody + data + dashboardScript);
}

Status Dashboard::beginRun(const RunInfo &info) {
  run = &info;
  start = Clock::now();
  last = info.start.step;
  if (last > 0)
    takeOver();
  return write("running");
}

/// Takes the curves of the page that is there, if it is one of the same model.
/// A file that is no page, or was edited, is not gone on with.
void Dashboard::takeOver() {
  auto file = MappedFile::open(path, "dashboard");
  if (!file.ok())
    return;
  std::string text(file->bytes().begin(), file->bytes().end());
  std::string body = dashboardBody; // ends where the data begins
  size_t begin = text.find(body), end = text.find(dashboardScript);
  if (begin == std::string::npos || end == std::string::npos ||
      end < begin + body.size())
    return;
  begin += body.size();
  Curve<6> oldSteps;
  Curve<1> oldEvaluations;
  try {
    Json page = parsePrintedJson<Json>(text.substr(begin, end - begin));
    if (page.at("model") != nameModel(run->plan))
      return;
    restore(oldSteps, page.at("curves"), page.at("per_point").at(0), last);
    restore(oldEvaluations, page.at("evaluations"), page.at("per_point").at(1),
            last);
    earlier =
        page.at("earlier").get<double>() + page.at("elapsed").get<double>();
  } catch (const Json::exception &) {
    return;
  }
  steps = std::move(oldSteps);
  evaluations = std::move(oldEvaluations);
}

/// Points are added in every step; the page is written when it is due.
Status Dashboard::endStep(const StepReport &step) {
  last = step.step;
  steps.add(step.step,
            {at(step.metrics, fb::Metric::Loss),
             at(step.metrics, fb::Metric::GradNorm), step.learningRate,
             step.tokensPerSecond(), run->utilization.mfu(step.seconds),
             double(residentBytes())});
  if (step.evaluation)
    evaluations.add(step.step, {step.evaluation->loss});
  // Now: when the page is due the notes may be of another step.
  if (step.watched && Clock::now() - described >= interval) {
    described = Clock::now();
    timeline = describeTimeline(*step.watched);
    ranks = describeRanks(*step.watched);
  }
  if (Clock::now() - written < interval)
    return Status::success();
  return write("running");
}

/// The last state is always written, whenever the page was last, and is not
/// that of steps which were undone.
Status Dashboard::endRun(const RunState &state, const Status &outcome) {
  last = state.step;
  if (!outcome.ok())
    return write("failed: " + outcome.message());
  return write(state.step < run->options.steps ? "interrupted" : "done");
}
