//===- Jobs.h - Layouts for and of other programs ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What plait/Planner/Export.h writes and reads, in terms of a session: a choice
// in the words of another program, and a job of one as what a session is asked.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DRIVER_JOBS_H
#define PLAIT_DRIVER_JOBS_H

#include "plait/Driver/Session.h"
#include "plait/Planner/Export.h"

namespace plait {

/// Writes a choice, which was searched with the habits of the program called
/// `name`, in the words of that program.
Result<planner::Emitted> emitChoice(const std::string &name,
                                    const Choice &choice);

/// Reads a job, which runs on `cluster`. Flags that `model` names as ignored
/// are ignored, and are no longer among the fields of a config.json that are.
Result<planner::GivenJob> readJob(const planner::Program &program,
                                  const planner::ShellWords &job,
                                  const planner::Cluster &cluster,
                                  ModelOptions &model);

/// Lets `model` and `compile` be what a job says, where they do not say it
/// themselves, nor `pinned`, a text for planner::parsePins.
Status applyJob(const planner::GivenJob &job, const std::string &pinned,
                ModelOptions &model, CompileOptions &compile);

} // namespace plait

#endif // PLAIT_DRIVER_JOBS_H
