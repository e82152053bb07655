//===- Kernels.h - Check of generated kernels -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The proof of a step (Prove.h) believes that a kernel computes what its ops
// are defined to. Here each kernel of a plan for processors is run, on drawn
// numbers, and elements of its results are held against a second, naive
// evaluation of the ops: the first and the last, those at the edges of rows and
// vectors, and some at random, always the same ones. The bound of the
// difference follows from the ops (lib/Proof/Elements.h).
//
// Kernels run in a process of their own, in memory that ends where it must: one
// that crashes, or reads or writes far beyond its tensors, is found too. Of
// tensors above 65,536 elements only some parallel indices are run,
// and no memory is filled: what is drawn repeats.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PROOF_KERNELS_H
#define PLAIT_PROOF_KERNELS_H

#include "plait/Codegen/Kernel.h"

namespace plait::proof {

/// Runs `kernels`, whose shared object for a processor is `code`. Failure: one
/// gives something else; an error at the op whose elements they are says which.
/// Else what was found out, as the plan's certificate has it: "all 31 kernels
/// …", or how many could not be told, and why.
llvm::FailureOr<std::string>
checkKernels(llvm::ArrayRef<codegen::EmittedKernel> kernels,
             const codegen::TargetCPU &target, llvm::ArrayRef<uint8_t> code);

} // namespace plait::proof

#endif // PLAIT_PROOF_KERNELS_H
