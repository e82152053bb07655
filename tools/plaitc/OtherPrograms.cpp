//===- OtherPrograms.cpp - Layouts for and of others ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --emit searches what a program can run and writes the choice in its words;
// --from reads somebody's layout, which becomes pins, and has the best that the
// same program could run told beside it.
//
//===----------------------------------------------------------------------===//

#include "OtherPrograms.h"

#include "plait/Driver/Jobs.h"
#include "plait/Plan/Files.h"
#include "plait/Planner/Cluster.h"
#include "plait/Support/CommandLine.h"

#include <algorithm>

using namespace plait;

int OtherPrograms::takeFlags(int argc, char **argv) {
  auto end = std::find(argv + 1, argv + argc, std::string_view("--"));
  hasFlags = end != argv + argc;
  if (hasFlags)
    flags.assign(end + 1, argv + argc);
  return int(end - argv);
}

static std::string listPrograms() {
  std::vector<std::string> names;
  for (const planner::Program &program : planner::getPrograms())
    names.emplace_back(program.name);
  return joinChoices(names);
}

void OtherPrograms::addOptions(CLI::App &app, ReportOptions &options) {
  app.add_option("--emit", options.emit,
                 "search what another program can run, and write it in its "
                 "words: " +
                     listPrograms());
  app.add_option("--from", from,
                 "audit a job: megatron -- FLAGS, or megatron:FILE, a script");
}

/// Predicts with the habits of the program, unless another was asked for.
static Status setFramework(const CLI::App &app, const std::string &option,
                           const planner::Program &program,
                           PlanningOptions &planning) {
  if (app.count("--framework") && planning.framework != program.framework)
    return fail(option, " predicts ", program.framework,
                ", but --framework is ", planning.framework);
  planning.framework = program.framework;
  return Status::success();
}

/// The output is what is written, and no plan.
static Status applyEmit(const CLI::App &app, Request &request) {
  const std::string &name = request.report.emit;
  Result<const planner::Program *> program = planner::findProgram(name);
  if (!program.ok())
    return program.status();
  for (const char *other :
       {"--compile-to", "--dump-phases-to", "--also", "--predict",
        "--schedule-file", "--shard", "--document-mask", "--target-weights",
        "--lora", "--no-decay", "--freeze", "--lr-factor", "--optimizer-of",
        "--balance"})
    if (app.count(other))
      return fail("--emit excludes ", other);
  if (request.output.empty())
    request.output = "-";
  return setFramework(app, "--emit " + name, **program, request.planning);
}

/// Reads the words behind `--`, or those of a script.
Result<planner::GivenJob> OtherPrograms::read(const planner::Program &program,
                                              Request &request) const {
  std::string name = program.name;
  size_t colon = from.find(':');
  bool isFile = colon != from.npos;
  if (!program.read)
    return fail("--from reads no options of ", name, ", expected megatron");
  if (isFile == hasFlags)
    return fail("--from ", name,
                " needs flags behind -- or a file, as in --from ", name,
                ":run.sh, and not both");
  if (request.compile.cluster.empty())
    return fail("--from needs --cluster, which the job runs on");
  auto cluster = planner::parseCluster(request.compile.cluster);
  if (!cluster.ok())
    return cluster.status();
  planner::ShellWords words{flags};
  if (isFile) {
    Result<std::string> text = readText(from.substr(colon + 1), "job");
    if (!text.ok())
      return text.status();
    words = planner::splitShell(*text);
  }
  auto job = readJob(program, words, *cluster, request.model);
  return job.ok() ? job : fail("--from ", name, ": ", job.status().message());
}

/// Options that are not given are what the job says.
Status OtherPrograms::audit(const CLI::App &app, const std::string &pinned,
                            Request &request, Terminal &terminal) const {
  Result<const planner::Program *> program =
      planner::findProgram(from.substr(0, from.find(':')));
  if (!program.ok())
    return program.status();
  const std::string &emit = request.report.emit;
  if (!emit.empty() && emit != (*program)->name)
    return fail("--from ", (*program)->name, " excludes --emit ", emit,
                ": a job is of one program");
  Result<planner::GivenJob> job = read(**program, request);
  if (!job.ok())
    return job.status();
  PLAIT_RETURN_IF_ERROR(setFramework(app,
                                     "--from " + std::string((*program)->name),
                                     **program, request.planning));
  PLAIT_RETURN_IF_ERROR(applyJob(*job, pinned, request.model, request.compile));
  request.report.audits = emit.empty();
  for (const std::string &note : job->notes)
    terminal.note(note);
  return Status::success();
}

Status OtherPrograms::apply(const CLI::App &app, const std::string &pinned,
                            Request &request, Terminal &terminal) const {
  if (hasFlags && from.empty())
    return fail("what stands behind -- is for --from");
  if (!request.report.emit.empty())
    PLAIT_RETURN_IF_ERROR(applyEmit(app, request));
  if (!from.empty())
    PLAIT_RETURN_IF_ERROR(audit(app, pinned, request, terminal));
  return request.model.model.empty() ? fail("model is required")
                                     : Status::success();
}
