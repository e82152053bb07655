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

#include "Console.h"
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
#include "plait/Runtime/Sites.h"
#include "plait/Runtime/Version.h"

#include <cstdlib>
#include <thread>

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

/// Returns the threads of all ranks together: the option is of a host.
unsigned countThreads(const runtime::ExecutorOptions &executor) {
  if (!executor.processes || executor.processes->place().hosts.empty())
    return executor.threads;
  const std::vector<uint32_t> &hosts = executor.processes->place().hosts;
  return executor.threads *
         unsigned(std::set(hosts.begin(), hosts.end()).size());
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
  runtime::Profiler profiler(plan, file.hash(), countThreads(train.executor),
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

/// 1. Options become those of the runtime.
/// 2. The plan is opened, verified and compared with that of the other
///    processes; all of them call this, also where opening has failed.
/// 3. One of three things is done with it.
Status run(const CLI::App &app, Options &options, Console &console) {
  // 1. What is printed gives way to what is written to standard output.
  for (const std::string *file :
       {&options.train.log, &options.profile, &options.trace})
    if (isStandardOutput(*file))
      console.printResultsOnStandardError();
  options.train.interrupted = [] { return receivedInterrupt() != 0; };
  PLAIT_RETURN_IF_ERROR(completeOptions(options));
  // 2. The plan.
  Result<plan::PlanFile> file = plan::PlanFile::open(options.plan);
  if (runtime::Rendezvous *processes = options.train.executor.processes)
    PLAIT_RETURN_IF_ERROR(runtime::agreeOnPlan(
        *processes, options.plan, file.status(), file.ok() ? &*file : nullptr));
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

/// One call a line, which is not torn apart by the children's output.
class SupervisorTeller : public Reporter {
public:
  void message(const Message &message) override {
    std::string line = "plait-run: supervisor: " + message.getLine() + "\n";
    std::fputs(line.c_str(), stderr);
  }
};

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
  SupervisorTeller teller;
  supervisor.reporter = &teller;
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

/// Returns what the program ends with. It executes nothing of the plan.
int coordinate(const CLI::App &app, const Options &options, Console &console) {
  std::string other = findExcludedByCoordinator(app);
  Status status =
      other.empty() ? Status::success() : fail("--coordinate excludes ", other);
  if (status.ok() && runtime::Rendezvous::isLaunched())
    status = Status::failure("--coordinate is one process: start it without "
                             "mpirun, srun or torchrun");
  Result<plan::PlanFile> file =
      status.ok() ? plan::PlanFile::open(options.plan) : status;
  auto toTime = [](double seconds) {
    return std::chrono::milliseconds(int64_t(seconds * 1000));
  };
  status = file.ok()
               ? runtime::coordinate(*file, {options.coordinate,
                                             toTime(options.roundTimeout),
                                             toTime(options.timeout), &console})
               : file.status();
  if (!status.ok())
    tool::printError(app, status.message());
  return status.ok() ? tool::finish(app, 0) : 1;
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
  bool waited = failure.code() == Code::TimedOut;
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

/// Ends the process where a rank does not come back. Without destructors, which
/// would join its thread; so what must not stay behind is removed by hand.
[[noreturn]] void giveUp(const CLI::App &app, runtime::Rendezvous *processes,
                         const std::string &failure) {
  tool::printError(app, failure);
  if (processes)
    processes->disconnect();
  removeTemporaryFiles();
  std::_Exit(1);
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
  Console console(app);
  if (!options.coordinate.empty())
    return coordinate(app, options, console);
  auto processes = runtime::Rendezvous::join(timeLimit, &console);
  if (!processes.ok()) {
    if (!runtime::followsAnother(processes.status()))
      tool::printError(app, processes.status().message());
    return 1;
  }
  // Launchers end processes that way, and say so themselves.
  deferInterrupts(*processes ? nullptr : "plait-run");
  options.train.executor.reporter = &console;
  options.train.observers = {&console};
  options.train.executor.onStuck = [&](const std::string &failure) {
    giveUp(app, processes->get(), failure);
  };
  bindOptions(app, options, processes->get());
  // 4. Failures of options, too, are told by one process.
  Status status = checkOptions(app, options);
  if (status.ok())
    status = run(app, options, console);
  if (!status.ok())
    tell(app, processes->get(), status);
  if (int signal = receivedInterrupt())
    return 128 + signal;
  return status.ok() ? tool::finish(app, 0) : 1;
}
