//===- Cases.h - Several questions at once ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_CASES_H
#define PLAIT_TOOLS_PLAITC_CASES_H

#include "plait/Support/Status.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plait {

/// One of several questions: the part that is its own.
struct Case {
  size_t index; // of the cluster, among those that have prices
  std::string cluster;
  // Nothing: those of the options.
  std::optional<int64_t> globalBatch, sequence;
  std::string label; // "batch 64"; empty: the cluster
};

/// The values of a question where there are several: --compare, and
/// --global-batch and --seq where these are lists, as in 64,128.
struct Cases {
  std::vector<std::string> clusters;
  std::vector<int64_t> globalBatch, sequence;

  /// Takes `text`, a list with commas, for the option of `field`. False where
  /// it is none: one value, or another field's.
  bool take(const std::string &field, const std::string &text);

  bool any() const {
    return !clusters.empty() || !globalBatch.empty() || !sequence.empty();
  }

  /// Fails where `app` was given what is for one answer only.
  Status check(const CLI::App &app) const;

  /// Every combination, by cluster, then by batch, then by sequence. `cluster`
  /// is that of --cluster.
  std::vector<Case> combine(const std::string &cluster) const;
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_CASES_H
