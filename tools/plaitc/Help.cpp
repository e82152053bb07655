//===- Help.cpp - Help of plaitc ------------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What --help shows, which has to fit a screen, and where. Options are made
// elsewhere; one that is listed nowhere here is in --help-all.
//
//===----------------------------------------------------------------------===//

#include "Help.h"

#include "plait/Support/Help.h"

#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>

/// Options that most people need to get an answer, or a plan.
static const std::set<std::string> usual = {
    "model", "help", "help-all", "output", "version",
    // What is trained.
    "global-batch", "seq", "precision",
    // On what, and how.
    "cluster", "mesh", "micro-batch", "schedule", "recompute", "zero",
    "offload", "pin",
    // What is told.
    "explain", "why-not", "report", "json", "compare", "train-tokens", "price"};

/// Groups of options that have none of their own. What is not here stays where
/// it is, with the plan's file.
static const std::map<std::string, std::set<std::string>> groups = {
    {"What is trained",
     {"global-batch", "seq", "optimizer", "optimizer-of", "no-decay", "freeze",
      "lr-factor", "balance", "dropout", "document-mask", "target-weights",
      "lora", "lora-alpha", "lora-targets", "ignore-field"}},
    {"What runs it",
     {"precision", "reduce-precision", "compress", "outer", "attention",
      "epilogues", "tp-comm-overlap", "loss-chunks", "deterministic", "backend",
      "target", "target-cpu", "shard", "expert-chunks"}},
    {"Phases and proof",
     {"compile-to", "dump-phases-to", "no-prove", "claim", "verify-each-phase",
      "no-reference"}}};

void plait::arrangeHelp(CLI::App &app) {
  app.formatter(std::make_shared<tool::HelpFormatter>(usual));
  app.set_help_all_flag("--help-all", "Print this and the other options");
  for (CLI::Option *option :
       app.get_options([](CLI::Option *) { return true; })) {
    std::string name = option->get_single_name();
    // Those of CLI11 have the default group of the options that came last.
    if (name == "help-all" || name == "version")
      option->group("Options");
    if (option->get_group() != "Options")
      continue;
    for (const auto &[group, names] : groups)
      if (names.count(name))
        option->group(group);
  }
  app.footer("Examples:\n"
             "  plaitc llama-3-8b --cluster h100:8 --global-batch 128 --seq "
             "8192\n"
             "  plaitc llama-3-8b --cluster h100:8 --global-batch 128 --seq "
             "8192 -o 8b.plan\n"
             "  plaitc gpt2-nano --mesh pp=2,dp=2,tp=2 --global-batch 16 -o "
             "nano.plan\n");
}

/// Puts what a shell would take apart in quotes.
static std::string quote(const std::string &word) {
  constexpr const char *plain = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=,.:/@%~";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos)
    return word;
  std::string quoted = "'";
  for (char letter : word)
    quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

std::string plait::describeInvocation(int argc, char **argv) {
  std::time_t now = std::time(nullptr);
  if (const char *given = std::getenv("SOURCE_DATE_EPOCH"))
    now = std::time_t(std::strtoll(given, nullptr, 10));
  char date[64] = "";
  std::tm parts = {};
  if (gmtime_r(&now, &parts))
    std::strftime(date, sizeof(date), "%-d %B %Y", &parts);
  std::string text =
      "plaitc " PLAIT_VERSION ", " + std::string(date) + ": plaitc";
  for (int i = 1; i < argc; ++i)
    text += " " + quote(argv[i]);
  return text;
}
