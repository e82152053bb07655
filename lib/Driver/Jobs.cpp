//===- Jobs.cpp - Layouts for and of other programs -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A job that is read becomes pins, which what is asked for beside it outweighs.
//
//===----------------------------------------------------------------------===//

#include "plait/Driver/Jobs.h"

#include "ModelState.h"

#include <algorithm>

using namespace plait;

Result<planner::Emitted> plait::emitChoice(const std::string &name,
                                           const Choice &choice) {
  planner::ReportInput input = choice.describe();
  Model model = choice.getModel();
  return planner::emitJob(
      name, {choice.getResult().configuration, input.cluster, input.training,
             choice.getOptions().pins.optimizer.value_or(
                 TrainingConfiguration().optimizer),
             model.getConfig(), model.get().options.edits.dropout});
}

Result<planner::GivenJob> plait::readJob(const planner::Program &program,
                                         const planner::ShellWords &job,
                                         const planner::Cluster &cluster,
                                         ModelOptions &model) {
  std::vector<std::string> &ignored = model.ignoredFields;
  planner::Given given{job.words, job.processes, cluster, ignored,
                       !model.model.empty()};
  std::erase_if(ignored, [&](const std::string &field) {
    return std::ranges::any_of(given.words, [&](const std::string &word) {
      return word.substr(0, word.find('=')) == "--" + field;
    });
  });
  return program.read(given);
}

/// Takes out of the job's pins what options decide: `mesh` as a whole, and what
/// is in `pinned`, the text of --pin. With other axes the job's dp is another,
/// and with other stages so are their layers.
static Status leaveToOptions(const std::string &mesh, const std::string &pinned,
                             planner::Pins &pins) {
  planner::Pins given;
  if (!pinned.empty()) {
    Result<planner::Pins> parsed = planner::parsePins(pinned);
    if (!parsed.ok())
      return parsed.status();
    given = std::move(*parsed);
  }
  visitStrategy(
      [](const Field &, const auto &option, auto &flag) {
        if (option)
          flag.reset();
      },
      given, pins);
  for (const AxisFacts &facts : kAxes)
    if (given.mesh[facts.axis])
      pins.mesh[facts.axis] = pins.mesh[Axis::DP] = std::nullopt;
  if (!mesh.empty())
    pins.mesh = {};
  if (!mesh.empty() || given.mesh[Axis::PP] || given.chunks)
    pins.layers.reset();
  return Status::success();
}

Status plait::applyJob(const planner::GivenJob &job, const std::string &pinned,
                       ModelOptions &model, CompileOptions &compile) {
  planner::Pins left = job.pins;
  PLAIT_RETURN_IF_ERROR(leaveToOptions(compile.mesh, pinned, left));
  ConfigurationPins pins = job.training;
  static_cast<StrategyPins &>(pins) = left;
  visitConfiguration(
      [](const Field &, auto &pin, const auto &value) {
        if (!pin)
          pin = value;
      },
      compile.pins, pins);
  planner::Pins axes;
  axes.mesh = left.mesh;
  if (compile.mesh.empty())
    compile.mesh = planner::print(axes);
  if (!job.model.empty()) {
    model.model = "job"; // what it is called
    model.config = job.model;
  }
  return Status::success();
}
