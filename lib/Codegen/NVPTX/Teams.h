//===- Teams.h - Division of a block's threads into teams -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of `threads` consists of teams of `members`; a team computes one
// parallel index. Thread t is, with neighbours == 1,
//
//   member t % members of team t / members,
//
// so that the members of a team read neighbouring vectors of a row. In kernels
// over columns the block computes one index: thread t is
//
//   member t / neighbours of the team of its column, t % neighbours,
//
// so that neighbouring threads read neighbouring vectors of a row, and members
// of a team different rows.
//
// Members combine what they have by exchanges inside of a warp (butterflies, so
// that all members get the same bits) and, where a team is larger than a warp,
// through shared memory, warp 0 first. The order of every sum is fixed.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_NVPTX_TEAMS_H
#define PLAIT_LIB_CODEGEN_NVPTX_TEAMS_H

#include "../Kernel/EmitKernel.h"
#include "../Kernel/Workers.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace plait::codegen {

inline constexpr int64_t kWarp = 32;

/// Powers of two all; `threads` at least a warp.
struct Teams {
  int64_t threads = kWarp;
  int64_t members = 1;
  int64_t neighbours = 1;

  /// Parallel indices that a block computes at once.
  int64_t perBlock() const { return neighbours > 1 ? 1 : threads / members; }
};

/// How a thread moves the tensors that have all elements of the space.
struct VectorAccess {
  int64_t lanes = 1; ///< Neighbours that it loads and stores at once.
  int64_t bytes = 4; ///< Of an element: 2 where all such tensors are bf16.
  /// The last vector of a row reaches into what lies between rows.
  bool beyondRows = false;
};

/// Up to 16 bytes, and so that no row begins, and no op cuts a row, inside of a
/// vector.
VectorAccess chooseAccess(plan::ClusterOp cluster, const IterationSpace &space);

/// Makes accesses as wide as a load where rows of `shape`, however odd, lie
/// apart by multiples of that (plan/RowPitch.h).
void widenAccess(plan::ClusterOp cluster, const IterationSpace &space,
                 const KernelShape &shape, VectorAccess &access);

/// Returns the limits that a GPU has for a space.
ShapeLimits getGPULimits(const VectorAccess &access);

/// How a kernel of `shape` uses the threads of a block.
Teams chooseTeams(const IterationSpace &space, const KernelShape &shape,
                  const VectorAccess &access);

/// The threads of a GPU's block.
class TeamWorkers : public Workers {
public:
  /// `kernel` is the function being filled, where `emitter` stands.
  TeamWorkers(Emitter &emitter, mlir::func::FuncOp kernel, const Teams &teams,
              KernelInfo &info);

  void forIndices(int64_t count, llvm::ArrayRef<FusionRole> roles,
                  llvm::SmallVectorImpl<mlir::Value> &carried,
                  llvm::function_ref<void(mlir::Value)> body) override;
  void combine(llvm::ArrayRef<FusionRole> roles,
               llvm::MutableArrayRef<mlir::Value> partials) override;
  /// A warp tests 32 numbers at once and goes through the hits together.
  void forMatches(int64_t count,
                  llvm::function_ref<mlir::Value(mlir::Value)> test,
                  llvm::function_ref<void(mlir::Value)> body) override;

  /// 0 in the first thread of the grid.
  mlir::Value getFirst() const { return first; }

private:
  mlir::Value callI32(llvm::StringRef intrinsic, mlir::ValueRange operands);
  mlir::Value number(int64_t value);
  mlir::Value widen(mlir::Value value);
  mlir::Value exchange(mlir::Value value, int64_t distance, mlir::Value mask);
  mlir::Value exchangeMask(int64_t reach);
  void combineOver(int64_t reach, int64_t stride,
                   llvm::ArrayRef<FusionRole> roles,
                   llvm::MutableArrayRef<mlir::Value> partials);
  void combineWarps(int64_t stride, llvm::ArrayRef<FusionRole> roles,
                    llvm::MutableArrayRef<mlir::Value> partials);
  mlir::Value takeShared(int64_t elements);
  mlir::Value addressOf(mlir::Value memory, int64_t start, mlir::Value place,
                        int64_t lanes);
  void shareWarp(mlir::Value memory, int64_t stride,
                 llvm::ArrayRef<mlir::Value> partials);
  mlir::Value emitIndex(int64_t count);
  void loopOver(int64_t count, llvm::ArrayRef<FusionRole> roles,
                llvm::SmallVectorImpl<mlir::Value> &carried,
                llvm::function_ref<void(mlir::Value)> body);
  void visitMatches(mlir::Value matches, mlir::Value base,
                    llvm::function_ref<void(mlir::Value)> body);

  mlir::func::FuncOp kernel;
  Teams teams;
  KernelInfo &info;
  mlir::Value thread, block; // i32
  mlir::Value first;
  struct SharedBuffer {
    mlir::LLVM::GlobalOp op;
    int64_t elements = 0;
  };
  SharedBuffer shared[2];
  unsigned turn = 0; // the buffer to take next
};

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_NVPTX_TEAMS_H
