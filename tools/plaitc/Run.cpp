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

/// Whether a mesh without a cluster is planned for: not for another machine
/// than this, not of IR that says already what it is for, and not on one rank,
/// which has no strategy.
static bool isForThisMachine(const Request &request, const Model &model) {
  const CompileOptions &options = request.compile;
  return request.plans && options.cluster.empty() && options.target.empty() &&
         options.backend != "cuda" && options.scheduleFile.empty() &&
         !options.mesh.empty() && options.mesh != "1" && model.isPlannable();
}

/// Names a cluster of as many ranks as the mesh has, on the hardware file of
/// this machine.
static std::string getThisMachine(const CompileOptions &options) {
  return "host:" + std::to_string(countRanks(options.mesh));
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
  if (!found.ok() || !terminal.report(tellChoice(*found, request, terminal)))
    return false;
  choice = *found;
  return true;
}

/// Has the planner decide what is not given, for as many ranks of this machine
/// as the mesh has. Without an answer the defaults stay, and `notFound` tells
/// why.
bool Run::planForThisMachine(const Request &request,
                             std::optional<Choice> &choice,
                             std::string &notFound) {
  if (!isForThisMachine(request, *model))
    return true;
  // What is wrong with a mesh is told by the compilation.
  auto pins = getPins(request.compile);
  if (!pins.ok())
    return true;
  Request chosen = request;
  chosen.compile.cluster = getThisMachine(request.compile);
  if (!planner::parseCluster(chosen.compile.cluster).ok())
    return true;
  chosen.planning.pins = *pins;
  chosen.planning.isTentative = true;
  return choose(chosen, choice, notFound);
}

/// request.planning.compiles tells whether there is more to do.
/// 1. Without a cluster: for this machine, if that can be. What asks for an
///    answer, or for no plan, asks about this machine then.
/// 2. What is pinned.
/// 3. Whether it compiles: not where there is no file for a plan. Then the
///    choice is the answer, and is printed unless something else was asked for.
bool Run::plan(Request &request, const std::string &pinned, const Cases &cases,
               std::optional<Choice> &choice, std::string &notFound) {
  CompileOptions &compile = request.compile;
  // What another program reads is no plan.
  bool writes = request.report.emit.empty() &&
                (!request.output.empty() || !request.compileTo.empty() ||
                 !compile.dumpPhasesTo.empty());
  // 1. No cluster.
  if (compile.cluster.empty() && !cases.any()) {
    // All options of the group, whatever they are called.
    auto given = app.get_options([](const CLI::Option *option) {
      return option->get_group() == planningGroup && option->count();
    });
    bool isHere = isForThisMachine(request, *model);
    if (given.empty() && (writes || !isHere))
      return planForThisMachine(request, choice, notFound);
    if (!isHere) {
      terminal.error(given.front()->get_name() + " needs --cluster");
      return false;
    }
    compile.cluster = getThisMachine(compile);
  }
  // 2. Pins.
  Result<planner::Pins> pins = getPins(compile, pinned);
  if (!terminal.report(pins.status()))
    return false;
  request.planning.pins = std::move(*pins);
  // 3. What is asked for.
  ReportOptions &report = request.report;
  bool tells = report.explain || !report.json.empty() ||
               !report.whyNot.empty() || !report.report.empty() ||
               !report.trace.empty() || report.trainTokens > 0 ||
               report.audits || !report.emit.empty() || cases.any();
  request.planning.compiles = writes && !report.predict;
  report.predict |= !writes && !tells;
  if (cases.any())
    return compareCases(session, *model, request, cases, terminal);
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
