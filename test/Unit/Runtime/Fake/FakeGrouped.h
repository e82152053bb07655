//===- FakeGrouped.h - Grouped GEMMs of a GPU, on the CPU -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKEGROUPED_H
#define PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKEGROUPED_H

#include <functional>
#include <map>
#include <string>

namespace plait::fake {

/// The parameters of a launch, one after the other.
class LaunchParams {
public:
  explicit LaunchParams(void **params) : next(params) {}
  template <typename T> operator T() { return *static_cast<T *>(*next++); }

private:
  void **next;
};

/// Reads the parameters of a launch and returns what it does, or nothing where
/// the kernel needs another number of `blocks`.
using GroupedKernel =
    std::function<std::function<void()>(void **params, unsigned blocks)>;

/// The kernels of CUDA/GroupedKernels.h by name.
const std::map<std::string, GroupedKernel> &groupedKernels();

} // namespace plait::fake

#endif // PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKEGROUPED_H
