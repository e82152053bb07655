//===- Configuration.h - A way to spread a training over ranks --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_CONFIGURATION_H
#define PLAIT_PLANNER_CONFIGURATION_H

#include "plait/Configuration/Configuration.h"
#include "plait/Configuration/Mesh.h"
#include "plait/Planner/Framework.h"

#include <cstdint>
#include <string>
#include <vector>

namespace plait::planner {

using plait::print;

/// A training as it is given: it says what is trained, not how.
struct Training {
  int64_t globalBatch = 1; // sequences of a step
  int64_t sequence = 1;    // tokens of a sequence
  Precision precision = Precision::BF16;
  /// Attention that never writes its scores to memory (Dao et al. 2022).
  bool flashAttention = true;
  bool dropout = false;
  /// Gradients are accumulated in 4 bytes whatever the precision.
  bool fp32Gradients = true;
  /// The precision of gradients on their way between ranks, if that is less.
  Precision reducePrecision = Precision::FP32;
  /// The form in which replicas send gradients.
  Compression compress;
  /// How sites agree. All else is about one of them, the batch included.
  Outer outer;
  int sitesOfNode = 1; // that share a node
  /// Messages of a rank to neighbours in an agreement by gossip, in the mean
  /// over the agreements of a period.
  double siteMessages = 0;
  /// Pieces that ranks of tp exchange beside each other's matmuls; 1: whole.
  int tensorOverlap = 1;
  /// Chunks of rows in which logits and their gradient are computed.
  int lossChunks = 1;
  /// The bytes that the optimizer keeps of each parameter, beside master
  /// weights; 8: the two moments of AdamW.
  double stateBytes = 8;
  /// The same of a parameter that is updated as a whole matrix; 0: none is.
  double matrixStateBytes = 0;
  /// The part of either that is no optimizer's: what replicas feed back.
  double feedbackBytes = 0;
  /// The program that runs it.
  Framework framework;

  /// Whether tp's collectives are cut into pieces beside matmuls, on a device
  /// that has something to run beside others.
  bool cutsCollectives(bool isProcessor) const {
    return framework.cutsCollectives && tensorOverlap > 1 && !isProcessor;
  }
};

/// The ranks that each layer is split over, and how.
struct Degrees {
  int tensor = 1, experts = 1;
  bool sequenceParallel = false;
  /// Tokens where nothing splits experts.
  ExpertExchange exchange = ExpertExchange::Tokens;

  auto operator<=>(const Degrees &) const = default;
};

/// A choice: a mesh and a strategy on it.
struct Configuration : Strategy {
  Mesh mesh;

  int64_t ranks() const { return mesh.ranks(); }
  Degrees degrees() const {
    return {mesh[Axis::TP], mesh[Axis::EP], sequenceParallel,
            mesh[Axis::EP] > 1 ? expertExchange : ExpertExchange::Tokens};
  }
  int64_t microbatches(const Training &training) const {
    return training.globalBatch / (microBatch * mesh.batchParts());
  }
  /// Sequences of a microbatch that one rank works on: a part of one under
  /// context parallelism.
  double sequences() const { return double(microBatch) / mesh[Axis::CP]; }
  bool operator==(const Configuration &) const = default;
};

} // namespace plait::planner

#endif // PLAIT_PLANNER_CONFIGURATION_H
