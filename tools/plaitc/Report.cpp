//===- Report.cpp - What plaitc tells of a choice -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner's reports (plait/Planner/Report.h), for a terminal and as files.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "plait/Driver/Jobs.h"
#include "plait/Support/Fields.h"

#include "llvm/Support/Process.h"

#include <algorithm>
#include <list>

using namespace plait;

/// Colours and width are those of the terminal, if there is one.
static planner::TextOptions getTextOptions() {
  planner::TextOptions text;
  text.color = llvm::sys::Process::StandardOutHasColors();
  if (unsigned columns = llvm::sys::Process::StandardOutColumns())
    text.width = columns;
  return text;
}

Status plait::checkPrices(const ReportOptions &options, size_t clusters) {
  size_t prices = options.prices.size();
  if (prices <= 1 || prices == clusters)
    return Status::success();
  return fail("--price has ", prices, " values for ", clusters,
              clusters == 1 ? " cluster" : " clusters", ", expected 1",
              clusters == 1 ? "" : " or " + std::to_string(clusters));
}

/// A projection needs to know how many tokens are trained; one price is for
/// all. `index` is the cluster's among those with prices.
static planner::ReportInput
describe(const Choice &choice, const ReportOptions &options, size_t index = 0) {
  planner::ReportInput input = choice.describe();
  input.asked = options.asked;
  if (options.trainTokens <= 0)
    return input;
  // Without prices a projection has times only.
  input.goal = planner::Goal{options.trainTokens, std::nullopt};
  if (!options.prices.empty())
    input.goal->price = options.prices[index % options.prices.size()];
  input.goal->currency = options.currency;
  if (options.days > 0)
    input.goal->days = options.days;
  return input;
}

/// The text of `input` that is asked for.
static Result<std::string> makeText(const Choice &choice,
                                    const planner::ReportInput &input,
                                    const ReportOptions &options) {
  std::string text;
  if (options.explain || options.audits)
    text += planner::explainText(input, getTextOptions());
  else if (input.goal || options.predict)
    text += planner::summaryText(input, getTextOptions());
  if (options.whyNot.empty() && !options.audits)
    return text;
  Result<planner::WhyNot> answer = choice.whyNot(options.whyNot);
  if (!answer.ok())
    return answer.status();
  return text +
         planner::explainText(*answer, choice.getResult(), getTextOptions());
}

/// Writes the output in the words of the program that it is for, and tells what
/// these have no room for.
static Status emit(const Choice &choice, const Request &request,
                   Terminal &terminal) {
  auto emitted = emitChoice(request.report.emit, choice);
  if (!emitted.ok())
    return emitted.status();
  PLAIT_RETURN_IF_ERROR(writeTextFile(request.output, emitted->text));
  for (const std::string &note : emitted->notes)
    terminal.note(note);
  return Status::success();
}

/// 1. Read and make everything that may fail.
/// 2. Write the files.
/// 3. Print the text, which so follows a complete output.
Status plait::tellChoice(const Choice &choice, const Request &request,
                         Terminal &terminal) {
  const ReportOptions &options = request.report;
  // 1. Nothing is printed so far.
  planner::ReportInput input = describe(choice, options);
  // A profile of another mesh than the choice's is refused.
  if (!options.profile.empty()) {
    Result<planner::Measured> measured = planner::readMeasured(
        options.profile, choice.getResult().configuration);
    if (!measured.ok())
      return measured.status();
    input.measured = std::move(*measured);
  }
  terminal.watch(planner::describeSearch(choice.getResult()));
  Result<std::string> text = makeText(choice, input, options);
  if (!text.ok())
    return text.status();
  // 2. Files.
  if (!options.emit.empty())
    PLAIT_RETURN_IF_ERROR(emit(choice, request, terminal));
  if (!options.report.empty())
    PLAIT_RETURN_IF_ERROR(planner::writeHtmlReport(input, options.report));
  if (!options.trace.empty())
    PLAIT_RETURN_IF_ERROR(planner::writeTrace(input, options.trace));
  if (!options.json.empty())
    PLAIT_RETURN_IF_ERROR(
        writeTextFile(options.json, spellFields(planner::toJson(input))));
  // 3. Text.
  terminal.print(spellFields(*text));
  return Status::success();
}

/// 1. A choice for each case. That one has none is a row of the table.
/// 2. The table, as JSON, as a page and as text. A list, since rows refer to
///    choices, which must not move.
bool plait::compareCases(Session &session, const Model &model,
                         const Request &request, const Cases &cases,
                         Terminal &terminal) {
  const ReportOptions &options = request.report;
  size_t clusters = std::max<size_t>(1, cases.clusters.size());
  if (!terminal.report(checkPrices(options, clusters)))
    return false;
  // 1. Rows.
  PlanningOptions planning = request.planning;
  planning.isTentative = true;
  std::list<Choice> choices;
  std::vector<planner::Compared> compared;
  for (const Case &one : cases.combine(request.compile.cluster)) {
    CompileOptions given = request.compile;
    given.cluster = one.cluster;
    if (one.globalBatch)
      given.pins.globalBatch = one.globalBatch;
    if (one.sequence)
      given.pins.sequence = one.sequence;
    Result<Choice> choice = session.plan(model, given, planning);
    if (!choice.ok() && choice.status().code() != Code::NothingFits)
      return false;
    planner::Compared &row = compared.emplace_back();
    row.cluster = one.cluster;
    row.label = one.label;
    if (choice.ok())
      row.report.emplace(describe(choices.emplace_back(std::move(*choice)),
                                  options, one.index));
    else
      row.failure = spellFields(choice.status().message());
  }
  // 2. The table.
  if (!options.json.empty() &&
      !terminal.report(
          writeTextFile(options.json, planner::compareJson(compared))))
    return false;
  if (!options.report.empty() && !terminal.report(planner::writeHtmlComparison(
                                     compared, options.asked, options.report)))
    return false;
  terminal.print(planner::compareText(compared, getTextOptions()));
  return true;
}
