//===- plaitc.cpp - The compiler driver ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Driver.h"

#include <CLI/CLI.hpp>
#include <unistd.h>

using plait::CompileOptions;

/// Splits NAME=AXES.
static void addSharding(CompileOptions &options, const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw CLI::ValidationError("--shard", "\"" + text +
                                              "\" is not NAME=AXES, such as "
                                              "*.c_fc.weight=[{},{\"tp\"}]");
  options.shardings.push_back(
      {text.substr(0, equals), text.substr(equals + 1)});
}

int main(int argc, char **argv) {
  CompileOptions options;
  options.progress = isatty(STDERR_FILENO);
  std::vector<std::string> shardings;
  bool noReference = false;
  CLI::App app("Compiles a transformer into an executable training plan.",
               "plaitc");
  app.add_option("model", options.model,
                 "folder with config.json, that file, or a .mlir file")
      ->required();
  app.add_option("-o,--output", options.output, "the plan file");
  app.add_option("--mesh", options.mesh, "ranks, e.g. pp=2,dp=2,tp=2")
      ->capture_default_str();
  app.add_option("--schedule", options.schedule, "gpipe or 1f1b")
      ->capture_default_str();
  app.add_option("--recompute", options.recompute, "none, or full: by layer")
      ->capture_default_str();
  app.add_flag("--sequence-parallel", options.sequenceParallel,
               "let tp split the sequence where that is cheaper");
  app.add_option("--global-batch", options.globalBatch, "sequences of a step")
      ->capture_default_str();
  app.add_option("--micro-batch", options.microBatch,
                 "sequences of a microbatch on one data-parallel rank")
      ->capture_default_str();
  app.add_option("--seq", options.sequence, "tokens of a sequence")
      ->capture_default_str();
  app.add_option("--shard", shardings,
                 "pin a parameter's sharding: NAME=[{},{\"tp\"}], * matches");
  app.add_option("--target-cpu", options.targetCPU,
                 "processor of the ranks, e.g. x86-64-v3")
      ->capture_default_str();
  app.add_option("--compile-to", options.compileTo,
                 "stop after a phase (import, shard, stage, differentiate,\n"
                 "checkpoint, partition, schedule, lower) and write its IR");
  app.add_option("--dump-phases-to", options.dumpPhasesTo,
                 "write the IR after every phase into a folder");
  app.add_flag("--no-reference", noReference,
               "leave out what plait-run --check compares with");
  try {
    app.parse(argc, argv);
    for (const std::string &sharding : shardings)
      addSharding(options, sharding);
  } catch (const CLI::Success &request) {
    return app.exit(request);
  } catch (const CLI::ParseError &error) {
    std::cerr << "plaitc: error: " << error.what() << "\n";
    return 1;
  }
  options.reference = !noReference;
  return plait::compile(options) ? 0 : 1;
}
