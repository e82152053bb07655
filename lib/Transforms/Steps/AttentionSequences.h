//===- AttentionSequences.h - Some sequences of an attention ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_ATTENTIONSEQUENCES_H
#define PLAIT_LIB_TRANSFORMS_STEPS_ATTENTIONSEQUENCES_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

namespace plait {

/// Whether `attention` goes forward and may be computed sequence by sequence:
/// masks of dropout count the sequences of a microbatch.
bool hasSequences(plan::AttentionOp attention);

/// Creates an attention that computes part `part` of `parts` equal ones of the
/// sequences of `whole`, which hasSequences(). Null, and nothing is created,
/// where a part does not begin where memory of steps may.
plan::AttentionOp createSequences(mlir::OpBuilder &builder,
                                  plan::AttentionOp whole, int64_t part,
                                  int64_t parts);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_ATTENTIONSEQUENCES_H
