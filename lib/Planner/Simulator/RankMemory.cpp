//===- RankMemory.cpp - Memory of a rank ----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes of a rank, from the blocks of its stages: what lives from step to step,
// what microbatches leave between their passes, and what lives inside of one
// block. Counted in elements of the profile and multiplied by what an element
// takes. What the compiler's placement adds (alignment, holes) is not here: the
// pick's memory is the compiler's own in the end (docs/Planner.md).
//
//===----------------------------------------------------------------------===//

#include "RankMemory.h"

#include "Communicators.h"
#include "Packs.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Support/LossChunks.h"

#include <algorithm>
#include <utility>

using namespace plait;
using namespace plait::planner;

double planner::countTied(const Work &work,
                          std::span<const StageBlocks *const> stages) {
  double tied = 0;
  forEachGroup(work, stages, [&](const ParameterGroup &group, int) {
    tied += group.tied ? group.elements : 0;
  });
  return tied;
}

/// A tied table is held once by each rank that reads it, and so by two ranks
/// where the first and the last stage are different ones.
Elements planner::countParameters(const Work &work,
                                  std::span<const StageBlocks *const> stages,
                                  bool frozen) {
  Elements sum;
  auto add = [&](const ParameterGroup &group, int count) {
    sum.add(group, count);
  };
  forEachGroup(work, stages, add, frozen);
  return sum;
}

/// Of one microbatch on one rank; under context parallelism that is a part of a
/// sequence.
static double toBytes(const Saved &saved, const Context &context) {
  double bytes = saved.elements * elementBytes(context.training.precision) +
                 saved.fourByte * 4;
  return bytes * context.sequences();
}

/// The matmul that makes logits, where a head computes them in chunks of rows;
/// null: it does not, or passes something on, as layers do.
static const Operation *findLogits(const Block &block, const Context &context) {
  if (context.training.lossChunks == 1 || block.output.elements > 0)
    return nullptr;
  const Operation *logits = nullptr;
  for (const Operation &op : block.operations)
    if (op.kind == OperationKind::Matmul && op.pass == Pass::Forward &&
        op.n > op.k && (!logits || op.m * op.n > logits->m * logits->n))
      logits = &op;
  return logits;
}

/// Returns what a block keeps. In chunks the gradient of what makes the logits
/// takes the place of their own.
static Saved getKept(const Block &block, const Context &context) {
  Saved kept = block.kept;
  if (const Operation *logits = findLogits(block, context))
    kept.elements =
        std::max(0.0, kept.elements - double(logits->m * logits->n)) +
        double(logits->m * logits->k);
  return kept;
}

/// The logits of one chunk, of as many as divide the sequences of a microbatch,
/// or the tokens of one.
static Saved getWorkspace(const Block &block, const Context &context) {
  Saved workspace = block.workspace;
  const Operation *logits = findLogits(block, context);
  if (!logits)
    return workspace;
  int64_t rows = context.sequences() > 1 ? int64_t(context.sequences())
                                         : context.work.sequence;
  int64_t chunks = countLossChunks(rows, context.training.lossChunks);
  workspace.elements += double(logits->m * logits->n) / double(chunks);
  return workspace;
}

/// Of one layer, elements of one microbatch.
static double countScores(const Block &block, const Context &context) {
  double scores = 0;
  for (const Operation &op : block.operations)
    if (op.kind == OperationKind::Attention && op.pass == Pass::Forward)
      scores += double(op.heads) * op.queries * op.keys;
  return scores * context.sequences();
}

/// Of one layer whose attention keeps its scores: their softmax, and with
/// dropout a mask of one byte and the product (Korthikanti et al. 2022, section
/// 4.1: 2 + 1 + 2 bytes in 16-bit training).
static double scoreBytes(const Block &block, const Context &context) {
  const Training &training = context.training;
  if (training.flashAttention || !context.framework().keepsScores)
    return 0;
  double element = elementBytes(training.precision);
  double bytes = element + (training.dropout ? 1 + element : 0);
  return countScores(block, context) * bytes;
}

/// What attention reads and writes by positions, where that is kept by heads
/// as well: its result, which its own backward pass reads by heads and the
/// matmul behind it by positions. Of scores nobody needs the result.
static double exchangedBytes(const Block &block, const Context &context) {
  if (!context.exchangesHeads() || !context.training.flashAttention)
    return 0;
  double elements = 0;
  for (const Operation &op : block.operations)
    if (op.kind == OperationKind::Attention && op.pass == Pass::Forward)
      elements += double(op.heads) * op.headSize * op.queries;
  return elements * context.sequences() *
         elementBytes(context.training.precision);
}

/// Keys and values of whole sequences, which attention that is computed again
/// reads as the forward pass has gathered them: the gradients' own are gathered
/// anew.
static double gatheredAgainBytes(const Block &block, const Context &context) {
  if (context.configuration.mesh[Axis::CP] == 1 || context.exchangesHeads() ||
      !context.framework().gathersContext)
    return 0;
  double elements = 0;
  for (const Operation &op : block.operations)
    if (op.kind == OperationKind::Attention && op.pass != Pass::Forward &&
        op.again)
      elements += 2.0 * double(op.keys * op.keyValueHeads * op.headSize);
  return elements * double(context.configuration.microBatch) *
         elementBytes(context.training.precision);
}

/// Without recomputation: what a layer leaves until its backward pass.
static double keptBytes(const Block &block, const Context &context) {
  return toBytes(getKept(block, context), context) +
         exchangedBytes(block, context) + scoreBytes(block, context);
}

/// By what each entry computes again: nothing, the inside of attention (what is
/// kept is then all but the scores), or everything but the inputs. A cheap
/// block's `kept` is already without what it computes again.
static double entryBytes(const StageBlocks::Entry &entry,
                         const Context &context) {
  const Block &block = context.block(entry.block, entry.recompute);
  if (entry.recompute == Recompute::None)
    return keptBytes(block, context);
  if (entry.recompute == Recompute::Selective)
    return toBytes(getKept(block, context), context) +
           exchangedBytes(block, context) + gatheredAgainBytes(block, context);
  return toBytes(block.input, context);
}

double planner::savedBytes(const StageBlocks &stage, const Context &context) {
  double bytes = 0;
  for (const StageBlocks::Entry &entry : stage.entries)
    bytes += entry.count * entryBytes(entry, context);
  return bytes;
}

/// Returns those of what is computed again where that is the whole block.
const Halves &planner::getHalves(const StageBlocks::Entry &entry,
                                 const Context &context) {
  const Block &block = context.block(entry.block, entry.recompute);
  return entry.recompute == Recompute::Full ? block.halvesAgain : block.halves;
}

double planner::weightBytes(const StageBlocks &stage, const Context &context) {
  double bytes = 0;
  for (const StageBlocks::Entry &entry : stage.entries) {
    const Halves &halves = getHalves(entry, context);
    for (const Saved &saved : {halves.weights, halves.passed})
      bytes += entry.count * toBytes(saved, context);
  }
  return bytes;
}

/// Keys and values of a whole sequence, and their gradients, where ranks that
/// share it gather them. What is exchanged for heads is there twice: queries,
/// keys and values forward, backward the gradients of these and of the result.
static double contextBytes(const Block &block, const Context &context) {
  double members = context.configuration.mesh[Axis::CP];
  bool exchanges = context.exchangesHeads();
  if (members == 1 || (!exchanges && !context.framework().gathersContext))
    return 0;
  double most = 0;
  for (const Operation &op : block.operations) {
    if (op.kind != OperationKind::Attention)
      continue;
    bool isForward = op.pass == Pass::Forward;
    // Too few key/value heads to divide: then keys and values are gathered
    // whole.
    bool gathers = !exchanges || op.keyValueHeads % int64_t(members) != 0;
    // One is there in both orders while it is brought from one into the other.
    double whole = (isForward ? 2 : 4) + (context.isReordered() ? 1 : 0);
    double keyValues =
        double(op.keyValueHeads) * (gathers ? whole : 2 / members);
    double queries = exchanges ? op.heads * (isForward ? 1 : 2) / members : 0;
    most =
        std::max(most, double(op.keys) * (queries + keyValues) * op.headSize);
  }
  return most * double(context.configuration.microBatch) *
         elementBytes(context.training.precision);
}

/// What the first layer passes on stands for all messages.
double planner::getMessageBytes(const Context &context) {
  const Work &work = context.work;
  const Saved &output = work.blocks[work.order[work.before]].output;
  return (output.elements * elementBytes(context.training.precision) +
          output.fourByte * 4) *
         context.sequences();
}

PlaceCopies planner::toCopies(const Saved &saved, const Context &context,
                              double times) {
  return {times * toBytes(saved, context), times * saved.values};
}

static void add(PlaceCopies &copies, const PlaceCopies &other) {
  copies.bytes += other.bytes;
  copies.count += other.count;
}

static void subtract(PlaceCopies &copies, const PlaceCopies &other) {
  copies.bytes = std::max(0.0, copies.bytes - other.bytes);
  copies.count = std::max(0.0, copies.count - other.count);
}

/// Of attention by heads one more tensor is kept (exchangedBytes).
static double countSaved(const StageBlocks::Entry &entry,
                         const Context &context) {
  const Block &block = context.block(entry.block, entry.recompute);
  if (entry.recompute == Recompute::Full)
    return block.input.values;
  return block.kept.values + (exchangedBytes(block, context) > 0 ? 1 : 0) +
         (gatheredAgainBytes(block, context) > 0 ? 2 : 0);
}

OffloadCopies planner::getCopies(const StageBlocks &stage,
                                 const Context &context) {
  OffloadCopies copies;
  if (stage.entries.empty())
    return copies;
  for (const StageBlocks::Entry &entry : stage.entries) {
    const Block &block = context.block(entry.block, entry.recompute);
    add(copies.saved, {entry.count * entryBytes(entry, context),
                       entry.count * countSaved(entry, context)});
    const Halves &halves = getHalves(entry, context);
    bool isFull = entry.recompute == Recompute::Full;
    add(copies.inputs, toCopies(halves.inputs, context, entry.count));
    add(copies.weights, toCopies(halves.weights, context, entry.count));
    add(copies.made, toCopies(halves.made, context, entry.count));
    // What the next block of the stage has made; the last one's is a message,
    // and none where it ends the model.
    double passes = context.boundsCuts ? 0 : entry.count;
    if (&entry == &stage.entries.back())
      passes = std::max(0.0, passes - 1);
    for (PlaceCopies *late : {&copies.weights, &copies.made})
      add(*late, toCopies(halves.passed, context, passes));
    if (double again = gatheredAgainBytes(block, context); !isFull && again > 0)
      add(copies.inputs, {entry.count * again, entry.count * 2.0});
    if (context.boundsCuts)
      for (PlaceCopies *read : {&copies.saved, &copies.inputs})
        subtract(*read, toCopies(block.input, context, entry.count));
  }
  const StageBlocks::Entry &first = stage.entries.front();
  Saved input = context.block(first.block, first.recompute).input;
  if (context.configuration.mesh[Axis::PP] == 1)
    input.elements = 0; // only tokens are no message
  if (!context.boundsCuts)
    subtract(copies.saved, toCopies(input, context));
  bool isMessage = first.block != context.work.order.front();
  if (!context.boundsCuts && isMessage)
    subtract(copies.inputs, toCopies(input, context));
  copies.inputs.bytes = std::min(copies.inputs.bytes, copies.saved.bytes);
  copies.inputs.count = std::min(copies.inputs.count, copies.saved.count);
  // Inputs are there before their block begins.
  const StageBlocks::Entry &last = stage.entries.back();
  if (last.recompute != Recompute::Full)
    copies.last =
        toCopies(context.block(last.block, last.recompute).lastKept, context);
  return copies;
}

/// What lives for the length of one block: its temporaries, and what it
/// recomputes.
static double temporaryBytes(const StageBlocks::Entry &entry,
                             const Context &context) {
  const Block &block = context.block(entry.block, entry.recompute);
  double bytes = toBytes(getWorkspace(block, context), context) +
                 contextBytes(block, context);
  // The gradients of the scores, beside the ones of the softmax; where none are
  // kept also the scores, all in fp32.
  if (!context.training.flashAttention)
    bytes = context.framework().keepsScores
                ? std::max(bytes, scoreBytes(block, context))
                : bytes + 3 * 4 * countScores(block, context);
  if (entry.recompute == Recompute::Full)
    bytes += keptBytes(block, context);
  else if (entry.recompute == Recompute::Selective)
    bytes += scoreBytes(block, context);
  return bytes;
}

/// With ZeRO 3, one block is whole while it runs and the next is on its way;
/// the gradients of one wait for their reduction.
double planner::gatheredBytes(const Block &block, bool withExperts,
                              const Context &context) {
  double bytes = 0;
  for (const ParameterGroup &group : block.parameters)
    if (context.isDivided(group) && (withExperts || !group.experts))
      bytes += group.elements * (2 * elementBytes(context.training.precision) +
                                 (group.frozen || !context.sendsGradients()
                                      ? 0
                                      : context.gradientBytes()));
  return bytes;
}

/// Of one microbatch, wherever it lies.
static InFlight stashedBytes(const StageBlocks &stage, const Context &context,
                             bool splits) {
  return {savedBytes(stage, context), splits ? weightBytes(stage, context) : 0};
}

/// Whether what is kept between passes lies apart from the arena.
static bool stashesApart(const Context &context) {
  return context.isApart(context.configuration.offload.activations);
}

InFlight planner::heldBytes(const StageBlocks &stage, const Context &context,
                            bool splits) {
  if (!stashesApart(context))
    return stashedBytes(stage, context, splits);
  // A stage without layers passes on what it receives, and keeps nothing.
  if (context.configuration.mesh[Axis::PP] == 1 || stage.entries.empty())
    return {};
  // Messages are received in the arena.
  const StageBlocks::Entry &first = stage.entries.front();
  const Block &block = context.block(first.block, first.recompute);
  return {toBytes(block.input, context), 0};
}

/// At the worst of the moments that the schedule has; `bytes` are those of one
/// microbatch, by chunk. Tries each moment that no other one covers in every
/// chunk (Pipeline.cpp), since which of them is the fullest depends on these.
static double getMost(uint32_t rank, const std::vector<InFlight> &bytes,
                      const PipelineModel &pipeline) {
  double most = 0;
  for (size_t moment = 0; moment < pipeline.countMoments(rank); ++moment) {
    double sum = 0;
    for (uint32_t chunk = 0; chunk < bytes.size(); ++chunk) {
      InFlight count = pipeline.inFlight(rank, moment, chunk);
      sum += count.whole * bytes[chunk].whole +
             count.weights * bytes[chunk].weights;
    }
    most = std::max(most, sum);
  }
  return most;
}

/// Sets what is kept between passes, in the arena and elsewhere.
static void setActivations(StageMemory &memory, uint32_t rank,
                           std::span<const StageBlocks *const> stages,
                           const PipelineModel &pipeline,
                           const Context &context) {
  auto findMost = [&](auto bytesOf) {
    std::vector<InFlight> bytes; // of one microbatch, by chunk
    bytes.reserve(stages.size());
    for (const StageBlocks *stage : stages)
      bytes.push_back(bytesOf(*stage, context, pipeline.splitsBackward()));
    return getMost(rank, bytes, pipeline);
  };
  memory.activations = findMost(heldBytes);
  // A search asks this of each of its estimates.
  if (stashesApart(context))
    memory.offloaded[context.configuration.offload.activations] +=
        std::max(0.0, findMost(stashedBytes) - memory.activations);
}

/// Adds `count` of `group` to what a rank trains.
static void addTrained(Holdings &holdings, const ParameterGroup &group,
                       int count, const Context &context) {
  const Mesh &mesh = context.configuration.mesh;
  const Training &training = context.training;
  holdings.parameters.add(group, count);
  if (!context.isDivided(group))
    holdings.whole.add(group, count);
  holdings.otherState.add(
      group, count * (group.getStateBytes(training) - training.stateBytes));
  if (!(group.partial && mesh[Axis::TP] > 1) &&
      !context.dividesByStage(group) && !(group.tied && mesh[Axis::PP] > 1))
    holdings.alone.add(group, count);
  if (hasFactors(group, context))
    holdings.factors +=
        count * context.training.compress.keep * group.factorColumns;
  else
    holdings.unfactored += count * group.elements;
}

/// Adds `count` of a group, trained or not.
static void add(Holdings &holdings, const ParameterGroup &group, int count,
                const Context &context) {
  if (!group.frozen)
    return addTrained(holdings, group, count, context);
  bool isWhole = !context.isDivided(group);
  holdings.frozen.add(group, count);
  if (isWhole)
    holdings.frozenWhole.add(group, count);
  if (group.lacksMaster)
    return;
  holdings.mastered.add(group, count);
  if (isWhole)
    holdings.masteredWhole.add(group, count);
}

/// Adds `count` of what is summed up in `rest`; the largest is no less than
/// that of it.
static void add(Holdings &holdings, const Holdings &rest, int count) {
  for (auto sum :
       {&Holdings::frozen, &Holdings::frozenWhole, &Holdings::mastered,
        &Holdings::masteredWhole, &Holdings::parameters, &Holdings::whole,
        &Holdings::otherState, &Holdings::alone})
    for (bool experts : {false, true})
      (holdings.*sum).of(experts) += count * Elements(rest.*sum).of(experts);
  holdings.factors += count * rest.factors;
  holdings.unfactored += count * rest.unfactored;
  for (auto most : {&Holdings::gathered, &Holdings::gatheredDense})
    holdings.*most = std::max(holdings.*most, rest.*most);
}

/// Tied tables are apart: a rank has the largest of them once.
const HoldingsFinder::OfBlock &HoldingsFinder::find(int index) {
  std::optional<OfBlock> &known = blocks[size_t(index)];
  if (known)
    return *known;
  const Block &block = context.work.blocks[size_t(index)];
  OfBlock &made = known.emplace();
  for (const ParameterGroup &group : block.parameters) {
    const ParameterGroup *&tied = made.tied[group.frozen];
    if (!group.tied)
      add(made.holdings, group, 1, context);
    else if (!tied || group.elements > tied->elements)
      tied = &group;
  }
  made.holdings.gathered = gatheredBytes(block, true, context);
  made.holdings.gatheredDense = gatheredBytes(block, false, context);
  return made;
}

double HoldingsFinder::getTemporary(const StageBlocks::Entry &entry) {
  std::optional<double> &known =
      temporary[size_t(entry.block)][size_t(entry.recompute)];
  if (!known)
    known = temporaryBytes(entry, context);
  return *known;
}

/// The largest temporaries and the largest gathered block, each over all blocks
/// of the rank: only one block runs at a time. They may be of different blocks,
/// which makes the sum of the two an upper bound.
Holdings HoldingsFinder::find(std::span<const StageBlocks *const> stages) {
  Holdings holdings;
  const ParameterGroup *tied[2] = {};
  for (const StageBlocks *stage : stages)
    for (const StageBlocks::Entry &entry : stage->entries) {
      const OfBlock &own = find(entry.block);
      add(holdings, own.holdings, entry.count);
      for (bool frozen : {false, true})
        if (const ParameterGroup *group = own.tied[frozen];
            group &&
            (!tied[frozen] || group->elements > tied[frozen]->elements))
          tied[frozen] = group;
      holdings.temporary = std::max(holdings.temporary, getTemporary(entry));
    }
  for (const ParameterGroup *group : tied)
    if (group)
      add(holdings, *group, 1, context);
  return holdings;
}

/// Adds what gossip and middles work with: a message and the sum of them, or
/// the blocks of all sites and the result, each of all weights, which lie side
/// by side; and a message and those of all sites, as large as one of all
/// weights at most. They are where activations and workspace of the step were,
/// as far as these reach.
static void addReceived(StageMemory &memory, const Holdings &holdings,
                        const Context &context) {
  const Outer &outer = context.training.outer;
  SiteCompression compress = outer.getCompression();
  if (!outer.is(Agreement::Gossip) && !outer.is(Agreement::Middle) &&
      !outer.corrects() && !compress.isOn())
    return;
  bool dividesMasters = context.training.precision != Precision::FP32;
  double weights = dividesMasters ? context.getShare(holdings.parameters, 1)
                                  : holdings.parameters.all();
  // What is tracked is a third one; a mean learns from a copy of the weights.
  bool isMixed = outer.is(Agreement::Gossip);
  int buffers = !outer.corrects() ? 2 : isMixed ? 3 : 1;
  double received = buffers * weights * sizeof(float);
  if (compress.isOn()) {
    double parts = outer.fragments ? outer.fragments * outer.countParts() : 1;
    received = weights / compress.chunk * double(compress.countChunkWords()) *
               sizeof(uint32_t) * double(1 + outer.sites) / parts;
  }
  memory.workspace +=
      std::max(0.0, received - memory.activations - memory.workspace);
}

StageMemory planner::getMemory(uint32_t rank,
                               std::span<const StageBlocks *const> stages,
                               const Holdings &holdings,
                               const PipelineModel &pipeline,
                               const Context &context) {
  StageMemory memory = getMemory(holdings, context);
  setActivations(memory, rank, stages, pipeline, context);
  addReceived(memory, holdings, context);
  memory.workspace += context.framework().reservedPart * memory.peak();
  return memory;
}
