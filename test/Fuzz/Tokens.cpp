//===- Tokens.cpp - Any bytes as tokens ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"
#include "plait/Runtime/TokenFile.h"

#include <vector>

using namespace plait;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  auto types = runtime::getTokenTypes();
  size_t chosen = data[0] % (types.size() + 1);
  std::string type = chosen ? types[chosen - 1].name : "";
  fuzz::MemoryFile file({data + 1, size - 1});
  auto tokens = runtime::TokenFile::open(file.path(), type, 1000);
  fuzz::require(tokens.status());
  if (!tokens.ok())
    return 0;
  std::vector<int32_t> all(tokens->size());
  fuzz::require(tokens->read(0, all));
  return 0;
}
