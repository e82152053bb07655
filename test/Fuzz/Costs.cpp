//===- Costs.cpp - Any bytes as the costs of layers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "plait-plan/ScheduleCosts.h"

using namespace plait;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::MemoryFile file({data, size});
  fuzz::require(tool::readScheduleCosts(file.path()).status());
  return 0;
}
