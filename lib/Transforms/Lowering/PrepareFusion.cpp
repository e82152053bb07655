//===- PrepareFusion.cpp - Ops that kernels can compute -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two rewrites make what FormClusters.cpp assumes true: what has to lie at a
// certain address is the result of an op that can write it there, once for each
// address; and every reduction is one that some kernel computes by itself, on
// GPUs with enough threads (SplitColumnSums.cpp). Which reductions have to be
// split is found by asking for a kernel, not by a list of shapes.
//
// A third one saves memory and its traffic: what two kernels need that cannot
// be one is made by both, where it is made of fewer bytes. A layer that is
// computed again and its gradients are in one function, and would otherwise
// share what a norm makes of each element, in four bytes.
//
//===----------------------------------------------------------------------===//

#include "Fusion.h"

#include "plait/Analysis/KernelShape.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Transforms/FoldedModel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>
#include <map>

using namespace mlir;
using namespace plait;

bool plait::isForGPUs(ModuleOp module) {
  TargetAttr target = getTarget(module);
  return (target && target.isGPU()) || module->hasAttr(kSplitsColumnSumsAttr);
}

bool plait::isFree(Operation *op) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  return fusable && fusable.isFree();
}

bool plait::needsMemory(OpOperand &use) {
  return !isa<FusableOpInterface>(use.getOwner()) || readsMemory(use);
}

bool plait::readsElsewhere(Operation *op) {
  RoleFacts facts = getFacts(op);
  return facts.readsMemory || facts.scatters;
}

bool plait::readsFixedBlock(Operation *op) {
  std::optional<IndexMap> map =
      getFacts(op).maps ? findIndexMap(op) : std::nullopt;
  return map && map->isBlock() && map->begin == IndexMap::Begin::None;
}

bool plait::isCompared(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return user->hasTrait<ComparesFloats>() ||
           (isFree(user) && isCompared(user->getResult(0)));
  });
}

bool plait::unpacks(Operation *op) {
  if (!getFacts(op).maps)
    return false;
  auto count = [](Value value) {
    return cast<ShapedType>(value.getType()).getNumElements();
  };
  return count(op->getOperand(0)) < count(op->getResult(0));
}

//===----------------------------------------------------------------------===//
// What is stored
//===----------------------------------------------------------------------===//

/// Writing back what was read changes nothing.
static bool isWrittenBack(SlotOpInterface access) {
  if (!access || access.getAccess() != nn::SlotAccess::Replace)
    return false;
  auto source = access.getTensor().getDefiningOp<SlotOpInterface>();
  return source && source.getSymbol() == access.getSymbol() &&
         source.getSlot() == access.getSlot();
}

/// A result is written to one address by whoever computes it. Copies are made
/// where there is no such op (an argument, a read, a constant), where a value
/// is returned or stored twice, and where what is to be added to a sum is
/// needed elsewhere, or made by an op that can only overwrite. What is joined
/// lies in the whole, and nowhere else.
static void copyStoredValues(Block &body) {
  OpBuilder builder(body.getParentOp()->getContext());
  llvm::DenseSet<Value> returned;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    // What has no result stores its operands, or returns them.
    bool joins = op.hasTrait<JoinsOperands>();
    if (op.getNumResults() && !joins)
      continue;
    if (isWrittenBack(dyn_cast<SlotOpInterface>(op))) {
      op.erase();
      continue;
    }
    for (OpOperand &operand : op.getOpOperands()) {
      Operation *source = operand.get().getDefiningOp();
      bool computed = source && !isa<MemoryOpInterface>(source) &&
                      !isa<ConstantDataOpInterface>(source);
      bool alone = operand.get().hasOneUse();
      // Kernels and matmuls can add to what is in a buffer, nothing else.
      bool overwrites =
          source && !isa<FusableOpInterface, ContractionOpInterface>(source);
      bool isAccumulate = nn::getSlotAccess(&op) == nn::SlotAccess::Add;
      bool first = returned.insert(operand.get()).second;
      bool isOwn =
          (!isAccumulate && !joins) || (alone && !overwrites) ||
          (joins && alone && !(source && source->hasTrait<JoinsOperands>()));
      if (computed && first && isOwn)
        continue;
      builder.setInsertionPoint(&op);
      // An op that only copies: after differentiation nothing else is left of
      // it.
      operand.set(nn::StopGradientOp::create(
          builder, op.getLoc(), operand.get().getType(), operand.get()));
    }
  }
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Operation *plait::reduceOver(OpBuilder &builder, Operation *op, Value input,
                             ArrayRef<int64_t> dims) {
  auto type = cast<RankedTensorType>(input.getType());
  SmallVector<int64_t> shape;
  for (auto [dim, extent] : llvm::enumerate(type.getShape()))
    if (!llvm::is_contained(dims, static_cast<int64_t>(dim)))
      shape.push_back(extent);
  Operation *part = builder.clone(*op);
  part->setOperand(0, input);
  cast<FusableOpInterface>(part).setDims(dims);
  part->getResult(0).setType(type.clone(shape));
  return part;
}

/// A reduction that no kernel does at once, say over the first and the last of
/// three dimensions, reduces the last one first: a kernel over rows does that,
/// and the others are one dimension less.
static void splitReductions(Block &body) {
  SmallVector<Operation *> worklist;
  for (Operation &op : body)
    if (isReduction(&op))
      worklist.push_back(&op);
  // Ends: each round leaves a reduction of one dimension and one of the others.
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val();
    ArrayRef<int64_t> dims = cast<FusableOpInterface>(op).getDims();
    if (dims.size() == 1 || findCopies(op, op->getResult(0)) != Copies::None)
      continue;
    OpBuilder builder(op);
    Operation *last = reduceOver(builder, op, op->getOperand(0), dims.back());
    Operation *others =
        reduceOver(builder, op, last->getResult(0), dims.drop_back());
    op->replaceAllUsesWith(others);
    op->erase();
    worklist.push_back(others);
  }
}

//===----------------------------------------------------------------------===//
// What is made twice
//===----------------------------------------------------------------------===//

namespace {

/// Copies elementwise ops of one function for kernels that come later.
class Remaker {
public:
  explicit Remaker(Block &body) : body(body) {}

  /// Returns the copies.
  llvm::DenseSet<Operation *> run();

private:
  Value remake(Operation *op, int64_t depth, IRMapping &copies,
               OpBuilder &builder);
  void remakeFor(Operation *op);

  Block &body;
  /// The most matmuls, collectives and the like on a path to each op: what
  /// has more of them in front of it is in a later kernel.
  llvm::DenseMap<Operation *, int64_t> depths;
  llvm::DenseSet<Operation *> made;
};

} // namespace

/// Whether `value` is made by an op that is copied along with what it is for,
/// which has the type `type`.
static bool isChained(Value value, Type type) {
  Operation *op = value.getDefiningOp();
  return op && value.getType() == type && getFacts(op).elementwise &&
         !isFree(op) && !isCompared(value) &&
         llvm::none_of(op->getOpOperands(), readsMemory);
}

/// Whether it and all that is copied with it read fewer bytes than it has, and
/// some for each element: tables that are made of numbers alone take long to
/// compute. It looks no further than the answer needs: what is added up layer
/// after layer is made of all of these.
static bool isCheaper(Operation *op) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  llvm::SetVector<Value> values(op->operand_begin(), op->operand_end());
  int64_t bytes = 0;
  bool isOfElements = false;
  for (size_t index = 0; index < values.size() && bytes < byteSize(type);
       ++index) {
    Value value = values[index];
    Operation *source = value.getDefiningOp();
    if (source && (isFree(source) || isChained(value, type))) {
      values.insert(source->operand_begin(), source->operand_end());
      continue;
    }
    auto read = cast<RankedTensorType>(value.getType());
    bytes += byteSize(read);
    isOfElements |= read.getNumElements() == type.getNumElements();
  }
  return isOfElements && bytes < byteSize(type);
}

/// Returns a copy of what `op` makes for ops of `depth`; free ops are shared,
/// which every kernel copies anyhow.
Value Remaker::remake(Operation *op, int64_t depth, IRMapping &copies,
                      OpBuilder &builder) {
  Value result = op->getResult(0);
  if (Value known = copies.lookupOrNull(result))
    return known;
  for (Value operand : op->getOperands())
    if (isChained(operand, result.getType()))
      remake(operand.getDefiningOp(), depth, copies, builder);
  Operation *copy = builder.clone(*op, copies);
  depths[copy] = depth;
  made.insert(copy);
  return copy->getResult(0);
}

/// Leaves the result to the first kernel that reads it.
void Remaker::remakeFor(Operation *op) {
  Value result = op->getResult(0);
  if (!isChained(result, result.getType()) || result.hasOneUse() ||
      llvm::any_of(result.getUses(), needsMemory))
    return;
  std::map<int64_t, SmallVector<OpOperand *>> uses; // by depth
  for (OpOperand &use : result.getUses())
    uses[depths.lookup(use.getOwner())].push_back(&use);
  if (uses.size() < 2 || !isCheaper(op))
    return;
  uses.erase(uses.begin());
  for (auto &[depth, later] : uses) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    IRMapping copies;
    Value copy = remake(op, depth, copies, builder);
    for (OpOperand *use : later)
      use->set(copy);
  }
}

llvm::DenseSet<Operation *> Remaker::run() {
  SmallVector<Operation *> ops;
  for (Operation &op : body) {
    int64_t &depth = depths[&op];
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp())
        depth = std::max(depth,
                         depths.at(source) + !isa<FusableOpInterface>(source));
    if (isa<FusableOpInterface>(op))
      ops.push_back(&op);
  }
  // From the last: what a copy reads in place of another is then known.
  for (Operation *op : llvm::reverse(ops))
    remakeFor(op);
  return std::move(made);
}

llvm::DenseSet<Operation *> plait::prepareFusion(Block &body) {
  llvm::DenseSet<Operation *> made = Remaker(body).run();
  copyStoredValues(body);
  if (isForGPUs(body.getParentOp()->getParentOfType<ModuleOp>()))
    splitColumnSums(body);
  splitReductions(body);
  return made;
}
