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

#include "plait/Plan/Files.h"
#include "plait/Planner/Cluster.h"

#include <unistd.h>

using namespace plait;

OtherPrograms::~OtherPrograms() {
  std::error_code ignored;
  if (!folder.empty())
    std::filesystem::remove_all(folder, ignored);
}

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

void OtherPrograms::addOptions(CLI::App &app, PlanningOptions &planning) {
  app.add_option("--emit", planning.emit,
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
Status OtherPrograms::checkEmit(const CLI::App &app, CompileOptions &options,
                                PlanningOptions &planning) const {
  Result<const planner::Program *> program =
      planner::findProgram(planning.emit);
  if (!program.ok())
    return program.status();
  for (const char *other :
       {"--compile-to", "--dump-phases-to", "--compare", "--also", "--predict",
        "--schedule-file", "--shard", "--document-mask", "--no-decay"})
    if (app.count(other))
      return fail("--emit excludes ", other);
  if (options.output.empty())
    options.output = "-";
  return setFramework(app, "--emit " + planning.emit, **program, planning);
}

/// A folder whose name is what the model is called.
Status OtherPrograms::writeModel(const std::string &config,
                                 CompileOptions &options) {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "plait-XXXXXX").string();
  if (!mkdtemp(pattern.data()))
    return fail("cannot make a folder for the model: ", std::strerror(errno));
  folder = pattern;
  std::error_code error;
  std::filesystem::create_directory(folder / "job", error);
  options.model = (folder / "job").string();
  return error
             ? fail("cannot make a folder for the model: ", error.message())
             : writeTextFile((folder / "job" / "config.json").string(), config);
}

/// Reads the words behind `--`, or those of a script.
Result<planner::GivenJob> OtherPrograms::read(const planner::Program &program,
                                              CompileOptions &options) const {
  std::string name = program.name;
  size_t colon = from.find(':');
  bool isFile = colon != from.npos;
  if (!program.read)
    return fail("--from reads no options of ", name, ", expected megatron");
  if (isFile == hasFlags)
    return fail("--from ", name,
                " needs flags behind -- or a file, as in --from ", name,
                ":run.sh, and not both");
  if (options.cluster.empty())
    return fail("--from needs --cluster, which the job runs on");
  auto cluster = planner::parseCluster(options.cluster);
  if (!cluster.ok())
    return cluster.status();
  planner::Given given{flags, 0, *cluster, options.ignoredFields,
                       !options.model.empty()};
  if (isFile) {
    Result<std::string> text = readText(from.substr(colon + 1), "job");
    if (!text.ok())
      return text.status();
    planner::ShellWords words = planner::splitShell(*text);
    given.words = std::move(words.words);
    given.processes = words.processes;
  }
  // Flags that may pass are no fields of a config.json.
  std::erase_if(options.ignoredFields, [&](const std::string &name) {
    return std::ranges::any_of(given.words, [&](const std::string &word) {
      return word.substr(0, word.find('=')) == "--" + name;
    });
  });
  Result<planner::GivenJob> job = program.read(given);
  return job.ok() ? job : fail("--from ", name, ": ", job.status().message());
}

/// Options that are not given are what the job says.
Status OtherPrograms::audit(const CLI::App &app, CompileOptions &options,
                            PlanningOptions &planning) {
  Result<const planner::Program *> program =
      planner::findProgram(from.substr(0, from.find(':')));
  if (!program.ok())
    return program.status();
  Result<planner::GivenJob> job = read(**program, options);
  if (!job.ok())
    return job.status();
  PLAIT_RETURN_IF_ERROR(setFramework(
      app, "--from " + std::string((*program)->name), **program, planning));
  ConfigurationPins pins = job->training;
  static_cast<StrategyPins &>(pins) = job->pins;
  visitConfiguration(
      [](const Field &, auto &pin, const auto &value) {
        if (!pin)
          pin = value;
      },
      options.pins, pins);
  if (options.mesh.empty())
    options.mesh = job->pins.getMesh().print();
  planning.audits = planning.emit.empty();
  for (const std::string &note : job->notes)
    tool::printNote(app, note);
  return job->model.empty() ? Status::success()
                            : writeModel(job->model, options);
}

Status OtherPrograms::apply(const CLI::App &app, CompileOptions &options,
                            PlanningOptions &planning) {
  if (hasFlags && from.empty())
    return fail("what stands behind -- is for --from");
  if (!planning.emit.empty())
    PLAIT_RETURN_IF_ERROR(checkEmit(app, options, planning));
  if (!from.empty())
    PLAIT_RETURN_IF_ERROR(audit(app, options, planning));
  return options.model.empty() ? fail("model is required") : Status::success();
}
