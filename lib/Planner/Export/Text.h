//===- Text.h - What the texts for several programs share -----*- C++ -*---===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_EXPORT_TEXT_H
#define PLAIT_LIB_PLANNER_EXPORT_TEXT_H

#include "plait/Planner/Export.h"

namespace plait::planner {

/// Nodes and processes of a launch.
struct Launch {
  int64_t nodes = 1, processes = 1;
};

/// Those of whole nodes, or of a part of one. Fails on other numbers of ranks.
Result<Launch> getLaunch(const Job &job);

/// "# …" lines for a shell: by what and for which version it was written, what
/// it is predicted to take, and `notes`.
std::string printHead(const Job &job, const std::vector<std::string> &notes);

/// The command that starts the processes, to which the user may add.
std::string printTorchrun(const Launch &launch);

/// Whether all virtual stages have the same number of layers.
bool isEven(const std::vector<int> &layers);

/// A number as shells and Python read it back: the shortest that is equal.
std::string printExact(double value);

/// Writes and reads, as Program has it.
Result<Emitted> emitMegatron(const Job &job);
Result<GivenJob> readMegatron(const Given &given);
Result<Emitted> emitTorchtitan(const Job &job);
Result<Emitted> emitDeepSpeed(const Job &job);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_EXPORT_TEXT_H
