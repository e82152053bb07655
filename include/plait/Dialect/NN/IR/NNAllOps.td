//===- NNAllOps.td - All ops of the nn dialect, for its page -*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

include "plait/Dialect/NN/IR/NNDrawOps.td"
include "plait/Dialect/NN/IR/NNOps.td"
