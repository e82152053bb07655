//===- Buckets.cpp - Gradients reduced while others are computed ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Buckets.h"

#include "RewriteSteps.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <set>

using namespace plait;
using namespace plait::plan;

namespace {

/// A part of an all-reduce, and the last operation before it that writes there.
struct Bucket {
  std::unique_ptr<fb::StepT> step;
  uint64_t begin, end;                            // in the arena
  std::pair<uint32_t, uint32_t> written = {0, 0}; // action, step
  bool isWritten = false;
};

/// Cuts the reductions of one action.
class ActionBuckets {
public:
  ActionBuckets(const Mesh &mesh, const fb::Program &program, uint32_t action,
                int64_t (*elementsOf)(uint32_t))
      : mesh(mesh), program(program), action(action), elementsOf(elementsOf) {}

  /// Replaces runs of all-reduces over the same ranks in `steps`, those of the
  /// function that the action calls.
  void run(std::vector<std::unique_ptr<fb::StepT>> &steps) const {
    std::vector<std::unique_ptr<fb::StepT>> result;
    for (size_t i = 0; i < steps.size();) {
      size_t end = i;
      while (end < steps.size() && isAlike(*steps[i], *steps[end]))
        ++end;
      std::vector<Bucket> buckets;
      for (size_t j = i; j < end; ++j)
        cut(*steps[j], buckets);
      findWrites(buckets);
      std::stable_sort(buckets.begin(), buckets.end(),
                       [](const Bucket &left, const Bucket &right) {
                         return left.written < right.written;
                       });
      for (Bucket &bucket : buckets)
        result.push_back(std::move(bucket.step));
      if (end == i)
        result.push_back(std::move(steps[i++]));
      i = std::max(i, end);
    }
    steps = std::move(result);
  }

private:
  /// Whether `step` is a sum in place, over the same ranks as `first`. Axis 0
  /// joins programs, which need not agree about what is written first.
  static bool isAlike(const fb::StepT &first, const fb::StepT &step) {
    const auto *one = first.step.AsCollectiveStep();
    const auto *other = step.step.AsCollectiveStep();
    return one && other && other->axis != 0 &&
           other->kind == fb::CollectiveKind::AllReduce &&
           other->reduction == fb::Reduction::Sum &&
           other->input->offset() == other->output->offset() &&
           other->input->slot() == other->output->slot() &&
           one->axis == other->axis && one->members == other->members;
  }

  void cut(const fb::StepT &step, std::vector<Bucket> &buckets) const {
    const fb::CollectiveStepT &whole = *step.step.AsCollectiveStep();
    uint32_t ranks = whole.members.empty() ? mesh.size(whole.axis)
                                           : uint32_t(whole.members.size());
    int64_t elements = whole.outer * whole.chunk,
            unit = elementBytes(whole.dtype);
    int64_t count = std::max<int64_t>(1, elements / elementsOf(ranks));
    // Multiples of 64 elements keep vector accesses aligned.
    int64_t length = (elements + count - 1) / count;
    length = (length + 63) / 64 * 64;
    int32_t slot = whole.input->slot();
    uint64_t base =
        slot < 0 ? 0 : program.actions()->Get(action)->bindings()->Get(slot);
    for (int64_t begin = 0; begin < elements; begin += length) {
      Bucket &bucket = buckets.emplace_back();
      bucket.step = std::make_unique<fb::StepT>(step);
      fb::CollectiveStepT &part = *bucket.step->step.AsCollectiveStep();
      part.outer = 1;
      part.chunk = std::min(length, elements - begin);
      fb::Ref ref(whole.input->offset() + uint64_t(begin * unit), slot);
      part.input = std::make_unique<fb::Ref>(ref);
      part.output = std::make_unique<fb::Ref>(ref);
      bucket.begin = base + ref.offset();
      bucket.end = bucket.begin + uint64_t(part.chunk * unit);
    }
  }

  /// From the last operation before the action backwards. A function that ran
  /// later as well wrote the same gradients then.
  void findWrites(std::vector<Bucket> &buckets) const {
    size_t missing = buckets.size();
    std::set<int32_t> seen;
    for (uint32_t i = action; i-- > 0 && missing > 0;) {
      const fb::Action &call = *program.actions()->Get(i);
      if (call.function() < 0 || !seen.insert(call.function()).second)
        continue;
      const auto &function = *program.functions()->Get(call.function());
      for (uint32_t j = length(function.steps()); j-- > 0 && missing > 0;)
        for (const Use &use : usesOf(mesh, *function.steps()->Get(j)))
          if (use.writes)
            missing -= markWritten(buckets, use, i, j);
    }
  }

  /// Returns how many buckets this is the last write of.
  size_t markWritten(std::vector<Bucket> &buckets, const Use &use,
                     uint32_t actionIndex, uint32_t step) const {
    const fb::Action &call = *program.actions()->Get(actionIndex);
    auto [begin, end, writes] = rangeOf(program, call, use);
    size_t found = 0;
    for (Bucket &bucket : buckets)
      if (!bucket.isWritten && begin < bucket.end && bucket.begin < end) {
        bucket.written = {actionIndex, step};
        bucket.isWritten = true;
        ++found;
      }
    return found;
  }

  const Mesh &mesh;
  const fb::Program &program;
  uint32_t action;
  int64_t (*elementsOf)(uint32_t);
};

} // namespace

/// The only action that calls `function`, if it reduces gradients; else -1.
static int64_t findReduce(const fb::Program &program, int32_t function) {
  int64_t found = -1;
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (action.function() != function)
      continue;
    if (found >= 0 || action.kind() != fb::ActionKind::Reduce)
      return -1;
    found = i;
  }
  return found;
}

void plan::bucketReductions(fb::PlanT &plan,
                            int64_t (*elementsOf)(uint32_t ranks)) {
  rewriteSteps(plan, [&](const Mesh &mesh, const fb::Program &program,
                         int32_t index, auto &steps) {
    if (int64_t action = findReduce(program, index); action >= 0)
      ActionBuckets(mesh, program, uint32_t(action), elementsOf).run(steps);
  });
}
