//===- TransformerWork.cpp - Work of a GPT or Llama in closed form --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TransformerWork.h"

using namespace plait;
using namespace plait::planner;

namespace {

/// A byte of a dropout mask, in elements of 16 bit.
constexpr double maskElement = 0.5;

class Builder {
public:
  Builder(const TransformerShape &shape, int tensor, bool sequenceParallel);
  Work run();

private:
  // Appending one operation to the current block.
  void matmul(Pass pass, const char *name, int64_t m, int64_t n, int64_t k,
              Operation::Scaled scaled);
  void kernel(Pass pass, const char *name, double elements, double fourByte = 0,
              double fixed = 0);
  void collective(Pass pass, const char *name, CollectiveKind kind);

  // y = x W: `outer` is what grows with the batch, the weight is in x out.
  void linearForward(const char *name, int64_t in, int64_t out);
  void linearBackward(const char *name, int64_t in, int64_t out,
                      bool columnParallel);
  // What several linears make of one input.
  std::vector<int64_t> getQkv() const;
  std::vector<int64_t> getFfnIn() const;

  // Where activations enter (column parallel) and leave (row parallel) the
  // part of a layer that tp splits.
  void enterForward();
  void leaveForward();
  void leaveBackward();

  void normForward();
  void normBackward();
  void residualForward();
  void residualBackward();
  void activationForward();
  void activationBackward();
  Operation attention(Pass pass) const;

  // Of the dimensions, the one that all have.
  void group(double elements, bool replicated = false, bool tied = false) {
    block.parameters.push_back({.elements = elements,
                                .replicated = replicated,
                                .tied = tied,
                                .sizes = {shape.hidden}});
  }

  Block embedding();
  Block layer();
  Block head();
  void layerForward();
  void layerBackward();
  void layerParameters();
  void layerSaved();
  void lossKernels();

  TransformerShape shape;
  int tp;
  bool sp;
  int64_t tokens;      // of a sequence
  double whole, local; // tokens x hidden: of the layer's input, of this rank
  int64_t heads, keyValueHeads, attentionWidth, qkvWidth, ffn, ffnIn, vocab;
  Block block;
};

} // namespace

static int64_t divideUp(int64_t value, int64_t parts) {
  return (value + parts - 1) / parts;
}

Builder::Builder(const TransformerShape &given, int tensor,
                 bool sequenceParallel)
    : shape(given), tp(tensor), sp(sequenceParallel && tensor > 1) {
  if (shape.keyValueHeads == 0)
    shape.keyValueHeads = shape.heads;
  if (shape.headSize == 0)
    shape.headSize = shape.hidden / shape.heads;
  if (shape.ffn == 0)
    shape.ffn = 4 * shape.hidden;
  tokens = shape.sequence;
  whole = double(tokens) * shape.hidden;
  local = sp ? whole / tp : whole;
  heads = divideUp(shape.heads, tp);
  keyValueHeads = divideUp(shape.keyValueHeads, tp);
  attentionWidth = heads * shape.headSize;
  qkvWidth = attentionWidth + 2 * keyValueHeads * shape.headSize;
  ffn = divideUp(shape.ffn, tp);
  ffnIn = (shape.ffnMatrices - 1) * ffn;
  int64_t multiple = tp * shape.vocabularyMultiple;
  vocab = divideUp(shape.vocabulary, multiple) * shape.vocabularyMultiple;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void Builder::matmul(Pass pass, const char *name, int64_t m, int64_t n,
                     int64_t k, Operation::Scaled scaled) {
  Operation op;
  op.kind = OperationKind::Matmul;
  op.pass = pass;
  op.name = name;
  op.m = m;
  op.n = n;
  op.k = k;
  op.scaled = scaled;
  block.operations.push_back(op);
}

void Builder::kernel(Pass pass, const char *name, double elements,
                     double fourByte, double fixed) {
  Operation op;
  op.pass = pass;
  op.name = name;
  op.elementsPerSequence = elements;
  op.fourBytePerSequence = fourByte;
  op.elementsFixed = fixed;
  block.operations.push_back(op);
}

void Builder::collective(Pass pass, const char *name, CollectiveKind kind) {
  if (tp == 1)
    return;
  Operation op;
  op.kind = OperationKind::Collective;
  op.pass = pass;
  op.name = name;
  op.collective = kind;
  op.collectivePerSequence = whole;
  block.operations.push_back(op);
}

void Builder::linearForward(const char *name, int64_t in, int64_t out) {
  matmul(Pass::Forward, name, tokens, out, in, Operation::Scaled::M);
}

std::vector<int64_t> Builder::getQkv() const {
  if (!shape.separate)
    return {qkvWidth};
  int64_t keys = keyValueHeads * shape.headSize;
  return {attentionWidth, keys, keys};
}

std::vector<int64_t> Builder::getFfnIn() const {
  if (!shape.separate)
    return {ffnIn};
  return std::vector<int64_t>(size_t(shape.ffnMatrices - 1), ffn);
}

/// A column-parallel linear leaves a partial gradient of its input, whose sum
/// runs beside the weight's gradient; with sequence parallelism the input was
/// not kept whole and is gathered again.
void Builder::linearBackward(const char *name, int64_t in, int64_t out,
                             bool columnParallel) {
  if (columnParallel && sp)
    collective(Pass::BackwardWeight, "gather input", CollectiveKind::AllGather);
  matmul(Pass::BackwardInput, name, tokens, in, out, Operation::Scaled::M);
  if (columnParallel)
    collective(Pass::BackwardInput, name,
               sp ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce);
  matmul(Pass::BackwardWeight, name, out, in, tokens, Operation::Scaled::K);
}

void Builder::enterForward() {
  if (sp)
    collective(Pass::Forward, "gather", CollectiveKind::AllGather);
}

void Builder::leaveForward() {
  collective(Pass::Forward, "reduce",
             sp ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce);
}

void Builder::leaveBackward() {
  if (sp)
    collective(Pass::BackwardInput, "gather gradient",
               CollectiveKind::AllGather);
}

void Builder::normForward() {
  double vectors = shape.layerNorm ? 2 : 1;
  kernel(Pass::Forward, "norm", 2 * local, vectors * local / shape.hidden,
         vectors * shape.hidden);
}

/// One kernel for the input's gradient, one that reads the same again for the
/// gradients of scale and shift.
void Builder::normBackward() {
  double vectors = shape.layerNorm ? 2 : 1;
  double statistics = vectors * local / shape.hidden;
  kernel(Pass::BackwardInput, "norm", 3 * local, statistics,
         vectors * shape.hidden);
  kernel(Pass::BackwardWeight, "norm", 2 * local, statistics,
         vectors * shape.hidden);
}

void Builder::residualForward() {
  double mask = shape.dropout ? maskElement : 0;
  kernel(Pass::Forward, "residual", (3 + mask) * local, 0,
         shape.biases ? shape.hidden : 0);
}

/// The gradient that comes in goes on twice: through dropout into the branch,
/// and past it to be added to the branch's.
void Builder::residualBackward() {
  if (shape.dropout)
    kernel(Pass::BackwardInput, "dropout", (2 + maskElement) * local);
  if (shape.biases)
    kernel(Pass::BackwardWeight, "bias", local, 0, shape.hidden);
}

void Builder::activationForward() {
  double gates = shape.ffnMatrices - 1;
  kernel(Pass::Forward, "activation", (gates + 1) * double(tokens) * ffn, 0,
         shape.biases ? ffnIn : 0);
}

void Builder::activationBackward() {
  double gates = shape.ffnMatrices - 1;
  kernel(Pass::BackwardInput, "activation",
         (2 * gates + 1) * double(tokens) * ffn);
  if (shape.biases)
    kernel(Pass::BackwardWeight, "bias", double(tokens) * ffnIn, 0, ffnIn);
}

Operation Builder::attention(Pass pass) const {
  Operation op;
  op.kind = OperationKind::Attention;
  op.pass = pass;
  op.name = "attention";
  op.heads = heads;
  op.keyValueHeads = keyValueHeads;
  op.headSize = shape.headSize;
  op.queries = op.keys = tokens;
  return op;
}

//===----------------------------------------------------------------------===//
// Layer
//===----------------------------------------------------------------------===//

void Builder::layerForward() {
  normForward();
  enterForward();
  for (int64_t out : getQkv())
    linearForward("qkv", shape.hidden, out);
  if (shape.biases)
    kernel(Pass::Forward, "bias", 2.0 * tokens * qkvWidth, 0, qkvWidth);
  if (shape.rotary)
    kernel(Pass::Forward, "rotary", 2.0 * tokens * qkvWidth);
  block.operations.push_back(attention(Pass::Forward));
  linearForward("projection", attentionWidth, shape.hidden);
  leaveForward();
  residualForward();
  normForward();
  enterForward();
  for (int64_t out : getFfnIn())
    linearForward("ffn in", shape.hidden, out);
  activationForward();
  linearForward("ffn out", ffn, shape.hidden);
  leaveForward();
  residualForward();
}

void Builder::layerBackward() {
  residualBackward();
  leaveBackward();
  linearBackward("ffn out", ffn, shape.hidden, false);
  activationBackward();
  for (int64_t out : getFfnIn())
    linearBackward("ffn in", shape.hidden, out, true);
  normBackward();
  kernel(Pass::BackwardInput, "residual", 3 * local);
  residualBackward();
  leaveBackward();
  linearBackward("projection", attentionWidth, shape.hidden, false);
  block.operations.push_back(attention(Pass::BackwardInput));
  if (shape.rotary)
    kernel(Pass::BackwardInput, "rotary", 2.0 * tokens * qkvWidth);
  if (shape.biases)
    kernel(Pass::BackwardWeight, "bias", double(tokens) * qkvWidth, 0,
           qkvWidth);
  for (int64_t out : getQkv())
    linearBackward("qkv", shape.hidden, out, true);
  normBackward();
  kernel(Pass::BackwardInput, "residual", 3 * local);
}

void Builder::layerParameters() {
  double hidden = shape.hidden;
  double bias = shape.biases ? 1 : 0;
  group(hidden * qkvWidth + bias * qkvWidth);
  group(hidden * attentionWidth);
  group(hidden * ffnIn + bias * ffnIn);
  group(hidden * ffn);
  double norms = 2 * (shape.layerNorm ? 2 : 1) * hidden;
  group(norms + 2 * bias * hidden, /*replicated=*/true);
}

/// Korthikanti et al. 2022, section 4.1, without the inside of attention, which
/// depends on how attention is computed. Statistics of norms, and the
/// log-sum-exp of attention, are ours.
void Builder::layerSaved() {
  double mask = shape.dropout ? maskElement : 0;
  double vectors = shape.layerNorm ? 2 : 1;
  double wide = double(tokens) * (qkvWidth + attentionWidth);
  wide += double(tokens) * (ffnIn + ffn);
  // Two inputs of norms, two inputs of column-parallel linears, two masks.
  block.kept.elements = (2 + 2 + 2 * mask) * local + wide;
  block.kept.fourByte =
      2 * vectors * local / shape.hidden + double(tokens) * heads;
  block.input.elements = local;
  block.output.elements = local;
  // The gradients of the feed-forward network's inside, beside those of the
  // layer's output and of the branch.
  block.workspace.elements = 2 * whole + double(tokens) * (ffnIn + ffn);
}

Block Builder::layer() {
  block = Block();
  block.name = "layer";
  layerForward();
  layerBackward();
  layerParameters();
  layerSaved();
  return std::move(block);
}

//===----------------------------------------------------------------------===//
// Embedding and head
//===----------------------------------------------------------------------===//

Block Builder::embedding() {
  block = Block();
  block.name = "embedding";
  double mask = shape.dropout ? maskElement : 0;
  kernel(Pass::Forward, "embedding", 2 * whole, 2 * double(tokens));
  leaveForward();
  if (shape.learnedPositions)
    kernel(Pass::Forward, "positions", 3 * local);
  if (shape.dropout) {
    kernel(Pass::Forward, "dropout", (2 + mask) * local);
    kernel(Pass::BackwardInput, "dropout", (2 + mask) * local);
  }
  leaveBackward();
  // The gradient of a table is zero but for some rows: filled, then added to.
  kernel(Pass::BackwardWeight, "embedding", 3 * whole, 2 * double(tokens),
         double(vocab) * shape.hidden);
  group(double(vocab) * shape.hidden, false, shape.tied);
  if (shape.learnedPositions)
    group(double(tokens) * shape.hidden, /*replicated=*/true);
  block.kept.elements = mask * local;
  block.kept.fourByte = 2 * double(tokens); // 8-byte token ids
  block.input.fourByte = 2 * double(tokens);
  block.workspace.elements = whole;
  block.output.elements = local;
  return std::move(block);
}

/// Logits are read in 16 bit and kept as probabilities in 4 bytes. Step by step
/// (vocab_parallel_cross_entropy), the forward pass casts, takes the maximum,
/// subtracts it, takes exponentials, adds them up and divides; the backward
/// pass copies, scales and casts.
void Builder::lossKernels() {
  double logits = double(tokens) * vocab;
  auto forward = [&](const char *name, double elements, double fourByte) {
    kernel(Pass::Forward, name, elements, fourByte);
  };
  auto backward = [&](const char *name, double elements, double fourByte) {
    kernel(Pass::BackwardInput, name, elements, fourByte);
  };
  switch (shape.loss) {
  case TransformerShape::Loss::Fused:
    forward("loss", 2 * logits, 2 * double(tokens));
    backward("loss", 2 * logits, double(tokens));
    return;
  case TransformerShape::Loss::Softmax:
    forward("cast", logits, logits);
    forward("softmax", 0, 2 * logits);
    backward("loss", 0, logits);
    backward("softmax", 0, 3 * logits);
    backward("cast", logits, logits);
    return;
  case TransformerShape::Loss::Steps:
    forward("cast", logits, logits);
    forward("maximum", 0, logits);
    forward("subtract", 0, 2 * logits);
    forward("exponential", 0, 2 * logits);
    forward("sum", 0, logits);
    forward("divide", 0, 2 * logits);
    backward("scale", 0, 2 * logits);
    backward("cast", logits, logits);
    return;
  }
}

Block Builder::head() {
  block = Block();
  block.name = "head";
  double logits = double(tokens) * vocab;
  normForward();
  enterForward();
  linearForward("logits", shape.hidden, vocab);
  lossKernels();
  linearBackward("logits", shape.hidden, vocab, true);
  normBackward();
  double vectors = shape.layerNorm ? 2 : 1;
  group(vectors * shape.hidden, /*replicated=*/true);
  group(double(vocab) * shape.hidden, false, shape.tied);
  block.kept.elements = 2 * local;
  block.kept.fourByte = logits + vectors * local / shape.hidden;
  block.lastKept.fourByte = logits;
  block.input.elements = local;
  block.workspace.elements = logits + whole;
  return std::move(block);
}

Work Builder::run() {
  Work work;
  work.tensorParallel = tp;
  work.sequenceParallel = sp;
  work.sequence = shape.sequence;
  work.blocks = {embedding(), layer(), head()};
  // Both factors of every matmul of a weight gradient; one is a gradient.
  for (Block &each : work.blocks)
    for (const Operation &op : each.operations)
      if (op.pass == Pass::BackwardWeight &&
          op.scaled == Operation::Scaled::K) {
        each.keptForWeights.elements += double(op.m + op.n) * double(op.k);
        each.madeForWeights.elements += double(op.m) * double(op.k);
      }
  work.before = work.after = 1;
  work.order.assign(size_t(shape.layers) + 2, 1);
  work.order.front() = 0;
  work.order.back() = 2;

  double h = shape.hidden, s = shape.sequence, bias = shape.biases ? 1 : 0;
  double width = double(shape.heads) * shape.headSize;
  double keys = double(shape.keyValueHeads) * shape.headSize;
  double f = shape.ffn, vectors = shape.layerNorm ? 2 : 1;
  double matrices = h * (2 * width + 2 * keys) + shape.ffnMatrices * h * f;
  double small = 2 * vectors * h + bias * (width + 2 * keys + 2 * h +
                                           (shape.ffnMatrices - 1) * f);
  double table = h * shape.vocabulary;
  work.totalParameters = shape.layers * (matrices + small) + vectors * h +
                         table * (shape.tied ? 1 : 2) +
                         (shape.learnedPositions ? s * h : 0);
  double layerFlops = 2 * s * matrices + 4 * s * s * width;
  work.modelFlopsPerSequence = 3 * (shape.layers * layerFlops + 2 * s * table);
  return work;
}

Work planner::buildTransformerWork(const TransformerShape &shape, int tensor,
                                   bool sequenceParallel) {
  return Builder(shape, tensor, sequenceParallel).run();
}
