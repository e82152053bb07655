//===- Run.cpp - One run of plaitc ----------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a session is asked for one request. The reporter of the session is the
// terminal: what a session fails with has been printed.
//
//===----------------------------------------------------------------------===//

#include "Run.h"

#include "Family.h"
#include "Report.h"
#include "plait/Planner/Cluster.h"
#include "plait/Support/CommandLine.h"

using namespace plait;

/// Returns what was given of the options that the planner could decide, and
/// what `further` pins.
/// 1. --mesh and --pin are texts of the same form, and are parsed as one.
/// 2. Fields that have options of their own are added; what is given twice is
///    an error, even where both agree.
static Result<planner::Pins> getPins(const CompileOptions &options,
                                     const std::string &further) {
  // 1. One rank is a mesh whose axes are all pinned.
  std::string text = options.mesh == "1" ? "pp=1,dp=1,cp=1,tp=1" : options.mesh;
  text += (text.empty() || further.empty() ? "" : ",") + further;
  planner::Pins pins;
  if (!text.empty()) {
    auto parsed = planner::parsePins(text);
    if (!parsed.ok())
      return parsed.status();
    pins = std::move(*parsed);
  }
  // 2. Options with names of their own.
  Status status = Status::success();
  visitStrategy(
      [&](const Field &field, const auto &given, auto &pin) {
        if (given && pin && status.ok())
          status = fail(field.name, " is given twice");
        if (given)
          pin = given;
      },
      options.pins, pins);
  if (!status.ok())
    return status;
  return pins;
}

/// Whether a mesh alone would be planned for: not for another machine than
/// this, not of IR that says already what it is for, and not on one rank, which
/// has no strategy.
static bool isForThisMachine(const CompileOptions &options,
                             const Model &model) {
  return options.cluster.empty() && options.target.empty() &&
         options.backend != "cuda" && options.scheduleFile.empty() &&
         !options.mesh.empty() && options.mesh != "1" && model.isPlannable();
}

/// The first option by which a user who gives --mesh means the defaults for the
/// rest of the strategy; empty: none.
static std::string findDecided(const CompileOptions &options) {
  std::string first;
  visitStrategy(
      [&](const Field &field, const auto &pin) {
        if (pin && first.empty())
          first = std::string("--") + field.name;
      },
      options.pins);
  return first;
}

bool Run::import(const ModelOptions &options) {
  Result<Model> imported = session.import(options);
  if (imported.ok())
    model = *imported;
  return imported.ok();
}

/// Asks the planner, and tells what it says. Where the request is tentative
/// `notFound` may be all that there is.
bool Run::choose(const Request &request, std::optional<Choice> &choice,
                 std::string &notFound) {
  if (!terminal.report(checkPrices(request.report, 1)))
    return false;
  Result<Choice> found =
      session.plan(*model, request.compile, request.planning);
  if (!found.ok() && request.planning.isTentative &&
      found.status().code() == Code::NothingFits) {
    notFound = found.status().message();
    return true;
  }
  if (!found.ok() ||
      !terminal.report(tellChoice(*found, request.report, terminal)))
    return false;
  choice = *found;
  return true;
}

/// Has the planner decide the rest, for as many ranks of this machine, where
/// the mesh is all that is said of how to train a model and of what on. Without
/// an answer the defaults stay, and `notFound` tells why.
bool Run::planForThisMachine(const Request &request,
                             std::optional<Choice> &choice,
                             std::string &notFound) {
  if (!isForThisMachine(request.compile, *model) ||
      !::findDecided(request.compile).empty())
    return true;
  // What is wrong with a mesh is told by the compilation.
  auto pins = planner::parsePins(request.compile.mesh);
  if (!pins.ok())
    return true;
  Request chosen = request;
  // As many ranks as the mesh has, on the hardware file of this machine.
  chosen.compile.cluster =
      "host:" + std::to_string(countRanks(request.compile.mesh));
  if (!planner::parseCluster(chosen.compile.cluster).ok())
    return true;
  chosen.planning.pins = *pins;
  chosen.planning.isTentative = true;
  return choose(chosen, choice, notFound);
}

/// request.planning.compiles tells whether there is more to do.
/// 1. Without a cluster: for this machine, if that can be, unless an option was
///    given that needs one.
/// 2. What is pinned.
/// 3. Whether it compiles: not where there is no file for a plan. Then the
///    choice is the answer, and is printed unless something else was asked for.
bool Run::plan(Request &request, const std::string &pinned,
               const std::vector<std::string> &compared,
               std::optional<Choice> &choice, std::string &notFound) {
  // 1. No cluster.
  if (request.compile.cluster.empty() && compared.empty()) {
    // All options of the group, whatever they are called.
    auto given = app.get_options([](const CLI::Option *option) {
      return option->get_group() == planningGroup && option->count();
    });
    if (given.empty())
      return planForThisMachine(request, choice, notFound);
    terminal.error(given.front()->get_name() + " needs --cluster");
    return false;
  }
  // 2. Pins.
  Result<planner::Pins> pins = getPins(request.compile, pinned);
  if (!terminal.report(pins.status()))
    return false;
  request.planning.pins = std::move(*pins);
  // 3. What is asked for.
  ReportOptions &report = request.report;
  bool tells = report.explain || !report.json.empty() ||
               !report.whyNot.empty() || !report.report.empty() ||
               !report.trace.empty() || report.trainTokens > 0 ||
               !compared.empty();
  bool writes = !request.output.empty() || !request.compileTo.empty() ||
                !request.compile.dumpPhasesTo.empty();
  request.planning.compiles = writes && !report.predict;
  report.predict |= !writes && !tells;
  if (!compared.empty())
    return compareClusters(session, *model, request, compared, terminal);
  return choose(request, choice, notFound);
}

/// Tells what was written, in one line with its end; empty where that
/// was to standard output.
static std::string describeWritten(const std::string &output,
                                   const std::string &what) {
  if (output.empty() || isStandardOutput(output))
    return "";
  return "wrote " + output + ": " + what + "\n";
}

bool Run::writeIR(const Request &request, const std::optional<Choice> &choice) {
  Result<std::string> text =
      choice ? session.lower(*choice, request.compileTo)
             : session.lower(*model, request.compile, request.compileTo);
  if (!text.ok() || !terminal.report(writeTextFile(
                        request.output.empty() ? "-" : request.output, *text)))
    return false;
  terminal.print(
      describeWritten(request.output, "IR after phase " + request.compileTo));
  return true;
}

bool Run::compile(const Request &request, const std::optional<Choice> &choice) {
  bool makesPlan = request.compileTo.empty() || request.compileTo == "plan";
  if (!makesPlan)
    return writeIR(request, choice);
  if (request.output.empty())
    return terminal.report(fail("no output file; give one with -o"));
  Result<CompiledPlan> plan = choice ? session.compile(*choice)
                                     : session.compile(*model, request.compile);
  if (!plan.ok())
    return false;
  Result<OutputFile> file = plan->prepare(request.output);
  if (!terminal.report(file.status()))
    return false;
  pending.push_back(
      {std::move(*file), describeWritten(request.output, plan->describe())});
  return true;
}

bool Run::finish() {
  for (auto &[file, told] : pending) {
    if (!terminal.report(file.commit()))
      return false;
    terminal.print(told);
  }
  return true;
}

/// Nobody decides in the planner's place where it would not be asked.
std::string Run::findDecided(const CompileOptions &options) const {
  return isForThisMachine(options, *model) ? ::findDecided(options) : "";
}
