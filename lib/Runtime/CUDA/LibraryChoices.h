//===- LibraryChoices.h - Algorithms that libraries take --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_LIBRARYCHOICES_H
#define PLAIT_LIB_RUNTIME_CUDA_LIBRARYCHOICES_H

#include "plait/Support/Status.h"

#include <cstddef>
#include <map>
#include <string>

namespace plait::runtime {

/// Which algorithm a library takes for each thing that it is asked to compute.
/// A rank tells the others, and a run its next start.
class LibraryChoices {
public:
  /// No choices yet. `library` names what they are of, and a GPU: to another
  /// one they mean nothing. Neither it nor what is added has a line break.
  explicit LibraryChoices(std::string library) : of(std::move(library)) {}

  /// Reads what write() has made; fails where it was changed since.
  static Result<LibraryChoices> parse(const std::string &text);
  /// Lines of text, with a checksum.
  std::string write() const;

  const std::string &library() const { return of; }
  size_t size() const { return algorithms.size(); }
  bool operator==(const LibraryChoices &) const = default;

  /// The algorithm for `what`; null: none was chosen.
  const std::string *find(const std::string &what) const;
  /// Sets it, also where there was another.
  void set(const std::string &what, const std::string &algorithm) {
    algorithms[what] = algorithm;
  }
  /// Sets all that `other` has, which is of the same library.
  void take(const LibraryChoices &other);
  /// Returns what is not in `before`, or is another algorithm there.
  LibraryChoices since(const LibraryChoices &before) const;

private:
  std::string of;
  std::map<std::string, std::string> algorithms;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_LIBRARYCHOICES_H
