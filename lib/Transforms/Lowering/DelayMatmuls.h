//===- DelayMatmuls.h - Matmuls beside collectives --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_LOWERING_DELAYMATMULS_H
#define PLAIT_LIB_TRANSFORMS_LOWERING_DELAYMATMULS_H

#include "PlaceValues.h"

namespace plait {

/// Moves matmuls whose results are added to gradients of parameters, and read
/// by nobody else, from in front of a collective to right behind it, so that a
/// GPU has something to compute beside it. What they read then lives longer;
/// one stays where that would raise the most that the workspace of `function`
/// holds at once. For lowered functions without places.
void delayMatmuls(mlir::func::FuncOp function,
                  const Surroundings &surroundings);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_LOWERING_DELAYMATMULS_H
