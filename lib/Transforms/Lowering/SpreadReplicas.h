//===- SpreadReplicas.h - Work beside what replicas exchange ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_SPREADREPLICAS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_SPREADREPLICAS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace plait {

/// Whether `op` is a sum over replicas of which each keeps a part.
bool isReplicaSum(mlir::Operation *op);

/// Has replicas exchange what they divide beside other work of `function`:
/// parameters of a layer are gathered where the layer before begins, and a
/// reduced gradient is added up behind the next reduction. For lowered
/// functions without places.
void spreadReplicas(mlir::func::FuncOp function);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_SPREADREPLICAS_H
