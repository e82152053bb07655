//===- PackedTexts.h - The texts of all processes in one --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_PACKEDTEXTS_H
#define PLAIT_LIB_RUNTIME_CORE_PACKEDTEXTS_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace plait::runtime {

/// Packs what `process` says; nothing where that is nothing. Packed texts are
/// joined by being written one after the other.
std::string packText(uint32_t process, const std::string &text);

/// Returns the texts by process, of `count` of them.
Result<std::vector<std::string>> unpackTexts(const std::string &packed,
                                             uint32_t count);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_PACKEDTEXTS_H
