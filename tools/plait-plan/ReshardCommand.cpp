//===- ReshardCommand.cpp - plait-plan reshard ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rewrites a checkpoint for another plan without running either; the work is
// lib/Runtime/Checkpoint's. The report counts what was copied and says that
// each element has arrived once with its bits, which the rewriting has
// verified.
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "plait/Plan/Container.h"
#include "plait/Runtime/Checkpoint.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

using namespace plait;

namespace {

/// Paths, as given.
struct Options {
  std::string checkpoint;
  std::string plan;
  std::string output;
};

/// Returns what %llu takes, on every platform.
unsigned long long wide(uint64_t number) { return number; }

/// A row for each new rank: how much it has, in how many boxes, from how many
/// files, and how much of it the same rank had before.
void print(const runtime::ReshardReport &report) {
  std::printf("'%s', step %llu, of plan %s (%s, %s)\n", report.source.c_str(),
              wide(report.run.step), report.from.hash.c_str(),
              report.from.mesh.c_str(), report.from.optimizer.c_str());
  std::printf("to '%s', of plan %s (%s, %s)\n", report.target.c_str(),
              report.to.hash.c_str(), report.to.mesh.c_str(),
              report.to.optimizer.c_str());
  std::printf("%6s %16s %8s %12s %16s\n", "rank", "bytes", "slices",
              "from files", "of the same rank");
  // Rank by rank, since one that has to read everything is what makes a restart
  // slow.
  for (size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const runtime::ReshardReport::Rank &counts = report.ranks[rank];
    std::printf("%6zu %16llu %8llu %12u %15.1f%%\n", rank, wide(counts.bytes),
                wide(counts.boxes), counts.sources,
                counts.bytes ? 100.0 * counts.kept / counts.bytes : 100.0);
  }
  // Optimizer state moves like weights, slot by slot.
  std::string slots;
  for (const std::string &slot : report.slots)
    slots += (slots.empty() ? "" : ", ") + slot;
  std::printf("%llu tensors, %s: each of %llu elements is in one place and has "
              "its bits\n",
              wide(report.tensors), slots.c_str(), wide(report.elements));
}

/// The plan is checked when it is opened; the checkpoint when it is read.
Status run(const Options &options) {
  Result<plan::PlanFile> file = plan::PlanFile::open(options.plan);
  if (!file.ok())
    return file.status();
  // The checkpoint says which plan it is from.
  auto report = runtime::reshard(
      options.checkpoint, file->plan(),
      runtime::PlanIdentity::of(file->plan(), file->hash()), options.output);
  if (!report.ok())
    return report.status();
  print(*report);
  return Status::success();
}

} // namespace

/// The output is another directory: the checkpoint itself is not touched.
tool::Command tool::addReshardCommand(CLI::App &app) {
  CLI::App *command =
      app.add_subcommand("reshard", "Rewrite a checkpoint for another plan");
  auto options = std::make_shared<Options>();
  command
      ->add_option("checkpoint", options->checkpoint,
                   "Directory of checkpoints (the newest), or one of them")
      ->required();
  command->add_option("--to", options->plan, "The plan that resumes from it")
      ->required();
  command->add_option("-o", options->output, "New directory of checkpoints")
      ->required();
  return {command, [options] { return run(*options); }};
}
