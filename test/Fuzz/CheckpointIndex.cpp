//===- CheckpointIndex.cpp - Any bytes as an index ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint/Index.h"
#include "Fuzz.h"

using namespace plait;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::require(runtime::CheckpointIndex::parse({data, size}).status());
  return 0;
}
