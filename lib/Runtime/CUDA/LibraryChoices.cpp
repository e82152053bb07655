//===- LibraryChoices.cpp - Algorithms that libraries take ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LibraryChoices.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

static constexpr char firstLine[] = "plait library choices 1";
static constexpr char separator[] = " = ";

/// The last line, which is of all before it.
static std::string checksumLine(const std::string &text) {
  char line[64];
  std::snprintf(line, sizeof(line), "checksum %016" PRIx64 "\n",
                uint64_t(XXH3_64bits(text.data(), text.size())));
  return line;
}

std::string LibraryChoices::write() const {
  std::string text = std::string(firstLine) + "\n" + of + "\n";
  for (const auto &[what, algorithm] : algorithms)
    text += what + separator + algorithm + "\n";
  return text + checksumLine(text);
}

/// Another first line is of another version.
Result<LibraryChoices> LibraryChoices::parse(const std::string &text) {
  size_t end = text.rfind("checksum ");
  bool isWhole = end != std::string::npos &&
                 checksumLine(text.substr(0, end)) == text.substr(end);
  std::istringstream lines(isWhole ? text.substr(0, end) : "");
  std::string line, library;
  isWhole &= std::getline(lines, line) && line == firstLine &&
             std::getline(lines, library);
  LibraryChoices result(library);
  while (std::getline(lines, line)) {
    size_t at = std::min(line.find(separator), line.size());
    result.set(line.substr(0, at),
               line.substr(std::min(at + std::strlen(separator), line.size())));
  }
  return isWhole ? Result<LibraryChoices>(std::move(result))
                 : fail("it is not as it was written");
}

const std::string *LibraryChoices::find(const std::string &what) const {
  auto found = algorithms.find(what);
  return found == algorithms.end() ? nullptr : &found->second;
}

void LibraryChoices::take(const LibraryChoices &other) {
  for (const auto &[what, algorithm] : other.algorithms)
    algorithms[what] = algorithm;
}

LibraryChoices LibraryChoices::since(const LibraryChoices &before) const {
  LibraryChoices result(of);
  for (const auto &[what, algorithm] : algorithms)
    if (const std::string *known = before.find(what);
        !known || *known != algorithm)
      result.set(what, algorithm);
  return result;
}
