//===- TextOutput.h - Numbers and names for people --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAIT_PLAN_TEXTOUTPUT_H
#define PLAIT_TOOLS_PLAIT_PLAN_TEXTOUTPUT_H

#include <cstdint>
#include <string>

namespace plait::tool {

/// printf into a string, of at most 255 characters.
__attribute__((format(printf, 1, 2))) std::string format(const char *pattern,
                                                         ...);

/// "      1.50 MiB      1572864 bytes"
std::string formatBytes(uint64_t bytes);

/// "1.234 s", "12.345 ms", "123.4 us".
std::string formatSeconds(double seconds);

/// The name of an enumerator as a word: "Parameters" -> "parameters",
/// "GemmStep" -> "gemm", "BiasGelu" -> "bias-gelu".
std::string toWord(std::string name);

} // namespace plait::tool

#endif // PLAIT_TOOLS_PLAIT_PLAN_TEXTOUTPUT_H
