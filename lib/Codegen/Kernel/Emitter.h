//===- Emitter.h - Elements inside loops ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Emits the elements of a cluster's values at the place where the loops stand,
// as arith, math and vector ops with loads and stores through raw pointers.
// Which loops there are is the business of EmitRows.cpp and its siblings; all
// nest three scopes:
//
//   kernel { for parallel index { for … { } } }
//
// A value belongs to the outermost scope that fixes all its indices, and is
// emitted there once, on demand, before the loop that demands it. Values along
// the inner group are vectors of `lanes` neighbours, all others scalars.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CODEGEN_KERNEL_EMITTER_H
#define PLAIT_LIB_CODEGEN_KERNEL_EMITTER_H

#include "plait/Analysis/IterationSpace.h"
#include "plait/Codegen/Kernel.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"

#include <functional>
#include <map>

namespace plait::codegen {

enum ScopeIndex : unsigned { KernelScope, IndexScope, LoopScope };

/// The function around a kernel's loops.
struct KernelFunction {
  /// The buffers of the cluster's operands, then those of its results.
  llvm::SmallVector<mlir::Value> pointers;
  /// The value of KernelInfo::scalars[index], as i64, where `builder` stands.
  std::function<mlir::Value(mlir::ImplicitLocOpBuilder &builder,
                            unsigned index)>
      getScalar;
  /// 0 in one of the places that run the kernel, which writes what belongs to
  /// no parallel index.
  mlir::Value first;
};

class Emitter {
public:
  /// `builder` stands where the loops will.
  Emitter(plan::ClusterOp cluster, const IterationSpace &space,
          mlir::OpBuilder &builder, KernelFunction function, KernelInfo &info,
          int64_t lanes);

  //===--- The loops, as their emitters set them up -----------------------===//

  /// The scope whose loop runs over each group.
  llvm::SmallVector<ScopeIndex> groupScope;
  /// Each group's index where the loops stand, as i64; for the inner group
  /// that of lane 0.
  llvm::SmallVector<mlir::Value> groupIndex;
  /// The lanes that count, a vector of i1; null: all.
  mlir::Value mask;
  /// The lanes that reductions count where the last vector of a row reaches
  /// into what lies between rows, which is loaded and stored like all else.
  mlir::Value counted;
  int64_t lanes;
  /// Vectors are whole (there is no mask), lie at multiples of their size, and
  /// no boundary inside of a tensor cuts through one: on machines that load
  /// nothing else.
  bool aligned = false;
  /// The machine has instructions that round pairs of numbers to bf16.
  bool roundsPairs = false;
  /// The condition that must hold for this thread to write the results of an
  /// index, an i1; null: nothing, it is alone.
  mlir::Value indexGuard;

  /// Opens `scope` afresh.
  void enter(ScopeIndex scope) { scopes[scope] = Scope(); }
  /// The op with the loop inside of `scope` that is being filled: what belongs
  /// to `scope` is emitted before it. Null: at the insertion point.
  void setAnchor(ScopeIndex scope, mlir::Operation *op) {
    scopes[scope].anchor = op;
  }
  /// Sets the scope of every value, reductions' results at `reduced`.
  void assignScopes(llvm::function_ref<ScopeIndex(const Reduction &)> reduced);
  ScopeIndex getScope(mlir::Value value) const {
    return valueScope.find(value)->second;
  }
  /// Also for inputs of the cluster.
  ScopeIndex getScope(mlir::OpOperand &use) const;
  /// Gives a reduction's result its value.
  void setValue(mlir::Value value, ScopeIndex scope, mlir::Value element) {
    scopes[scope].values[value] = isKept(value) ? asKept(element) : element;
  }

  //===--- Elements -------------------------------------------------------===//

  /// The element at `use`, at least as many lanes as the loops have where the
  /// tensor has the inner group.
  mlir::Value emit(mlir::OpOperand &use);
  /// Emits what `reduction` adds up or compares; a scalar if its operand has
  /// not the inner group.
  mlir::Value emitSummand(const Reduction &reduction);
  /// Writes results inside `scope`, at the place where the loops stand. All
  /// elements are emitted before the first is written.
  void storeResults(llvm::ArrayRef<unsigned> results, ScopeIndex scope);
  /// Writes `value` into the buffer of a result that is written later.
  void spill(mlir::Value value, unsigned result);
  /// Later loops read `value` from the buffer of `result` instead of computing
  /// it again.
  void reloadFrom(mlir::Value value, unsigned result);
  /// Whether computing `value` took more than a few instructions.
  bool isCostly(mlir::Value value) const { return costly.contains(value); }

  //===--- Helpers --------------------------------------------------------===//

  bool hasInner(llvm::ArrayRef<int64_t> dims) const;
  mlir::OpOperand &getYielded(unsigned result);
  plan::Accumulate getMode(unsigned result);
  mlir::Value constant(int64_t value);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value mul(mlir::Value a, int64_t b);
  mlir::Value splat(mlir::Value element, int64_t lanes);
  /// The neutral element of a reduction, in `lanes` lanes.
  mlir::Value neutral(FusionRole role, int64_t lanes);
  mlir::Value combine(FusionRole role, mlir::Value a, mlir::Value b);
  /// All lanes combined, pairwise: the same order on every machine.
  mlir::Value combineLanes(FusionRole role, mlir::Value vector);
  /// Lanes [0, count) of `lanes`.
  mlir::Value constantMask(int64_t count);
  /// Sets the indices of `set`, outermost first, from one running number.
  void setIndices(llvm::ArrayRef<int64_t> set, mlir::Value running);
  mlir::Value rankScalar(RankScalar scalar);
  /// Returns what the call gives `op` (FusableOpInterface::getCallAttrName), as
  /// i64.
  mlir::Value callValue(mlir::Operation *op);
  /// The sum of `terms` on the rank, as i64.
  mlir::Value sumTerms(llvm::ArrayRef<RankTerm> terms);
  /// True (i1) in the first microbatch.
  mlir::Value isFirstMicrobatch();
  /// The index along a dimension of the space as i32, in `lanes` lanes.
  mlir::Value indexOf(int64_t dim, int64_t lanes);
  mlir::Value getResultPointer(unsigned result) {
    return function.pointers[cluster.getNumOperands() + result];
  }
  /// Loads what lies `offset` elements after `pointer`: one element, or as many
  /// as there are lanes under the mask. `element` is the type in memory; a bf16
  /// one is f32 when it is loaded, and rounded where it is stored.
  mlir::Value loadScalar(mlir::Value pointer, mlir::Type element,
                         mlir::Value offset);
  mlir::Value loadLanes(mlir::Value pointer, mlir::Type element,
                        mlir::Value offset) {
    return loadMasked(pointer, element, offset, mask);
  }
  void store(mlir::Value pointer, mlir::Type element, mlir::Value value,
             mlir::Value offset);
  /// Returns where the element of a tensor with these dimensions lies.
  mlir::Value offsetOf(mlir::Value tensor, llvm::ArrayRef<int64_t> dims);
  /// The same in the memory of a result, whose rows may have another pitch.
  mlir::Value offsetOf(mlir::Value tensor, llvm::ArrayRef<int64_t> dims,
                       int64_t pitch);
  /// The row that an op of role Gather or ScatterAdd reads or writes among
  /// `rows`, as i64; `inside` becomes whether it is one of them.
  mlir::Value emitRow(mlir::Operation *op, int64_t rows, mlir::Value &inside);

  plan::ClusterOp cluster;
  const IterationSpace &space;
  mlir::ImplicitLocOpBuilder builder;
  KernelFunction function;

private:
  struct Scope {
    llvm::DenseMap<mlir::Value, mlir::Value> values;
    std::map<std::pair<unsigned, std::vector<int64_t>>, mlir::Value> loads;
    mlir::Operation *anchor = nullptr;
  };

  void moveTo(ScopeIndex scope);
  ScopeIndex getScope(GroupSet groups) const;
  mlir::Value emitValue(mlir::Value value);
  mlir::Value emitOp(mlir::Operation *op);
  mlir::Value emitGather(mlir::Operation *op);
  mlir::Value emitReindexed(mlir::Operation *op);
  mlir::Value offsetOfRead(mlir::Operation *op, const IndexMap &map);
  mlir::Value emitPiece(mlir::Operation *op, const IndexMap &map);
  mlir::Value emitPieces(mlir::Operation *op, const IndexMap &map);
  mlir::Value emitInput(mlir::OpOperand &use);
  mlir::Value loadMasked(mlir::Value pointer, mlir::Type element,
                         mlir::Value offset, mlir::Value lanesMask);
  mlir::Value number(int64_t value, mlir::Type like);
  mlir::Value widen(mlir::Value bits);
  mlir::Value widenPairs(mlir::Value pairs);
  mlir::Value round(mlir::Value floats);
  mlir::Value roundPairs(mlir::Value floats);
  bool isKept(mlir::Value value);
  mlir::Value asKept(mlir::Value floats);
  mlir::Value emitInside(mlir::Value inside, mlir::Value pointer,
                         mlir::Type element, int64_t width, mlir::Value offset);
  mlir::Value guardOf(llvm::ArrayRef<int64_t> dims, ScopeIndex scope);
  void storeResult(unsigned result, mlir::Value element);
  mlir::Value pointerOf(mlir::OpOperand &input) const;

  KernelInfo &info;
  Scope scopes[3];
  std::map<unsigned, mlir::Value> scalarValues;
  llvm::DenseMap<mlir::Value, ScopeIndex> valueScope;
  llvm::DenseSet<mlir::Value> costly;
  llvm::DenseMap<mlir::Value, unsigned> reloads;
  /// The bits that a store writes of numbers that were rounded before.
  llvm::DenseMap<mlir::Value, mlir::Value> roundedBits;
};

} // namespace plait::codegen

#endif // PLAIT_LIB_CODEGEN_KERNEL_EMITTER_H
