//===- Epilogue.h - Epilogues of GEMMs --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For GEMMs of the CPU, which oneDNN leaves in memory: a pass over C.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_EPILOGUE_H
#define PLAIT_LIB_RUNTIME_CPU_EPILOGUE_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Runtime/Device.h"

namespace plait::runtime {

/// Does to C, which holds A B, what the epilogue of `shape` says; by
/// the `threads` threads of the caller's team (see Team.h).
void applyEpilogue(unsigned threads, const plan::fb::GemmStepT &shape,
                   const GemmOperands &operands);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_EPILOGUE_H
