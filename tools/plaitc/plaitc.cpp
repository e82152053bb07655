//===- plaitc.cpp - The compiler driver ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options into CompileOptions and PlanningOptions, and what they say together.
// Options of a configuration are made from the list of its fields, so that a
// new field needs nothing here. All decisions are the driver's (lib/Driver) or
// the planner's; this file decides only which of them is asked: a compilation,
// a search before it, a search alone, a comparison of clusters, or a family of
// plans.
//
//===----------------------------------------------------------------------===//

#include "../CommandLine.h"
#include "Cases.h"
#include "Family.h"
#include "Help.h"
#include "plait/Driver/Planning.h"
#include "plait/Import/HuggingFace.h"
#include "plait/Plan/Files.h"
#include "plait/Plan/Signals.h"
#include "plait/Planner/Cluster.h"
#include "plait/Planner/Framework.h"

#include "llvm/Support/raw_ostream.h"

#include <sstream>
#include <unistd.h>

using plait::CompileOptions;
using plait::PlanningOptions;

/// Splits NAME=AXES. Of the first equals sign: names of parameters have none.
static void addSharding(CompileOptions &options, const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos)
    // CLI11 puts the option in front.
    throw CLI::ValidationError("\"" + text +
                               "\" is not NAME=AXES, such as "
                               "*.c_fc.weight=[{},{\"tp\"}]");
  options.shardings.push_back(
      {text.substr(0, equals), text.substr(equals + 1)});
}

//===----------------------------------------------------------------------===//
// The fields of a configuration
//===----------------------------------------------------------------------===//

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
    if constexpr (std::is_enum_v<T>)
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
    std::string help = field.help;
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
    // What follows from something else is told by the help.
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      added->transform(plait::tool::wholeAmount);
    std::string text = plait::print(usual);
    if (!std::is_enum_v<T> && !std::is_same_v<T, bool> && !text.empty())
      added->default_str(text);
    if (field.isStrategy)
      added->group(strategyGroup);
  }

  static constexpr char strategyGroup[] =
      "How to spread it (what is given is pinned)";
};

} // namespace

/// What is trained, and how it is spread. These and those below are in the
/// order of the help: what most users need is first.
static void addModelOptions(CLI::App &app, CompileOptions &options,
                            plait::Cases &cases) {
  app.add_option(
         "model", options.model,
         "folder with config.json, that file, or a .mlir file: a model\n"
         "or what --compile-to or --dump-phases-to has written")
      ->required();
  app.add_option("-o,--output", options.output, "the plan file");
  // Values are taken whole, as those below.
  app.add_option("--ignore-field", options.ignoredFields)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME")
      ->description(
          "a field of config.json that plait does not know, and that\n"
          "changes no arithmetic; may repeat");
  app.add_option("--mesh", options.mesh,
                 "ranks, e.g. pp=2,dp=2,cp=2,tp=2; if not given, one")
      ->group(FieldOption::strategyGroup);
  const plait::TrainingConfiguration defaults;
  plait::visitConfiguration(FieldOption{app, cases}, options.pins,
                            plait::getExecutable(), defaults);
  app.add_option(
         "--schedule-file", options.scheduleFile,
         "in place of --schedule and --chunks: the order of a step, CSV\n"
         "as PyTorch and plait-plan schedule --csv write it")
      ->group(FieldOption::strategyGroup);
  // Several times, each a value of its own: values have commas.
  app.add_option("--shard")
      ->each(
          [&options](const std::string &text) { addSharding(options, text); })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT")
      ->description(
          "pin a sharding: PARAMETER=[{},{\"tp\"}], * matches; may repeat");
  // Words, so that the default has a name as well.
  app.add_option_function<std::string>(
         "--dropout",
         [&options](const std::string &text) {
           options.dropout = text == "config";
         },
         "config: what the model says; or off")
      ->check(CLI::IsMember({"config", "off"}))
      ->default_str("config");
  app.add_flag(
      "--document-mask", options.documentMask,
      "keep attention within documents; plait-run --document-end says\n"
      "where they end");
  app.add_option("--no-decay", options.noDecay)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("PARAMETER")
      ->description("without weight decay, * matches; may repeat");
}

/// What runs the plan.
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
static void addPhaseOptions(CLI::App &app, CompileOptions &options) {
  app.add_option(
      "--compile-to", options.compileTo,
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

static void addCompileOptions(CLI::App &app, CompileOptions &options,
                              plait::Cases &cases) {
  addModelOptions(app, options, cases);
  addTargetOptions(app, options);
  addPhaseOptions(app, options);
}

/// Options of this group need a cluster; see plan().
static constexpr char planningGroup[] = "Let the planner decide the rest";

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
static void addProjectionOptions(CLI::App &app, PlanningOptions &options,
                                 plait::Cases &cases) {
  CLI::Validator price(
      [&options](std::string &text) {
        std::string number = text;
        if (std::string found = plait::tool::takeCurrency(number);
            !found.empty())
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
                                            const std::string &framework) {
  PLAIT_RETURN_IF_ERROR(cases.check(app));
  // An order that is given leaves the planner nothing to order.
  for (const char *planned : {"--cluster", "--compare"})
    if (app.count("--schedule-file") && app.count(planned))
      return plait::fail("--schedule-file excludes ", planned,
                         ": the planner orders a step by itself");
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
  PLAIT_RETURN_IF_ERROR(plait::planner::findFramework(framework).status());
  if (framework != "plait")
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
                                      const CompileOptions &options) {
  for (const char *planned : {"--cluster", "--compare"})
    for (auto [option, what] : {std::pair("--global-batch", "sequences of a "
                                                            "step"),
                                {"--seq", "tokens of a sequence"}})
      if (app.count(planned) && !app.count(option) &&
          !(options.model.ends_with(".mlir") &&
            option == std::string_view("--seq")))
        return plait::fail(planned, " needs ", option, ", the ", what,
                           ": layout, time and cost depend on it");
  return plait::Status::success();
}

/// `pinned` is the text of --pin. The group is the default of what is added
/// from here on.
static void addPlanningOptions(CLI::App &app, CompileOptions &compile,
                               PlanningOptions &options, std::string &pinned) {
  app.option_defaults()->group(planningGroup);
  app.add_option("--cluster", compile.cluster,
                 "h100:64x8, cpu:8, or a file; see docs/Hardware.md");
  plait::tool::addList(app, "--pin", pinned, "e.g. chunks=2,cp=2");
  app.add_option("--framework", options.framework,
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

/// What was given of the options that the planner could decide, and what
/// `further` pins.
/// 1. --mesh and --pin are texts of the same form, and are parsed as one.
/// 2. Fields that have options of their own are added; what is given twice is
///    an error, even where both agree.
static plait::Result<plait::planner::Pins>
getPins(const CompileOptions &options, const std::string &further) {
  // 1. One rank is a mesh whose axes are all pinned.
  std::string text = options.mesh == "1" ? "pp=1,dp=1,cp=1,tp=1" : options.mesh;
  text += (text.empty() || further.empty() ? "" : ",") + further;
  plait::planner::Pins pins;
  if (!text.empty()) {
    auto parsed = plait::planner::parsePins(text);
    if (!parsed.ok())
      return parsed.status();
    pins = std::move(*parsed);
  }
  // 2. Options with names of their own.
  plait::Status status = plait::Status::success();
  plait::visitStrategy(
      [&](const plait::Field &field, const auto &given, auto &pin) {
        if (given && pin && status.ok())
          status = plait::fail(field.name, " is given twice");
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
static bool isForThisMachine(const CompileOptions &options) {
  return options.cluster.empty() && options.target.empty() &&
         options.backend != "cuda" && options.scheduleFile.empty() &&
         !options.mesh.empty() && options.mesh != "1" &&
         plait::isPlannable(options);
}

/// Names as many ranks as the mesh has, on the hardware file of this machine.
static std::string getThisMachine(const CompileOptions &options) {
  return "host:" + std::to_string(plait::countRanks(options.mesh));
}

/// The first option by which a user who gives --mesh means the defaults for the
/// rest of the strategy; empty: none.
static std::string findDecided(const CompileOptions &options) {
  std::string first;
  plait::visitStrategy(
      [&](const plait::Field &field, const auto &pin) {
        if (pin && first.empty())
          first = std::string("--") + field.name;
      },
      options.pins);
  return first;
}

/// Has the planner decide the rest, for as many ranks of this machine, where
/// the mesh is all that is said of how to train a model and of what on. Without
/// an answer the defaults stay, and `notFound` tells why.
static bool planForThisMachine(CompileOptions &options,
                               PlanningOptions &planning,
                               std::string &notFound) {
  if (!isForThisMachine(options) || !findDecided(options).empty())
    return true;
  // What is wrong with a mesh is told by the compilation.
  auto pins = plait::planner::parsePins(options.mesh);
  if (!pins.ok())
    return true;
  CompileOptions chosen = options;
  chosen.cluster = getThisMachine(options);
  if (!plait::planner::parseCluster(chosen.cluster).ok())
    return true;
  planning.pins = *pins;
  planning.notFound = &notFound;
  if (!plait::choose(chosen, planning))
    return false;
  if (notFound.empty())
    options = chosen;
  return true;
}

/// Leaves standard output to what is written there: text goes elsewhere then.
/// IR goes to standard output where nothing else is said. Two outputs there are
/// an error; one moves everything for people to standard error.
/// No output may take the place of another file of the compilation.
static plait::Status divideOutputs(CompileOptions &options,
                                   PlanningOptions &planning) {
  bool printsIR = !options.compileTo.empty() && options.output.empty();
  plait::NamedPaths outputs = {
      {printsIR ? "--compile-to" : "--output", printsIR ? "-" : options.output},
      {"--json", planning.json},
      {"--report", planning.report},
      {"--trace", planning.trace}};
  for (const auto &[option, path] : outputs)
    if (plait::isStandardOutput(path))
      options.text = &llvm::errs();
  return plait::checkOutputs(outputs,
                             {{"model", plait::getConfigPath(options.model)},
                              {"--claim", options.claim},
                              {"--schedule-file", options.scheduleFile},
                              {"--cluster", options.cluster},
                              {"--profile", planning.profile}});
}

/// Returns false after a message; planning.compiles tells whether there is more
/// to do.
/// 1. Without a cluster: for this machine, if that can be. What asks for an
///    answer, or for no plan, asks about this machine then.
/// 2. What is pinned.
/// 3. Whether it compiles: not where there is no file for a plan. Then the
///    choice is the answer, and is printed unless something else was asked for.
static bool plan(const CLI::App &app, CompileOptions &options,
                 PlanningOptions &planning, const std::string &pinned,
                 const plait::Cases &cases, std::string &notFound) {
  bool writes = !options.output.empty() || !options.compileTo.empty() ||
                !options.dumpPhasesTo.empty();
  // 1. No cluster.
  if (options.cluster.empty() && !cases.any()) {
    // All options of the group, whatever they are called.
    auto given = app.get_options([](const CLI::Option *option) {
      return option->get_group() == planningGroup && option->count();
    });
    bool asks = !given.empty() || !writes;
    if (!asks || (given.empty() && !isForThisMachine(options)))
      return planForThisMachine(options, planning, notFound);
    if (!isForThisMachine(options)) {
      plait::tool::printError(app,
                              given.front()->get_name() + " needs --cluster");
      return false;
    }
    options.cluster = getThisMachine(options);
  }
  // 2. Pins.
  plait::Result<plait::planner::Pins> pins = getPins(options, pinned);
  if (!pins.ok()) {
    plait::tool::printError(app, pins.status().message());
    return false;
  }
  planning.pins = std::move(*pins);
  // 3. What is asked for.
  bool tells = planning.explain || !planning.json.empty() ||
               !planning.whyNot.empty() || !planning.report.empty() ||
               !planning.trace.empty() || planning.trainTokens > 0 ||
               cases.any();
  planning.compiles = writes && !planning.predict;
  planning.predict |= !writes && !tells;
  if (cases.any())
    return plait::compare(options, planning, cases.combine(options.cluster));
  return plait::choose(options, planning);
}

/// Returns false after a message where the text is lost, on a full disk say.
static bool finishText(const CLI::App &app) {
  llvm::outs().flush();
  std::error_code error = llvm::outs().error();
  if (!error)
    return true;
  llvm::outs().clear_error(); // LLVM would end with a report of its own
  plait::tool::printError(app, plait::tool::lostText + error.message());
  return false;
}

/// 1. Parse, and check what options say together.
/// 2. The other plans of a family, then the first: all appear when the last one
///    is compiled, or none.
/// 3. A default strategy is told of at the end, where it is seen.
int main(int argc, char **argv) {
  // 1. Parse and check.
  CompileOptions options;
  PlanningOptions planning;
  std::string pinned, notFound;
  std::vector<std::string> also;
  plait::Cases cases;
  std::vector<plait::PendingPlan> pending;
  options.progress = isatty(STDERR_FILENO);
  options.pending = &pending;
  CLI::App app("Compiles a transformer into an executable training plan.",
               "plaitc");
  addCompileOptions(app, options, cases);
  addPlanningOptions(app, options, planning, pinned);
  addFamilyOption(app, also);
  addProjectionOptions(app, planning, cases);
  plait::arrangeHelp(app);
  if (std::optional<int> code = plait::tool::parse(app, argc, argv))
    return *code;
  planning.asked = plait::describeInvocation(argc, argv);
  plait::removeTemporaryFilesOnSignals();
  for (const plait::Status &status :
       {checkProjectionOptions(app, cases, planning.framework),
        checkStepOptions(app, options), divideOutputs(options, planning)})
    if (!status.ok()) {
      plait::tool::printError(app, status.message());
      return 1;
    }
  // Told at the end; choosing changes what it is about.
  std::string decided = isForThisMachine(options) ? findDecided(options) : "";
  // 2. All plans or none.
  auto family = plait::Family::create(options, planning, also);
  if (!family.ok()) {
    plait::tool::printError(app, family.status().message());
    return 1;
  }
  // Members are chosen for as the first plan is, but compare nothing.
  auto chooseOne = [&](CompileOptions &one, PlanningOptions &how) {
    return plan(app, one, how, pinned, {}, *how.notFound);
  };
  if (!family->compile(chooseOne) ||
      !plan(app, options, planning, pinned, cases, notFound))
    return 1;
  if (plait::Status status = family->checkFirst(options.mesh); !status.ok()) {
    plait::tool::printError(app, status.message());
    return 1;
  }
  if (planning.compiles && !plait::compile(options))
    return 1;
  for (plait::PendingPlan &one : pending)
    if (!one.appear())
      return 1;
  // 3. Last, so that it is seen.
  if (!notFound.empty())
    llvm::errs() << "plaitc: warning: this is the default strategy, since the "
                    "planner has none for this machine: "
                 << notFound << "\n";
  if (!decided.empty() && planning.compiles)
    plait::tool::printNote(app, decided +
                                    " is given, so that the rest has its "
                                    "defaults; with --cluster " +
                                    getThisMachine(options) +
                                    " the planner chooses it");
  return finishText(app) ? 0 : 1;
}
