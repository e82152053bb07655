//===- Html.cpp - A prediction as a page ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A prediction as one page that needs nothing else: tables, drawings and a
// style in place. Sections are written in the order of the page into one
// string; what comes from outside (names of models, clusters, files) is escaped
// where it is written, and figures are printed by the same functions as on the
// screen, so that the two say the same.
//
//===----------------------------------------------------------------------===//

#include "Report/PageParts.h"
#include "Report/Projected.h"
#include "Report/Svg.h"
#include "Report/Words.h"
#include "plait/Plan/Files.h"
#include "plait/Support/Quantities.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

namespace {

/// Built once, run once. `out` is a valid page once run() has ended.
/// Each write… function appends one section, or nothing where its input is
/// missing.
class Page {
public:
  Page(const ReportInput &input, const Drawn &drawn)
      : input(input), estimate(input.result.estimate), drawn(drawn) {}

  std::string run();

private:
  void heading(const char *text) { out += drawHeading(text); }
  /// A sentence below a heading or a drawing. None where there is nothing to
  /// say, so that callers need not ask.
  void note(const std::string &text) { out += drawNote(text); }
  void table(const Row &head, const std::vector<Row> &rows, size_t words) {
    out += drawTable(head, rows, words);
  }

  void writeHead();
  void writeConfiguration();
  void writeProjection();
  void writeTime();
  void writeParts(const std::vector<Part> &parts);
  void writeSchemes();
  void writeMemory();
  void writeTimeline();
  void writeMeasured();
  void writeAlternatives(const char *title,
                         const std::vector<Alternative> &alternatives);
  void writeBound();

  const ReportInput &input;
  const Estimate &estimate;
  const Drawn &drawn;
  std::string out;
};

} // namespace

/// A square of the part's colour and its name.
static std::string getKey(const std::string &name) {
  return std::string("<span class=\"key\" style=\"background:") +
         getColor(name) + "\"></span>" + name;
}

/// The title, the answer in sentences, and the figures that most readers want
/// alone.
void Page::writeHead() {
  std::string title = input.model.empty() ? std::string("Predicted step")
                                          : "Training " + input.model + " on " +
                                                input.cluster.name;
  out += beginPage(title, input.asked);
  out += "<p>" + escapeHtml(describePlainly(input)) + "</p>\n";
  out += "<p class=\"big\">" +
         escapeHtml(printSeconds(estimate.iterationSeconds)) + " a step, " +
         printCount(estimate.tokensPerSecond) + " tokens/s, " +
         describeEach(input) + ", MFU " + printNumber(100 * estimate.mfu, 1) +
         " %, bubble " + printNumber(100 * estimate.bubbleFraction, 1) +
         " %</p>\n<p>" +
         escapeHtml(print(input.result.configuration) + " on " +
                    input.cluster.name) +
         "</p>\n";
  if (std::string text = describeBand(input); !text.empty())
    note("Band: " + text + ".");
  if (std::string text = describeUnmeasured(input); !text.empty())
    note("Unmeasured: " + text + ".");
}

static std::string joinLayers(const std::vector<int> &layers) {
  std::string text;
  for (int count : layers)
    text += (text.empty() ? "" : " ") + std::to_string(count);
  return text;
}

/// All choices, also those at their default: a page is read without the command
/// that made it.
void Page::writeConfiguration() {
  const Configuration &c = input.result.configuration;
  const Training &training = input.training;
  heading("Configuration");
  auto number = [](int64_t value) { return std::to_string(value); };
  std::vector<Row> rows = {
      {"mesh", c.mesh.print(" ", " x ")},
      {"schedule", escapeHtml(c.schedule) + ", " + number(c.chunks) +
                       (c.chunks == 1 ? " chunk" : " chunks") + " a rank"},
      {"layers of each stage", joinLayers(c.layers)},
      {"micro-batch", number(c.microBatch) + ", " +
                          number(c.microbatches(training)) + " of them"},
      {"recompute", print(c.recompute)},
      {"ZeRO stage", number(c.zero)},
      {"sequence parallelism", c.sequenceParallel ? "on" : "off"},
      {"context parallelism",
       c.mesh[Axis::CP] > 1 ? print(c.contextParallel) : "off"},
      {"offload", print(c.offload)},
      {"batch", number(training.globalBatch) + " sequences of " +
                    number(training.sequence) + " tokens"},
      {"precision", print(training.precision)},
      {"attention", training.flashAttention ? "flash" : "unfused"},
      {"framework", escapeHtml(training.framework.name)}};
  if (std::string text = describeExperts(input); !text.empty())
    rows.push_back({"experts", text});
  table({}, rows, 2);
}

/// Nothing where no number of tokens was asked for.
void Page::writeProjection() {
  if (!input.goal)
    return;
  Projection projection =
      project(*input.goal, input.result, input.cluster, input.training);
  heading("The whole training");
  std::vector<Row> rows = {{"tokens", printTokens(projection.tokens)}};
  // The same rows as on the screen.
  for (const auto &[name, text] : describeProjection(projection, input))
    rows.push_back({name, escapeHtml(text)});
  table({}, rows, 2);
}

/// Two bars of the same length: the same seconds, by what they are spent for
/// and by what bounds them.
void Page::writeTime() {
  heading("Where time goes");
  note(
      "On the rank of the pipeline that computes longest; the others have more "
      "bubble instead.");
  writeParts(getTimeParts(estimate));
  note("The same sum by what bounds it: a kernel counts for the longer of its "
       "arithmetic and its memory traffic.");
  writeParts(getRooflineParts(estimate));
}

/// A bar, and a row for each part.
void Page::writeParts(const std::vector<Part> &parts) {
  // The parts add up to the step, so that the bar is full.
  out += drawBar(parts, estimate.iterationSeconds);
  std::vector<Row> rows;
  // Only parts that take time: the others have no room in the bar.
  for (const Part &part : parts)
    if (part.value > 0)
      rows.push_back(
          {getKey(part.name), printSeconds(part.value),
           printNumber(100 * part.value / estimate.iterationSeconds, 1) +
               " %"});
  table({}, rows, 1);
}

/// The bar is of the fullest stage against what is usable; where that is
/// exceeded, the bar's length is the stage's. The rows have all stages, the
/// drawing what some ranks hold over time.
void Page::writeMemory() {
  double usable = input.cluster.device.usableBytes();
  // Usable is what the driver reports less what is reserved.
  heading("Memory");
  note("Of each stage at its worst moment, against the " + printBytes(usable) +
       " that the device leaves.");
  std::vector<Row> rows;
  // All stages have the same parts.
  Row head = {"stage"};
  for (const Part &part : getMemoryParts(estimate.memory.front()))
    head.push_back(getKey(part.name));
  head.push_back("peak");
  PerPlace<double> needs = estimate.getNeeds();
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (needs[facts.place] > 0)
      head.push_back("on the " + std::string(facts.name));
  for (size_t i = 0; i < estimate.memory.size(); ++i) {
    Row row = {std::to_string(i)};
    for (const Part &part : getMemoryParts(estimate.memory[i]))
      row.push_back(printBytes(part.value));
    row.push_back(printBytes(estimate.memory[i].peak()));
    // No part of the peak, which is the device's.
    for (const MemoryPlaceFacts &facts : otherPlaces)
      if (needs[facts.place] > 0)
        row.push_back(printBytes(estimate.memory[i].offloaded[facts.place]));
    rows.push_back(row);
  }
  const StageMemory &fullest = estimate.memory[getFullestStage(estimate)];
  out += drawBar(getMemoryParts(fullest), std::max(usable, fullest.peak()));
  table(head, rows, 1);
  out += drawMemory(drawn, usable);
  note(drawn.note());
}

/// Shows what other exchanges between sites take, and over which links.
void Page::writeSchemes() {
  std::vector<SchemeCost> schemes = rankSchemes(input);
  if (schemes.empty())
    return;
  heading("What flows between sites");
  note("The same step of each site, for equal tokens. Which of them trains as "
       "well is not predicted.");
  std::vector<Row> rows;
  for (const SchemeCost &row : schemes)
    rows.push_back({escapeHtml(row.outer), printSeconds(row.seconds),
                    printBytes(row.sent),
                    printNumber(100 * row.utilisation, 1) + " %"});
  table({"outer", "step", "a rank sends", "utilisation"}, rows, 1);
  note("Sites take " + describe(findEnough(input)) + ".");
  std::vector<Utilisation> curves = findUtilisation(input);
  if (curves.empty())
    return;
  out += drawUtilisation(curves);
  note("Utilisation by the rate of the link that each site has.");
}

void Page::writeTimeline() {
  heading("Timeline");
  out += drawTimeline(drawn);
  note(drawn.note());
}

/// Predicted beside measured, with the error in percent of what was measured. A
/// part that was not measured is left out, and stages that either side lacks.
void Page::writeMeasured() {
  if (!input.measured)
    return;
  const Measured &measured = *input.measured;
  heading("Predicted against measured");
  note(measured.source);
  std::vector<Row> rows;
  auto add = [&](const std::string &name, double predicted, double value,
                 auto print) {
    if (value > 0)
      rows.push_back({name, print(predicted), print(value),
                      printNumber(100 * (predicted / value - 1), 1) + " %"});
  };
  // Parts as a profile can tell them apart: it knows of gradients and of the
  // optimizer, and of the pipeline as what is left.
  add("step", estimate.iterationSeconds, measured.iterationSeconds,
      printSeconds);
  add("pipeline", estimate.pipelineSeconds, measured.pipelineSeconds,
      printSeconds);
  add("gradients and parameters", estimate.dataSeconds, measured.dataSeconds,
      printSeconds);
  add("optimizer", estimate.optimizerSeconds, measured.optimizerSeconds,
      printSeconds);
  size_t stages = std::min(measured.peakBytes.size(), estimate.memory.size());
  for (size_t i = 0; i < stages; ++i)
    add("peak memory of stage " + std::to_string(i), estimate.memory[i].peak(),
        measured.peakBytes[i], printBytes);
  table({"", "predicted", "measured", "error"}, rows, 1);
}

/// Runners-up are named by their configuration, variants by what was changed.
void Page::writeAlternatives(const char *title,
                             const std::vector<Alternative> &alternatives) {
  if (alternatives.empty())
    return;
  heading(title);
  std::vector<Row> rows;
  for (const SharedRow &row : shareRows(alternatives))
    rows.push_back({escapeHtml(nameAlternative(*row.best)),
                    escapeHtml(describeRow(row)),
                    printSeconds(row.best->estimate.iterationSeconds),
                    printBytes(row.best->estimate.peakMemory())});
  table({"configuration", "what it loses", "step", "peak memory"}, rows, 2);
}

/// How sure the pick is: the bound holds as far as the model is right, the band
/// says how far the model may be off.
void Page::writeBound() {
  const SearchResult &result = input.result;
  heading("How sure");
  note(
      "Within " + printNumber(result.withinPercent(), 2) +
      " % of the best of " + printCount(double(result.counts.considered)) +
      " configurations under this model; " +
      printCount(double(result.counts.estimated)) +
      " were estimated, the others are ruled out by bounds. No schedule, stage "
      "cut or larger memory makes a step shorter than " +
      printSeconds(result.idealSeconds) + ". " + describeClose(result) + ".");
  // What was not tried or not preferred, and why.
  for (const std::string &line : result.notes)
    note(line);
}

std::string Page::run() {
  // What was picked, what it costs, where that goes, what was measured, how it
  // runs, what it holds, what else there was, and how much of this is sure.
  writeHead();
  writeConfiguration();
  writeProjection();
  writeTime();
  writeSchemes();
  writeMeasured();
  writeTimeline();
  writeMemory();
  writeAlternatives("Runners-up", input.result.runnersUp);
  writeAlternatives("One thing changed", input.result.variants);
  writeBound();
  return out + drawLegendOfWords() + endPage();
}

/// Simulates with as many actions as a page can show; the file is written at
/// the end, so that a failure leaves none.
Status planner::writeHtmlReport(const ReportInput &input,
                                const std::string &path) {
  constexpr int64_t mostActions = 6000; // beyond that they are thin lines
  Result<Drawn> drawn = simulateDrawn(input, mostActions);
  if (!drawn.ok())
    return drawn.status();
  return writeTextFile(path, Page(input, *drawn).run());
}
