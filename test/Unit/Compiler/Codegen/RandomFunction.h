//===- RandomFunction.h - Functions of fusable ops --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_RANDOMFUNCTION_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_RANDOMFUNCTION_H

#include <string>

namespace plait::test {

/// The text of a function in nn: elementwise ops, reductions, broadcasts,
/// look-ups and their gradients, rotations, masks, constants, over tensors of
/// up to four dimensions whose extents often agree, cut by products of
/// elements. Numbers stay near 1. With `bf16` some are rounded. The same for
/// the same seed.
std::string drawFunction(unsigned seed, bool bf16);

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_RANDOMFUNCTION_H
