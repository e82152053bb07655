//===- Config.cpp - Any bytes as a config.json --------------------*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Compile.h"

using namespace plait;

/// What a Hugging Face model is imported from.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  CompileOptions options;
  options.backend = "cuda"; // generates no code before it is asked to
  options.pins.sequence = 8;
  fuzz::compile({data, size}, "config.json", options, "import");
  return 0;
}
