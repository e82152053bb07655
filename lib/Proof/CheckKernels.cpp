//===- CheckKernels.cpp - Kernels against their ops, as a pass ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pass `plait-check-kernels`: compiles the clusters of a module after phase
// `lower` and hands their kernels to checkKernels() (Kernels.cpp), which runs
// and judges them. This file only decides which kernels there are to run.
// With `code-of` the ops are this module's and the code another one's, cluster
// by cluster: a test seeds a defect into that module, and the check has to
// notice it.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Plan/Files.h"
#include "plait/Proof/Kernels.h"
#include "plait/Proof/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"

namespace plait::proof {
#define GEN_PASS_DEF_CHECKKERNELSPASS
#include "plait/Proof/Passes.h.inc"
} // namespace plait::proof

using namespace mlir;
using namespace plait;

/// In the order of the walk, which pairs the clusters of two modules.
static SmallVector<plan::ClusterOp> findClusters(ModuleOp module) {
  SmallVector<plan::ClusterOp> found;
  module.walk([&](plan::ClusterOp cluster) { found.push_back(cluster); });
  return found;
}

namespace {
struct CheckKernelsPass : proof::impl::CheckKernelsPassBase<CheckKernelsPass> {
  using CheckKernelsPassBase::CheckKernelsPassBase;

  void runOnOperation() override {
    // Owns the clusters in `compiled`, so it has to outlive the check.
    OwningOpRef<ModuleOp> other;
    SmallVector<plan::ClusterOp> claimed = findClusters(getOperation()),
                                 compiled = claimed;
    if (!codeOf.empty()) {
      if (Status readable = checkInput(codeOf, "code"); !readable.ok()) {
        getOperation().emitError() << readable.message();
        return signalPassFailure();
      }
      other = parseSourceFile<ModuleOp>(codeOf, &getContext());
      if (!other)
        return signalPassFailure();
      compiled = findClusters(*other);
    }
    if (failed(check(claimed, compiled)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  LogicalResult check(ArrayRef<plan::ClusterOp> claimed,
                      ArrayRef<plan::ClusterOp> compiled);
};
} // namespace

/// Clusters of one structure have one kernel, of which the first is tried; of
/// another module's those that are not the same.
///
/// 1. Find the pairs of claim and code that have to be run. Types have to
///    agree, since the memory of a trial is laid out by the claim's.
/// 2. Compile the kernels of those pairs into one object.
/// 3. Run them, and remark what was found.
LogicalResult CheckKernelsPass::check(ArrayRef<plan::ClusterOp> claimed,
                                      ArrayRef<plan::ClusterOp> compiled) {
  if (claimed.size() != compiled.size())
    return getOperation().emitOpError("has ")
           << claimed.size() << " clusters, code-of has " << compiled.size();
  // 1. `structures` emits kernels only to compare them: two clusters of one
  //    symbol have the same structure. Rank scalars are arguments of the kernel
  //    and not part of it, so they are compared as well. `library` gets none
  //    of the pairs that are equal, and so compiles only what is run.
  codegen::TargetCPU target = codegen::TargetCPU::getHost();
  auto library = codegen::KernelLibrary::create(&getContext(), target),
       structures = codegen::KernelLibrary::create(&getContext(), target);
  std::vector<codegen::EmittedKernel> kernels;
  llvm::StringSet<> seen;
  for (auto [claim, code] : llvm::zip_equal(claimed, compiled)) {
    if (claim->getOperandTypes() != code->getOperandTypes() ||
        claim->getResultTypes() != code->getResultTypes())
      return claim->emitOpError("has other types in code-of");
    if (claim != code) {
      auto one = structures->add(claim), other = structures->add(code);
      if (failed(one) || failed(other))
        return failure();
      if (one->symbol == other->symbol && one->scalars == other->scalars)
        continue;
    }
    // Without `code-of` a symbol is tried once. With it, each pair that differs
    // is tried: the code may be shared, but the claims are not the same.
    auto info = library->add(code);
    if (failed(info))
      return failure();
    if (claim != code || seen.insert(info->symbol).second)
      kernels.push_back({claim, *info});
  }
  if (kernels.empty()) {
    emitRemark(getOperation().getLoc(), "kernels: there are none");
    return success();
  }
  // 2. One object of all kernels.
  auto objects = library->finish();
  if (failed(objects))
    return failure();
  const std::vector<char> &data = objects->front().data;
  // 3. The trial.
  auto known = proof::checkKernels(
      kernels, target,
      {reinterpret_cast<const uint8_t *>(data.data()), data.size()});
  if (failed(known))
    return failure();
  emitRemark(getOperation().getLoc(), "kernels: ") << *known;
  return success();
}
