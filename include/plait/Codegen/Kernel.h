//===- Kernel.h - Generated kernels -----------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From clusters to machine code. A cluster (`plan.cluster`) becomes one
// function, which a plan names by its symbol. On a processor,
//
//   extern "C" void symbol(void *const *args, const int64_t *scalars,
//                          int64_t begin, int64_t end);
//
// computes the parallel indices [begin, end) of [0, extent). On a GPU it is
//
//   .visible .entry symbol(.param .u64 arg0, …, .param .u64 scalar0, …)
//
// and each block of KernelInfo::blockThreads threads computes
// KernelInfo::indicesPerBlock indices. Either way, indices are independent, so
// that any split over threads or blocks gives the same bits.
//
// `args` are the buffers of the cluster's operands in order, then those of its
// results: row-major f32, bf16 or i32, aligned to 64 bytes. What is bf16 in
// memory is f32 in kernels, and rounded where it is stored. A result may be the
// very buffer of an operand of its shape, and otherwise overlaps nothing.
// `scalars` are the values of KernelInfo::scalars on the rank.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CODEGEN_KERNEL_H
#define PLAIT_CODEGEN_KERNEL_H

#include "plait/Dialect/Plan/IR/PlanIR.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace plait::codegen {

/// A 64-bit integer that a kernel gets once its rank is known; the plan file's
/// table of the same name gives the meaning.
struct RankScalar {
  mlir::StringAttr axis; ///< Null: the value is `bias`.
  int64_t scale = 0;
  int64_t bias = 0;
  bool firstMicrobatch = false; ///< 1 in the first microbatch, else 0.
  /// Not -1: `bias` is what the op of this number in its cluster is given with
  /// the call (FusableOpInterface::getCallAttrName).
  int64_t op = -1;

  bool operator==(const RankScalar &) const = default;
};

/// How to call a kernel.
struct KernelInfo {
  std::string symbol;
  int64_t extent = 1; ///< The number of parallel indices.
  int64_t grain = 1;  ///< Ranges shorter than this are not worth a thread.
  llvm::SmallVector<RankScalar> scalars;
  // Of GPU kernels, 0 for others:
  int64_t blockThreads = 0;    ///< A multiple of 32, up to 1024.
  int64_t indicesPerBlock = 0; ///< The grid has ceil(extent / this) blocks.
  int64_t sharedBytes = 0;     ///< Static shared memory of a block.
};

/// A kernel and the first cluster that it computes.
struct EmittedKernel {
  plan::ClusterOp cluster;
  KernelInfo info; ///< With the scalars of that cluster.
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

/// The GPUs that code is for.
struct TargetGPU {
  /// The least architecture, whose PTX any later driver can compile too.
  std::string ptx = "sm_80";
  /// The architecture to assemble for, where the toolkit's ptxas is found.
  std::string cubin = "sm_90";

  /// One architecture for both, by name; nothing if kernels cannot be compiled
  /// for it.
  static std::optional<TargetGPU> get(llvm::StringRef name);
  /// The names that `get` knows, oldest first.
  static llvm::ArrayRef<llvm::StringRef> getNames();
  /// The least architecture as a number: 80 for sm_80.
  int getArchitecture() const;
};

using Target = std::variant<TargetCPU, TargetGPU>;

/// Loadable code, as the plan file's table of the same name has it.
struct CodeObject {
  std::string target, cpu;
  std::vector<std::string> features;
  std::vector<char> data;
};

/// Collects the kernels of one plan and compiles them together. Not thread
/// safe; the context must outlive the library.
class KernelLibrary {
public:
  static std::unique_ptr<KernelLibrary> create(mlir::MLIRContext *context,
                                               const Target &target);
  virtual ~KernelLibrary();
  KernelLibrary(const KernelLibrary &) = delete;
  KernelLibrary &operator=(const KernelLibrary &) = delete;

  /// Emits the kernel of `cluster`, or finds it: clusters of one structure
  /// share a kernel, wherever they stand; scalars that belong to an op have its
  /// values. On failure an error at the op that
  /// no kernel computes has been emitted.
  llvm::FailureOr<KernelInfo> add(plan::ClusterOp cluster);

  /// Optimises and assembles all kernels. For a processor, one ELF shared
  /// object without undefined symbols; for GPUs, PTX and, if there is a ptxas
  /// on the path or in the toolkit's usual place, a cubin. Deterministic in
  /// the sequence of calls to `add`. To be called once; errors are emitted at
  /// an unknown location.
  virtual llvm::FailureOr<std::vector<CodeObject>> finish() = 0;

protected:
  explicit KernelLibrary(mlir::MLIRContext *context);
  /// Appends the kernel of `cluster` to the module and fills in `info`, which
  /// has its symbol.
  virtual llvm::LogicalResult emit(plan::ClusterOp cluster,
                                   KernelInfo &info) = 0;

  mlir::OwningOpRef<mlir::Operation *> module;
  llvm::StringMap<KernelInfo> kernels;
};

} // namespace plait::codegen

#endif // PLAIT_CODEGEN_KERNEL_H
