//===- Model.cpp - Any bytes as IR --------------------------------*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Compile.h"

using namespace plait;

/// A model, or what a phase has left, on its way to the steps of a plan.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  CompileOptions options;
  options.backend = "cuda"; // generates no code before it is asked to
  fuzz::compile({data, size}, "model.mlir", options, "steps");
  return 0;
}
