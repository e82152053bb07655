//===- My.h - A dialect with one operation, and a pass ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MY_H
#define MY_H

#include "plait/Dialect/NN/IR/NN.h"

#include "MyDialect.h.inc"
#define GET_OP_CLASSES
#include "MyOps.h.inc"

namespace my {
/// Adds the passes to those that a tool knows by name.
void registerPasses();
} // namespace my

#endif // MY_H
