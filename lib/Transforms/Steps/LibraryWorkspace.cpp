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
#include "plait/Plan/Attention.h"
#include "plait/Plan/GroupedGemm.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

/// Returns what the library for GEMMs may use: what cuBLAS itself takes by
/// default, which later architectures profit from.
static uint64_t getGemmWorkspace(TargetAttr target) {
  return uint64_t(target.getCubin() == "sm_80" ? 8 : 32) << 20;
}

/// Returns what an attention may use. The formula is one over steps of the plan
/// file (plait/Plan/Attention.h), of which only the fields that it reads are
/// filled in: the step itself does not exist yet.
template <typename OpTy>
static uint64_t getAttentionWorkspace(OpTy op, fb::AttentionKind kind,
                                      bool deterministic, int architecture) {
  ArrayRef<int64_t> query = op.getQuery().getType().getShape();
  fb::AttentionStepT step;
  step.kind = kind;
  step.dtype = getElementTypeOrSelf(op.getQuery()).isBF16() ? fb::DType::BF16
                                                            : fb::DType::F32;
  step.batch = query[0];
  step.queries = query[1];
  step.keys = op.getKey().getType().getDimSize(1);
  step.kv_heads = query[2];
  step.heads = query[2] * query[3];
  step.head_size = query[4];
  step.deterministic = deterministic;
  if (nn::BeginAttr begin = op.getBeginAttr();
      begin && !op.getScore().getBidirectional())
    step.chunks = begin.getChunks();
  return gpuAttentionWorkspace(step, architecture);
}

/// Returns what GEMMs and the largest attention or grouped GEMM of a program
/// may use.
static uint64_t getLibraryWorkspace(ProgramOp program, TargetAttr target) {
  auto module = program->getParentOfType<ModuleOp>();
  bool deterministic = getConfiguration(module).deterministic;
  int architecture = target.getArchitecture();
  uint64_t bytes = getGemmWorkspace(target);
  auto add = [&](auto op, fb::AttentionKind kind) {
    bytes = std::max(
        bytes, getAttentionWorkspace(op, kind, deterministic, architecture));
  };
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
    function->walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op)
          .Case(
              [&](nn::AttentionOp op) { add(op, fb::AttentionKind::Forward); })
          .Case([&](nn::AttentionGradOp op) {
            add(op, fb::AttentionKind::Backward);
          })
          .Case([&](nn::GroupedMatmulOp op) {
            int64_t rows = op.getIds().getType().getNumElements();
            bytes =
                std::max(bytes, gpuGroupedWorkspace(rows, op.countExperts()));
          });
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
