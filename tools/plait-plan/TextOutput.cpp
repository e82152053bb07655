//===- TextOutput.cpp - Numbers and names for people ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TextOutput.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>

using namespace plait;

std::string tool::format(const char *pattern, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string tool::formatBytes(uint64_t bytes) {
  return format("%12.2f MiB %15llu bytes", bytes / 1048576.0,
                static_cast<unsigned long long>(bytes));
}

std::string tool::formatSeconds(double seconds) {
  if (seconds >= 1)
    return format("%.3f s", seconds);
  if (seconds >= 1e-3)
    return format("%.3f ms", 1e3 * seconds);
  return format("%.1f us", 1e6 * seconds);
}

std::string tool::toWord(std::string name) {
  if (name.size() > 4 && name.ends_with("Step"))
    name.resize(name.size() - 4);
  std::string word;
  for (unsigned char letter : name) {
    if (std::isupper(letter) && !word.empty())
      word += '-';
    word += char(std::tolower(letter));
  }
  return word;
}
