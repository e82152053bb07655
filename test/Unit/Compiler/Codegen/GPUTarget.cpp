//===- GPUTarget.cpp - The tests on GPUs, interpreted
//-------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

plait::codegen::Target plait::test::defaultTarget() {
  return codegen::TargetGPU();
}
