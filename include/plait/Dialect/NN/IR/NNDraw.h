//===- NNDraw.h - Random numbers of compressors -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_NNDRAW_H
#define PLAIT_DIALECT_NN_IR_NNDRAW_H

#include "plait/Dialect/NN/IR/NN.h"

#define GET_OP_CLASSES
#include "plait/Dialect/NN/IR/NNDrawOps.h.inc"

namespace plait::nn {

/// The key of a parameter's random numbers (`nn.draw`): the hash FNV-1a of its
/// name, 32 bits.
uint32_t getDrawKey(llvm::StringRef name);

} // namespace plait::nn

#endif // PLAIT_DIALECT_NN_IR_NNDRAW_H
