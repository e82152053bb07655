//===- Neighbours.cpp - Values that lie side by side ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 1. Matmuls are sorted by what they have in common: the operand that they
//    share, and the sizes of the rest.
// 2. Of the two tensors that differ one has a place already, in a buffer: a
//    weight, or the gradient of one. Runs of those that follow on one another
//    there say in which order the others have to lie.
// 3. These become one buffer that is live as long as any of them. Where the
//    workspace grew by that, nothing is done.
//
//===----------------------------------------------------------------------===//

#include "Neighbours.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Transforms/BatchedMatmuls.h"

#include <tuple>

using namespace mlir;
using namespace plait;

namespace {

/// One matmul of several that share an operand.
struct Member {
  plan::PlaceAttr fixed; // of the weight, or of its gradient
  int64_t bytes;         // of that
  Value free;            // what may lie anywhere
};

/// The facts that members of a group share: the common operand and its number,
/// the bytes of what is fixed and of what may lie anywhere. Their letters need
/// not be the same: heads that nobody shares have a dimension more. Whether
/// weights are fixed or gradients need not be told: they lie in other buffers,
/// and no run has both.
using Common = std::tuple<Value, unsigned, int64_t, int64_t>;

} // namespace

/// Whether `value` lies in a buffer of the program, not in a slot.
static plan::PlaceAttr
findBuffer(Value value, const llvm::MapVector<Value, plan::PlaceAttr> &places) {
  plan::PlaceAttr place = places.lookup(value);
  return place && !place.isInSlot() ? place : plan::PlaceAttr();
}

/// Step 1, and which of the two is fixed.
static llvm::MapVector<Common, SmallVector<Member>>
findMembers(func::FuncOp function,
            const llvm::MapVector<Value, plan::PlaceAttr> &places) {
  llvm::MapVector<Common, SmallVector<Member>> found;
  for (auto matmul :
       function.getBody().front().getOps<ContractionOpInterface>()) {
    if (!matmul.contractsOnly())
      continue;
    Value result = matmul->getResult(0);
    for (unsigned shared : {0, 1}) {
      Value common = matmul->getOperand(shared);
      Value other = matmul->getOperand(1 - shared);
      bool makesFixed = bool(findBuffer(result, places));
      Value fixed = makesFixed ? result : other;
      Value free = makesFixed ? other : result;
      plan::PlaceAttr place = findBuffer(fixed, places);
      if (common == other || !place || places.contains(free) ||
          !isWorthBatching(matmul.getResultType().getNumElements()))
        continue;
      int64_t bytes = plan::getStoredBytes(fixed);
      found[{common, shared, bytes, plan::getStoredBytes(free)}].push_back(
          {place, bytes, free});
    }
  }
  return found;
}

/// Whether `member` begins where `before` ends.
static bool follows(const Member &before, const Member &member) {
  return before.fixed.getBuffer() == member.fixed.getBuffer() &&
         before.fixed.getOffset() + before.bytes == member.fixed.getOffset();
}

/// The values in whose memory those of `run` lie, if each has some of its own,
/// of equal size.
static Neighbours findRoots(ArrayRef<Member> run, const Workspace &workspace,
                            llvm::DenseSet<Value> &taken) {
  Neighbours roots;
  for (const Member &member : run) {
    Value root = workspace.findRoot(member.free);
    auto *life = workspace.lifetimes.find(root);
    int64_t bytes = plan::getStoredBytes(member.free);
    if (life == workspace.lifetimes.end() || life->second.bytes != bytes ||
        bytes % plan::kAlignment || taken.contains(root) ||
        llvm::is_contained(roots, root))
      return {};
    roots.push_back(root);
  }
  taken.insert_range(roots);
  return roots;
}

SmallVector<Neighbours>
plait::findNeighbours(func::FuncOp function,
                      const llvm::MapVector<Value, plan::PlaceAttr> &places,
                      const Workspace &workspace) {
  SmallVector<Neighbours> groups;
  llvm::DenseSet<Value> taken;
  for (auto &[common, members] : findMembers(function, places)) {
    // Buffers by name: their attributes have no order of their own.
    llvm::stable_sort(members, [](const Member &x, const Member &y) {
      return std::pair(x.fixed.getBuffer().getValue(), x.fixed.getOffset()) <
             std::pair(y.fixed.getBuffer().getValue(), y.fixed.getOffset());
    });
    for (ArrayRef<Member> rest = members; rest.size() > 1;) {
      size_t count = 1;
      while (count < rest.size() && follows(rest[count - 1], rest[count]))
        ++count;
      if (count > 1)
        if (Neighbours roots =
                findRoots(rest.take_front(count), workspace, taken);
            !roots.empty())
          groups.push_back(std::move(roots));
      rest = rest.drop_front(count);
    }
  }
  return groups;
}

SmallVector<int64_t> plait::packNeighbours(const Workspace &workspace,
                                           ArrayRef<Neighbours> groups,
                                           int64_t &total,
                                           ArrayRef<PlacedBuffer> placed) {
  SmallVector<Lifetime> buffers;
  llvm::DenseMap<Value, size_t> indexOf;
  for (auto &[value, lifetime] : workspace.lifetimes) {
    indexOf[value] = buffers.size();
    buffers.push_back(lifetime);
  }
  SmallVector<int64_t> offsets = packMemory(buffers, total, placed);
  if (groups.empty())
    return offsets;
  // The first of a group stands for all; the others take nothing.
  for (const Neighbours &group : groups) {
    Lifetime &whole = buffers[indexOf.at(group.front())];
    for (Value value : ArrayRef(group).drop_front()) {
      Lifetime &own = buffers[indexOf.at(value)];
      whole = {whole.bytes + own.bytes, std::min(whole.first, own.first),
               std::max(whole.last, own.last)};
      own.bytes = 0;
    }
  }
  int64_t joined = 0;
  SmallVector<int64_t> beside = packMemory(buffers, joined, placed);
  if (joined > total)
    return offsets;
  for (const Neighbours &group : groups) {
    int64_t begin = beside[indexOf.at(group.front())];
    int64_t bytes = workspace.lifetimes.lookup(group.front()).bytes;
    for (auto [index, value] : llvm::enumerate(group))
      beside[indexOf.at(value)] = begin + int64_t(index) * bytes;
  }
  total = joined;
  return beside;
}
