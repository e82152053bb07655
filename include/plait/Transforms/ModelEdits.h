//===- ModelEdits.h - What is changed in a model ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes of phase import, which are run where somebody asks for them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TRANSFORMS_MODELEDITS_H
#define PLAIT_TRANSFORMS_MODELEDITS_H

#include "plait/Plan/Adapters.h"

#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace plait {

/// Changes that are asked for; by default there are none.
struct ModelEdits {
  /// Whether the model's dropout stays in.
  bool dropout = true;
  /// Whether every attention of the model looks back no further than to where
  /// the document of its token begins.
  bool documentMask = false;
  /// Whether each target counts by a number that comes with the data, in the
  /// place of 1.
  bool targetWeights = false;
  /// Trains low-rank adapters of this rank and nothing else (Hu et al. 2021,
  /// "LoRA"); 0: the model's own parameters.
  int loraRank = 0;
  static constexpr int kMostLoraRank = 65536;
  /// Multiplies the output of adapters by `loraAlpha` / `loraRank`.
  double loraAlpha = 8.0;
  static constexpr double kMostLoraAlpha = plan::kMostAlpha;
  /// Linear layers that have an adapter: names of modules, or how they end,
  /// such as "q_proj". Empty: all of the model's blocks.
  std::vector<std::string> loraTargets = {};
  /// Parameters to which weight decay does not apply, whatever the model says:
  /// names, `*` matching anything.
  std::vector<std::string> noDecay = {};
  /// Parameters that stay as they are loaded, by such names.
  std::vector<std::string> frozen = {};
  /// Parameters whose learning rate is multiplied, "NAME=FACTOR" with a name as
  /// those above; of several that match, the last one counts.
  std::vector<std::string> rateFactors = {};
  /// Parameters with an optimizer of their own, "NAME=OPTIMIZER", likewise.
  std::vector<std::string> optimizers = {};
  /// Names what balances the experts of routers, each KIND=NUMBER as
  /// nn-insert-balance has it.
  std::vector<std::string> balance = {};
};

/// Adds the passes that `edits` ask for.
void buildModelEdits(mlir::OpPassManager &manager, const ModelEdits &edits);

} // namespace plait

#endif // PLAIT_TRANSFORMS_MODELEDITS_H
