//===- Text.cpp - A prediction for the terminal ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A prediction as a screen of text, for --explain and --why-not. What goes into
// which section is decided here, how lines are laid out in Screen.cpp, what
// figures look like in Parts.cpp; sentences that pages have, too, are in
// Words.cpp.
//
//===----------------------------------------------------------------------===//

#include "Report/Exchanges.h"
#include "Report/Projected.h"
#include "Report/Schemes.h"
#include "Report/Screen.h"
#include "Report/Words.h"
#include "plait/Support/Quantities.h"

#include <algorithm>
#include <cmath>
#include <utility>

using namespace plait;
using namespace plait::planner;

/// "7 on one stage, then 10 on each of 2, then 5 on one", in the order of
/// virtual stages.
static std::string printLayers(const std::vector<int> &layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    // Equal neighbours are printed once.
    size_t end = i;
    while (end < layers.size() && layers[end] == layers[i])
      ++end;
    size_t stages = end - i;
    text += (i == 0 ? "" : ", then ") + std::to_string(layers[i]) +
            (stages == 1 ? " on one" : " on each of " + std::to_string(stages));
    if (i == 0) // said once
      text += stages == 1 ? " stage" : " stages";
    i = end;
  }
  return text;
}

/// "13.1 ms (predicted -3.2 %); gradients 1.2 ms (predicted -10.0 %), …".
static std::string describeMeasured(const Measured &measured,
                                    const Estimate &estimate) {
  std::string text;
  // What was not measured is 0 and left out.
  auto add = [&](const char *name, double seconds, double predicted) {
    if (seconds <= 0)
      return;
    // Of the measured time: a prediction that is too short has a minus.
    double error = 100 * (predicted / seconds - 1);
    text += (text.empty() ? "" : "; ") + std::string(name) +
            printSeconds(seconds) + " (predicted " + (error < 0 ? "" : "+") +
            printNumber(error, 1) + " %)";
  };
  add("", measured.iterationSeconds, estimate.iterationSeconds);
  add("pipeline ", measured.pipelineSeconds, estimate.pipelineSeconds);
  add("gradients ", measured.dataSeconds, estimate.dataSeconds);
  add("optimizer ", measured.optimizerSeconds, estimate.optimizerSeconds);
  return text + ", by " + measured.source;
}

/// Writes what was decided and what comes of it, a line each; lines without
/// content are left out.
static void writePick(Screen &screen, const ReportInput &input) {
  const SearchResult &result = input.result;
  const Estimate &estimate = result.estimate;
  if (!input.model.empty())
    screen.entry("model", input.model);
  screen.entry("plan", print(result.configuration));
  screen.entry("cluster", input.cluster.name + ", " +
                              std::to_string(result.configuration.ranks()) +
                              " of " + std::to_string(input.cluster.devices()) +
                              " devices");
  if (result.idleDevices > 0)
    screen.entry("idle", describeIdle(result));
  if (Outer outer = input.training.outer; outer.isOn()) {
    std::string sites = std::to_string(std::exchange(outer.sites, 0));
    screen.entry("sites", sites + " of this, " + print(outer) +
                              "; of an agreement the step has its share");
  }
  int64_t microbatches = result.configuration.microbatches(input.training);
  screen.entry("batch", countOf(input.training.globalBatch, "sequence") +
                            " of " + countOf(input.training.sequence, "token") +
                            ", " + countOf(microbatches, "microbatch", "es"));
  screen.entry("precision",
               print(input.training.precision) + ", " +
                   (input.training.flashAttention ? "flash" : "unfused") +
                   " attention");
  screen.entry("step",
               printSeconds(estimate.iterationSeconds) + ", " +
                   printCount(estimate.tokensPerSecond) + " tokens/s, MFU " +
                   printNumber(100 * estimate.mfu, 1) + " %, bubble " +
                   printNumber(100 * estimate.bubbleFraction, 1) + " %");
  screen.entry("each", describeEach(input));
  if (std::string text = describeBand(input); !text.empty())
    screen.entry("band", text);
  screen.entry("memory", (estimate.isPlaced ? "" : "about ") +
                             printBytes(estimate.peakMemory()) + " of " +
                             printBytes(input.cluster.device.usableBytes()) +
                             " on the fullest device");
  if (std::string text = describeUnmeasured(input); !text.empty())
    screen.entry("unmeasured", text);
  if (input.measured)
    screen.entry("measured", describeMeasured(*input.measured, estimate));
  if (std::string text = describeExperts(input); !text.empty())
    screen.entry("experts", text);
  screen.entry("layers", printLayers(result.configuration.layers));
}

/// Two lists of the same step, as bars on one scale. Parts that take no time
/// are left out, which of most configurations are several.
static void writeTime(Screen &screen, const Estimate &estimate) {
  auto writeParts = [&](const std::vector<Part> &parts) {
    for (const Part &part : parts)
      if (part.value > 0)
        screen.bar(part.name, printSeconds(part.value),
                   part.value / estimate.iterationSeconds);
  };
  // On the other ranks some of the computing time is bubble instead.
  screen.heading("where a step goes, on the rank that computes longest");
  writeParts(getTimeParts(estimate));
  screen.heading("what bounds it");
  writeParts(getRooflineParts(estimate));
}

/// One row a stage, a letter a category; alike neighbours share a row.
static void writeMemory(Screen &screen, const ReportInput &input) {
  double usable = input.cluster.device.usableBytes();
  screen.heading("memory of each stage, of " + printBytes(usable));
  const std::vector<StageMemory> &stages = input.result.estimate.memory;
  // The width that the columns in front of the bar leave.
  double room = double(screen.columns()) - 34;
  for (size_t i = 0; i < stages.size();) {
    size_t end = i + 1;
    // Neighbours that print the same peak share a row: a deep pipeline would
    // fill the screen otherwise.
    std::string shown = printBytes(stages[i].peak());
    while (end < stages.size() && printBytes(stages[end].peak()) == shown)
      ++end;
    std::string name = std::to_string(i);
    if (end - i > 1)
      name += " to " + std::to_string(end - 1);
    std::string text =
        "  stage " + padRight(name, 10) + padLeft(shown, 10) + "  |";
    // Bytes of the parts so far, and columns that have been drawn for them.
    double reached = 0;
    size_t drawn = 0;
    for (const Part &part : getMemoryParts(stages[i])) {
      // Rounded at the ends of parts, not by their lengths, so that the bar is
      // as long as the sum; it stops at what the device has.
      reached += part.value;
      size_t length = size_t(std::lround(reached / usable * room));
      // The first letters of the parts are different.
      for (; drawn < length && drawn < size_t(room); ++drawn)
        text += part.name[0];
    }
    screen.line(text + std::string(size_t(room) - drawn, ' ') + "|");
    i = end;
  }
  screen.line(
      std::string("  p parameters, g gradients, o optimizer, a activations, "
                  "w workspace") +
      (stages.front().communicators > 0 ? ", c communicators" : ""));
  PerPlace<double> needs = input.result.estimate.getNeeds();
  for (const MemoryPlaceFacts &facts : otherPlaces)
    if (double bytes = needs[facts.place])
      screen.line("  and up to " + printBytes(bytes) + " a rank in " +
                  std::string(facts.words));
}

/// The rank of the pipeline that sends the most bytes stands for all: stages in
/// the middle are alike.
static void writeExchanges(Screen &screen, const ReportInput &input) {
  auto lists = listExchanges(input);
  if (!lists.ok() || lists->empty())
    return;
  auto most = std::ranges::max_element(*lists, {}, &ExchangeList::getSent);
  if (most->get().empty())
    return;
  std::string stage = std::to_string(most - lists->begin());
  screen.heading("what a rank exchanges in a step" +
                 (lists->size() > 1 ? ", stage " + stage : ""));
  for (const std::string &row : getExchangeRows(most->get()))
    screen.line(row);
}

/// The same training of each site with other exchanges between them.
static void writeSchemes(Screen &screen, const ReportInput &input) {
  std::vector<SchemeCost> rows = rankSchemes(input);
  if (rows.empty())
    return;
  size_t width = 0;
  for (const SchemeCost &row : rows)
    width = std::max(width, row.outer.size() + 1);
  screen.heading("a step by what flows between sites, for equal tokens");
  screen.line("  " + padRight("outer", width) + padLeft("step", 11) +
              padLeft("a rank sends", 15) + padLeft("utilisation", 14));
  for (const SchemeCost &row : rows)
    screen.line("  " + padRight(row.outer, width) +
                padLeft(printSeconds(row.seconds), 11) +
                padLeft(printBytes(row.sent), 15) +
                padLeft(printNumber(100 * row.utilisation, 1) + " %", 14));
  screen.entry("  enough", describe(findEnough(input)));
  screen.entry("  note",
               "which of them trains as well is not predicted: bounds "
               "assume smooth losses, gradients of bounded variance "
               "and a small learning rate");
}

/// Expects that a number of tokens was asked for.
static void writeProjection(Screen &screen, const ReportInput &input) {
  Projection projection =
      project(*input.goal, input.result, input.cluster, input.training);
  screen.heading("the whole training, " + printTokens(projection.tokens) +
                 " tokens");
  for (const auto &[name, text] : describeProjection(projection, input))
    screen.entry("  " + name, text);
}

/// An alternative that does not fit has no time worth comparing and gets a
/// dash.
static void writeAlternatives(Screen &screen, const std::string &title,
                              const std::vector<Alternative> &alternatives) {
  if (alternatives.empty())
    return;
  screen.heading(title);
  for (const SharedRow &row : shareRows(alternatives)) {
    const Alternative &best = *row.best;
    screen.entry(
        "  " + (best.fits ? printSeconds(best.estimate.iterationSeconds) : "-"),
        nameAlternative(best) + ": " + describeRow(row));
  }
}

/// The same statements as the page's, in lines.
static void writeBound(Screen &screen, const SearchResult &result) {
  const SearchCounts &counts = result.counts;
  screen.heading("how sure");
  screen.entry("  best",
               "within " + printNumber(result.withinPercent(), 2) +
                   " % of the best of " +
                   printCount(double(counts.considered)) +
                   " configurations under this model: " +
                   printCount(double(counts.estimated)) + " estimated, " +
                   printCount(double(counts.pruned)) + " ruled out by bounds");
  if (!result.runnersUp.empty())
    screen.entry("  close", describeClose(result));
  // Of the step as it is predicted: what no other choice on these meshes could
  // save more than.
  double gain = 1 - result.idealSeconds / result.estimate.iterationSeconds;
  screen.entry("  ideal", "no schedule, stage cut or larger memory gains more "
                          "than " +
                              printNumber(100 * gain, 1) + " % (" +
                              printSeconds(result.idealSeconds) +
                              ": even work, no bubble)");
  for (const std::string &note : result.notes)
    screen.entry("  note", note);
}

/// The pick, what it costs, where time and memory go, what else there was, how
/// sure all of this is: a section each.
std::string planner::explainText(const ReportInput &input,
                                 const TextOptions &options) {
  Screen screen(options);
  writePick(screen, input);
  if (input.goal)
    writeProjection(screen, input);
  writeTime(screen, input.result.estimate);
  writeExchanges(screen, input);
  writeSchemes(screen, input);
  writeMemory(screen, input);
  writeAlternatives(screen, "runners-up", input.result.runnersUp);
  writeAlternatives(screen, "one thing changed", input.result.variants);
  writeBound(screen, input.result);
  return std::move(screen.out);
}

std::string planner::summaryText(const ReportInput &input,
                                 const TextOptions &options) {
  Screen screen(options);
  writePick(screen, input);
  if (input.goal)
    writeProjection(screen, input);
  return std::move(screen.out);
}

//===----------------------------------------------------------------------===//
// Two side by side
//===----------------------------------------------------------------------===//

/// A row a part, of both configurations; parts that neither has are left out.
/// The parts come in the same order for both, which compare() relies on as
/// well.
std::string planner::explainText(const WhyNot &answer, const SearchResult &pick,
                                 const TextOptions &options) {
  Screen screen(options);
  screen.entry("pick", print(pick.configuration));
  screen.entry("other", nameAlternative(answer.other));
  screen.entry("", answer.other.why);
  screen.line("");
  screen.line("  " + padRight("", 18) + padLeft("pick", 16) +
              padLeft("other", 16) + padLeft("difference", 16));
  for (const Difference &difference : answer.differences) {
    if (difference.pick == 0 && difference.other == 0)
      continue;
    auto text = [&](double value) {
      return difference.isBytes ? printBytes(value) : printSeconds(value);
    };
    // The compiler's own bytes are exact, estimated ones are not.
    auto about = [&](double value, bool isPlaced) {
      return padLeft(
          (difference.isBytes && !isPlaced ? "about " : "") + text(value), 16);
    };
    // The sign is printed apart, as printSeconds and printBytes are for
    // amounts.
    double change = difference.other - difference.pick;
    screen.line("  " + padRight(difference.part, 18) +
                about(difference.pick, pick.estimate.isPlaced) +
                about(difference.other, answer.other.estimate.isPlaced) +
                padLeft((change < 0 ? "-" : "+") + text(std::abs(change)), 16));
  }
  return std::move(screen.out);
}
