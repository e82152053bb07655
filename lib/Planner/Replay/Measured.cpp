//===- Measured.cpp - A profile beside a prediction -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a report says was measured: a profile, reduced to the parts that an
// estimate has. The step is measured as a whole, gradients and the optimizer as
// the functions that do them, and the pipeline is what is left.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/PlanCost.h"
#include "plait/Planner/Report.h"
#include "plait/Support/ActionKinds.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;
namespace fb = plait::plan::fb;

/// Seconds that a rank spends in the functions that `action` calls, of the
/// program where that takes longest.
/// Waiting counts: a report compares what a step spends there, not how fast it
/// is.
static double getSeconds(const plan::Profile &profile, fb::ActionKind action) {
  double most = 0;
  for (const plan::ProgramProfile &program : profile.programs) {
    double seconds = 0;
    for (const plan::FunctionProfile &function : program.functions)
      for (const plan::StepProfile &step : function.steps)
        if (function.action == action)
          seconds += double(function.calls) * (step.seconds + step.waiting);
    most = std::max(most, seconds);
  }
  return most;
}

/// In the pick's order; an axis that the profile does not have counts 1.
static Status checkMesh(const plan::Profile &profile, const std::string &path,
                        const Configuration &pick) {
  std::vector<std::pair<std::string_view, int64_t>> sizes(profile.mesh.begin(),
                                                          profile.mesh.end());
  Result<Mesh> measured = Mesh::get(sizes);
  if (!measured.ok())
    return fail("profile '", path, "': ", measured.status().message());
  if (*measured == pick.mesh)
    return Status::success();
  return fail("profile '", path, "' was taken on ", measured->print(),
              ", the prediction is for ", pick.mesh.print(),
              "; pin it with `mesh`");
}

/// Fails on a profile of another mesh: the parts would be compared with those
/// of another step. Other choices, the schedule say, a profile does not record.
Result<Measured> planner::readMeasured(const std::string &path,
                                       const Configuration &pick) {
  Result<plan::Profile> profile = readProfile(path);
  if (!profile.ok())
    return profile.status();
  PLAIT_RETURN_IF_ERROR(checkMesh(*profile, path, pick));
  Measured measured;
  measured.source = "profile " + path;
  measured.iterationSeconds = profile->stepSeconds;
  for (size_t kind = 0; kind < std::size(actionKinds); ++kind)
    if (actionKinds[kind].isOfReplicas())
      measured.dataSeconds += getSeconds(*profile, fb::ActionKind(kind));
  measured.optimizerSeconds = getSeconds(*profile, fb::ActionKind::Optimizer);
  // Each of the other parts is that of the program where it takes longest: what
  // is left may be rounded below 0.
  measured.pipelineSeconds =
      std::max(0.0, profile->stepSeconds - profile->overheadSeconds -
                        measured.dataSeconds - measured.optimizerSeconds);
  // The arena is all that a rank allocates for the plan: its peak by
  // construction.
  for (const plan::ProgramProfile &program : profile->programs)
    measured.peakBytes.push_back(double(program.arenaBytes));
  return measured;
}
