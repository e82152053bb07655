//===- CalibrateCommand.cpp - plait-plan calibrate ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fits the figures of a hardware file to profiles of this machine. Profiles
// name their plans by hash, so that plans and profiles may be given in any
// order; the fit is lib/Planner's.
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "TextOutput.h"
#include "plait/Plan/Container.h"
#include "plait/Planner/Calibrate.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <memory>

using namespace plait;

namespace {

struct Options {
  std::vector<std::string> profiles, plans;
  std::vector<uint32_t> nodes = {1}; // by profile, or one for all
  std::string hardware = "cpu", output;
};

/// A profile, the file that has it, and on how many nodes it was taken.
struct Measured {
  std::string path;
  uint32_t nodes;
  plan::Profile profile;
};

/// The plan that a profile was taken of. Fails also where the profile does not
/// fit the plan that it names.
Result<const plan::PlanFile *>
findPlan(const plan::Profile &profile, const std::string &path,
         const std::vector<plan::PlanFile> &plans) {
  // The hash is that of the plan's payload, which the profile names.
  for (const plan::PlanFile &file : plans)
    if (profile.plan == plan::identify(file.hash())) {
      PLAIT_RETURN_IF_ERROR(
          planner::checkProfile(profile, path, file.plan(), file.hash()));
      return &file;
    }
  return fail("profile '", path, "' is of ", profile.plan,
              ", which is none of the plans given with --plans");
}

/// Figures before and after, then what is left of the errors, by kind of step.
void print(const planner::Calibration &calibration) {
  std::cout << tool::format("%-28s%14s%14s\n", "figure", "before", "fitted");
  for (const planner::FittedValue &value : calibration.values)
    std::cout << tool::format("%-28s%14.4g%14.4g\n", value.path.c_str(),
                              value.before, value.after);
  std::cout << tool::format("\n%-16s%8s%12s%12s%14s%14s\n", "kind", "samples",
                            "measured", "predicted", "error before",
                            "error after");
  for (const planner::Residual &residual : calibration.residuals)
    std::cout << tool::format(
        "%-16s%8zu%12s%12s%12.1f %%%12.1f %%\n",
        tool::toWord(residual.kind).c_str(), residual.samples,
        tool::formatSeconds(residual.measured).c_str(),
        tool::formatSeconds(residual.predicted).c_str(),
        100 * residual.errorBefore, 100 * residual.errorAfter);
}

/// 1. Plans and profiles.
/// 2. The plan of each profile.
/// 3. The fit, named after the file that is written.
Status run(const Options &options) {
  NamedPaths inputs;
  for (const std::string &path : options.profiles)
    inputs.emplace_back("profiles", path);
  for (const std::string &path : options.plans)
    inputs.emplace_back("--plans", path);
  PLAIT_RETURN_IF_ERROR(checkOutputs({{"--output", options.output}}, inputs));
  if (size_t count = options.nodes.size();
      count != 1 && count != options.profiles.size())
    return fail("--nodes has ", count, " numbers for ", options.profiles.size(),
                " profiles: give one number, or one for each");
  // 1. Files.
  std::vector<plan::PlanFile> plans;
  for (const std::string &path : options.plans) {
    Result<plan::PlanFile> file = plan::PlanFile::open(path);
    if (!file.ok())
      return file.status();
    plans.push_back(std::move(*file));
  }
  std::vector<Measured> profiles;
  for (size_t i = 0; i < options.profiles.size(); ++i) {
    const std::string &path = options.profiles[i];
    uint32_t nodes = options.nodes[options.nodes.size() == 1 ? 0 : i];
    auto read = planner::readProfiles(path);
    if (!read.ok())
      return read.status();
    for (plan::Profile &profile : *read)
      profiles.push_back({path, nodes, std::move(profile)});
  }
  // 2. References: both lists are complete.
  std::vector<planner::MeasuredRun> runs;
  // A plan may have several profiles, one of each run.
  for (const auto &[path, nodes, profile] : profiles) {
    auto file = findPlan(profile, path, plans);
    if (!file.ok())
      return file.status();
    runs.push_back({(*file)->plan(), profile, nodes});
  }
  // 3. The fit.
  Result<planner::Calibration> calibration =
      planner::calibrate(runs, options.hardware,
                         std::filesystem::path(options.output).stem().string());
  if (!calibration.ok())
    return calibration.status();
  // The hardware file goes there then.
  if (!isStandardOutput(options.output))
    print(*calibration);
  return writeTextFile(options.output, calibration->json);
}

} // namespace

/// All profiles are of one machine; --plans may have more than they need.
tool::Command tool::addCalibrateCommand(CLI::App &app) {
  CLI::App *command = app.add_subcommand(
      "calibrate", "Fit a hardware file of this machine to profiles");
  auto options = std::make_shared<Options>();
  command
      ->add_option("profiles", options->profiles,
                   "What plait-run --profile or gpu-check.sh has written")
      ->required();
  command->add_option("--plans", options->plans, "The plans of the profiles")
      ->required();
  command
      ->add_option(
          "--nodes", options->nodes,
          "Nodes that the runs had, one number or one for each profile "
          "(default: 1)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--hardware", options->hardware,
                      "What to begin with: h100, or a file (default: cpu)");
  command
      ->add_option("-o,--output", options->output, "The hardware file to write")
      ->required();
  return {command, [options] { return run(*options); }};
}
