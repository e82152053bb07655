//===- TextOutput.cpp - Numbers and names for people ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numbers and names in the forms that all commands share, so that their columns
// fit.
//
//===----------------------------------------------------------------------===//

#include "TextOutput.h"

#include "plait/Support/Quantities.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>

using namespace plait;

/// Lines of a table; what is longer than 255 characters is cut.
std::string tool::format(const char *pattern, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

/// Both, for people and for comparing to the byte.
std::string tool::formatBytes(uint64_t bytes) {
  return format("%12s %17llu bytes", describeBytes(bytes).c_str(),
                static_cast<unsigned long long>(bytes));
}

/// Three digits behind the point, in the unit that fits.
std::string tool::formatSeconds(double seconds) {
  if (seconds >= 1)
    return format("%.3f s", seconds);
  if (seconds >= 1e-3)
    return format("%.3f ms", 1e3 * seconds);
  return format("%.1f us", 1e6 * seconds);
}

/// "AllReduce" becomes "all-reduce", "GemmStep" "gemm".
std::string tool::toWord(std::string name) {
  if (name.size() > 4 && name.ends_with("Step"))
    name.resize(name.size() - 4);
  std::string word;
  // Enumerators are written in camel case.
  for (unsigned char letter : name) {
    if (std::isupper(letter) && !word.empty())
      word += '-';
    word += char(std::tolower(letter));
  }
  return word;
}
