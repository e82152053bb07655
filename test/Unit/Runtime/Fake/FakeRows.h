//===- FakeRows.h - Rows of experts of a GPU, on the CPU --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKEROWS_H
#define PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKEROWS_H

#include "FakeGrouped.h"

namespace plait::fake {

/// The kernels of CUDA/RowKernels.h by name.
const std::map<std::string, GroupedKernel> &rowKernels();

} // namespace plait::fake

#endif // PLAIT_TEST_UNIT_RUNTIME_FAKE_FAKEROWS_H
