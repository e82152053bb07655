//===- NNOps.td - All ops of the nn dialect ---*- tablegen -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

include "plait/Dialect/NN/IR/NNCompressionOps.td"
include "plait/Dialect/NN/IR/NNModelOps.td"
include "plait/Dialect/NN/IR/NNPrimitiveOps.td"
include "plait/Dialect/NN/IR/NNTrainOps.td"
