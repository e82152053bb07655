//===- MegatronFlags.h - What Megatron-LM is told -------------*- C++ -*---===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_EXPORT_MEGATRONFLAGS_H
#define PLAIT_LIB_PLANNER_EXPORT_MEGATRONFLAGS_H

#include "plait/Planner/Export.h"

#include <optional>
#include <utility>

namespace plait::planner {

/// The values of all flags that are read, as Megatron-LM has them where they
/// are not given.
struct MegatronFlags {
  // Layout.
  int64_t tensor = 1, pipeline = 1, context = 1;
  std::optional<int64_t> layersPerChunk, chunks;
  std::string layout, contextKind = "p2p";
  bool sequenceParallel = false, dividesState = false, offloads = false;
  bool selective = false;
  std::string recompute, recomputeMethod;
  int64_t recomputeLayers = 1;
  // Training.
  std::optional<int64_t> microBatch, globalBatch, sequence;
  bool bf16 = false, fp16 = false, reducesInBf16 = false, usesFlash = false;
  std::string attention = "auto", optimizer = "adam";
  // Model.
  std::optional<int64_t> layers, hidden, inner, heads, groups, headSize;
  std::optional<int64_t> positions, vocab;
  int64_t vocabDivisor = 128;
  bool groupsQueries = false, swiglu = false, untied = false, noBias = false;
  bool headBiases = false, headNorms = false, exactGelu = false;
  bool scalesRope = false, usesRotary = false, noPosition = false;
  std::string normalization = "LayerNorm", position = "learned_absolute";
  double theta = 10000, epsilon = 1e-5, ropeFactor = 8;
  double attentionDropout = 0.1, hiddenDropout = 0.1;
};

/// The optimizers that both have, as plait and as Megatron-LM call them.
inline constexpr std::pair<const char *, const char *> kMegatronOptimizers[] = {
    {"adamw", "adam"}, {"sgd", "sgd"}, {"lion", "lion"}};

/// Reads words. Fails on a flag that nobody knows, one that changes what plait
/// does not model, one without its value, and a value that is none.
Result<MegatronFlags> parseMegatronFlags(const Given &given);

/// The layers of each stage of a --pipeline-model-parallel-layout, with
/// repetitions written out. Fails where it is none.
Result<std::vector<int>> parseLayout(const std::string &text);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_EXPORT_MEGATRONFLAGS_H
