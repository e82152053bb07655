//===- NamedRange.h - Names for profilers -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranges of NVTX, by which a profiler such as Nsight Systems tells what of a
// step the calls of a thread are for. A profiler is there when it has started
// the process; otherwise ranges cost a look at a number.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_NAMEDRANGE_H
#define PLAIT_LIB_RUNTIME_CORE_NAMEDRANGE_H

#include <string>

namespace plait::runtime {

/// Names what its thread does while the object lives. Ranges of a thread nest.
class NamedRange {
public:
  /// Whether there is a profiler. False in builds without NVTX.
  static bool areWanted();

  /// Calls `getName` where areWanted() alone: it returns the range's name.
  /// There is no range where the thread `passes` over what it would be of.
  template <typename GetName>
  explicit NamedRange(GetName getName, bool passes = false)
      : isOpen(!passes && areWanted()) {
    if (isOpen)
      begin(getName());
  }
  NamedRange(const NamedRange &) = delete;
  ~NamedRange() {
    if (isOpen)
      end();
  }

private:
  static void begin(const std::string &name);
  static void end();

  const bool isOpen;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_NAMEDRANGE_H
