//===- EmitElementwise.cpp - Kernels over single elements
//---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   for vector of the space:
//     all results there
//
//===----------------------------------------------------------------------===//

#include "EmitKernel.h"
#include "Workers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace plait;
using namespace plait::codegen;

/// Sets the indices of all groups from the number of a vector. The inner group
/// is a whole number of vectors.
static void placeVector(Emitter &emitter, Value vector) {
  const IterationSpace &space = emitter.space;
  int64_t inner = space.getInner();
  Value count =
      emitter.constant(space.getGroups()[inner].extent / emitter.lanes);
  Value column = vector;
  if (inner > 0) {
    auto rows = llvm::to_vector(llvm::seq<int64_t>(inner));
    column = arith::RemUIOp::create(emitter.builder, vector, count);
    emitter.setIndices(rows,
                       arith::DivUIOp::create(emitter.builder, vector, count));
  }
  emitter.groupIndex[inner] = emitter.mul(column, emitter.lanes);
}

/// No loop inside of a parallel index: an index is a vector of lanes, and
/// threads get runs of them. There is no tail, since the shape promises whole
/// vectors. Results that lack the inner group or are one number are stored
/// where guardOf() says.
void codegen::emitElementwise(Emitter &emitter, Workers &workers,
                              KernelInfo &info) {
  emitter.assignScopes([](const Reduction &) { return IndexScope; });
  SmallVector<unsigned> indexStores, kernelStores;
  for (unsigned result = 0; result < emitter.cluster.getNumResults(); ++result)
    (emitter.getScope(emitter.getYielded(result)) == IndexScope ? indexStores
                                                                : kernelStores)
        .push_back(result);
  for (const Group &group : emitter.space.getGroups())
    info.extent *= group.extent;
  info.extent /= emitter.lanes;
  info.grain = std::max<int64_t>(1, kGrainElements / emitter.lanes);
  SmallVector<Value> none;
  if (!indexStores.empty())
    workers.forIndices(info.extent, {}, none, [&](Value vector) {
      emitter.enter(IndexScope);
      placeVector(emitter, vector);
      emitter.storeResults(indexStores, IndexScope);
    });
  emitter.setAnchor(KernelScope, nullptr);
  emitter.storeResults(kernelStores, KernelScope);
}
