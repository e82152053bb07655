//===- Score.h - What becomes of scores of attention ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What others do with `#nn.score` without reading its fields.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_SCORE_H
#define PLAIT_DIALECT_NN_IR_SCORE_H

#include "plait/Dialect/NN/IR/NN.h"

namespace plait::nn {

/// Returns what `score` is of `keys` keys: a window of all of them is none.
ScoreAttr simplify(ScoreAttr score, int64_t keys);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_SCORE_H
