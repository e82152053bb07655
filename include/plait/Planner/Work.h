//===- Work.h - Work of one rank --------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The planner's view of a model. It is read off the IR (Profile.h): the
// compiler's own passes shard, differentiate and fuse one layer of each kind,
// and what they leave is written down here as a list of operations with local
// sizes. Nothing below knows what a transformer is.
//
//   Work      a model on tp ranks: blocks, and the order they run in
//   Block     layers that are alike, or what comes before or after the layers
//   Operation a matmul, an attention, a fused kernel, a collective
//
// Sizes hold for one rank of `tp` and for a microbatch of ONE sequence. What
// grows with the microbatch says so (`perSequence`), so that one profile serves
// every microbatch size that is split alike. Counts are of elements; the bytes
// of an element are the precision's business (Cost.h), except where `fourByte`
// says that the element is always 4 bytes wide (indices, statistics, losses).
//
// Plain values: no function keeps a reference to its arguments.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_WORK_H
#define PLAIT_PLANNER_WORK_H

#include "plait/Configuration/Optimizers.h"
#include "plait/Planner/Configuration.h"
#include "plait/Support/Collectives.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace plait::planner {

enum class OperationKind : uint8_t {
  Matmul,     // batch x (m x k) . (k x n)
  Attention,  // softmax(Q K^T) V in one operation
  Kernel,     // fused elementwise work and reductions: bound by memory
  Collective, // over the ranks of `tp`, or around experts of `ep`
};

/// Which part of a step runs the operation. BackwardWeight is what only a
/// parameter's gradient needs and what may therefore run late.
enum class Pass : uint8_t { Forward, BackwardInput, BackwardWeight };

/// The tensors that a rank keeps of a forward pass until the backward pass, in
/// elements per sequence.
struct Saved {
  double elements = 0; // of activation type
  double fourByte = 0; // statistics, indices
  double values = 0;   // how many tensors, of any number of sequences
};

struct Operation {
  OperationKind kind = OperationKind::Kernel;
  Pass pass = Pass::Forward;
  /// Says of a backward pass: what the forward pass computed is computed again,
  /// of what has been exchanged. Of the forward pass: every backward pass has
  /// an operation of its own for it, whatever else it computes again.
  bool again = false;
  /// The source op, for reports: "nn.matmul h.*.mlp.c_fc".
  std::string name;

  // Matmul: local sizes; exactly one of them grows with the microbatch, or none
  // where the matmul is of weights alone. k is the contraction.
  int64_t batch = 1, m = 0, n = 0, k = 0;
  enum class Scaled : uint8_t { None, Batch, M, N, K } scaled = Scaled::None;
  /// A power of two that divides what the rows of all three matrices lie apart,
  /// in elements; 0: not known, the largest that divides all sizes.
  int64_t rowAlignment = 0;
  bool adds = false; // to what an earlier one has left
  /// So many matmuls of these sizes make gradients of weights that lie side by
  /// side, of an operand in common. Where gradients stay where they are made
  /// they are one call, a batch; else as many calls.
  int64_t joined = 1;

  // Attention: per sequence. In a backward pass the operation stands for all of
  // its gradients.
  int64_t heads = 0, keyValueHeads = 0, headSize = 0, queries = 0, keys = 0;
  bool causal = true;

  // Kernel: elements read and written. `fixed` ones do not grow with the
  // microbatch (weights of norms, biases, their gradients).
  double elementsPerSequence = 0, fourBytePerSequence = 0;
  double elementsFixed = 0;
  double flopsPerSequence = 0;
  /// It adds up what each sequence has left: there is none for one sequence.
  bool sumsSequences = false;

  // Collective: elements of the full tensor (what an all-reduce combines, what
  // an all-gather ends with, what a reduce-scatter begins with). `fixed` ones
  // are of parameters.
  CollectiveKind collective = CollectiveKind::AllReduce;
  Axis axis = Axis::TP;
  double collectivePerSequence = 0, collectiveFixed = 0;
  /// Whether that is some rows, which the ranks' experts take.
  bool movesRows = false;

  /// The tensors that the backward pass has from before and reads here first.
  Saved taken;
  /// The same where gradients of weights run apart: of either pass by itself.
  Saved takenApart;
  /// The tensors of it that gradients of weights read where they run apart:
  /// what the pass of input gradients makes, and what is computed again.
  Saved leftApart;

  /// Whether it computes no gradient.
  bool isForward() const { return pass == Pass::Forward || again; }
  /// Elements that the collective of a microbatch of `sequences` moves.
  double collectiveElements(double sequences) const {
    return collectivePerSequence * sequences + collectiveFixed;
  }
};

/// Parameters of one shape class, on one rank.
struct ParameterGroup {
  double elements = 0; // held by this rank
  /// Held by every rank of tp alike.
  bool replicated = false;
  /// Whether ranks of tp, which then have parts of the tokens, each leave a
  /// part of the gradient's sum; replicated.
  bool partial = false;
  /// Whether ranks of ep have other experts of it, and sum no gradients.
  bool experts = false;
  /// Also read by another block: a tied embedding.
  bool tied = false;
  /// Not trained: it is read, and has neither gradient nor optimizer state.
  bool frozen = false;
  /// Not trained, and in bf16 alone where it is computed with in that.
  bool lacksMaster = false;
  /// Its dimensions on this rank. Empty: not known, and taken to be such that
  /// any number of ranks divides them.
  std::vector<int64_t> sizes = {};
  /// Whether the backward pass reads it, too, as it does no bias; of
  /// Work::cheapBlocks with what that computes again.
  bool readBackward = true;
  /// Whether a backward pass that computes the whole block again reads it.
  bool readAgain = true;
  /// Whether weight decay is applied to it: what is updated alike is reduced
  /// together.
  bool decays = true;
  /// Updates it in place of the training's; null: that does.
  const Optimizer *optimizer = nullptr;
  /// Sides of a matrix, on all ranks together, for optimizers that update it as
  /// a whole; 0: it is none.
  int64_t rows = 0, columns = 0;
  /// Sides of its most square matrix, on all ranks together, which compressors
  /// may send as two factors; 0: it is a vector.
  int64_t factorRows = 0, factorColumns = 0;

  /// Whether its optimizer updates it as a whole matrix.
  bool isMatrix(const Training &training) const {
    return rows > 0 && (optimizer ? optimizer->updatesMatrices()
                                  : training.matrixStateBytes > 0);
  }
  /// Returns the bytes that its optimizer keeps of each element.
  double getStateBytes(const Training &training) const {
    if (optimizer)
      return double(optimizer->getStateBytes()) + training.feedbackBytes;
    return isMatrix(training) ? training.matrixStateBytes : training.stateBytes;
  }
  /// Whether one of its dimensions is a multiple of `ranks`, which so can have
  /// equal blocks of it.
  bool divides(int ranks) const {
    return sizes.empty() ||
           std::any_of(sizes.begin(), sizes.end(),
                       [ranks](int64_t size) { return size % ranks == 0; });
  }
};

/// The tensors that the two halves of a backward pass have from before.
struct Halves {
  Saved inputs;  // read by that of input gradients, of what is kept
  Saved weights; // read by that of weight gradients
  Saved made;    // the part of it that the first half leaves to the second
  /// Gradients of outputs that the second reads as well: of another block, or
  /// messages.
  Saved passed;
};

struct Block {
  std::string name; // "embedding", "layer", "head"
  std::vector<Operation> operations;
  std::vector<ParameterGroup> parameters;
  Saved kept; // without recomputation
  /// The part of it that the last matmul of the forward pass makes, or what
  /// follows it.
  Saved lastKept;
  /// The halves where a schedule has gradients of inputs and of weights apart;
  /// the second where the whole block is computed again.
  Halves halves, halvesAgain;
  Saved input; // with full recomputation: inputs, and comparisons
  /// The most temporary elements alive at once inside of the block, per
  /// sequence, beside what is kept.
  Saved workspace;
  /// The tensors that are passed on to the next block: the message between
  /// stages.
  Saved output;
};

struct Work {
  int tensorParallel = 1, expertParallel = 1;
  bool sequenceParallel = false;
  ExpertExchange expertExchange = ExpertExchange::Tokens;
  std::vector<Block> blocks;
  /// The same where each layer computes again what is cheap: what `kept` is of
  /// them, and what their backward passes do. Empty: not known.
  std::vector<Block> cheapBlocks;
  /// Indices into `blocks` in the order of the forward pass. The cuttable
  /// places are those between two entries with `isLayer`.
  std::vector<int> order;
  /// How many entries at the beginning and at the end of `order` are bound to
  /// the first and the last stage; the ones between are layers.
  int before = 0, after = 0;
  /// The parameters of the whole model, over all ranks.
  double totalParameters = 0;
  /// Forward and backward without recomputation, one sequence, over all ranks;
  /// causal attention counted in full: the convention of model FLOP
  /// utilisation (Korthikanti et al. 2022, appendix A).
  double modelFlopsPerSequence = 0;
  int64_t sequence = 0; // tokens of a sequence
  /// Whether ranks of tp have parts of the tokens where the loss is computed.
  bool splitsLoss = false;
  int64_t layers() const { return int64_t(order.size()) - before - after; }
  /// Virtual stages: what comes before and after the layers can be one alone.
  int64_t mostStages() const { return layers() + (before > 0) + (after > 0); }
};

inline Degrees getDegrees(const Work &work) {
  return {work.tensorParallel, work.expertParallel, work.sequenceParallel,
          work.expertExchange};
}

/// Holds what WorkSource::get is asked.
struct WorkQuestion {
  Degrees degrees;
  double sequences = 1;
};

/// Makes the work for a tensor-parallel degree. Implemented by the compiler's
/// profile; the result stays valid as long as the source.
class WorkSource {
public:
  virtual ~WorkSource() = default;
  /// Returns how the model is split where a rank has so many `sequences` of a
  /// microbatch, also a part of one: what is cheapest depends on them. Null
  /// where it cannot be split, for any number; `reason` then says why.
  virtual const Work *get(const Degrees &degrees, double sequences,
                          std::string &reason) = 0;
  /// Finds answers that get() will be asked for, side by side where there are
  /// cores. They are what it gives without.
  virtual void prepare(std::span<const WorkQuestion> /*questions*/) {}
  /// Counts the experts of the layer with the fewest; 0: there are none.
  virtual int64_t countExperts() { return 0; }
};

} // namespace plait::planner

#endif // PLAIT_PLANNER_WORK_H
