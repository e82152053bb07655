//===- SplitChains.h - Chains of steps in pieces of rows --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_STEPS_SPLITCHAINS_H
#define PLAIT_LIB_TRANSFORMS_STEPS_SPLITCHAINS_H

#include "Footprint.h"
#include "plait/Dialect/Plait/IR/Plait.h"

#include "llvm/ADT/DenseSet.h"

namespace plait {

/// Cuts what `function` computes row by row or, with attention, sequence by
/// sequence around collectives over tp, and these, into as many pieces as take
/// the least time on a GPU, at most those that `asked` allows, where that is
/// less than with each collective in the pieces of its own that leave `getWait`
/// seconds to wait for. Returns the pieces of collectives.
llvm::DenseSet<mlir::Operation *>
splitChains(plan::FunctionOp function, const Aliases &aliases, int64_t asked,
            LinkAttr link,
            llvm::function_ref<double(plan::CollectiveOp)> getWait);

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_STEPS_SPLITCHAINS_H
