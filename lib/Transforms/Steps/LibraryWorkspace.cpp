//===- LibraryWorkspace.cpp - Memory for libraries ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How much memory a GPU's libraries may use beside a plan's own. It is reserved
// by formula when compiling, so that a plan does not depend on which version of
// a library the compiler's machine has; the runtime takes what the formula
// gives and chooses among the algorithms that fit. One buffer, live during the
// whole step, serves all calls. Processors have none: oneDNN allocates its
// scratch memory itself.
//
//===----------------------------------------------------------------------===//

#include "LibrarySteps.h"

#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/Buffers.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

/// Returns what the library for GEMMs may use: what cuBLAS itself takes by
/// default, which later architectures profit from.
static uint64_t getGemmWorkspace(TargetAttr target) {
  return uint64_t(target.getCubin() == "sm_80" ? 8 : 32) << 20;
}

/// Returns what GEMMs and the largest attention or grouped GEMM of a program
/// may use.
static uint64_t getLibraryWorkspace(ProgramOp program, TargetAttr target) {
  auto module = program->getParentOfType<ModuleOp>();
  bool deterministic = getConfiguration(module).deterministic;
  uint64_t bytes = getGemmWorkspace(target);
  llvm::SmallDenseSet<Attribute> seen;
  // Libraries run one after the other on the stream that computes: they share
  // the largest of their workspaces.
  for (auto action : program.getBody().getOps<ActionOp>()) {
    auto callee = action.getCalleeAttr();
    if (!callee || !seen.insert(callee).second)
      continue;
    // One that is missing is told by who converts what is called.
    Operation *function = module.lookupSymbol(callee);
    if (!function)
      continue;
    function->walk([&](CostedOpInterface op) {
      bytes = std::max(bytes, op.getLibraryWorkspace(target.getArchitecture(),
                                                     deterministic));
    });
  }
  return bytes;
}

/// Returns where it begins: cuBLAS wants workspaces aligned to 256 bytes.
static uint64_t alignLibraryWorkspace(uint64_t bytes) {
  return llvm::alignTo(bytes, 256);
}

/// The buffer is, from phase `steps` on, a part of the program, and must not be
/// counted twice.
int64_t plait::getDeviceBytes(ProgramOp program) {
  auto module = program->getParentOfType<ModuleOp>();
  TargetAttr target = getTarget(module);
  if (!target || !target.isGPU()) {
    int64_t bytes = 0;
    for (const MemoryPlaceFacts &facts : memoryPlaces)
      if (!facts.isApart(/*isProcessor=*/true))
        bytes += program.getPlaceBytes(facts.place);
    return bytes;
  }
  if (getPhase(module) >= Phase::Steps)
    return program.getBytes();
  return alignLibraryWorkspace(program.getBytes()) +
         getLibraryWorkspace(program, target);
}

/// Adds it at the end of the arena, so that no other buffer moves; live in all
/// actions.
void plait::addLibraryWorkspace(ProgramOp program) {
  int64_t bytes = getLibraryWorkspace(
      program, getTarget(program->getParentOfType<ModuleOp>()));
  int64_t offset = alignLibraryWorkspace(program.getBytes());
  auto actions = program.getBody().getOps<ActionOp>();
  int64_t count = llvm::range_size(actions);
  auto builder = OpBuilder::atBlockEnd(&program.getBody().front());
  // Buffers stand before the actions that bind them.
  if (count)
    builder.setInsertionPoint(*actions.begin());
  BufferOp::create(builder, program.getLoc(), kLibraryWorkspaceBuffer,
                   Category::Workspace, offset, bytes, 0,
                   std::max<int64_t>(0, count - 1));
  program.setBytes(offset + bytes);
}
