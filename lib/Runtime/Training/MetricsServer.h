//===- MetricsServer.h - A run as Prometheus reads it -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GET /metrics answers with the text format 0.0.4 of Prometheus
// (prometheus.io/docs/instrumenting/exposition_formats).
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_METRICSSERVER_H
#define PLAIT_LIB_RUNTIME_TRAINING_METRICSSERVER_H

#include "Core/Sockets.h"
#include "plait/Runtime/Observer.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace plait::runtime {

/// Tells whoever asks what the last step has measured. One thread answers one
/// question after the other; a run never waits for it.
class MetricsServer : public Observer {
public:
  /// Listens at "PORT" of this host alone, or "HOST:PORT", HOST an address of
  /// it, such as 0.0.0.0 for all. Port 0 is a free one; which one it is is told
  /// to `reporter`, if there is one.
  static Result<std::unique_ptr<Observer>> open(const std::string &place,
                                                Reporter *reporter);
  ~MetricsServer() override;

  Status beginRun(const RunInfo &run) override;
  Status endStep(const StepReport &step) override;

private:
  explicit MetricsServer(Socket listener)
      : listener(std::move(listener)), thread([this] { serve(); }) {}

  void serve();
  void answer(int connection);

  Socket listener;
  const RunInfo *run = nullptr;
  std::string labels; // of plait_run_info
  double tokens = 0, skipped = 0, evalLoss = 0;
  bool hasEvaluated = false;
  std::string ranks; // their metrics, as of the last watched step

  std::mutex mutex; // of the text
  std::string text;
  std::atomic<bool> stopping = false;
  std::thread thread; // last: ends before what it uses
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_METRICSSERVER_H
