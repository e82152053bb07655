//===- Json.cpp - A prediction for programs -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A prediction as JSON, for programs. The fields are part of what users rely
// on: docs/Planner.md lists them, and their order is that of the documentation.
// Values are in seconds, bytes and FLOP, unrounded; words are those of the
// command line's options, so that a configuration can be asked for again.
//
//===----------------------------------------------------------------------===//

#include "Report/Exchanges.h"
#include "Report/Schemes.h"
#include "Report/Words.h"

#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::planner;
using json = nlohmann::ordered_json; // fields in the order of the documentation

/// A field for each axis: `values` is a mesh, or one value per axis.
template <typename Values> static json getAxes(const Values &values) {
  json content = json::object();
  for (const AxisFacts &facts : kAxes)
    content[std::string(facts.name)] = values[facts.axis];
  return content;
}

/// What can be chosen, as options name it. Also used for each alternative.
static json getConfiguration(const Configuration &configuration) {
  json content = getAxes(configuration.mesh);
  content.update({{"chunks", configuration.chunks},
                  {"schedule", configuration.schedule},
                  {"micro_batch", configuration.microBatch},
                  {"recompute", print(configuration.recompute)},
                  {"zero", configuration.zero},
                  {"sequence_parallel", configuration.sequenceParallel},
                  {"context_parallel", print(configuration.contextParallel)},
                  {"expert_exchange", print(configuration.expertExchange)},
                  {"offload", print(configuration.offload)},
                  {"layers", configuration.layers}});
  return content;
}

/// The pick's configuration with what was given beside it, so that the object
/// says all that the prediction depends on but the model.
static json getPick(const ReportInput &input) {
  const Training &training = input.training;
  json pick = getConfiguration(input.result.configuration);
  pick["microbatches"] = input.result.configuration.microbatches(training);
  pick["global_batch"] = training.globalBatch;
  pick["sequence"] = training.sequence;
  pick["precision"] = print(training.precision);
  pick["attention"] = training.flashAttention ? "flash" : "unfused";
  pick["dropout"] = training.dropout;
  pick["framework"] = training.framework.name;
  pick["cluster"] = input.cluster.name;
  return pick;
}

static json getMemory(const Estimate &estimate) {
  // By rank of the pipeline. `peak` is a sum of the others but for `reserved`,
  // which is beside it; it is written out for programs that want only that.
  json stages = json::array();
  for (const StageMemory &memory : estimate.memory) {
    json stage = {{"peak", memory.peak()},
                  {"parameters", memory.parameters},
                  {"gradients", memory.gradients},
                  {"optimizer", memory.optimizer},
                  {"activations", memory.activations},
                  {"workspace", memory.workspace},
                  {"communicators", memory.communicators},
                  {"reserved", memory.reserved}};
    for (const MemoryPlaceFacts &facts : otherPlaces)
      stage[std::string(facts.name)] = memory.offloaded[facts.place];
    stages.push_back(std::move(stage));
  }
  return stages;
}

/// Without what is waited for on links, which stands beside it: the two add up
/// to the step.
static json getBreakdown(const Breakdown &parts) {
  return {{"forward", parts.forward},     {"backward", parts.backward},
          {"recompute", parts.recompute}, {"bubble", parts.bubble},
          {"wait", parts.wait},           {"optimizer", parts.optimizer},
          {"overhead", parts.overhead}};
}

/// The whole step once more, by what bounds it.
/// Adds up to iteration_seconds, as getRooflineParts does.
static json getRoofline(const Breakdown &parts) {
  json content = {{"arithmetic", parts.arithmetic()},
                  {"memory", parts.memory},
                  {"launches", parts.launch}};
  content.update(getAxes(parts.exposed));
  content.update({{"bubble", parts.bubble},
                  {"wait", parts.wait},
                  {"overhead", parts.overhead}});
  return content;
}

/// Wall-clock figures only where they are asked for, because output is
/// otherwise the same byte for byte.
static json getSearch(const ReportInput &input) {
  const SearchResult &result = input.result;
  const SearchCounts &counts = result.counts;
  json search = {{"considered", counts.considered},
                 {"estimated", counts.estimated},
                 {"pruned", counts.pruned},
                 {"lower_bound_seconds", result.lowerBoundSeconds},
                 {"within_percent", result.withinPercent()},
                 {"ideal_seconds", result.idealSeconds},
                 {"band_percent", 100 * robustBand},
                 {"within_band", result.countWithinBand()}};
  if (input.withSearchSeconds) {
    search["seconds"] = counts.seconds;
    search["per_second"] = counts.perSecond();
  }
  return search;
}

/// What it is, what it takes and why it lost; its estimate in full would make
/// the object many times as large.
static json getAlternative(const Alternative &alternative) {
  json entry;
  // Variants have a change, runners-up have none.
  if (!alternative.change.empty())
    entry["change"] = alternative.change;
  entry["iteration_seconds"] = alternative.estimate.iterationSeconds;
  entry["peak_bytes"] = alternative.estimate.peakMemory();
  entry["fits"] = alternative.fits;
  entry["why"] = alternative.why;
  entry["configuration"] = getConfiguration(alternative.configuration);
  return entry;
}

static json getAlternatives(const std::vector<Alternative> &alternatives) {
  json list = json::array();
  for (const Alternative &alternative : alternatives)
    list.push_back(getAlternative(alternative));
  return list;
}

/// What was not measured is left out rather than 0.
static json getMeasured(const Measured &measured) {
  json content = {{"source", measured.source}};
  const std::pair<const char *, double> seconds[] = {
      {"iteration_seconds", measured.iterationSeconds},
      {"pipeline_seconds", measured.pipelineSeconds},
      {"data_seconds", measured.dataSeconds},
      {"optimizer_seconds", measured.optimizerSeconds}};
  for (auto [name, value] : seconds)
    if (value > 0)
      content[name] = value;
  if (!measured.peakBytes.empty())
    content["peak_bytes"] = measured.peakBytes;
  return content;
}

/// Pairs of the least and the most.
static json getBandOf(const Band &band, const Estimate &estimate) {
  return {{"iteration_seconds",
           {band.low * estimate.iterationSeconds,
            band.high * estimate.iterationSeconds}},
          {"tokens_per_second",
           {estimate.tokensPerSecond / band.high,
            estimate.tokensPerSecond / band.low}},
          {"half_width_percent", 100 * band.getHalfWidth()},
          {"runs", band.runs},
          {"sources", band.sources},
          {"basis", band.basis},
          {"unmeasured", band.unmeasured}};
}

/// What is not known (energy, money) is left out.
static json getProjection(const ReportInput &input) {
  Projection projection =
      project(*input.goal, input.result, input.cluster, input.training);
  json content = {{"tokens", projection.tokens},
                  {"steps", projection.steps},
                  {"seconds", projection.seconds},
                  {"days", projection.days()},
                  {"device_hours", projection.deviceHours}};
  if (projection.joules)
    content["joules"] = *projection.joules;
  if (projection.money) {
    content["price"] = *input.goal->price;
    content["money"] = *projection.money;
  }
  if (std::optional<Band> band = getBand(input)) {
    content["band_days"] = {band->low * projection.days(),
                            band->high * projection.days()};
    if (projection.money)
      content["band_money"] = {band->low * *projection.money,
                               band->high * *projection.money};
  }
  content["model_flops"] = projection.modelFlops;
  content["rule"] = {{"flops", projection.ruleFlops},
                     {"rate", projection.ruleRate},
                     {"seconds", projection.ruleSeconds}};
  content["parameters"] = input.result.work->totalParameters;
  content["optimal_tokens"] = projection.optimalTokens;
  return content;
}

/// Lists by rank of the pipeline. An estimate that there is has them.
static json getExchanges(const ReportInput &input) {
  json stages = json::array();
  if (auto lists = listExchanges(input); lists.ok())
    for (const ExchangeList &list : *lists)
      stages.push_back(toJson(list));
  return stages;
}

/// The whole object, in the order of docs/Planner.md.
static json getContent(const ReportInput &input) {
  const Estimate &estimate = input.result.estimate;
  json content;
  if (!input.model.empty())
    content["model"] = input.model;
  content["iteration_seconds"] = estimate.iterationSeconds;
  content["tokens_per_second"] = estimate.tokensPerSecond;
  double devices = double(input.result.configuration.ranks());
  if (std::optional<Band> band = getBand(input))
    content["band"] = getBandOf(*band, estimate);
  content["tokens_per_second_per_device"] = estimate.tokensPerSecond / devices;
  content["flops_per_second_per_device"] =
      estimate.modelFlops / estimate.iterationSeconds / devices;
  content["mfu"] = estimate.mfu;
  content["model_flops"] = estimate.modelFlops;
  content["bubble_fraction"] = estimate.bubbleFraction;
  content["exposed_comm_seconds"] = getAxes(estimate.breakdown.exposed);
  content["breakdown_seconds"] = getBreakdown(estimate.breakdown);
  content["roofline_seconds"] = getRoofline(estimate.breakdown);
  content["exchanges"] = getExchanges(input);
  if (input.training.outer.isOn())
    content["sites"] = getSchemes(input);
  content["memory_bytes"] = getMemory(estimate);
  content["memory_limit_bytes"] = input.cluster.device.usableBytes();
  // What depends on options is there only with them; everything else always is.
  if (input.goal)
    content["projection"] = getProjection(input);
  content["configuration"] = getPick(input);
  content["idle_devices"] = input.result.idleDevices;
  if (input.result.allDevices)
    content["with_all_devices"] = getAlternative(*input.result.allDevices);
  content["search"] = getSearch(input);
  content["alternatives"] = getAlternatives(input.result.runnersUp);
  content["variants"] = getAlternatives(input.result.variants);
  if (std::string text = describeUnmeasured(input); !text.empty())
    content["unmeasured"] = text;
  if (input.measured)
    content["measured"] = getMeasured(*input.measured);
  return content;
}

/// Replaces what is no UTF-8, as a path may be.
static std::string printJson(const json &content) {
  return content.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string planner::toJson(const ReportInput &input) {
  return printJson(getContent(input));
}

/// One object a cluster, in the order asked for; where nothing was found, the
/// reason stands in place of the figures.
std::string planner::compareJson(const std::vector<Compared> &compared) {
  json list = json::array();
  for (const Compared &one : compared) {
    json entry = {{"cluster", one.cluster}};
    if (!one.label.empty())
      entry["label"] = one.label;
    if (one.report)
      entry.update(getContent(*one.report));
    else
      entry["error"] = one.failure;
    list.push_back(std::move(entry));
  }
  return printJson({{"clusters", std::move(list)}});
}
