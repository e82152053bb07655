//===- Shape.h - A transformer as programs have flags for it --*- C++ -*---===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_EXPORT_SHAPE_H
#define PLAIT_LIB_PLANNER_EXPORT_SHAPE_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <optional>
#include <string>

namespace plait::planner {

/// The facts of a GPT or a Llama that a config.json and flags both say. Sizes
/// are in elements.
struct Shape {
  int64_t layers = 0, hidden = 0, inner = 0, heads = 0, groups = 0;
  int64_t headSize = 0, vocab = 0, positions = 0;
  /// Gated by SiLU, root-mean-square norms, rotary positions and no biases;
  /// otherwise GELU, layer norms, learned positions and biases.
  bool isLlama = false;
  bool exactGelu = false; // not by tanh
  bool tied = false;      // the head is the embedding
  bool headBiases = false, headNorms = false;
  double epsilon = 1e-5, theta = 10000;
  /// The factor of Llama 3.1's scaled frequencies, whose other numbers are
  /// fixed.
  std::optional<double> ropeFactor;
  double attentionDropout = 0, hiddenDropout = 0;
};

/// Reads the text of a config.json. Fails with what the flags cannot say, for
/// sequences of so many tokens.
Result<Shape> readShape(const std::string &text, int64_t sequence);

/// The inverse, as the text of a config.json.
std::string printConfig(const Shape &shape);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_EXPORT_SHAPE_H
