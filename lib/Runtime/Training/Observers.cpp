//===- Observers.cpp - Those who watch a run ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Observers.h"

#include "Dashboard.h"
#include "MetricsServer.h"
#include "StepLog.h"
#include "TensorBoard.h"

using namespace plait;
using namespace plait::runtime;

/// All outputs are opened before the first step, so that a path that cannot be
/// written does not cost a run. The caller's come last: what a console prints
/// stands below what others say.
Result<Observers> runtime::makeObservers(const TrainOptions &options) {
  Observers observers;
  if (!options.log.empty()) {
    auto log = StepLog::open(options.log, !options.resume.empty(),
                             options.executor.reporter);
    if (!log.ok())
      return log.status();
    observers.add(std::move(*log));
  }
  if (!options.tensorboard.empty()) {
    auto events = TensorBoard::open(options.tensorboard);
    if (!events.ok())
      return events.status();
    observers.add(std::move(*events));
  }
  if (!options.metricsPort.empty()) {
    auto server =
        MetricsServer::open(options.metricsPort, options.executor.reporter);
    if (!server.ok())
      return server.status();
    observers.add(std::move(*server));
  }
  if (!options.dashboard.empty())
    observers.add(std::make_unique<Dashboard>(options.dashboard));
  observers.all.insert(observers.all.end(), options.observers.begin(),
                       options.observers.end());
  return observers;
}
