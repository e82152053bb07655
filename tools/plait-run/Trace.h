//===- Trace.h - What happened in a step ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITRUN_TRACE_H
#define PLAIT_TOOLS_PLAITRUN_TRACE_H

#include "Options.h"
#include "plait/Runtime/Profiler.h"

namespace plait {

/// Writes what `profiler` has noted of the last step as a trace for Perfetto: a
/// process for each rank, a thread for each of its streams, and in it actions
/// and their operations.
Status writeTrace(const plan::fb::Plan &plan, runtime::Profiler &profiler,
                  const Options &options);

} // namespace plait

#endif // PLAIT_TOOLS_PLAITRUN_TRACE_H
