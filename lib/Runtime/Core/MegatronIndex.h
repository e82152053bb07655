//===- MegatronIndex.h - The index of Megatron's data sets ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_MEGATRONINDEX_H
#define PLAIT_LIB_RUNTIME_CORE_MEGATRONINDEX_H

#include "plait/Runtime/TokenFile.h"

namespace plait::runtime {

/// Reads the index at `path` of the tokens at `tokens`, which have `tokenBytes`
/// bytes, and returns their type. Fails where the index does not have the
/// format that TokenFile.h describes, or does not fit the tokens. Needs no
/// memory: the index is mapped, read once and given back.
Result<TokenType> readMegatronIndex(const std::string &path,
                                    const std::string &tokens,
                                    uint64_t tokenBytes);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_MEGATRONINDEX_H
