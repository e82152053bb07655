//===- plait-run.cpp - Executes a plan ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One process of a run, or its supervisor: reads options, joins the other
// processes, compares plans and versions with them, trains, checks or measures,
// and sees to it that one process says what has failed. All else is the
// runtime's.
//
//===----------------------------------------------------------------------===//

#include "Options.h"
#include "Trace.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Profile.h"
#include "plait/Plan/Signals.h"
#include "plait/Plan/Streams.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Data.h"
#include "plait/Runtime/Profiler.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Version.h"

#include <thread>
#include <tuple>

using namespace plait;

namespace {

/// That what is measured can be written. The first process writes; all end
/// where it cannot.
Status checkMeasured(const Options &options) {
  runtime::Rendezvous *processes = options.train.executor.processes;
  Status status;
  for (const std::string *path : {&options.profile, &options.trace})
    if (status.ok() && !path->empty() &&
        (!processes || processes->place().index == 0))
      status = checkWritable(*path);
  return processes ? processes->agree(status) : status;
}

/// Trains with steps measured.
/// 1. What is written: notes of all ranks, a profile of all steps, a trace of
///    some.
/// 2. Train.
/// 3. Write, in the process that has the notes of all.
Status measure(const plan::PlanFile &file, Options &options) {
  PLAIT_RETURN_IF_ERROR(checkMeasured(options));
  const plan::fb::Plan &plan = file.plan();
  runtime::TrainOptions &train = options.train;
  // A graph has no places between its steps.
  train.executor.cudaGraph = false;
  runtime::Rendezvous *processes = train.executor.processes;
  bool overlaps = plan::overlaps(plan, train.executor.overlap);
  // 1. Readers.
  runtime::StepNotes notes(plan, overlaps, processes);
  train.executor.notes = &notes;
  runtime::Profiler profiler(plan, file.hash(), train.executor.threads,
                             train.steps);
  if (!options.profile.empty())
    train.readers.push_back(&profiler);
  Result<std::set<uint64_t>> steps = options.traceSteps
                                         ? parseSteps(*options.traceSteps)
                                         : std::set<uint64_t>();
  if (!steps.ok())
    return steps.status();
  Trace trace(notes, std::move(*steps), overlaps);
  if (!options.trace.empty())
    train.readers.push_back(&trace);
  // 2. Train.
  PLAIT_RETURN_IF_ERROR(runtime::train(plan, train));
  // 3. Write.
  if (processes && processes->place().index != 0)
    return Status::success(); // the first one has the notes of all
  if (!options.trace.empty())
    PLAIT_RETURN_IF_ERROR(trace.write(options.trace));
  if (options.profile.empty())
    return Status::success();
  Result<plan::Profile> measured = profiler.finish();
  if (!measured.ok())
    return measured.status();
  measured->overlap = overlaps;
  return plan::writeProfile(*measured, options.profile);
}

/// The option's check admits these words only.
runtime::SpikePolicy spikePolicyOf(const std::string &name) {
  return name == "stop"       ? runtime::SpikePolicy::Stop
         : name == "report"   ? runtime::SpikePolicy::Report
         : name == "rollback" ? runtime::SpikePolicy::RollBack
                              : runtime::SpikePolicy::Ignore;
}

runtime::NonFinitePolicy nonFinitePolicyOf(const std::string &name) {
  return name == "skip"       ? runtime::NonFinitePolicy::Skip
         : name == "rollback" ? runtime::NonFinitePolicy::RollBack
                              : runtime::NonFinitePolicy::Stop;
}

/// That all processes run the same plan in the same way. The plan first: it is
/// read by each process from what may be different disks. Then the versions, on
/// which numbers may depend.
Status compareProcesses(runtime::Rendezvous &processes, const std::string &path,
                        const Result<plan::PlanFile> &file) {
  PLAIT_RETURN_IF_ERROR(processes.agree(file.status()));
  auto plan = runtime::PlanIdentity::of(file->plan(), file->hash());
  PLAIT_RETURN_IF_ERROR(processes.agreeOn(std::vector<runtime::SharedValue>{
      {plan.hash, "plan '" + path + "' (" + plan.mesh + "), " + plan.hash}}));
  return processes.agreeOn("version", runtime::describeVersion());
}

/// That no output takes the place of what the run reads, or of another one.
Status checkFiles(const CLI::App &app, const Options &options) {
  const runtime::TrainOptions &train = options.train;
  NamedPaths inputs = {{"plan", options.plan},
                       {"--weights", train.weights},
                       {"--hosts", options.supervisor.hosts}};
  for (const std::string &path : app.get_option("--config")->results())
    inputs.emplace_back("--config", path);
  for (auto [option, list] : {std::pair("--tokens", &train.tokens),
                              {"--text", &train.text},
                              {"--eval-tokens", &train.evalTokens},
                              {"--eval-text", &train.evalText}})
    for (const std::string &path : runtime::listPaths(*list))
      inputs.emplace_back(option, path);
  return checkOutputs({{"--log", train.log},
                       {"--log-samples", train.sampleLog},
                       {"--profile", options.profile},
                       {"--trace", options.trace},
                       {"--dashboard", train.dashboard}},
                      inputs);
}

/// Refuses what is of a training where there is none: without data, or without
/// steps.
Status checkWithoutTraining(const CLI::App &app) {
  for (const char *option :
       {"--checkpoint", "--epochs", "--profile", "--trace", "--log",
        "--log-samples", "--tensorboard", "--dashboard", "--best"})
    if (app.count(option) && !app.count("--check"))
      return fail(option, " is of a training: give --tokens or --text, and "
                          "--steps");
  return Status::success();
}

/// Checks what the options say together: what depends on more than one option,
/// or on where an output goes. Each message names the options as the user wrote
/// them.
Status checkOptions(const CLI::App &app, const Options &options) {
  const runtime::TrainOptions &train = options.train;
  std::string excluded = findExcludedByCheck(app);
  if (options.check && !excluded.empty())
    return fail("--check excludes ", excluded);
  // Held-out data of either form.
  bool evaluates = !train.evalTokens.empty() || !train.evalText.empty();
  if (isStandardOutput(train.sampleLog))
    return Status::failure("--log-samples is added to a file, which standard "
                           "output is not");
  if (isStandardOutput(train.dashboard))
    return Status::failure("--dashboard is written again and again, which "
                           "standard output cannot be");
  PLAIT_RETURN_IF_ERROR(checkFiles(app, options));
  if (options.measures() && evaluates)
    return fail(options.profile.empty() ? "--trace" : "--profile",
                " measures steps that train: leave out --eval-tokens, "
                "--eval-text");
  if (!evaluates && (train.evalEvery || train.evalSteps))
    return fail(train.evalEvery ? "--eval-every" : "--eval-steps",
                " needs --eval-tokens or --eval-text");
  for (const char *option : {"--spike-steps", "--spike-deviations"})
    if (app.count(option) && options.onSpike == "ignore")
      return fail(option, " needs --on-spike");
  // There must be something to roll back to.
  for (auto [option, policy] : {std::pair("--on-nan", &options.onNan),
                                {"--on-spike", &options.onSpike}})
    if (*policy == "rollback" && options.checkpointEvery.empty())
      return fail(option, " rollback needs --checkpoint, --checkpoint-every");
  if (!train.checkpoint.replica.empty() && options.checkpointEvery.empty() &&
      options.replicaEvery.empty())
    return Status::failure(
        "--replica needs --replica-every, or --checkpoint-every");
  if (train.textAsBytes && train.text.empty() && train.evalText.empty())
    return Status::failure("--text-as-bytes needs --text or --eval-text");
  // A comparison draws tokens at random where there are none.
  bool hasData = !train.tokens.empty() || !train.text.empty();
  bool leaves = evaluates || !train.save.empty();
  if (!options.check && !hasData && !leaves)
    return Status::failure("give --tokens or --text (or --check)");
  if (!train.best.empty() && !evaluates)
    return Status::failure("--best needs --eval-tokens or --eval-text");
  if (train.steps == 0 && !leaves)
    return Status::failure(
        "--steps 0 needs something to evaluate or to --export");
  return hasData && train.steps > 0 ? Status::success()
                                    : checkWithoutTraining(app);
}

/// Refuses what was asked for and means nothing to the plan. Its default may.
Status checkMismatches(const CLI::App &app, const plan::PlanFile &file,
                       const Options &options) {
  for (const CLI::Option *option : app.get_options()) {
    std::string name = option->get_single_name();
    auto mismatch = runtime::findMismatch(file.plan(), name);
    if (isGiven(*option) && mismatch)
      return fail("--", name, " is of plans ", mismatch->wanted, ", '",
                  options.plan, "' ", mismatch->found);
  }
  return Status::success();
}

/// 1. Options become those of the runtime.
/// 2. The plan is opened, verified and compared with that of the other
///    processes; all of them call this, also where opening has failed.
/// 3. One of three things is done with it.
Status run(const CLI::App &app, Options &options) {
  // 1. What is printed gives way to what is written to standard output.
  for (const std::string *file :
       {&options.train.log, &options.profile, &options.trace})
    if (isStandardOutput(*file))
      options.train.summary = stderr;
  // Within a process what is exchanged is only copied: nothing waits meanwhile.
  options.train.executor.overlap =
      options.overlap == "auto" ? options.train.executor.processes != nullptr
                                : options.overlap == "on";
  options.train.onNonFinite = nonFinitePolicyOf(options.onNan);
  // Whether the update follows is decided on the host.
  options.train.executor.cudaGraph =
      options.cudaGraph == "on" && options.onNan != "skip";
  options.train.executor.gemmTiming.enabled = options.timeMatmuls != "off";
  options.train.executor.gemmTiming.verbose = options.timeMatmuls == "verbose";
  options.train.onSpike = spikePolicyOf(options.onSpike);
  options.train.interrupted = [] { return receivedInterrupt() != 0; };
  runtime::CheckpointOptions &checkpoint = options.train.checkpoint;
  for (auto [name, text, interval] :
       {std::tuple("--checkpoint-every", &options.checkpointEvery,
                   &checkpoint.every),
        {"--replica-every",
         options.replicaEvery.empty() ? &options.checkpointEvery
                                      : &options.replicaEvery,
         &checkpoint.replicaEvery}}) {
    auto parsed = text->empty() ? runtime::CheckpointInterval()
                                : runtime::parseCheckpointEvery(*text);
    if (!parsed.ok())
      return fail(name, ": ", parsed.status().message());
    *interval = *parsed;
  }
  options.train.savesRounded = options.exportPrecision == "bf16";
  if (options.train.tokens.empty() && options.train.text.empty() &&
      !options.check)
    options.train.steps = 0;
  // 2. The plan.
  Result<plan::PlanFile> file = plan::PlanFile::open(options.plan);
  if (runtime::Rendezvous *processes = options.train.executor.processes)
    PLAIT_RETURN_IF_ERROR(compareProcesses(*processes, options.plan, file));
  if (!file.ok())
    return file.status();
  PLAIT_RETURN_IF_ERROR(checkMismatches(app, *file, options));
  options.train.planHash = file->hash();
  // 3. Measure, check or train.
  if (options.measures())
    return measure(*file, options);
  return options.check ? runtime::check(file->plan(), options.train)
                       : runtime::train(file->plan(), options.train);
}

/// Returns what the program ends with. The processes that it starts get their
/// options on the command line.
int supervise(const CLI::App &app, Options &options) {
  runtime::SupervisorOptions &supervisor = options.supervisor;
  supervisor.plan = options.plan;
  supervisor.arguments = argumentsOfProcess(app);
  supervisor.checkpoints = options.train.checkpoint.directory;
  supervisor.resume = options.train.resume;
  supervisor.timeLimit = std::chrono::seconds(int64_t(options.timeout));
  supervisor.interrupted = receivedInterrupt;
  deferInterrupts("plait-run");
  Status status = checkOptions(app, options);
  if (status.ok() && runtime::Rendezvous::isLaunched())
    status = Status::failure("--supervise starts the processes by itself: "
                             "start it without mpirun, srun or torchrun");
  Result<int> code = status.ok() ? runtime::supervise(supervisor) : status;
  if (code.ok())
    return *code;
  if (runtime::Rendezvous::launchIndex() == 0)
    tool::printError(app, code.status().message());
  return 1;
}

/// `text` with `more` at the end of its first line.
std::string addToLine(std::string text, const std::string &more) {
  return text.insert(std::min(text.find('\n'), text.size()), more);
}

/// One process says what has failed; the others, where their ranks waited.
/// 1. A rank that was merely released says where it waited, as a note.
/// 2. One process says the reason: that of its engine, if it knows better.
/// 3. Others that have waited in vain say so, unless the reason has been told.
void tell(const CLI::App &app, runtime::Rendezvous *processes,
          const Status &failure) {
  bool waited =
      failure.message().find("waited longer than") != std::string::npos;
  bool follows = processes && runtime::followsAnother(failure);
  // 1. First
  // At once: a launcher ends all when the first process has.
  if (follows)
    tool::printNote(app, failure.message());
  // 2. The reason.
  if (!processes || processes->speaksOfFailure()) {
    std::string reason = follows ? processes->reasonOfRelease() : "";
    std::string silent = processes && waited ? processes->describeSilent() : "";
    tool::printError(app, addToLine(reason.empty() ? failure.message() : reason,
                                    silent.empty() ? "" : "; " + silent));
  } else if (!follows && waited && !processes->isSpokenOf())
    tool::printNote(app, failure.message());
}

} // namespace

/// 1. Parse. Of several processes only the first prints errors of options,
///    which all have.
/// 2. A supervisor goes no further.
/// 3. Join the others; signals are deferred from here on.
/// 4. Run, and say what has failed. A run that was interrupted has ended well,
///    and says by its exit code that it was.
int main(int argc, char **argv) {
  CLI::App app(
      "Executes a plan: its ranks as threads of this process, or spread over "
      "those that mpirun, srun or torchrun has started.",
      "plait-run");
  Options options;
  options.train.executor.threads =
      std::max(1u, std::thread::hardware_concurrency());
  addOptions(app, options);
  app.set_version_flag(
      "--version",
      [] {
        return "plait-run " PLAIT_VERSION "\n" + runtime::describeLibraries();
      },
      "Print the version, and those of libraries, and exit");
  // 1. The environment says which process this is.
  bool isFirst = runtime::Rendezvous::launchIndex() == 0;
  if (std::optional<int> code = tool::parse(app, argc, argv, !isFirst))
    return *code;
  removeTemporaryFilesOnSignals();
  // 2. Its processes come back here without the option.
  if (options.supervise)
    return supervise(app, options);
  // 3. Others may be late for as long.
  auto timeLimit = std::chrono::milliseconds(int64_t(options.timeout * 1000));
  options.train.executor.timeLimit = timeLimit;
  auto processes = runtime::Rendezvous::join(timeLimit);
  if (!processes.ok()) {
    if (!runtime::followsAnother(processes.status()))
      tool::printError(app, processes.status().message());
    return 1;
  }
  // Launchers end processes that way, and say so themselves.
  deferInterrupts(*processes ? nullptr : "plait-run");
  if (*processes && app.count("--threads") == 0 &&
      (*processes)->place().processors)
    options.train.executor.threads = (*processes)->place().processors;
  options.train.executor.processes = processes->get();
  options.train.settings = describeSettings(app, options);
  for (const CLI::Option *option : app.get_options())
    if (isGiven(*option))
      options.train.given.insert(option->get_single_name());
  // 4. Failures of options, too, are told by one process.
  Status status = checkOptions(app, options);
  if (status.ok())
    status = run(app, options);
  if (!status.ok())
    tell(app, processes->get(), status);
  if (int signal = receivedInterrupt())
    return 128 + signal;
  return status.ok() ? tool::finish(app, 0) : 1;
}
