//===- BatchMatmuls.cpp - Several matmuls in one call ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The gradients of the weights of query, key and value are three matmuls with
// one operand in common, each of so few tiles that most of a GPU idles. Where
// the other operands lie one behind the other, and the gradients too, as they
// do in packs, a library computes them side by side, as a batch in which the
// common operand is repeated. So do the two of gate and up.
//
// What is computed, and into which bytes, is the same: only steps are moved, to
// the last of those that become one, over nothing that they conflict with.
//
//===----------------------------------------------------------------------===//

#include "Footprint.h"
#include "plait/Transforms/BatchedMatmuls.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

namespace {

/// Joins the matmuls of one function.
class Batcher {
public:
  Batcher(FunctionOp function, const Aliases &aliases)
      : function(function), aliases(aliases) {}

  void run();

private:
  bool mayMove(GemmOp gemm, GemmOp last);
  SmallVector<GemmOp> findRun(GemmOp first, ArrayRef<GemmOp> candidates);
  void join(ArrayRef<GemmOp> run, GemmOp last);

  FunctionOp function;
  const Aliases &aliases;
};

} // namespace

/// How far apart steps are that may become one: what is delayed keeps others
/// waiting.
static constexpr size_t kWindow = 8;

/// Whether `next` begins where `memory` ends.
static bool follows(MemoryAttr memory, MemoryAttr next) {
  return memory.getSlot() == next.getSlot() &&
         memory.getBuffer() == next.getBuffer() &&
         memory.getEnd() == next.getOffset();
}

/// Whether a library may compute `gemm` beside others.
static bool isSingle(GemmOp gemm) {
  return gemm.getBatchSizes().empty() && gemm.getEpilogue() == Epilogue::None &&
         isWorthBatching(gemm.getM() * gemm.getN());
}

/// Whether two differ in nothing but memory.
static bool haveOneShape(GemmOp x, GemmOp y) {
  return x.getM() == y.getM() && x.getN() == y.getN() && x.getK() == y.getK() &&
         x.getType() == y.getType() && x.getCType() == y.getCType() &&
         x.getAccumulate() == y.getAccumulate() &&
         x.getAStrides() == y.getAStrides() &&
         x.getBStrides() == y.getBStrides() &&
         x.getCStrides() == y.getCStrides();
}

/// Whether `next` multiplies the same matrix and all else follows on `gemm`'s.
static bool continues(GemmOp gemm, GemmOp next) {
  return haveOneShape(gemm, next) && follows(gemm.getC(), next.getC()) &&
         ((gemm.getA() == next.getA() && follows(gemm.getB(), next.getB())) ||
          (gemm.getB() == next.getB() && follows(gemm.getA(), next.getA())));
}

/// Whether `gemm` may be computed when `last` is: that one may need its result,
/// too.
bool Batcher::mayMove(GemmOp gemm, GemmOp last) {
  ResolvedUses own = aliases.resolve(cast<StepOpInterface>(*gemm));
  Footprint passed;
  for (Operation *op = gemm; op != last;) {
    op = op->getNextNode();
    if (auto step = dyn_cast<StepOpInterface>(op))
      passed.add(aliases.resolve(step));
  }
  return !passed.conflicts(own);
}

/// The steps that `first` may be one with, in the order in which they lie.
/// `candidates` come behind it.
SmallVector<GemmOp> Batcher::findRun(GemmOp first,
                                     ArrayRef<GemmOp> candidates) {
  SmallVector<GemmOp> run{first};
  // From either end: the order of steps need not be that of memory.
  for (bool grows = true; grows;) {
    grows = false;
    for (GemmOp other : candidates) {
      bool behind = continues(run.back(), other);
      if (!behind && !continues(other, run.front()))
        continue;
      // All of a run share what the first two do.
      if (run.size() > 1 &&
          (run[0].getA() == run[1].getA()) != (other.getA() == run[0].getA()))
        continue;
      run.insert(behind ? run.end() : run.begin(), other);
      grows = true;
    }
  }
  return run;
}

/// Has one step do what those of `run` do, where the last of them is.
void Batcher::join(ArrayRef<GemmOp> run, GemmOp last) {
  OpBuilder builder(last);
  // Named after the first in memory.
  auto whole = cast<GemmOp>(builder.clone(*run.front()));
  auto count = int64_t(run.size());
  auto widen = [&](MemoryAttr memory, ArrayRef<int64_t> strides, bool shared,
                   Type type, auto set) {
    int64_t bytes = memory.getBytes();
    SmallVector<int64_t> all(strides);
    all.push_back(shared ? 0 : bytes * 8 / type.getIntOrFloatBitWidth());
    set(memory.getPart(0, shared ? bytes : count * bytes),
        builder.getDenseI64ArrayAttr(all));
  };
  GemmOp first = run[0];
  whole.setBatch(builder.getDenseI64ArrayAttr({count}).asArrayRef());
  widen(first.getA(), first.getAStrides(),
        first.getA() == GemmOp(run[1]).getA(), first.getType(),
        [&](MemoryAttr memory, DenseI64ArrayAttr strides) {
          whole.setAAttr(memory);
          whole.setAStridesAttr(strides);
        });
  widen(first.getB(), first.getBStrides(),
        first.getB() == GemmOp(run[1]).getB(), first.getType(),
        [&](MemoryAttr memory, DenseI64ArrayAttr strides) {
          whole.setBAttr(memory);
          whole.setBStridesAttr(strides);
        });
  widen(first.getC(), first.getCStrides(), /*shared=*/false, first.getCType(),
        [&](MemoryAttr memory, DenseI64ArrayAttr strides) {
          whole.setCAttr(memory);
          whole.setCStridesAttr(strides);
        });
  for (GemmOp gemm : run)
    gemm->erase();
}

void Batcher::run() {
  SmallVector<GemmOp> gemms;
  for (GemmOp gemm : function.getBody().getOps<GemmOp>())
    if (isSingle(gemm))
      gemms.push_back(gemm);
  llvm::DenseSet<Operation *> joined;
  for (size_t index = 0; index < gemms.size(); ++index) {
    if (joined.contains(gemms[index]))
      continue;
    SmallVector<GemmOp> candidates;
    for (GemmOp other :
         ArrayRef(gemms).drop_front(index + 1).take_front(kWindow))
      if (!joined.contains(other))
        candidates.push_back(other);
    SmallVector<GemmOp> found = findRun(gemms[index], candidates);
    if (found.size() < 2)
      continue;
    GemmOp last = *llvm::max_element(
        found, [](GemmOp x, GemmOp y) { return x->isBeforeInBlock(y); });
    if (!llvm::all_of(found, [&](GemmOp gemm) {
          return gemm == last || mayMove(gemm, last);
        }))
      continue;
    for (GemmOp gemm : found)
      joined.insert(gemm);
    join(found, last);
  }
}

LogicalResult plait::batchMatmuls(ModuleOp module) {
  return forEachCalled(module, [](FunctionOp function, const Aliases &aliases) {
    Batcher(function, aliases).run();
    return success();
  });
}
