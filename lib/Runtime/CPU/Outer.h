//===- Outer.h - What sites compute on a processor --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_OUTER_H
#define PLAIT_LIB_RUNTIME_CPU_OUTER_H

#include "plait/Runtime/Device.h"

namespace plait::runtime {

/// Does elements [begin, end) of an OuterStep of so many, by its formula in
/// Plan.fbs, in fp32. Elements are independent of each other.
void runOuter(fb::OuterKind kind, const OuterOperands &operands,
              int64_t elements, int64_t begin, int64_t end);

/// The numbers of a block of squares: sums are added up block by block, so that
/// a norm has the same bits with any number of threads.
inline constexpr int64_t kSquaresBlock = 1 << 14;

/// The sum of squares of elements [begin, end).
double sumSquares(const OuterOperands &operands, int64_t begin, int64_t end);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_OUTER_H
