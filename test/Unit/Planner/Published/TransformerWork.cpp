//===- TransformerWork.cpp - Work of a GPT or Llama in closed form --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TransformerBuilder.h"

using namespace plait;
using namespace plait::planner;

/// A byte of a dropout mask, in elements of 16 bit.
static constexpr double maskElement = 0.5;

using Builder = TransformerBuilder;

Builder::TransformerBuilder(const TransformerShape &given, int tensor,
                            bool sequenceParallel, int expertRanks)
    : shape(given), tp(tensor), ep(expertRanks),
      sp(sequenceParallel && tensor > 1) {
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
  if (shape.recipe.normsAgain) {
    kernel(Pass::BackwardInput, "norm again", 2 * local, statistics);
    issueAgain(1);
  }
  kernel(Pass::BackwardInput, "norm", 3 * local, statistics,
         vectors * shape.hidden);
  kernel(Pass::BackwardWeight, "norm", 2 * local, statistics,
         vectors * shape.hidden);
}

/// Statistics are a number a head.
void Builder::headNormsForward() {
  for (int64_t count : {heads, keyValueHeads})
    kernel(Pass::Forward, "head norm", 2.0 * tokens * count * shape.headSize,
           double(tokens) * count, shape.headSize);
}

void Builder::headNormsBackward() {
  for (int64_t count : {heads, keyValueHeads}) {
    double width = double(tokens) * count * shape.headSize;
    kernel(Pass::BackwardInput, "head norm", 3 * width, double(tokens) * count,
           shape.headSize);
    kernel(Pass::BackwardWeight, "head norm", 2 * width, double(tokens) * count,
           shape.headSize);
  }
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
  // Tiles of as many queries as keys see up to twice as many.
  if (inWindow) {
    op.keys = std::min(tokens, 2 * shape.window);
    op.causal = false;
  }
  return op;
}

//===----------------------------------------------------------------------===//
// Layer
//===----------------------------------------------------------------------===//

void Builder::linearsForward(const char *name,
                             const std::vector<int64_t> &widths) {
  for (int64_t out : widths)
    linearForward(name, shape.hidden, out);
}

void Builder::linearsBackward(const char *name,
                              const std::vector<int64_t> &widths) {
  for (int64_t out : widths)
    linearBackward(name, shape.hidden, out, /*columnParallel=*/true);
}

void Builder::attentionInputsForward() {
  const LatentShape &latent = shape.latent;
  if (!latent.query)
    return linearsForward("qkv", getQkv());
  linearForward("to latent", shape.hidden,
                latent.query + latent.keyValue + latent.rotary);
  for (int64_t width : {latent.query, latent.keyValue})
    kernel(Pass::Forward, "latent norm", 2.0 * tokens * width, double(tokens),
           width);
  linearForward("q", latent.query, heads * (shape.headSize + latent.rotary));
  linearForward("kv", latent.keyValue, 2 * heads * shape.headSize);
}

void Builder::attentionInputsBackward() {
  const LatentShape &latent = shape.latent;
  if (!latent.query)
    return linearsBackward("qkv", getQkv());
  linearBackward("kv", latent.keyValue, 2 * heads * shape.headSize, true);
  linearBackward("q", latent.query, heads * (shape.headSize + latent.rotary),
                 true);
  for (int64_t width : {latent.query, latent.keyValue}) {
    kernel(Pass::BackwardInput, "latent norm", 3.0 * tokens * width,
           double(tokens), width);
    kernel(Pass::BackwardWeight, "latent norm", 2.0 * tokens * width,
           double(tokens), width);
  }
  linearBackward("to latent", shape.hidden,
                 latent.query + latent.keyValue + latent.rotary, false);
}

void Builder::attentionInputParameters() {
  const LatentShape &latent = shape.latent;
  double hidden = shape.hidden, bias = shape.biases ? 1 : 0;
  if (!latent.query)
    return group((hidden + bias) * qkvWidth);
  group(hidden * (latent.query + latent.keyValue + latent.rotary),
        /*replicated=*/true);
  group(double(latent.query) * heads * (shape.headSize + latent.rotary));
  group(2.0 * latent.keyValue * heads * shape.headSize);
}

void Builder::feedForward() {
  linearsForward("ffn in", getFfnIn());
  activationForward();
  cast(Pass::Forward, double(tokens) * ffn);
  linearForward("ffn out", ffn, shape.hidden);
}

void Builder::feedBackward() {
  if (shape.recipe.denseAgain && !hasExperts)
    denseAgain();
  cast(Pass::BackwardInput, local);
  linearBackward("ffn out", ffn, shape.hidden, false);
  activationBackward();
  cast(Pass::BackwardInput, double(tokens) * ffnIn);
  linearsBackward("ffn in", getFfnIn());
}

void Builder::layerForward() {
  normForward();
  enterForward();
  attentionInputsForward();
  if (shape.biases)
    kernel(Pass::Forward, "bias", 2.0 * tokens * qkvWidth, 0, qkvWidth);
  if (shape.normsHeads)
    headNormsForward();
  if (shape.rotary)
    kernel(Pass::Forward, "rotary", 2.0 * tokens * qkvWidth);
  block.operations.push_back(attention(Pass::Forward));
  cast(Pass::Forward, double(tokens) * attentionWidth);
  linearForward("projection", attentionWidth, shape.hidden);
  leaveForward();
  residualForward();
  normForward();
  enterForward();
  hasExperts ? expertsForward() : feedForward();
  leaveForward();
  residualForward();
}

void Builder::layerBackward() {
  residualBackward();
  leaveBackward();
  hasExperts ? expertsBackward() : feedBackward();
  normBackward();
  kernel(Pass::BackwardInput, "residual", 3 * local);
  residualBackward();
  leaveBackward();
  cast(Pass::BackwardInput, local);
  linearBackward("projection", attentionWidth, shape.hidden, false);
  block.operations.push_back(attention(Pass::BackwardInput));
  if (shape.rotary)
    kernel(Pass::BackwardInput, "rotary", 2.0 * tokens * qkvWidth);
  if (shape.normsHeads)
    headNormsBackward();
  if (shape.biases)
    kernel(Pass::BackwardWeight, "bias", double(tokens) * qkvWidth, 0,
           qkvWidth);
  cast(Pass::BackwardInput, double(tokens) * qkvWidth);
  if (shape.recipe.latentAgain)
    latentAgain();
  attentionInputsBackward();
  normBackward();
  kernel(Pass::BackwardInput, "residual", 3 * local);
}

void Builder::layerParameters() {
  double hidden = shape.hidden;
  double bias = shape.biases ? 1 : 0;
  attentionInputParameters();
  group(hidden * attentionWidth);
  group(hidden * ffnIn + bias * ffnIn);
  group(hidden * ffn);
  if (hasExperts) {
    const ExpertShape &own = shape.experts;
    group(hidden * own.experts, /*replicated=*/true);
    group(shape.ffnMatrices * hidden * divideUp(own.ffn, tp) *
          divideUp(own.experts, ep));
    block.parameters.back().experts = true;
  }
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
  if (hasExperts)
    wide += countRows() * (shape.hidden +
                           shape.ffnMatrices * divideUp(shape.experts.ffn, tp));
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

/// Shared experts are a network as wide as all of them, beside the others.
Block Builder::layer(bool ofExperts, bool hasWindow) {
  block = Block();
  block.name = ofExperts ? "layer of experts" : "layer";
  hasExperts = ofExperts;
  inWindow = hasWindow;
  int64_t width =
      ofExperts ? shape.experts.shared * shape.experts.ffn : shape.ffn;
  ffn = divideUp(width, tp);
  ffnIn = (shape.ffnMatrices - 1) * ffn;
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

/// Matrices that a token meets count in a layer's work; all of them in its
/// parameters.
void Builder::countTotals(Work &work) const {
  double h = shape.hidden, s = shape.sequence, bias = shape.biases ? 1 : 0;
  double width = double(shape.heads) * shape.headSize;
  double keys = double(shape.keyValueHeads) * shape.headSize;
  double f = shape.ffn, vectors = shape.layerNorm ? 2 : 1;
  const LatentShape &latent = shape.latent;
  double inputs = h * (width + 2 * keys);
  if (latent.query)
    inputs = h * (latent.query + latent.keyValue + latent.rotary) +
             latent.query * (width + double(shape.heads) * latent.rotary) +
             latent.keyValue * 2 * width;
  double matrices = inputs + h * width + shape.ffnMatrices * h * f;
  double small = 2 * vectors * h + bias * (width + 2 * keys + 2 * h +
                                           (shape.ffnMatrices - 1) * f);
  double table = h * shape.vocabulary;
  double sparse = 0, met = 0, stored = 0;
  if (const ExpertShape &own = shape.experts; own.experts) {
    double one = shape.ffnMatrices * h * double(own.ffn);
    double beside = inputs + h * width + h * own.experts + own.shared * one;
    sparse = double(shape.layers - own.denseLayers);
    met = beside + own.choices * one, stored = beside + own.experts * one;
  }
  double dense = double(shape.layers) - sparse;
  work.totalParameters =
      dense * (matrices + small) + sparse * (stored + small) + vectors * h +
      table * (shape.tied ? 1 : 2) + (shape.learnedPositions ? s * h : 0);
  double layers = 2 * s * (dense * matrices + sparse * met) +
                  double(shape.layers) * 4 * s * s * width;
  work.modelFlopsPerSequence = 3 * (layers + 2 * s * table);
}

Work Builder::run() {
  Work work;
  work.tensorParallel = tp;
  work.expertParallel = ep;
  work.sequenceParallel = sp;
  work.sequence = shape.sequence;
  work.blocks = {embedding(), layer(false), head()};
  if (shape.experts.experts)
    work.blocks.push_back(layer(true));
  int usual = shape.experts.experts ? 3 : 1, windowed = usual;
  if (shape.window) {
    windowed = int(work.blocks.size());
    work.blocks.push_back(layer(shape.experts.experts > 0, true));
  }
  int further = int(work.blocks.size());
  if (shape.furtherTokens)
    work.blocks.push_back(furtherLayer());
  // Both factors of every matmul of a weight gradient; one is a gradient.
  for (Block &each : work.blocks)
    for (const Operation &op : each.operations)
      if (op.pass == Pass::BackwardWeight &&
          op.scaled == Operation::Scaled::K) {
        double batch = double(op.batch);
        each.halves.weights.elements +=
            batch * double(op.m + op.n) * double(op.k);
        each.halves.made.elements += batch * double(op.m) * double(op.k);
      }
  for (Block &each : work.blocks) {
    Halves &halves = each.halves;
    halves.inputs = each.kept;
    if (halves.made.elements > each.output.elements) {
      halves.passed.elements = each.output.elements;
      halves.weights.elements -= each.output.elements;
      halves.made.elements -= each.output.elements;
    }
    each.halvesAgain = {each.input, halves.weights, halves.weights,
                        halves.passed};
  }
  work.before = work.after = 1;
  work.order = {0};
  for (int64_t i = 0; i < shape.layers; ++i)
    work.order.push_back(i < shape.experts.denseLayers ? 1
                         : i % 2                       ? usual
                                                       : windowed);
  work.order.insert(work.order.end(), size_t(shape.furtherTokens), further);
  work.order.push_back(2);
  countTotals(work);
  return work;
}

Work planner::buildTransformerWork(const TransformerShape &shape, int tensor,
                                   bool sequenceParallel, int expertRanks) {
  return Builder(shape, tensor, sequenceParallel, expertRanks).run();
}
