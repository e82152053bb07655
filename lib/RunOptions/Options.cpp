//===- Options.cpp - Options of plait-run ---------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All options of plait-run: by what they are for, with their ranges, and in one
// list of which a file of options, the help, the settings in logs and the
// arguments of supervised processes are made.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "OptionFile.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Plan/Scalars.h"
#include "plait/Support/Help.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

using namespace plait;

bool plait::isGiven(const CLI::Option &option) {
  bool isFlag = option.get_expected_max() == 0;
  return option.count() > 0 && (!isFlag || option.as<bool>());
}

namespace {

/// Puts the options that most runs are started with on the first screen,
/// --help; the others are in --help-all.
void divideHelp(CLI::App &app) {
  // By how often they are wanted: a new option is a further one until it is
  // listed.
  static const std::map<std::string, std::set<std::string>> usual = {
      {"Options", {"plan", "help", "help-all", "config", "version"}},
      {"Model and data",
       {"weights", "tokens", "text", "shuffle", "eval-tokens", "eval-text",
        "eval-every"}},
      {"Training",
       {"seed", "steps", "lr", "lr-schedule", "warmup-steps", "weight-decay",
        "grad-clip"}},
      {"Checkpoints and results",
       {"checkpoint", "checkpoint-every", "resume", "save", "best", "log",
        "dashboard"}},
      {"Execution", {"check", "threads", "timeout", "supervise"}}};
  std::set<std::string> all;
  for (const auto &[name, options] : usual)
    all.insert(options.begin(), options.end());
  for (CLI::Option *option : app.get_options()) {
    std::string group = "Further options";
    for (const auto &[name, options] : usual)
      if (options.count(option->get_single_name()))
        group = name;
    option->group(group);
  }
  app.formatter(std::make_shared<tool::HelpFormatter>(all));
  app.get_formatter()->column_width(34);
}

/// The runtime knows them; the help lists them.
std::vector<std::string> getTokenTypeNames() {
  std::vector<std::string> names;
  for (const runtime::TokenType &type : runtime::getTokenTypes())
    names.push_back(type.name);
  return names;
}

// Not the conversion to unsigned numbers: it wraps negative ones.
/// A check of counts for which 0 has a meaning.
const CLI::Validator natural(
    [](std::string &text) {
      uint64_t value = 0;
      // Empty texts have a terminator in front, and fail to parse.
      bool valid = text[0] != '-' && CLI::detail::lexical_cast(text, value);
      return valid ? std::string()
                   : "Value " + text + " not in range 0 to 2^64 - 1";
    },
    "in [0 - 2^64)");

/// How a run is interrupted and goes on. Every other option of these needs the
/// directory.
void addCheckpointOptions(CLI::App &app, Options &options) {
  runtime::CheckpointOptions &checkpoint = options.train.checkpoint;
  auto *directory = app.add_option("--checkpoint", checkpoint.directory,
                                   "Directory for checkpoints");
  app.add_option("--checkpoint-every", options.checkpointEvery,
                 "Steps, or time as 30m (else after the last step)")
      ->needs(directory);
  app.add_option("--keep", checkpoint.keep,
                 "Checkpoints to keep, the newest (else all)")
      ->check(CLI::Range(uint64_t(1), uint64_t(1) << 40))
      ->needs(directory);
  auto *replica =
      app.add_option("--replica", checkpoint.replica,
                     "Copies in memory of two hosts: directory, as /dev/shm")
          ->needs(directory);
  app.add_option("--replica-every", options.replicaEvery,
                 "Steps, or time (else as --checkpoint-every)")
      ->needs(replica);
  app.add_option("--resume", options.train.resume,
                 "Resume from the newest checkpoint in a directory");
}

/// Adds what is done, and with which files: of tokens and text one, which CLI11
/// checks.
void addFileOptions(CLI::App &app, Options &options) {
  runtime::TrainOptions &train = options.train;
  app.add_option("plan", options.plan, "The plan to run")->required();
  auto *weights = app.add_option("--weights", train.weights,
                                 "Safetensors file or directory (else random)");
  app.add_option("--adapter", train.adapter,
                 "Directory of adapters of --weights, as PEFT saves them")
      ->needs(weights);
  auto *tokens =
      tool::addList(app, "--tokens", train.tokens,
                    "Files of tokens, or rows: A[:WEIGHT],B[:WEIGHT]…");
  app.add_option("--token-type", train.tokenType,
                 "Type of --tokens (else by the vocabulary)")
      ->check(CLI::IsMember(getTokenTypeNames()))
      ->needs(tokens);
  tool::addList(app, "--text", train.text, "Files of text, a token a byte");
  app.add_flag("--text-as-bytes", train.textAsBytes,
               "Also where the vocabulary is another one");
  app.add_flag("--shuffle", train.shuffle, "Shuffle the samples");
  app.add_option("--document-end", train.documentEnd,
                 "Token behind which attention does not look back")
      ->check(natural);
  app.add_option("--log-samples", train.sampleLog,
                 "Append which samples each step read, JSON lines");
  app.add_flag("--check", options.check,
               "Compare a step with the unpartitioned model");
  app.add_flag("--tf32", train.executor.tf32,
               "Faster, coarser f32 GEMMs on GPUs");
  // What a run writes beside its weights.
  app.add_option("--log", train.log, "Append JSON lines, one a step");
  app.add_option("--profile", options.profile,
                 "Measured time of every step, JSON");
  auto *trace = app.add_option("--trace", options.trace,
                               "When a step did what, for Perfetto");
  app.add_option("--trace-steps", options.traceSteps,
                 "Which steps, as 3,10-12 (else the last one)")
      ->needs(trace);
  app.add_option("--tensorboard", train.tensorboard,
                 "Directory for TensorBoard's event files");
  app.add_option("--dashboard", train.dashboard,
                 "Page that shows the run, HTML");
  app.add_option("--metrics-port", train.metricsPort,
                 "Serve Prometheus there, or at HOST:PORT")
      ->type_name("TEXT");
  app.add_option("--save,--export", train.save,
                 "Model folder to write, as Hugging Face's");
  app.add_option("--best", train.best,
                 "The same after each best loss on held-out data");
  app.add_option("--export-precision", options.exportPrecision,
                 "Of --export and --best: fp32 or bf16 (else fp32)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--print-every", train.printEvery,
                 "Steps between lines of progress, 0: none (else 10)")
      ->check(natural);
  addCheckpointOptions(app, options);
}

/// Not CLI::Range: it lets nan pass.
CLI::Validator numberIn(double least, double most) {
  std::string first = CLI::detail::to_string(least);
  std::string last = CLI::detail::to_string(most);
  auto check = [=](std::string &text) {
    double value = 0;
    bool valid = CLI::detail::lexical_cast(text, value) && value >= least &&
                 value <= most;
    return valid ? std::string()
                 : "Value " + text + " not in range " + first + " to " + last;
  };
  return CLI::Validator(check, "in [" + first + " - " + last + "]");
}
const CLI::Validator positive = numberIn(0, 1e9);
/// 2^40 of them cannot be meant.
const CLI::Range stepCount(uint64_t(1), uint64_t(1) << 40);

/// Says what an option is to each optimizer that reads it, and the default.
std::string describeOption(const SharedOption &shared) {
  std::vector<std::pair<std::string, std::string>> uses; // and whose
  for (auto [optimizer, option, isOfGroup] : shared.readers) {
    std::string use = std::string(option->help) + ", " +
                      CLI::detail::to_string(option->value);
    auto known = std::find_if(uses.begin(), uses.end(),
                              [&](auto &one) { return one.first == use; });
    std::string reader =
        std::string(optimizer->name) + (isOfGroup ? " for a group" : "");
    if (known == uses.end())
      uses.emplace_back(use, reader);
    else
      known->second += ", " + reader;
  }
  std::string text;
  for (auto &[use, names] : uses)
    text += (text.empty() ? "" : "; ") + names + ": " + use;
  return text;
}

/// Adds what optimizers read. The bounds here are those of any; the plan has
/// its own.
void addOptimizerOptions(CLI::App &app, runtime::TrainOptions &train) {
  for (const SharedOption &shared : getOptimizerOptions()) {
    double least = shared.readers.front().option->least;
    double most = shared.readers.front().option->most;
    for (const SharedOption::Reader &reader : shared.readers) {
      least = std::min(least, reader.option->least);
      most = std::max(most, reader.option->most);
    }
    app.add_option("--" + shared.name, train.optimizer[shared.name],
                   describeOption(shared))
        ->check(numberIn(least, most));
  }
}

/// How it is trained. The help shows the defaults. Bounds keep out what cannot
/// be meant; the optimizer uses those it has.
void addTrainingOptions(CLI::App &app, runtime::TrainOptions &train) {
  app.add_option("--seed", train.seed,
                 "Seed of weights, order of samples, dropout")
      ->check(natural);
  // Epochs become steps when the data is known.
  app.add_option("--steps", train.steps,
                 "Steps to train; 0: evaluate and export only")
      ->check(CLI::Range(uint64_t(0), uint64_t(1) << 40));
  app.add_option("--epochs", train.epochs, "Passes over the samples, instead")
      ->check(positive);
  app.add_option("--lr", train.learningRate, "Learning rate, after the warmup")
      ->check(positive);
  // Names and formulas are the runtime's.
  app.add_option("--lr-schedule", train.schedule,
                 "How it changes after the warmup")
      ->check(CLI::IsMember(runtime::getScheduleNames()));
  app.add_option("--warmup-steps", train.warmupSteps,
                 "Steps in which --lr is reached")
      ->check(natural);
  app.add_option("--min-lr", train.leastLearningRate,
                 "Least learning rate, at its end")
      ->check(positive);
  app.add_option("--decay-steps", train.decaySteps,
                 "Length of the schedule; wsd: of its end")
      ->check(stepCount);
  addOptimizerOptions(app, train);
  app.add_option("--grad-clip", train.gradClip, "Largest gradient norm, 0: any")
      ->check(positive);
}

/// Adds what is done about bad steps, and how well the model does elsewhere.
/// What each policy does is the runtime's (docs/Training.md).
void addWatchOptions(CLI::App &app, Options &options) {
  runtime::TrainOptions &train = options.train;
  // Held-out data has the same forms as what is trained on.
  tool::addList(app, "--eval-tokens", train.evalTokens,
                "Held-out data, as --tokens");
  tool::addList(app, "--eval-text", train.evalText, "Held-out text, as --text");
  app.add_option("--eval-every", train.evalEvery,
                 "Steps from evaluation to evaluation, 0: at the end")
      ->check(natural);
  app.add_option("--eval-steps", train.evalSteps,
                 "Batches of an evaluation, 0: all")
      ->check(natural);
  app.add_option("--on-nan", options.onNan, "At a step that is not finite")
      ->check(CLI::IsMember({"stop", "skip", "rollback"}));
  app.add_option("--guard", train.executor.guardEvery,
                 "Steps from one that is watched to the next, 0: none")
      ->check(natural);
  app.add_option("--on-spike", options.onSpike,
                 "At a loss far above those before")
      ->check(CLI::IsMember({"ignore", "report", "stop", "rollback"}));
  app.add_option("--spike-steps", train.spikeSteps,
                 "Steps that a loss is held against")
      ->check(CLI::Range(uint64_t(2), uint64_t(1) << 20));
  app.add_option("--spike-deviations", train.spikeDeviations,
                 "How far it may be above their mean")
      ->check(positive);
}

/// Who runs it. The help shows the defaults. How a plan is executed; what it
/// computes is in the plan.
void addExecutorOptions(CLI::App &app, Options &options) {
  runtime::TrainOptions &train = options.train;
  // By default the processors, of which main() knows.
  app.add_option("--threads", train.executor.threads,
                 "CPU threads of all ranks together")
      ->check(CLI::Range(1u, 4096u));
  app.add_option("--devices", train.executor.devices,
                 "GPUs to use of those visible, 0: all")
      ->check(CLI::Range(0u, 4096u));
  app.add_option("--collective-blocks", train.executor.collectiveBlocks,
                 "On GPUs, thread blocks of a collective that overlaps with "
                 "matmuls, which leave room for it; 0: NCCL chooses")
      ->check(CLI::Range(0u, 1024u));
  // Words and not flags, so that a file can say either.
  app.add_option("--cuda-graph", options.cudaGraph,
                 "Record a step on GPUs and replay it")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--time-matmuls", options.timeMatmuls,
                 "On GPUs, take the fastest algorithms of the same bits; "
                 "verbose: say which")
      ->check(CLI::IsMember({"on", "off", "verbose"}));
  app.add_option("--overlap", options.overlap,
                 "On CPUs, reduce gradients while computing; auto: with "
                 "several processes")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  app.add_option("--stress", options.stress,
                 "On CPUs, for tests: memory, NaN in what a step writes before "
                 "it reads it; messages, some are late")
      ->check(CLI::IsMember({"none", "memory", "messages"}));
  // A millisecond at least: 0 would be no time at all.
  app.add_option("--timeout", options.timeout,
                 "Seconds a rank waits for another")
      ->check(CLI::Range(0.001, 1e6));
}

/// Who starts the processes, and again when they fail. Measuring and comparing
/// are runs of one start.
void addSupervisorOptions(CLI::App &app, Options &options) {
  runtime::SupervisorOptions &supervisor = options.supervisor;
  auto *supervise =
      app.add_flag("--supervise", options.supervise,
                   "Start the processes, and again after failures")
          ->needs(app.get_option("--checkpoint"))
          ->excludes(app.get_option("--check"))
          ->excludes(app.get_option("--profile"))
          ->excludes(app.get_option("--trace"));
  // Its options are part of the text.
  app.add_option("--launcher", supervisor.launcher, "What starts them")
      ->needs(supervise);
  app.add_option("--hosts", supervisor.hosts,
                 "File with a host a line: node3 slots=8")
      ->needs(supervise);
  app.add_option("--max-restarts", supervisor.maxRestarts,
                 "In a row, without a new checkpoint")
      ->check(natural)
      ->needs(supervise);
}

/// Sites that are runs of their own, and what brings them together. What each
/// of both excludes is known when all options are there.
void addSiteOptions(CLI::App &app, Options &options) {
  runtime::SiteOptions &sites = options.train.sites;
  auto *meet = app.add_option("--meet", sites.meet,
                              "Be one of the plan's sites: HOST:PORT of the "
                              "coordinator");
  auto *site = app.add_option("--site", sites.site, "Which one, from 0 on")
                   ->check(CLI::Range(0u, UINT32_MAX));
  meet->needs(site);
  site->needs(meet);
  for (const char *other :
       {"--check", "--supervise", "--profile", "--trace", "--replica"})
    meet->excludes(app.get_option(other));
  auto *coordinate =
      app.add_option("--coordinate", options.coordinate,
                     "Bring sites together at a port, or at HOST:PORT")
          ->type_name("TEXT");
  app.add_option("--round-timeout", options.roundTimeout,
                 "Seconds that the others have when half have delivered")
      ->check(CLI::Range(0.001, 1e6))
      ->needs(coordinate);
}

} // namespace

/// Options of the supervisor, not of the runs that it starts.
static const std::set<std::string> ofSupervisor = {"supervise", "launcher",
                                                   "hosts", "max-restarts"};

/// Reads the list of options: what is added there is passed on. --config is
/// left out, for its values have become options; so have plan and --resume,
/// which the supervisor decides.
std::vector<std::string> plait::argumentsOfProcess(const CLI::App &app) {
  static const std::set<std::string> others = {"help", "help-all", "config",
                                               "plan", "resume"};
  std::vector<std::string> words;
  for (const CLI::Option *option : app.get_options()) {
    std::string name = option->get_single_name();
    // Only what was given: defaults of the processes are the same.
    if (!isGiven(*option) || others.count(name) || ofSupervisor.count(name))
      continue;
    bool isFlag = option->get_expected_max() == 0;
    words.push_back("--" + name +
                    (isFlag ? "" : "=" + tool::getValue(*option)));
  }
  return words;
}

/// Returns an option that is given and not in `common`: a list of what is
/// allowed, so that a new one is excluded until it is known to make sense.
static std::string findOther(const CLI::App &app,
                             const std::set<std::string> &common) {
  for (const CLI::Option *option : app.get_options())
    if (isGiven(*option) && !common.count(option->get_single_name()))
      return "--" + option->get_single_name();
  return "";
}

std::string plait::findExcludedByCheck(const CLI::App &app) {
  // What a comparison has in common with a run.
  static const std::set<std::string> common = {"collective-blocks",
                                               "help",
                                               "config",
                                               "plan",
                                               "weights",
                                               "adapter",
                                               "tokens",
                                               "token-type",
                                               "text",
                                               "shuffle",
                                               "check",
                                               "tf32",
                                               "seed",
                                               "threads",
                                               "devices",
                                               "cuda-graph",
                                               "timeout",
                                               "document-end",
                                               "overlap",
                                               "time-matmuls",
                                               "text-as-bytes",
                                               "stress"};
  return findOther(app, common);
}

std::string plait::findExcludedByCoordinator(const CLI::App &app) {
  return findOther(app, {"help", "config", "plan", "coordinate",
                         "round-timeout", "timeout"});
}

/// Defaults are shown for options whose default is of interest, from the
/// training options on.
void plait::addOptions(CLI::App &app, Options &options) {
  app.footer("Examples:\n"
             "  plait-run nano.plan --text corpus.txt --steps 100 --log "
             "log.jsonl\n"
             "  plait-run 8b.plan --weights llama-3-8b --tokens data.bin "
             "--checkpoint run\n"
             "  plait-run 8b.plan --tokens data.bin --checkpoint run --resume "
             "run\n"
             "  mpirun -n 8 plait-run 8b.plan --tokens data.bin\n");
  app.set_help_all_flag("--help-all", "Print this and the other options");
  addFileOptions(app, options);
  app.option_defaults()->always_capture_default();
  addTrainingOptions(app, options.train);
  addWatchOptions(app, options);
  addExecutorOptions(app, options);
  addSupervisorOptions(app, options);
  addSiteOptions(app, options);
  for (const char *count :
       {"--steps", "--print-every", "--warmup-steps", "--decay-steps",
        "--eval-every", "--eval-steps", "--spike-steps", "--keep"})
    app.get_option(count)->transform(tool::wholeAmount);
  for (auto [one, other] : alternativeOptions)
    app.get_option(one)->excludes(app.get_option(other));
  app.set_config("--config", "", "Options from a TOML file")
      ->check(CLI::ExistingFile)
      ->check([](const std::string &path) {
        // It is opened more than once, and a pipe is empty the second time.
        return std::filesystem::is_regular_file(path)
                   ? std::string()
                   : "'" + path + "' is not a regular file";
      });
  app.config_formatter(makeTomlReader(app));
  // Last: all options have to be there.
  divideHelp(app);
}

/// Also what nobody has given, so that a log says what a run was. Values are
/// numbers where their option takes numbers.
std::string plait::describeSettings(const CLI::App &app,
                                    const Options &options) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const CLI::Option *option : app.get_options()) {
    std::string name = option->get_single_name();
    // What says nothing about the training.
    if (name.starts_with("help") || name == "config" || name == "version" ||
        name == "round-timeout" || ofSupervisor.count(name))
      continue;
    if (name == "steps" && app.count("--epochs"))
      continue;                            // its default has no meaning
    if (option->get_expected_max() == 0) { // a flag
      settings[name] = isGiven(*option);
      continue;
    }
    std::string value =
        option->count() ? tool::getValue(*option) : option->get_default_str();
    bool isText = option->get_type_name().rfind("TEXT", 0) == 0;
    if (value.empty()) {
      // The plan has the default of what its optimizer reads.
      if (options.train.optimizer.count(name))
        settings[name] = nullptr;
      continue;
    }
    auto number = nlohmann::ordered_json::parse(value, nullptr, false);
    // A path such as "7" is a text all the same.
    if (isText || !number.is_number())
      settings[name] = value;
    else
      settings[name] = std::move(number);
  }
  // Where nobody has said so, all that the processes of the host may use.
  settings["threads"] = options.train.executor.threads;
  // The bytes of a path need not be UTF-8, and those of JSON are.
  return settings.dump(-1, ' ', false,
                       nlohmann::ordered_json::error_handler_t::replace);
}
