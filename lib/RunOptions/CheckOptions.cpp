//===- CheckOptions.cpp - What options say together -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What depends on more than one option, on the plan, or on where an output
// goes; and the options of the runtime that words of the user become.
//
//===----------------------------------------------------------------------===//

#include "OptionFile.h"
#include "Options.h"
#include "plait/Plan/Files.h"
#include "plait/Runtime/Data.h"
#include "plait/Runtime/RunOptions.h"

#include <filesystem>
#include <sstream>
#include <thread>
#include <tuple>

using namespace plait;

/// The option's check admits these words only.
static runtime::SpikePolicy spikePolicyOf(const std::string &name) {
  return name == "stop"       ? runtime::SpikePolicy::Stop
         : name == "report"   ? runtime::SpikePolicy::Report
         : name == "rollback" ? runtime::SpikePolicy::RollBack
                              : runtime::SpikePolicy::Ignore;
}

static runtime::NonFinitePolicy nonFinitePolicyOf(const std::string &name) {
  return name == "skip"       ? runtime::NonFinitePolicy::Skip
         : name == "rollback" ? runtime::NonFinitePolicy::RollBack
                              : runtime::NonFinitePolicy::Stop;
}

/// Whether there are tokens to train on.
static bool hasData(const runtime::TrainOptions &train) {
  return train.givesRows || !train.tokens.empty() || !train.text.empty();
}

/// That no output takes the place of what the run reads, or of another one.
static Status checkFiles(const CLI::App &app, const Options &options) {
  const runtime::TrainOptions &train = options.train;
  NamedPaths inputs = {{"plan", options.plan},
                       {"--weights", train.weights},
                       {"--adapter", train.adapter},
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

/// Fails where the last weights would take the place of the best ones, next to
/// the step and the loss of those.
static Status checkFolders(const runtime::TrainOptions &train) {
  auto resolve = [](const std::string &path) {
    std::error_code error;
    return std::filesystem::weakly_canonical(
        std::filesystem::absolute(path, error) / "", error);
  };
  if (train.best.empty() || train.save.empty() ||
      resolve(train.best) != resolve(train.save))
    return Status::success();
  return fail("--best and --save are the same folder, '", train.save, "'");
}

/// Refuses what is of a training where there is none: without data, or without
/// steps.
static Status checkWithoutTraining(const CLI::App &app) {
  for (const char *option :
       {"--checkpoint", "--epochs", "--profile", "--trace", "--log",
        "--log-samples", "--tensorboard", "--dashboard", "--best"})
    if (app.count(option))
      return fail(option, " is of a training: give --tokens or --text, and "
                          "--steps");
  return Status::success();
}

/// Checks that there is something to do: steps, or weights that are evaluated
/// or exported.
static Status checkPurpose(const CLI::App &app,
                           const runtime::TrainOptions &train, bool evaluates) {
  if (!train.best.empty() && !evaluates)
    return Status::failure("--best needs --eval-tokens or --eval-text");
  bool leaves = evaluates || !train.save.empty();
  if (!hasData(train) && !leaves)
    return Status::failure(
        "give --tokens or --text to train on, --eval-tokens or --eval-text to "
        "evaluate, --export to write the model, or --check");
  if (train.steps == 0 && !leaves)
    return Status::failure(
        "--steps 0 needs something to evaluate or to --export");
  return hasData(train) && train.trains() ? Status::success()
                                          : checkWithoutTraining(app);
}

/// Checks what the options say together: what depends on more than one option,
/// or on where an output goes. Each message names the options as the user wrote
/// them.
Status plait::checkOptions(const CLI::App &app, const Options &options) {
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
  PLAIT_RETURN_IF_ERROR(checkFolders(train));
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
  return options.check ? Status::success()
                       : checkPurpose(app, train, evaluates);
}

Status plait::checkMismatches(const CLI::App &app, const plan::PlanFile &file,
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

/// Takes as many threads as the processes of this host may use together.
void plait::bindOptions(const CLI::App &app, Options &options,
                        runtime::Rendezvous *processes) {
  runtime::TrainOptions &train = options.train;
  train.executor.timeLimit =
      std::chrono::milliseconds(int64_t(options.timeout * 1000));
  train.executor.processes = processes;
  if (processes && app.count("--threads") == 0 && processes->place().processors)
    train.executor.threads = processes->place().processors;
  train.settings = describeSettings(app, options);
  for (const CLI::Option *option : app.get_options())
    if (isGiven(*option))
      train.given.insert(option->get_single_name());
}

Status plait::completeOptions(Options &options) {
  // Within a process what is exchanged is only copied: nothing waits meanwhile.
  options.train.executor.overlap =
      options.overlap == "auto" ? options.train.executor.processes != nullptr
                                : options.overlap == "on";
  options.train.executor.stress =
      options.stress == "memory"     ? runtime::Stress::Memory
      : options.stress == "messages" ? runtime::Stress::Messages
                                     : runtime::Stress::None;
  options.train.onNonFinite = nonFinitePolicyOf(options.onNan);
  // Whether the update follows is decided on the host.
  options.train.executor.cudaGraph =
      options.cudaGraph == "on" && options.onNan != "skip";
  options.train.executor.gemmTiming.enabled = options.timeMatmuls != "off";
  options.train.executor.gemmTiming.verbose = options.timeMatmuls == "verbose";
  options.train.onSpike = spikePolicyOf(options.onSpike);
  options.train.savesRounded = options.exportPrecision == "bf16";
  if (!options.check && !hasData(options.train))
    options.train.steps = 0;
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
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Runs without a command line
//===----------------------------------------------------------------------===//

/// Options refer to each other: the parser to the values that it sets.
struct RunOptions::Parsed {
  Options options;
  CLI::App app;
};

Result<RunOptions> RunOptions::fromJson(const std::string &json,
                                        const std::string &plan) {
  auto parsed = std::make_shared<Parsed>();
  auto &[options, app] = *parsed;
  options.train.executor.threads =
      std::max(1u, std::thread::hardware_concurrency());
  addOptions(app, options);
  app.config_formatter(makeJsonReader(app, plan));
  tool::letLastCount(app);
  try {
    std::istringstream input(json);
    app.parse_from_stream(input);
    tool::checkValues(app);
  } catch (const CLI::ParseError &error) {
    return fail(Code::InvalidOption, tool::describe(error));
  }
  options.train.givesRows =
      options.train.tokens.empty() && options.train.text.empty();
  if (isStandardOutput(options.train.log))
    return Status::failure("--log is standard output, which is the program's");
  PLAIT_RETURN_IF_ERROR(checkOptions(app, options));
  return RunOptions(std::move(parsed));
}

std::chrono::milliseconds RunOptions::getTimeLimit() const {
  return std::chrono::milliseconds(int64_t(parsed->options.timeout * 1000));
}

Result<runtime::TrainOptions>
RunOptions::finish(const plan::PlanFile &file,
                   runtime::Rendezvous *processes) const {
  auto &[options, app] = *parsed;
  PLAIT_RETURN_IF_ERROR(checkMismatches(app, file, options));
  bindOptions(app, options, processes);
  PLAIT_RETURN_IF_ERROR(completeOptions(options));
  options.train.planHash = file.hash();
  return options.train;
}
