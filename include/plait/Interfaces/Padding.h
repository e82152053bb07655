//===- Padding.h - Values in the padding of results -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A dimension that is split into blocks of more elements than it has ends in
// padding. What lies there follows from what the ops compute; no op asserts it:
//   elementwise ops       their arithmetic, evaluated over NumberRange
//   other fusable ops     their role in a kernel (FusionRole)
//   contractions          sums of products
//   decomposable ops      the ops that they decompose into
//   all others            any number
//
// One thing is assumed: that numbers which are not padding are finite. Where
// one is not, and goes into a product along a padded dimension, what it gives
// is not finite in the elements that count either.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_INTERFACES_PADDING_H
#define PLAIT_INTERFACES_PADDING_H

#include "plait/Interfaces/NumberRange.h"
#include "plait/Interfaces/OpInterfaces.h"

namespace plait {

/// Tells, for each result of `op`, what lies in its padding along `factor`;
/// where the factor is reduced, what padding adds to the result (or is compared
/// with the maximum). `operands` says what lies in the padding of the operands
/// that run along the factor, and what the elements of the others may be.
llvm::SmallVector<NumberRange>
derivePadding(ShardableOpInterface op, int factor,
              llvm::ArrayRef<NumberRange> operands);

/// Returns what `emitElement` gives for elements in these ranges, wherever they
/// are.
NumberRange evaluateElement(FusableOpInterface op,
                            llvm::ArrayRef<NumberRange> operands);

/// Returns what elements of `type` may be that are not padding.
NumberRange getUnpadded(mlir::Type type);

} // namespace plait

#endif // PLAIT_INTERFACES_PADDING_H
