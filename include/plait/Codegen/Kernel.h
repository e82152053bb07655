//===- Kernel.h - Generated kernels -----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From clusters to machine code. A cluster (`plan.cluster`) becomes one
// function of a shared object:
//
//   extern "C" void symbol(void *const *args, const int64_t *scalars,
//                          int64_t begin, int64_t end);
//
// `args` are the buffers of the cluster's operands in order, then those of its
// results: row-major f32 or i32, aligned to 64 bytes, not overlapping.
// `scalars` are the values of KernelInfo::scalars on the rank. A call computes
// the parallel indices [begin, end) of [0, extent); indices are independent, so
// that any split over threads gives the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CODEGEN_KERNEL_H
#define PLAIT_CODEGEN_KERNEL_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include <memory>
#include <string>
#include <vector>

namespace llvm {
class TargetMachine;
} // namespace llvm

namespace plait::codegen {

/// A 64-bit integer that a kernel gets once its rank is known; the plan file's
/// table of the same name gives the meaning.
struct RankScalar {
  mlir::StringAttr axis; ///< Null: the value is `bias`.
  int64_t scale = 0;
  int64_t bias = 0;
  bool firstMicrobatch = false; ///< 1 in the first microbatch, else 0.

  bool operator==(const RankScalar &) const = default;
};

/// How to call a kernel.
struct KernelInfo {
  std::string symbol;
  int64_t extent = 1; ///< The number of parallel indices.
  int64_t grain = 1;  ///< Ranges shorter than this are not worth a thread.
  llvm::SmallVector<RankScalar> scalars;
};

/// The processor that code is for.
struct TargetCPU {
  std::string name;     ///< As LLVM names it: "x86-64-v4", "znver4", …
  std::string features; ///< As LLVM writes them: "+avx512f,-avx512vl".

  /// The level of the x86-64 ABI that this machine has: v4 with AVX-512, else
  /// v3 (AVX2 and FMA), the least that kernels need. Levels rather than models:
  /// alike machines compile the same bytes.
  static TargetCPU getHost();
};

/// Collects the kernels of one plan and compiles them together. Not thread
/// safe; `context` must outlive the library.
class KernelLibrary {
public:
  KernelLibrary(mlir::MLIRContext *context, TargetCPU target);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;
  KernelLibrary &operator=(const KernelLibrary &) = delete;

  /// Emits the kernel of `cluster`, or finds it: clusters of one structure
  /// share a kernel, wherever they stand. On failure an error at the op that
  /// no kernel computes has been emitted.
  llvm::FailureOr<KernelInfo> add(plan::ClusterOp cluster);

  /// Optimises, assembles and links all kernels: the bytes of an ELF shared
  /// object without undefined symbols. Deterministic in the sequence of calls
  /// to `add`. To be called once; errors are emitted at an unknown location.
  llvm::FailureOr<std::vector<char>> finish();

  /// What a machine must have to run the code, as /proc/cpuinfo names it.
  std::vector<std::string> requiredFeatures() const;

private:
  /// Null when LLVM does not know the processor.
  std::unique_ptr<llvm::TargetMachine> machine;
  TargetCPU target;
  mlir::OwningOpRef<mlir::Operation *> module;
  llvm::StringMap<KernelInfo> kernels;
};

} // namespace plait::codegen

#endif // PLAIT_CODEGEN_KERNEL_H
