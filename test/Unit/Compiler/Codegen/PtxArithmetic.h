//===- PtxArithmetic.h - What instructions compute --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXARITHMETIC_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXARITHMETIC_H

#include "PtxParser.h"

#include <optional>

namespace plait::test {

/// The bits of what an instruction reads.
struct PtxInputs {
  uint64_t bits[4] = {};
  unsigned count = 0;
};

/// The result's bits; nothing for an instruction that is not known. Two results
/// (`mov.b64 {lo, hi}, x`) are its halves.
std::optional<uint64_t> computePtx(const PtxInstruction &instruction,
                                   const PtxInputs &inputs);

/// The type of the register that takes the result.
PtxType resultType(const PtxInstruction &instruction);

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXARITHMETIC_H
