//===- BucketReductions.cpp - Gradients reduced in buckets ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cuts the all-reduces of gradients into buckets and puts first what is
// complete first, so that the sums of the last layers go on while the backward
// pass computes those before them. Which bytes a step writes is asked of the
// steps themselves (StepOpInterface); nothing is known of layers. Which bucket
// waits for what is found when the plan is loaded (plait/Plan/Streams.h): here
// only the order changes, and every element stays the sum of the same numbers.
//
// All ranks of a group run one program, so that they agree about the order.
//
//===----------------------------------------------------------------------===//

#include "../Remarks.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Support/Buckets.h"
#include "plait/Transforms/Passes.h"
#include "plait/Transforms/Steps.h"

namespace plait {
#define GEN_PASS_DEF_BUCKETREDUCTIONSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;
using namespace plait::plan;

int64_t plait::getBucketElements(ModuleOp module, int64_t ranks) {
  TargetAttr target = getTarget(module);
  return getBucketElements(target && target.isGPU(), ranks);
}

namespace {

/// A part of an all-reduce, and the last operation before it that writes there.
struct Bucket {
  CollectiveOp step;
  ProgramMemory::Range range;
  std::pair<size_t, size_t> written = {0, 0}; // action, step
  // Gradients that no step of the program writes stay in front: they are
  // complete from the start.
  bool isWritten = false;
};

/// Cuts the reductions of one action.
class ActionBuckets {
public:
  /// `least`: elements of a bucket; 0: what getBucketElements() says.
  ActionBuckets(ArrayRef<ActionOp> actions, size_t action,
                const llvm::DenseMap<Attribute, FunctionOp> &functions,
                const ProgramMemory &memory, int64_t least)
      : actions(actions), action(action), functions(functions), memory(memory),
        least(least),
        module(this->actions[action]->getParentOfType<ModuleOp>()),
        onGPU(getTarget(module).isGPU()) {}

  /// Replaces runs of all-reduces over the same ranks.
  void run() {
    auto steps = llvm::to_vector(getSteps(getCallee(actions[action])));
    for (size_t i = 0; i < steps.size();) {
      size_t end = i;
      SmallVector<CollectiveOp> run;
      // A run ends at the first step that is no such sum, or is over other
      // ranks: all-reduces never pass one of those, in which other ranks may be
      // waiting.
      while (end < steps.size() && isSum(steps[end]) &&
             steps[i].getStream() == steps[end].getStream())
        run.push_back(cast<CollectiveOp>(*steps[end++]));
      replace(run);
      i = std::max(i + 1, end);
    }
  }

private:
  /// Null for a transfer.
  FunctionOp getCallee(ActionOp call) const {
    auto callee = call.getCalleeAttr();
    return callee ? functions.lookup(callee.getAttr()) : FunctionOp();
  }

  /// Whether `step` is a sum in place that goes on beside computing: on a
  /// processor, over replicas, which meet nowhere else. Along the pipeline
  /// programs meet that need not agree about what is written first.
  bool isSum(StepOpInterface step) const {
    auto collective = dyn_cast<CollectiveOp>(*step);
    const AxisFacts *facts =
        collective ? findAxis(collective.getAxis()) : nullptr;
    return facts && (onGPU || facts->splitsReplicas()) &&
           facts->splits != Splits::Stages &&
           collective.getKind() == CollectiveKind::AllReduce &&
           collective.getReduction() == dist::Reduction::Sum &&
           collective.isInPlace();
  }

  /// 1. Cuts all reductions of the run.
  /// 2. Finds when the gradients in each bucket are complete.
  /// 3. Puts the buckets in that order, so that the first can start while the
  /// rest is still computed; equals stay as they were, so that all ranks of a
  /// stage have one order.
  void replace(ArrayRef<CollectiveOp> run) {
    SmallVector<Bucket> buckets;
    // 1.
    for (CollectiveOp whole : run)
      cut(whole, buckets);
    // 2.
    findWrites(buckets);
    // 3.
    llvm::stable_sort(buckets, [](const Bucket &left, const Bucket &right) {
      return left.written < right.written;
    });
    for (Bucket &bucket : buckets)
      bucket.step->moveBefore(run.front());
    tell(run, buckets.size());
    for (CollectiveOp whole : run)
      whole.erase();
  }

  static void tell(ArrayRef<CollectiveOp> run, size_t buckets) {
    if (run.empty())
      return;
    CollectiveOp first = run.front();
    remark::analysis(first.getLoc(),
                     about(first, "bucket", "plan-bucket-reductions"))
        << remark::add("{0} all-reduces over {1} are reduced in {2} buckets",
                       run.size(), first.getAxis().str(), buckets);
  }

  /// Appends the parts of `whole`, each a clone before it: equally long but for
  /// the last, and none below the wanted size where there are several, up to
  /// rounding.
  void cut(CollectiveOp whole, SmallVectorImpl<Bucket> &buckets) const {
    int64_t ranks = whole.countRanks();
    int64_t elements = int64_t(whole.getOuter()) * int64_t(whole.getChunk());
    int64_t unit = whole.getType().getIntOrFloatBitWidth() / 8;
    int64_t wanted = least ? least : getBucketElements(module, ranks);
    int64_t count = countBuckets(elements, wanted);
    // Multiples of 64 elements keep vector accesses aligned.
    int64_t length = llvm::alignTo(llvm::divideCeil(elements, count), 64);
    OpBuilder builder(whole);
    for (int64_t begin = 0; begin < elements; begin += length) {
      auto part = cast<CollectiveOp>(builder.clone(*whole));
      int64_t size = std::min(length, elements - begin);
      MemoryAttr bytes = whole.getInput().getPart(begin * unit, size * unit);
      // A sum does not care how its elements are grouped in rows.
      part.setOuter(1);
      part.setChunk(size);
      part.setInputAttr(bytes);
      part.setOutputAttr(bytes);
      buckets.push_back({part, memory.resolve(actions[action], bytes)});
    }
  }

  /// Goes from the last operation before the action backwards. A function that
  /// ran later as well wrote the same gradients then.
  void findWrites(MutableArrayRef<Bucket> buckets) const {
    size_t missing = buckets.size();
    llvm::SmallDenseSet<FunctionOp> seen;
    // Each function is looked at once, as its last call: with hundreds of
    // microbatches the walk does not grow with their number.
    for (size_t i = action; i-- > 0 && missing > 0;) {
      FunctionOp function = getCallee(actions[i]);
      if (!function || !seen.insert(function).second)
        continue;
      auto steps = llvm::to_vector(getSteps(function));
      // From the last step, too: the first that touches a bucket here is the
      // last to write it.
      for (size_t j = steps.size(); j-- > 0 && missing > 0;)
        for (const StepUse &use : steps[j].getUses())
          if (use.writes)
            missing -= markWritten(
                buckets, memory.resolve(actions[i], use.memory), {i, j});
    }
  }

  /// Returns how many buckets the operation `at` is the last to write.
  static size_t markWritten(MutableArrayRef<Bucket> buckets,
                            ProgramMemory::Range range,
                            std::pair<size_t, size_t> at) {
    size_t found = 0;
    for (Bucket &bucket : buckets)
      if (!bucket.isWritten && range.begin < bucket.range.end &&
          bucket.range.begin < range.end) {
        bucket.written = at;
        bucket.isWritten = true;
        ++found;
      }
    return found;
  }

  ArrayRef<ActionOp> actions;
  size_t action;
  const llvm::DenseMap<Attribute, FunctionOp> &functions;
  const ProgramMemory &memory;
  int64_t least;
  ModuleOp module;
  bool onGPU;
};

struct BucketReductionsPass
    : plait::impl::BucketReductionsPassBase<BucketReductionsPass> {
  using BucketReductionsPassBase::BucketReductionsPassBase;

  void runOnOperation() override {
    if (!getTarget(getOperation()))
      return;
    if (bucket < 0) {
      getOperation().emitError("bucket is ")
          << int64_t(bucket) << ", expected 0 or more elements";
      return signalPassFailure();
    }
    if (failed(verifySteps(getOperation())))
      return signalPassFailure();
    SymbolTableCollection symbols;
    for (auto program : getOperation().getOps<ProgramOp>())
      run(program, symbols);
  }

  /// Whose reductions are called by one action, and that is a reduce.
  void run(ProgramOp program, SymbolTableCollection &symbols) {
    ProgramMemory memory(program);
    auto actions = llvm::to_vector(program.getBody().getOps<ActionOp>());
    llvm::DenseMap<Attribute, FunctionOp> functions;
    for (FunctionOp function : getCalled(program, symbols))
      functions[function.getSymNameAttr()] = function;
    // A function that two actions call has one list of steps for both: the
    // order that suits the one need not suit the other.
    llvm::DenseMap<Attribute, int64_t> calls;
    for (ActionOp action : actions)
      if (auto callee = action.getCalleeAttr())
        ++calls[callee.getAttr()];
    for (auto [index, action] : llvm::enumerate(actions))
      if (action.getKind() == pipe::ActionKind::Reduce &&
          calls[action.getCalleeAttr().getAttr()] == 1)
        ActionBuckets(actions, index, functions, memory, bucket).run();
  }
};
} // namespace
