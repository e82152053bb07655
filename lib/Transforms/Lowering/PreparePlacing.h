//===- PreparePlacing.h - Preparation of address assignment -----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// plan-place-buffers changes lowered functions in these ways, in this order,
// while an op may still be moved: once its values have addresses, what is live
// together is fixed.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_PREPAREPLACING_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_PREPAREPLACING_H

#include "PlaceValues.h"

namespace plait {

/// Gives rows of an odd number of elements a pitch (plan/RowPitch.h), where
/// only matmuls and kernels read and write them, in this function or,
/// as a residual, in another one of the same stage.
void padRows(mlir::ModuleOp module);

/// Whether `op` is a sum over replicas of which each keeps a part.
bool isReplicaSum(mlir::Operation *op);

/// Whether `op` gathers a parameter that ZeRO divides, over one of the axes.
bool isParameterGather(mlir::Operation *op);

/// Has replicas exchange what they divide beside other work of `function`:
/// parameters of a layer are gathered where the layer before begins, and a
/// reduced gradient is added up behind the next reduction. For lowered
/// functions without places.
void spreadReplicas(mlir::func::FuncOp function);

/// Whether `op` is a matmul that is added to gradients of parameters, and
/// nothing else.
bool isWeightGradient(mlir::Operation *op);

/// Moves what is gathered for gradients of weights alone, and kernels for it,
/// up behind the collective over the same axis before it: it is there when
/// they are computed, and no other collective has to wait for it. It then lives
/// longer; one stays where that would raise the most that the workspace of
/// `function` holds at once. For lowered functions without places.
void startGathers(mlir::func::FuncOp function,
                  const Surroundings &surroundings);

/// Moves matmuls that are gradients of weights from in front of a collective
/// that lasts longer than what is computed beside it to right behind it, so
/// that a GPU has something to compute. What they read then lives longer; one
/// stays where that would raise the most that the workspace of `function` holds
/// at once. For lowered functions without places.
void delayMatmuls(mlir::func::FuncOp function,
                  const Surroundings &surroundings);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_PREPAREPLACING_H
