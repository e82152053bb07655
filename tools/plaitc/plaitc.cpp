//===- plaitc.cpp - The compiler driver ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options into a Request, and what they say together. Options of a
// configuration are made from the list of its fields, so that a new field needs
// nothing here. All decisions are those of a session (lib/Driver); this file
// decides only what it is asked: a compilation, a search before it, a search
// alone, a comparison of clusters, or a family of plans.
//
//===----------------------------------------------------------------------===//

#include "Cases.h"
#include "Family.h"
#include "Help.h"
#include "OtherPrograms.h"
#include "Run.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Signals.h"
#include "plait/Planner/Cluster.h"
#include "plait/Planner/Framework.h"
#include "plait/Support/CommandLine.h"
#include "plait/Support/Fields.h"

#include "llvm/Support/raw_ostream.h"

#include <sstream>
#include <unistd.h>

using plait::CompileOptions;
using plait::ModelOptions;
using plait::Request;
using plait::Terminal;

//===----------------------------------------------------------------------===//
// The fields of a configuration
//===----------------------------------------------------------------------===//

/// Whether values of the type are words to choose from.
template <typename T>
concept hasWords = requires(T value) { plait::getWords(value); };

namespace {

/// Makes the option of a field, which pins it. Called for each field, with its
/// pin, what can be executed of it, and its default.
struct FieldOption {
  CLI::App &app;
  plait::Cases &cases; // where a field has several values

  /// The values that there are to choose from; none where any number does. What
  /// can be executed is listed where that is a choice; else all words of the
  /// type.
  template <typename T>
  static std::vector<std::string> getChoices(const std::vector<T> &executable) {
    std::vector<std::string> choices;
    for (const T &value : executable)
      choices.push_back(plait::print(value));
    if constexpr (hasWords<T>)
      if (executable.empty())
        for (std::string_view word : plait::getWords(T()))
          choices.emplace_back(word);
    return choices;
  }

  /// Help, parser, default and group all follow from the field. Text is parsed
  /// by the configuration's own parser, so that its messages are the same
  /// everywhere.
  template <typename T>
  void operator()(const plait::Field &field, std::optional<T> &pin,
                  const std::vector<T> &executable, const T &usual) {
    std::string help = plait::spellFields(field.help);
    // The words stand in front of what the field is.
    if (std::vector<std::string> choices = getChoices(executable);
        !choices.empty())
      help = plait::joinChoices(choices) + ": " + help;
    auto set = [&pin, &cases = cases,
                name = field.name](const std::string &text) {
      // The first one is the options' own, as far as anybody asks.
      std::string first = text.substr(0, text.find(','));
      if (cases.take(name, text))
        return void(plait::parse(name, first, pin));
      if (plait::Status status = plait::parse(name, text, pin); !status.ok())
        throw CLI::ValidationError(status.message());
    };
    std::string option = "--" + std::string(field.name);
    CLI::Option *added = nullptr;
    // A flag can only turn something on: that is what its pin says.
    if constexpr (std::is_same_v<T, bool>)
      added = app.add_flag_callback(option, [&pin] { pin = true; }, help);
    else
      added = app.add_option_function<std::string>(option, set, help)
                  ->type_name(std::is_integral_v<T> ? "INT" : "TEXT");
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      added->transform(plait::tool::wholeAmount);
    // What follows from something else is told by the help.
    std::string text = plait::print(usual);
    if (!hasWords<T> && !std::is_same_v<T, bool> && !text.empty())
      added->default_str(text);
    if (field.isStrategy)
      added->group(strategyGroup);
  }

  static constexpr char strategyGroup[] =
      "How to spread it (what is given is pinned)";
};

} // namespace

/// Adds options of which the others have no meaning without the rank.
static void addAdapterOptions(CLI::App &app, plait::ModelEdits &edits) {
  CLI::Option *rank =
      app.add_option("--lora", edits.loraRank,
                     "train low-rank adapters of this rank, and nothing else");
  rank->check(CLI::Range(1, plait::ModelEdits::kMostLoraRank))
      ->type_name("RANK");
  app.add_option("--lora-alpha", edits.loraAlpha,
                 "what adapters make is multiplied by this over the rank")
      ->needs(rank)
      ->capture_default_str();
  app.add_option("--lora-targets", edits.loraTargets,
                 "layers with an adapter, as q_proj,v_proj; if not given, all\n"
                 "linear ones of blocks")
      ->delimiter(',')
      ->needs(rank)
      ->type_name("NAME,...");
}

/// What is trained, and how it is spread. These and those below are in the
/// order of the help: what most users need is first.
static void addModelOptions(CLI::App &app, Request &request,
                            plait::Cases &cases) {
  ModelOptions &options = request.model;
  CompileOptions &compile = request.compile;
  app.add_option(
      "model", options.model,
      "folder with config.json, that file, or a .mlir file: a model\n"
      "or what --compile-to or --dump-phases-to has written");
  app.add_option("-o,--output", request.output, "the plan file");
  // Values are taken whole, as those below.
  app.add_option("--ignore-field", options.ignoredFields)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME")
      ->description(
          "a field of config.json that plait does not know, and that\n"
          "changes no arithmetic; may repeat");
  app.add_option("--mesh", compile.mesh,
                 "ranks, e.g. pp=2,dp=2,cp=2,tp=2; if not given, one;\n"
                 "sites=2: two copies of all that, see --outer")
      ->group(FieldOption::strategyGroup);
  const plait::TrainingConfiguration defaults;
  plait::visitConfiguration(FieldOption{app, cases}, compile.pins,
                            plait::getExecutable(), defaults);
  for (const char *option : {"--global-batch", "--seq"}) {
    CLI::Option *sized = app.get_option(option);
    sized->description(sized->get_description() + "; needed with --cluster");
  }
  app.add_option(
         "--schedule-file", compile.scheduleFile,
         "in place of --schedule and --chunks: the order of a step, CSV\n"
         "as PyTorch and plait-plan schedule --csv write it")
      ->group(FieldOption::strategyGroup);
  app.add_flag_callback(
         "--no-plan", [&request] { request.plans = false; },
         "what is not given has its default, and is not planned")
      ->group(FieldOption::strategyGroup);
  // Several times, each a value of its own: values have commas.
  app.add_option("--shard")
      ->each([&options](const std::string &text) {
        options.shardings.push_back(text);
      })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT")
      ->description(
          "pin a sharding: PARAMETER=[{},{\"tp\"}], * matches; may repeat");
  app.add_option(
         "--expert-chunks", options.expertChunks,
         "chunks of tokens in which the experts of a layer are computed,\n"
         "in the backward pass once more: memory is that of one chunk")
      ->check(CLI::Range(1, int(plait::ModelOptions::kMostExpertChunks)))
      ->capture_default_str();
  // Words, so that the default has a name as well.
  app.add_option_function<std::string>(
         "--dropout",
         [&options](const std::string &text) {
           options.edits.dropout = text == "config";
         },
         "config: what the model says; or off")
      ->check(CLI::IsMember({"config", "off"}))
      ->default_str("config");
  app.add_flag(
      "--document-mask", options.edits.documentMask,
      "keep attention within documents; plait-run --document-end says\n"
      "where they end");
  app.add_flag(
      "--target-weights", options.edits.targetWeights,
      "each target counts by a number of the data, as 0 or 1 of a mask\n"
      "of the loss");
  addAdapterOptions(app, options.edits);
  auto addList = [&app](const char *name, std::vector<std::string> &list) {
    return app.add_option(name, list)
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  addList("--no-decay", options.edits.noDecay)
      ->type_name("PARAMETER")
      ->description("without weight decay, * matches; may repeat");
  addList("--freeze", options.edits.frozen)
      ->type_name("PARAMETER")
      ->description("not trained, * matches; may repeat");
  addList("--lr-factor", options.edits.rateFactors)
      ->type_name("PARAMETER=FACTOR")
      ->description("multiply its learning rate, * matches; may repeat");
  addList("--optimizer-of", options.edits.optimizers)
      ->type_name("PARAMETER=OPTIMIZER")
      ->description("updated by another one, * matches; may repeat");
  addList("--balance", options.edits.balance)
      ->type_name("KIND=NUMBER")
      ->description(
          "of experts: bias=RATE, sequence=FACTOR, z=FACTOR, or load,\n"
          "which only reports; may repeat");
}

/// Adds what runs the plan.
static void addTargetOptions(CLI::App &app, CompileOptions &options) {
  app.add_option("--backend", options.backend,
                 "what runs it: cpu or cuda; if not given, what --cluster has");
  app.add_option(
      "--target", options.target,
      "GPU architecture: sm_80, sm_90 or sm_100; if not given, that\n"
      "of --cluster, else any");
  app.add_option("--target-cpu", options.targetCPU,
                 "processor of the ranks, e.g. x86-64-v3; if not given, host");
}

/// How far to compile, and what is to be known of the result.
static void addPhaseOptions(CLI::App &app, Request &request) {
  CompileOptions &options = request.compile;
  app.add_option(
      "--compile-to", request.compileTo,
      "stop after a phase (import, shard, stage, differentiate,\n"
      "checkpoint, partition, schedule, lower, steps) and write its IR");
  app.add_option("--dump-phases-to", options.dumpPhasesTo,
                 "write the IR after every phase into a folder");
  // Proof and reference are there unless they are asked not to be.
  app.add_flag_callback(
      "--no-prove", [&options] { options.prove = false; },
      "do not prove that the plan computes what the model asks for");
  app.add_option("--claim", options.claim,
                 "prove IR of a later phase against the model, 0-import.mlir")
      ->excludes("--no-prove");
  app.add_flag("--verify-each-phase", options.verifyEachPhase,
               "prove it after each phase, to find the one that breaks it")
      ->excludes("--no-prove");
  app.add_flag_callback(
      "--no-reference", [&options] { options.reference = false; },
      "leave out what plait-run --check compares with");
}

static void addCompileOptions(CLI::App &app, Request &request,
                              plait::Cases &cases) {
  addModelOptions(app, request, cases);
  addTargetOptions(app, request.compile);
  addPhaseOptions(app, request);
}

/// A comma divides sizes of a cluster; a text with an equals sign is one mesh.
static void addFamilyOption(CLI::App &app, std::vector<std::string> &also) {
  // A mesh has commas of its own.
  app.add_option("--also")
      ->each([&also](const std::string &text) {
        std::stringstream parts(text);
        if (text.find('=') != text.npos)
          also.push_back(text);
        else
          for (std::string part; std::getline(parts, part, ',');)
            also.push_back(part);
      })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT")
      ->description("plans for what may be left: 7x8,6x8 of --cluster, or a "
                    "mesh; may repeat")
      ->group(FieldOption::strategyGroup);
}

/// What is told of whole trainings and of several clusters.
static void addProjectionOptions(CLI::App &app, plait::ReportOptions &options,
                                 plait::Cases &cases) {
  CLI::Validator price(
      [&options](std::string &text) {
        std::string number = text;
        std::string found = plait::tool::takeCurrency(number);
        // Nobody knows here what one is worth in another.
        if (!found.empty() && !options.currency.empty() &&
            found != options.currency)
          return "prices are in " + options.currency + " and in " + found +
                 ", expected one currency";
        if (!found.empty())
          options.currency = found;
        std::string problem = plait::tool::amount(number);
        text = problem.empty() ? number : text;
        return problem;
      },
      "");
  app.add_option("--compare", cases.clusters,
                 "clusters side by side: h100:8x8,a100-80g:8x8")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_option("--train-tokens", options.trainTokens,
                 "report time and cost of a whole training, e.g. 300B or 300e9")
      ->transform(plait::tool::amount);
  app.add_option("--price", options.prices,
                 "price of a device-hour; of several clusters one, or one each")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->transform(price);
  app.add_option("--within", options.days,
                 "days that the training may take: how few devices do")
      ->type_name("DAYS")
      ->transform(plait::tool::amount);
}

/// Not CLI's own excludes and needs, which the help would list.
static plait::Status checkProjectionOptions(const CLI::App &app,
                                            const plait::Cases &cases,
                                            const Request &request) {
  PLAIT_RETURN_IF_ERROR(cases.check(app));
  // An order that is given leaves the planner nothing to order.
  for (const char *planned : {"--cluster", "--compare"})
    if (app.count("--schedule-file") && app.count(planned))
      return plait::fail("--schedule-file excludes ", planned,
                         ": the planner orders a step by itself");
  // All options of the group, whatever they are called.
  for (const CLI::Option *option : app.get_options())
    if (!request.plans && option->get_group() == plait::planningGroup &&
        option->count())
      return plait::fail("--no-plan excludes ", option->get_name());
  // Each plan of a family is a file; shardings and schedules are made for one
  // mesh.
  for (const char *other : {"--compare", "--compile-to", "--predict",
                            "--schedule-file", "--claim", "--shard"})
    if (app.count("--also") && app.count(other))
      return plait::fail("--also excludes ", other);
  for (const char *compiled : {"--output", "--compile-to", "--dump-phases-to"})
    if (app.count("--predict") && app.count(compiled))
      return plait::fail("--predict excludes ", compiled,
                         ": it compiles nothing");
  const std::string &framework = request.planning.framework;
  PLAIT_RETURN_IF_ERROR(plait::planner::findFramework(framework).status());
  // --emit writes no plan.
  if (framework != "plait" && request.report.emit.empty())
    for (const char *compiled :
         {"--output", "--compile-to", "--dump-phases-to"})
      if (app.count(compiled))
        return plait::fail("--framework ", framework,
                           " is only predicted, so "
                           "it excludes ",
                           compiled);
  for (const char *whole : {"--price", "--within"})
    if (app.count(whole) && !app.count("--train-tokens"))
      return plait::fail(whole, " needs --train-tokens");
  if (app.count("--within") && !cases.any())
    return plait::Status::failure("--within needs --compare, or a list of "
                                  "--global-batch or --seq");
  return plait::Status::success();
}

static std::string listFrameworks() {
  std::vector<std::string> names;
  for (const plait::planner::Framework &framework :
       plait::planner::getFrameworks())
    names.push_back(framework.name);
  return plait::joinChoices(names);
}

/// Layout, time and cost follow from the size of a step: with a cluster no
/// answer is for the default of one short sequence. IR has the length of its
/// own.
static plait::Status checkStepOptions(const CLI::App &app,
                                      const Request &request) {
  const plait::ConfigurationPins &pins = request.compile.pins;
  bool hasSequence = pins.sequence || request.model.model.ends_with(".mlir");
  std::string missing;
  if (!pins.globalBatch)
    missing = "--global-batch, the sequences of a step";
  if (!hasSequence)
    missing += std::string(missing.empty() ? "" : ", and ") +
               "--seq, the tokens of a sequence";
  for (const char *planned : {"--cluster", "--compare"})
    if (app.count(planned) && !missing.empty())
      return plait::fail(planned, " needs ", missing,
                         ": layout, time and cost depend on the batch");
  return plait::Status::success();
}

/// `pinned` is the text of --pin. The group is the default of what is added
/// from here on.
static void addPlanningOptions(CLI::App &app, Request &request,
                               std::string &pinned) {
  plait::ReportOptions &options = request.report;
  app.option_defaults()->group(plait::planningGroup);
  app.add_option("--cluster", request.compile.cluster,
                 "h100:64x8, cpu:8, or a file; see docs/Hardware.md");
  plait::tool::addList(app, "--pin", pinned, "e.g. chunks=2,cp=2");
  app.add_option("--framework", request.planning.framework,
                 "whose habits to predict, for a search alone: " +
                     listFrameworks())
      ->capture_default_str();
  app.add_flag("--predict", options.predict,
               "print the choice and compile nothing, as without -o");
  app.add_option("--json", options.json,
                 "write the prediction as JSON; - is stdout");
  app.add_flag("--explain", options.explain, "print why, and what else");
  app.add_option("--why-not", options.whyNot, "compare with e.g. tp=4,pp=2");
  app.add_option("--report", options.report, "write an HTML page");
  app.add_option("--trace", options.trace, "write a Perfetto trace");
  app.add_option("--profile", options.profile,
                 "what plait-run has measured, to compare with");
}

/// Leaves standard output to what is written there: text goes elsewhere then.
/// IR goes to standard output where nothing else is said. Two outputs there are
/// an error; one moves everything for people to standard error.
/// No output may take the place of another file of the compilation.
static plait::Status divideOutputs(const Request &request, Terminal &terminal) {
  const plait::ReportOptions &report = request.report;
  const CompileOptions &compile = request.compile;
  bool printsIR = !request.compileTo.empty() && request.output.empty();
  plait::NamedPaths outputs = {
      {printsIR ? "--compile-to" : "--output", printsIR ? "-" : request.output},
      {"--json", report.json},
      {"--report", report.report},
      {"--trace", report.trace}};
  for (const auto &[option, path] : outputs)
    if (plait::isStandardOutput(path))
      terminal.moveTextToErrors();
  bool hasFile = request.model.config.empty();
  std::string model = plait::getConfigPath(request.model.model);
  return plait::checkOutputs(outputs,
                             {{"model", hasFile ? model : ""},
                              {"--claim", compile.claim},
                              {"--schedule-file", compile.scheduleFile},
                              {"--cluster", compile.cluster},
                              {"--profile", report.profile}});
}

/// Returns false after a message where the text is lost, on a full disk say.
static bool finishText(Terminal &terminal) {
  llvm::outs().flush();
  std::error_code error = llvm::outs().error();
  if (!error)
    return true;
  llvm::outs().clear_error(); // LLVM would end with a report of its own
  terminal.error(plait::tool::lostText + error.message());
  return false;
}

/// Checks what options say together, before the model is read.
static plait::Status checkOptions(const CLI::App &app, const Request &request,
                                  const plait::Cases &cases,
                                  Terminal &terminal) {
  PLAIT_RETURN_IF_ERROR(checkProjectionOptions(app, cases, request));
  PLAIT_RETURN_IF_ERROR(checkStepOptions(app, request));
  return divideOutputs(request, terminal);
}

/// Does what is asked for.
/// 1. The other plans of a family, then the first: all appear when the last one
///    is compiled, or none.
/// 2. A default strategy is told of at the end, where it is seen.
static bool serve(plait::Run &run, Request &request, const std::string &pinned,
                  const plait::Cases &cases,
                  const std::vector<std::string> &also, Terminal &terminal) {
  if (!run.import(request.model))
    return false;
  // 1. All plans or none.
  auto family = plait::Family::create(request, also);
  if (!terminal.report(family.status()))
    return false;
  // Members are chosen for as the first plan is, but compare nothing.
  auto chooseOne = [&](Request &one, std::optional<plait::Choice> &choice,
                       std::string &notFound) {
    return run.plan(one, pinned, {}, choice, notFound);
  };
  auto compileOne = [&](const Request &one,
                        const std::optional<plait::Choice> &choice) {
    return run.compile(one, choice);
  };
  std::optional<plait::Choice> choice;
  std::string notFound;
  if (!family->compile({chooseOne, compileOne}, terminal) ||
      !run.plan(request, pinned, cases, choice, notFound) ||
      !terminal.report(family->checkFirst(choice ? choice->getOptions().mesh
                                                 : request.compile.mesh)) ||
      (request.planning.compiles && !run.compile(request, choice)) ||
      !run.finish())
    return false;
  // 2. Last, so that it is seen.
  if (!notFound.empty())
    terminal.warn("this is the default strategy, since the planner has none "
                  "for this machine: " +
                  notFound);
  return true;
}

int main(int argc, char **argv) {
  Request request;
  std::string pinned;
  plait::Cases cases;
  std::vector<std::string> also;
  CLI::App app("Compiles a transformer into an executable training plan.",
               "plaitc");
  addCompileOptions(app, request, cases);
  addPlanningOptions(app, request, pinned);
  plait::OtherPrograms others;
  others.addOptions(app, request.report);
  addFamilyOption(app, also);
  addProjectionOptions(app, request.report, cases);
  plait::arrangeHelp(app);
  if (std::optional<int> code =
          plait::tool::parse(app, others.takeFlags(argc, argv), argv))
    return *code;
  request.report.asked = plait::describeInvocation(argc, argv);
  plait::removeTemporaryFilesOnSignals();
  Terminal terminal(app);
  plait::Run run(app, terminal);
  bool isDone = terminal.report(others.apply(app, pinned, request, terminal)) &&
                terminal.report(checkOptions(app, request, cases, terminal)) &&
                serve(run, request, pinned, cases, also, terminal);
  return isDone && finishText(terminal) ? 0 : 1;
}
