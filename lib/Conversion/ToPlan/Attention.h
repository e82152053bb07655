//===- Attention.h - Attention as one step ----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_ATTENTION_H
#define PLAIT_LIB_CONVERSION_TOPLAN_ATTENTION_H

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Plan/Plan_generated.h"

namespace plait {

/// Where a value of the function lies.
using RefOf = llvm::function_ref<plan::fb::Ref(mlir::Value)>;

/// The step that computes an attention which lowering has left whole. Query
/// head h of the plan is head h % r of group h / r in the IR, for groups of r.
/// Fails with an error where the mesh does not have the axis of the queries.
mlir::FailureOr<std::unique_ptr<plan::fb::AttentionStepT>>
convertAttention(nn::AttentionOp op, RefOf refOf);
mlir::FailureOr<std::unique_ptr<plan::fb::AttentionStepT>>
convertAttention(nn::AttentionGradOp op, RefOf refOf);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_ATTENTION_H
