//===- RankMemory.h - Memory of a rank --------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_RANKMEMORY_H
#define PLAIT_LIB_PLANNER_SIMULATOR_RANKMEMORY_H

#include "BlockTime.h"
#include "Pipeline.h"

#include <array>
#include <optional>
#include <span>

namespace plait::planner {

/// The blocks of one virtual stage: indices into Work::blocks with the number
/// of times each occurs.
struct StageBlocks {
  struct Entry {
    int block = 0;
    int count = 0;
    /// None of what is no layer.
    Recompute recompute = Recompute::None;
  };
  std::vector<Entry> entries;
};

/// Calls `visit(group, count)` for each group of each entry whose parameters
/// are trained, or are not: `count` is how many blocks of the run have a group
/// like it. However many blocks of a rank read a tied table, it holds one: the
/// largest is visited once, at the end.
template <typename Visitor>
void forEachGroup(const Work &work, std::span<const StageBlocks *const> stages,
                  Visitor visit, bool frozen = false) {
  const ParameterGroup *tied = nullptr;
  for (const StageBlocks *stage : stages)
    for (const StageBlocks::Entry &entry : stage->entries)
      for (const ParameterGroup &group : work.blocks[entry.block].parameters)
        if (group.frozen != frozen)
          continue;
        else if (!group.tied)
          visit(group, entry.count);
        else if (!tied || group.elements > tied->elements)
          tied = &group;
  if (tied)
    visit(*tied, 1);
}

/// Calls `visit(group)` for each trained parameter that a rank holds, layer by
/// layer in the order of the model, in which a table that blocks share is the
/// first.
template <typename Visitor>
void forEachParameter(const Work &work,
                      std::span<const StageBlocks *const> stages,
                      Visitor visit) {
  const ParameterGroup *tied = nullptr;
  forEachGroup(work, stages, [&](const ParameterGroup &group, int) {
    if (group.tied)
      tied = &group;
  });
  if (tied)
    visit(*tied);
  for (const StageBlocks *stage : stages)
    for (const StageBlocks::Entry &entry : stage->entries)
      for (int i = 0; i < entry.count; ++i)
        for (const ParameterGroup &group : work.blocks[entry.block].parameters)
          if (!group.tied && !group.frozen)
            visit(group);
}

/// Counts parameters that a rank of the pipeline trains, or those that it holds
/// frozen. A tied one counts once on a rank that reads it in two blocks.
Elements countParameters(const Work &work,
                         std::span<const StageBlocks *const> stages,
                         bool frozen = false);
/// Counts trained ones that another block reads too.
double countTied(const Work &work, std::span<const StageBlocks *const> stages);

/// Bytes that one microbatch leaves on a stage between its forward and its
/// backward pass.
double savedBytes(const StageBlocks &stage, const Context &context);

/// Bytes of one message between neighbouring stages.
double getMessageBytes(const Context &context);

/// Returns what of it is still held when only gradients of weights are left to
/// do: their matmuls' operands.
double weightBytes(const StageBlocks &stage, const Context &context);

/// Tensors that are copied to where activations are offloaded, or back.
struct PlaceCopies {
  double bytes = 0, count = 0;

  double getSeconds(const Context &context) const {
    const Device &device = context.cluster.device;
    return count * device.launchSeconds +
           bytes / device.places[context.configuration.offload.activations]
                       .bandwidth;
  }
};

/// What offloading copies of one microbatch: of what is saved all but tokens
/// and messages, which are received in the arena; and of the parts above.
struct OffloadCopies {
  PlaceCopies saved;
  PlaceCopies last;   // made last: nothing of the stage is computed beside them
  PlaceCopies inputs; // read by the pass for input gradients
  PlaceCopies weights; // still held when only weights' gradients are left
  PlaceCopies made;    // of these: by the pass for input gradients
};
OffloadCopies getCopies(const StageBlocks &stage, const Context &context);
/// Returns what the halves of its backward pass have from before.
const Halves &getHalves(const StageBlocks::Entry &entry,
                        const Context &context);
/// Returns the copies of `times` as many tensors as are saved.
PlaceCopies toCopies(const Saved &saved, const Context &context,
                     double times = 1);

/// Both, without what is offloaded; `splits`: gradients of weights run apart,
/// so that the second counts.
InFlight heldBytes(const StageBlocks &stage, const Context &context,
                   bool splits);

/// The elements that a rank holds whatever the schedule and the ZeRO stage are.
struct Holdings {
  Elements frozen;                  // that are not trained
  Elements frozenWhole;             // of them: those that ZeRO 3 cannot divide
  Elements mastered, masteredWhole; // of both: those with a master
  Elements parameters;              // those that are trained
  Elements whole;      // of them: those that ZeRO 2 and 3 cannot divide
  Elements alone;      // of them: those that replicas alone have sums of
  Elements otherState; // bytes of state that they have more than they would if
                       // all had Training::stateBytes
  // Where matrices are sent as two factors: elements of one, and of all else
  // that is trained.
  double factors = 0, unfactored = 0;
  // Bytes: of the block that needs the most, and of one that is gathered, with
  // experts and without.
  double temporary = 0, gathered = 0, gatheredDense = 0;

  bool operator==(const Holdings &) const = default;
};

/// Finds what ranks hold. Blocks are many times the same, and what one has is
/// found once. For one thread; `context` has to live as long.
class HoldingsFinder {
public:
  explicit HoldingsFinder(const Context &context)
      : context(context), blocks(context.work.blocks.size()),
        temporary(blocks.size()) {}

  /// Returns what a rank of `stages` holds.
  Holdings find(std::span<const StageBlocks *const> stages);

private:
  struct OfBlock {
    Holdings holdings; // with nothing temporary, which depends on the kind
    const ParameterGroup *tied[2] = {}; // the largest; by whether it is frozen
  };
  const OfBlock &find(int index);
  double getTemporary(const StageBlocks::Entry &entry);

  const Context &context;
  std::vector<std::optional<OfBlock>> blocks;
  std::vector<std::array<std::optional<double>, 4>> temporary; // by kind
};

/// Bytes of a block that is gathered, with its experts or without, and of the
/// next one and their gradients.
double gatheredBytes(const Block &block, bool withExperts,
                     const Context &context);

/// All but the activations.
StageMemory getMemory(const Holdings &holdings, const Context &context);

/// `stages`: the virtual stages of the rank, by chunk, and what they hold.
StageMemory getMemory(uint32_t rank, std::span<const StageBlocks *const> stages,
                      const Holdings &holdings, const PipelineModel &pipeline,
                      const Context &context);

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_RANKMEMORY_H
