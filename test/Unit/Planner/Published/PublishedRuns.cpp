//===- PublishedRuns.cpp - Measured runs from the literature --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PublishedRuns.h"

#include "plait/Plan/Files.h"
#include "plait/Plan/Json.h"
#include "plait/Planner/Habits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

using namespace plait;
using namespace plait::planner;
using nlohmann::json;

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Routing was forced to be even.
static constexpr double kImbalance = 1;

/// Recipes by the words that stand in their files for what they do.
static Recipe readRecipe(const json &run) {
  Recipe recipe;
  const std::pair<const char *, bool Recipe::*> known[] = {
      {"hybridep", &Recipe::sendsOnce},
      {"deepep", &Recipe::sendsOnce},
      {"graph:attn", &Recipe::recordsAttention},
      {"graph:moe_router", &Recipe::recordsRouter},
      {"full_iteration", &Recipe::recordsAll},
      {"moe_act", &Recipe::activationsAgain},
      {"layernorm", &Recipe::normsAgain},
      {"mla_up_proj", &Recipe::latentAgain},
      {"mlp", &Recipe::denseAgain}};
  recipe.isKnown = run.contains("recipe");
  recipe.eightBit = recipe.isKnown && run.value("rate", 1.0) > 1;
  for (const std::string word : run.value("recipe", json::array()))
    for (auto [name, member] : known)
      if (word == name)
        recipe.*member = true;
  return recipe;
}

static TransformerShape readShape(const json &source, const json &run) {
  TransformerShape shape;
  shape.layers = run.at("layers");
  shape.hidden = run.at("hidden");
  shape.heads = run.at("heads");
  shape.headSize = run.value("headSize", 0);
  shape.keyValueHeads = run.value("kv", shape.heads);
  shape.ffn = run.value("ffn", 4 * shape.hidden);
  shape.ffnMatrices = source.value("matrices", 2);
  shape.vocabulary = run.at("vocab");
  shape.vocabularyMultiple = 128; // Megatron-LM's; the others chose theirs so
  shape.sequence = run.at("seq");
  shape.biases = source.at("biases");
  shape.layerNorm = source.at("norm") == "layer";
  shape.learnedPositions = source.at("positions") == "learned";
  shape.rotary = source.at("positions") == "rotary";
  shape.separate = source.value("separate", false);
  shape.tied = source.at("tied");
  shape.dropout = source.at("dropout");
  if (run.contains("experts")) {
    auto numbers = run.at("experts").get<std::array<int64_t, 5>>();
    shape.experts = {numbers[0],
                     numbers[1],
                     numbers[2],
                     numbers[3],
                     numbers[4],
                     kImbalance,
                     run.value("expertBiases", false)};
  }
  if (run.contains("latent")) {
    auto numbers = run.at("latent").get<std::array<int64_t, 3>>();
    shape.latent = {numbers[0], numbers[1], numbers[2]};
  }
  shape.recipe = readRecipe(run);
  shape.window = run.value("window", 0);
  shape.normsHeads = run.value("normsHeads", false);
  shape.furtherTokens = run.value("further", 0);
  using Loss = TransformerShape::Loss;
  std::string loss = source.at("loss");
  shape.loss = loss == "fused"     ? Loss::Fused
               : loss == "softmax" ? Loss::Softmax
                                   : Loss::Steps;
  return shape;
}

static Result<Training> readTraining(const json &source, const json &run) {
  Training training;
  training.globalBatch = run.at("batch");
  training.sequence = run.at("seq");
  training.precision =
      source.at("precision") == "fp16" ? Precision::FP16 : Precision::BF16;
  training.flashAttention = source.at("attention") == "flash";
  training.dropout = source.at("dropout");
  training.fp32Gradients = source.at("fp32Gradients");
  Result<Framework> framework =
      findFramework(source.at("framework").get<std::string>());
  if (!framework.ok())
    return framework.status();
  training.framework = *framework;
  training.framework.attentionFraction =
      source.value("attentionFraction", framework->attentionFraction);
  training.framework.fusedAccumulation =
      source.value("fusedAccumulation", framework->fusedAccumulation);
  training.framework.packedBytes =
      source.value("packedBytes", framework->packedBytes);
  training.framework.recomputesRead =
      source.value("recomputesRead", framework->recomputesRead);
  return training;
}

/// Layers are spread evenly where that is possible, as all these programs do.
static Configuration readConfiguration(const json &run) {
  Configuration configuration;
  configuration.mesh[Axis::PP] = run.value("pp", 1);
  configuration.mesh[Axis::DP] = run.value("dp", 1);
  configuration.mesh[Axis::TP] = run.value("tp", 1);
  configuration.mesh[Axis::CP] = run.value("cp", 1);
  configuration.mesh[Axis::EP] = run.value("ep", 1);
  configuration.mesh[Axis::Replicate] = run.value("replicate", 1);
  configuration.chunks = run.value("chunks", 1);
  configuration.schedule = run.value("schedule", "1f1b");
  configuration.microBatch = run.at("micro");
  configuration.zero = run.value("zero", 0);
  configuration.sequenceParallel = run.value("sp", false);
  std::string recompute = run.value("recompute", "none");
  configuration.recompute = recompute == "full"        ? Recompute::Full
                            : recompute == "selective" ? Recompute::Selective
                                                       : Recompute::None;
  if (run.contains("stageLayers"))
    configuration.layers = run.at("stageLayers").get<std::vector<int>>();
  int layers = run.at("layers");
  int stages = configuration.mesh[Axis::PP] * configuration.chunks;
  if (configuration.layers.empty() && layers % stages == 0)
    configuration.layers.assign(size_t(stages), layers / stages);
  return configuration;
}

/// What the device of a source differs in from that of its name.
static void setDevice(const json &facts, Device &device) {
  device.memoryBandwidth =
      facts.value("memoryBandwidth", device.memoryBandwidth);
  device.matrix.sustainedFraction =
      facts.value("sustainedFraction", device.matrix.sustainedFraction);
}

/// As many nodes as the run needs, of eight devices where nothing is said.
static Result<Cluster> readCluster(const json &source, const json &run,
                                   int64_t ranks) {
  int64_t perNode = run.value("perNode", source.value("perNode", 8));
  std::string text = run.value("cluster", source.at("cluster"));
  text += ":" + std::to_string((ranks + perNode - 1) / perNode) + "x" +
          std::to_string(perNode);
  Result<Cluster> cluster = parseCluster(text);
  if (cluster.ok() && source.contains("device"))
    setDevice(source.at("device"), cluster->device);
  if (cluster.ok())
    cluster->inter.bandwidth =
        run.value("nicGbps", source.at("nicGbps").get<double>()) * 1e9 / 8;
  return cluster;
}

static Result<PublishedRun> readRun(const json &source, const json &run) {
  PublishedRun result;
  result.id = run.at("id");
  result.shape = readShape(source, run);
  result.configuration = readConfiguration(run);
  Result<Training> training = readTraining(source, run);
  if (!training.ok())
    return training.status();
  result.training = *training;
  Result<Cluster> cluster =
      readCluster(source, run, result.configuration.ranks());
  if (!cluster.ok())
    return cluster.status();
  result.cluster = *cluster;
  result.shape.recipe.nodeRanks = int(cluster->devicesPerNode);
  // In 8 bit all matmuls are but those of attention.
  result.matmulRate = run.value("rate", 1.0);
  result.cluster.device.peakFlops[size_t(Precision::BF16)] *= result.matmulRate;
  result.training.framework.attentionFraction /= result.matmulRate;
  result.seconds = run.value("seconds", 0.0);
  result.residentBytes = run.value("steadyBytes", 0.0);
  result.peakBytes = run.value("peakBytes", 0.0);
  if (run.contains("layerMilliseconds")) {
    result.layerForward = 1e-3 * run.at("layerMilliseconds")[0].get<double>();
    result.layerBackward = 1e-3 * run.at("layerMilliseconds")[1].get<double>();
  }
  return result;
}

Result<std::vector<PublishedSource>>
planner::readPublishedRuns(const std::string &path) try {
  Result<MappedFile> file = MappedFile::open(path, "runs");
  if (!file.ok())
    return file.status();
  Result<json> content = parseJson<json>(file->bytes());
  if (!content.ok())
    return fail("'", path, "' ", content.status().message());
  std::vector<PublishedSource> sources;
  for (const json &entry : content->at("sources")) {
    PublishedSource &source = sources.emplace_back();
    source.name = entry.at("name");
    source.publication = entry.at("source");
    source.isRanking = entry.value("ranking", false);
    source.comparesUtilization = entry.value("utilisation", false);
    for (const json &run : entry.at("runs")) {
      // A run may have its model's sizes by name.
      json whole = run;
      if (run.contains("model"))
        whole.update(content->at("models").at(run.at("model")));
      Result<PublishedRun> read = readRun(entry, whole);
      if (!read.ok())
        return read.status();
      source.runs.push_back(std::move(*read));
    }
  }
  return sources;
} catch (const json::exception &error) {
  return fail("'", path, "' is not a list of published runs: ", error.what());
}

//===----------------------------------------------------------------------===//
// Comparing
//===----------------------------------------------------------------------===//

Result<Estimate> PublishedRun::predict(int64_t extraLayers) const {
  TransformerShape deeper = shape;
  deeper.layers += extraLayers;
  Configuration chosen = configuration;
  if (extraLayers > 0)
    chosen.layers.clear();
  Work work =
      buildTransformerWork(deeper, chosen.mesh[Axis::TP],
                           chosen.sequenceParallel, chosen.mesh[Axis::EP]);
  Training own = training;
  if (shape.recipe.isKnown && shape.experts.experts) {
    auto skip = [&](double &seconds, bool forward) {
      seconds *= 1 - getRecordedPart(work.blocks[3], shape.recipe, forward);
    };
    skip(own.framework.hostSeconds, true);
    skip(own.framework.backwardHostSeconds, false);
  }
  work = adoptHabits(std::move(work), own.framework, own.precision);
  return estimate(work, cluster, own, chosen);
}

/// A layer alone is the difference between two models.
static Status compareLayer(const PublishedRun &run, Comparisons &comparisons) {
  Result<Estimate> one = run.predict(), two = run.predict(1);
  if (!one.ok())
    return one.status();
  if (!two.ok())
    return two.status();
  const StageTime &a = one->stages[0], &b = two->stages[0];
  double backward =
      b.backwardInput + b.backwardWeight - a.backwardInput - a.backwardWeight;
  comparisons.seconds.push_back(
      {run.id + " forward", "", "", b.forward - a.forward, run.layerForward});
  comparisons.seconds.push_back(
      {run.id + " backward", "", "", backward, run.layerBackward});
  return Status::success();
}

static double getTokensOfRank(const PublishedRun &run) {
  return double(run.training.globalBatch * run.training.sequence) /
         double(run.configuration.ranks());
}

static Status compareRun(const PublishedRun &run, Comparisons &comparisons) {
  if (run.layerForward > 0)
    return compareLayer(run, comparisons);
  Result<Estimate> estimate = run.predict();
  if (!estimate.ok())
    return estimate.status();
  std::string model = "hidden " + std::to_string(run.shape.hidden);
  std::string task = model;
  for (int64_t number :
       {run.shape.layers, run.shape.experts.experts, run.configuration.ranks(),
        run.training.globalBatch, run.training.sequence})
    task += " " + std::to_string(number);
  if (run.seconds > 0)
    comparisons.seconds.push_back(
        {run.id, model, task, estimate->iterationSeconds, run.seconds,
         estimate->mfu * estimate->iterationSeconds * run.matmulRate,
         getTokensOfRank(run)});
  // Where what is resident was published too, both are of the first rank.
  const StageMemory &first = estimate->memory.front();
  bool ofFirst = run.residentBytes > 0;
  if (ofFirst)
    comparisons.bytes.push_back({run.id + " resident", model, task,
                                 first.resident(), run.residentBytes});
  if (run.peakBytes > 0)
    comparisons.bytes.push_back(
        {run.id + " peak", model, task,
         ofFirst ? first.peak() : estimate->peakMemory(), run.peakBytes});
  return Status::success();
}

Comparisons planner::compare(const PublishedSource &source) {
  Comparisons comparisons;
  for (const PublishedRun &run : source.runs) {
    Status status = compareRun(run, comparisons);
    if (!status.ok())
      comparisons.failures.push_back(run.id + ": " + status.message());
  }
  return comparisons;
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

double planner::meanAbsoluteError(const std::vector<Comparison> &comparisons,
                                  double scale) {
  double sum = 0;
  for (const Comparison &comparison : comparisons)
    sum += std::abs(scale * comparison.predicted / comparison.published - 1);
  return comparisons.empty() ? 0 : sum / double(comparisons.size());
}

double planner::meanSignedError(const std::vector<Comparison> &comparisons) {
  double sum = 0;
  for (const Comparison &comparison : comparisons)
    sum += comparison.error();
  return comparisons.empty() ? 0 : sum / double(comparisons.size());
}

double planner::findBestScale(const std::vector<Comparison> &comparisons) {
  // The error is piecewise linear in the scale: one that makes a run exact is
  // the best.
  double best = 1;
  for (const Comparison &comparison : comparisons) {
    double scale = comparison.published / comparison.predicted;
    if (meanAbsoluteError(comparisons, scale) <
        meanAbsoluteError(comparisons, best))
      best = scale;
  }
  return best;
}

std::vector<PublicationError>
planner::comparePublications(const std::vector<PublishedSource> &sources) {
  std::vector<PublicationError> errors;
  for (const PublishedSource &source : sources) {
    auto error = std::find_if(errors.begin(), errors.end(), [&](auto &other) {
      return other.publication == source.publication;
    });
    if (error == errors.end())
      error = errors.insert(errors.end(), {source.publication});
    std::vector<Comparison> seconds = compare(source).seconds;
    double before = double(error->runs), added = double(seconds.size());
    auto extend = [&](double &mean, double scale) {
      mean = (mean * before + meanAbsoluteError(seconds, scale) * added) /
             std::max(1.0, before + added);
    };
    extend(error->mean, 1);
    extend(error->scaled, findBestScale(seconds));
    error->runs += seconds.size();
    error->sources += 1;
  }
  return errors;
}

/// The element that this part of the others is not above.
static double getQuantile(std::vector<double> values, double part) {
  auto place = values.begin() + size_t(part * double(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

static std::vector<double>
getRatioErrors(const std::vector<Comparison> &comparisons) {
  std::vector<double> errors;
  for (size_t i = 0; i < comparisons.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Comparison &a = comparisons[i], &b = comparisons[j];
      if (!a.task.empty() && a.task == b.task)
        errors.push_back(std::abs(std::log(a.predicted / a.published) -
                                  std::log(b.predicted / b.published)));
    }
  return errors;
}

RatioError planner::compareRatios(const std::vector<PublishedSource> &sources) {
  RatioError error;
  std::vector<double> half, most;
  for (const PublishedSource &source : sources) {
    std::vector<double> errors = getRatioErrors(compare(source).seconds);
    if (errors.empty())
      continue;
    error.sources += 1;
    error.pairs += errors.size();
    half.push_back(getQuantile(errors, 0.5));
    most.push_back(getQuantile(errors, 0.8));
  }
  if (error.sources > 0) {
    error.half = getQuantile(half, 0.5);
    error.most = getQuantile(most, 0.5);
  }
  return error;
}

static double getKendallTau(const std::vector<Comparison> &runs) {
  int agree = 0, pairs = 0;
  for (size_t i = 0; i < runs.size(); ++i)
    for (size_t j = 0; j < i; ++j, ++pairs) {
      double published = runs[i].published - runs[j].published;
      double predicted = runs[i].predicted - runs[j].predicted;
      agree += published * predicted > 0 ? 1 : -1;
    }
  return pairs > 0 ? double(agree) / pairs : 1;
}

UtilizationRanking
planner::rankUtilization(const std::vector<Comparison> &comparisons) {
  std::vector<Comparison> used, speed, trivial;
  for (const Comparison &run : comparisons) {
    Comparison each = run;
    each.predicted = run.ideal / run.predicted;
    each.published = run.ideal / run.published;
    used.push_back(each);
    each.predicted = run.tokens / run.predicted;
    each.published = run.tokens / run.published;
    speed.push_back(each);
    each.predicted = run.tokens / run.ideal;
    trivial.push_back(each);
  }
  return {comparisons.size(), getKendallTau(used), getKendallTau(speed),
          getKendallTau(trivial)};
}

static double getMedianError(const std::vector<Comparison> &runs) {
  std::vector<double> errors;
  for (const Comparison &run : runs)
    errors.push_back(run.error());
  auto middle = errors.begin() + errors.size() / 2;
  std::nth_element(errors.begin(), middle, errors.end());
  return *middle;
}

static Ranking rankRuns(const std::string &model,
                        const std::vector<Comparison> &runs) {
  Ranking ranking{model, runs.size()};
  ranking.kendallTau = getKendallTau(runs);
  auto byPublished = [](const Comparison &a, const Comparison &b) {
    return a.published < b.published;
  };
  auto byPredicted = [](const Comparison &a, const Comparison &b) {
    return a.predicted < b.predicted;
  };
  auto best = std::min_element(runs.begin(), runs.end(), byPublished);
  auto pick = std::min_element(runs.begin(), runs.end(), byPredicted);
  ranking.regret = pick->published / best->published - 1;

  double usual = getMedianError(runs);
  std::vector<Comparison> others, exact;
  for (const Comparison &run : runs) {
    exact.push_back(run);
    if (run.error() < usual - Ranking::slowError)
      continue;
    others.push_back(run);
    exact.back().predicted = run.published;
  }
  ranking.slowRuns = runs.size() - others.size();
  ranking.tauOfOthers = getKendallTau(others);
  ranking.tauIfOthersExact = getKendallTau(exact);
  return ranking;
}

std::vector<Ranking>
planner::rankByModel(const std::vector<Comparison> &comparisons) {
  std::map<std::string, std::vector<Comparison>> models;
  for (const Comparison &comparison : comparisons)
    models[comparison.model].push_back(comparison);
  std::vector<Ranking> rankings;
  for (const auto &[model, runs] : models)
    rankings.push_back(rankRuns(model, runs));
  return rankings;
}
