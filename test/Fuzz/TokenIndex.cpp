//===- TokenIndex.cpp - Any bytes as Megatron's index ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Core/MegatronIndex.h"
#include "Fuzz.h"

using namespace plait;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::MemoryFile file({data, size});
  for (uint64_t tokenBytes : {0, 36, 4096})
    fuzz::require(
        runtime::readMegatronIndex(file.path(), "tokens.bin", tokenBytes)
            .status());
  return 0;
}
