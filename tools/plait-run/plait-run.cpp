//===- plait-run.cpp - Executes a plan ------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../CommandLine.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Profile.h"
#include "plait/Plan/Signals.h"
#include "plait/Runtime/Profiler.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Trainer.h"

#include <thread>

using namespace plait;

namespace {

struct Options {
  std::string plan;
  std::string profile; // empty: none
  bool check = false;
  double timeout = 600;
  std::string cudaGraph = "on";
  std::string checkpointEvery; // see parseCheckpointEvery
  runtime::TrainOptions train;
};

std::vector<std::string> getTokenTypeNames() {
  std::vector<std::string> names;
  for (const runtime::TokenType &type : runtime::getTokenTypes())
    names.push_back(type.name);
  return names;
}

/// How a run is interrupted and goes on.
void addCheckpointOptions(CLI::App &app, Options &options) {
  runtime::CheckpointOptions &checkpoint = options.train.checkpoint;
  CLI::Option *check = app.get_option("--check");
  auto *directory = app.add_option("--checkpoint", checkpoint.directory,
                                   "Directory for checkpoints")
                        ->excludes(check);
  app.add_option("--checkpoint-every", options.checkpointEvery,
                 "Steps, or time as 30m (else after the last step)")
      ->needs(directory);
  app.add_option("--keep", checkpoint.keep,
                 "Checkpoints to keep, the newest (else all)")
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 40))
      ->needs(directory);
  app.add_option("--resume", options.train.resume,
                 "Go on from the newest checkpoint in a directory")
      ->excludes(check)
      ->excludes(app.get_option("--profile"));
}

/// What is done, and with which files.
void addFileOptions(CLI::App &app, Options &options) {
  runtime::TrainOptions &train = options.train;
  app.add_option("plan", options.plan, "The plan to run")->required();
  app.add_option("--weights", train.weights,
                 "Safetensors file or directory (else random)");
  auto *tokens = app.add_option("--tokens", train.tokens,
                                "Tokens, little-endian integers");
  app.add_option("--token-type", train.tokenType,
                 "Of --tokens: uint16, int32, int64 (by the vocabulary)")
      ->check(CLI::IsMember(getTokenTypeNames()))
      ->needs(tokens);
  app.add_option("--text", train.text, "Text, a token a byte")
      ->excludes(tokens);
  app.add_flag("--shuffle", train.shuffle, "Permute the samples");
  auto *check = app.add_flag("--check", options.check,
                             "Compare a step with the unpartitioned model");
  app.add_flag("--tf32", train.executor.tf32,
               "Faster, coarser f32 products on GPUs");
  app.add_option("--log", train.log, "Append JSON lines, one a step")
      ->excludes(check);
  app.add_option("--profile", options.profile,
                 "Measured time of every step, JSON")
      ->excludes(check);
  app.add_option("--save,--export", train.save,
                 "Model folder to write, as Hugging Face's")
      ->excludes(check);
  addCheckpointOptions(app, options);
}

/// How it is trained. The help shows the defaults.
void addTrainingOptions(CLI::App &app, runtime::TrainOptions &train) {
  // Not CLI::Range: it lets nan pass.
  CLI::Validator positive(
      [](std::string &text) {
        double value = 0;
        bool valid = CLI::detail::lexical_cast(text, value) && value >= 0 &&
                     value <= 1e9;
        return valid ? std::string()
                     : "Value " + text + " not in range 0 to 1e9";
      },
      "in [0 - 1e9]");
  // Below 1, which would leave nothing to correct the bias with.
  CLI::Range fraction(0.0, 0.999999);
  // Not the conversion to unsigned numbers: it wraps negative ones.
  CLI::Validator natural(
      [](std::string &text) {
        uint64_t value = 0;
        bool valid = text[0] != '-' && CLI::detail::lexical_cast(text, value);
        return valid ? std::string()
                     : "Value " + text + " not in range 0 to 2^64 - 1";
      },
      "in [0 - 2^64)");
  app.add_option("--seed", train.seed, "Of weights, permutation, dropout")
      ->check(natural);
  CLI::Option *training[] = {
      app.add_option("--steps", train.steps, "Steps to train")
          ->check(CLI::Range(uint64_t(1), uint64_t(1) << 40)),
      app.add_option("--lr", train.learningRate, "Learning rate")
          ->check(positive),
      app.add_option("--beta1", train.beta1,
                     "First decay of AdamW and Lion, momentum of SGD")
          ->check(fraction),
      app.add_option("--beta2", train.beta2, "Second decay of AdamW and Lion")
          ->check(fraction),
      app.add_option("--eps", train.epsilon, "Epsilon of AdamW")
          ->check(positive),
      app.add_option("--weight-decay", train.weightDecay,
                     "Weight decay; SGD: part of the gradient")
          ->check(positive),
      app.add_option("--grad-clip", train.gradClip,
                     "Largest gradient norm, 0: any")
          ->check(positive)};
  for (CLI::Option *option : training)
    option->excludes(app.get_option("--check"));
}

/// Who runs it. The help shows the defaults.
void addExecutorOptions(CLI::App &app, Options &options) {
  runtime::TrainOptions &train = options.train;
  app.add_option("--threads", train.executor.threads, "Of all ranks together")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--devices", train.executor.devices,
                 "GPUs to use of those visible, 0: all")
      ->check(CLI::Range(0u, 4096u));
  app.add_option("--cuda-graph", options.cudaGraph,
                 "Record a step on GPUs and replay it")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--timeout", options.timeout,
                 "Seconds a rank waits for another")
      ->check(CLI::Range(0.001, 1e6));
}

/// Trains with every step measured.
Status profile(const plan::PlanFile &file, Options &options) {
  const plan::fb::Plan &plan = file.plan();
  // A graph has no places between its steps.
  options.train.executor.cudaGraph = false;
  runtime::Profiler profiler(plan, file.hash(), options.train.executor.threads,
                             options.train.steps);
  options.train.executor.profiler = &profiler;
  PLAIT_RETURN_IF_ERROR(runtime::train(plan, options.train));
  Result<plan::Profile> measured = profiler.finish();
  if (!measured.ok())
    return measured.status();
  return plan::writeProfile(*measured, options.profile);
}

/// That all processes run the same plan in the same way.
Status compareProcesses(runtime::Rendezvous &processes,
                        const Result<plan::PlanFile> &file) {
  PLAIT_RETURN_IF_ERROR(processes.agree(file.status()));
  PLAIT_RETURN_IF_ERROR(
      processes.agreeOn("plan", plan::identify(file->hash())));
  return processes.agreeOn("version", runtime::describeVersion());
}

Status run(Options &options) {
  PLAIT_RETURN_IF_ERROR(checkOneStandardOutput(
      {{"--log", options.train.log}, {"--profile", options.profile}}));
  if (!options.profile.empty() && options.train.steps < 2)
    return fail("--profile needs at least 2 steps, the first one is left out; "
                "--steps is ",
                options.train.steps);
  if (!options.check && options.train.tokens.empty() &&
      options.train.text.empty())
    return Status::failure("give --tokens or --text (or --check)");
  if (isStandardOutput(options.train.log) || isStandardOutput(options.profile))
    options.train.summary = stderr;
  options.train.interrupted = [] { return receivedInterrupt() != 0; };
  options.train.executor.cudaGraph = options.cudaGraph == "on";
  if (!options.checkpointEvery.empty())
    if (Status status = runtime::parseCheckpointEvery(options.checkpointEvery,
                                                      options.train.checkpoint);
        !status.ok())
      return fail("--checkpoint-every: ", status.message());
  Result<plan::PlanFile> file = plan::PlanFile::open(options.plan);
  if (runtime::Rendezvous *processes = options.train.executor.processes)
    PLAIT_RETURN_IF_ERROR(compareProcesses(*processes, file));
  if (!file.ok())
    return file.status();
  options.train.planHash = file->hash();
  if (!options.profile.empty())
    return profile(*file, options);
  return options.check ? runtime::check(file->plan(), options.train)
                       : runtime::train(file->plan(), options.train);
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app(
      "Executes a plan: its ranks as threads of this process, or spread over "
      "those that mpirun, srun or torchrun has started.",
      "plait-run");
  Options options;
  options.train.executor.threads =
      std::max(1u, std::thread::hardware_concurrency());
  app.get_formatter()->column_width(48);
  addFileOptions(app, options);
  app.option_defaults()->always_capture_default();
  addTrainingOptions(app, options.train);
  addExecutorOptions(app, options);
  bool isFirst = runtime::Rendezvous::launchIndex() == 0;
  if (std::optional<int> code = tool::parse(app, argc, argv, !isFirst))
    return *code;
  removeTemporaryFilesOnSignals();
  auto timeLimit = std::chrono::milliseconds(int64_t(options.timeout * 1000));
  options.train.executor.timeLimit = timeLimit;
  auto processes = runtime::Rendezvous::join(timeLimit);
  if (!processes.ok()) {
    tool::printError(app, processes.status().message());
    return 1;
  }
  // Launchers end processes that way, and say so themselves.
  deferInterrupts(*processes ? nullptr : "plait-run");
  if (*processes && app.count("--threads") == 0 &&
      (*processes)->place().processors)
    options.train.executor.threads = (*processes)->place().processors;
  options.train.executor.processes = processes->get();
  Status status = run(options);
  if (!status.ok() && (!*processes || (*processes)->speaksOfFailure()))
    tool::printError(app, status.message());
  if (int signal = receivedInterrupt())
    return 128 + signal;
  return status.ok() ? 0 : 1;
}
