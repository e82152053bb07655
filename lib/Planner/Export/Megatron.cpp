//===- Megatron.cpp - Flags of Megatron-LM --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shell script that starts pretrain_gpt.py. Names and defaults of flags are
// those of megatron/training/arguments.py at the version that Abilities.cpp
// names. Its ranks are numbered as plait's: tp fastest, then cp, dp and pp.
//
//===----------------------------------------------------------------------===//

#include "Export/MegatronFlags.h"
#include "Export/Shape.h"
#include "Export/Text.h"

using namespace plait;
using namespace plait::planner;

namespace {

/// The flags of one job, and what is to be said beside them.
class MegatronWriter {
public:
  explicit MegatronWriter(const Job &job)
      : job(job), choice(job.configuration), training(job.training) {}

  Result<Emitted> run();

private:
  template <typename... Values>
  void add(const char *flag, const Values &...values) {
    lines.push_back(flag);
    (lines.back().append(" ").append(toText(values)), ...);
  }
  static std::string toText(int64_t value) { return std::to_string(value); }
  static std::string toText(int value) { return std::to_string(value); }
  static std::string toText(double value) { return printExact(value); }
  static std::string toText(const std::string &value) { return value; }

  void addModel();
  void addShape(const Shape &shape);
  Status addTraining();
  void addMesh();
  void addStages();
  void addMemory();

  const Job &job;
  const Configuration &choice;
  const Training &training;
  std::vector<std::string> lines, notes;
};

} // namespace

/// Its positions are either learned or rotary; its GELU is by tanh where it is
/// fused with the bias.
void MegatronWriter::addShape(const Shape &shape) {
  add("--num-layers", shape.layers);
  add("--hidden-size", shape.hidden);
  add("--ffn-hidden-size", shape.inner);
  add("--num-attention-heads", shape.heads);
  if (shape.groups != shape.heads) {
    add("--group-query-attention");
    add("--num-query-groups", shape.groups);
  }
  if (shape.headSize != shape.hidden / shape.heads)
    add("--kv-channels", shape.headSize);
  add("--max-position-embeddings",
      std::max(shape.positions, training.sequence));
  if (shape.isLlama) {
    add("--position-embedding-type", std::string("rope"));
    add("--rotary-base", int64_t(shape.theta));
    if (shape.ropeFactor) {
      add("--use-rope-scaling");
      add("--rope-scaling-factor", *shape.ropeFactor);
    }
    add("--swiglu");
    add("--normalization", std::string("RMSNorm"));
    add("--disable-bias-linear");
  }
  if (shape.headBiases)
    add("--add-qkv-bias");
  if (shape.headNorms)
    add("--qk-layernorm");
  if (shape.exactGelu)
    add("--no-bias-gelu-fusion");
  add("--norm-epsilon", shape.epsilon);
  if (!shape.tied)
    add("--untie-embeddings-and-output-weights");
  add("--attention-dropout", job.dropout ? shape.attentionDropout : 0.0);
  add("--hidden-dropout", job.dropout ? shape.hiddenDropout : 0.0);
  add("--vocab-size", shape.vocab);
  add("--make-vocab-size-divisible-by", int64_t(1));
  if (int tensor = choice.mesh[Axis::TP]; shape.vocab % tensor != 0)
    notes.push_back("The vocabulary is padded to a multiple of tp " +
                    std::to_string(tensor) + ".");
}

void MegatronWriter::addModel() {
  Result<Shape> shape = job.model.empty()
                            ? fail("it is no config.json")
                            : readShape(job.model, training.sequence);
  if (shape.ok())
    return addShape(*shape);
  notes.push_back("The flags of the model are yours to add: " +
                  shape.status().message() + ".");
}

/// Adds the sizes and the arithmetic of a step.
Status MegatronWriter::addTraining() {
  add("--seq-length", training.sequence);
  add("--micro-batch-size", choice.microBatch);
  add("--global-batch-size", training.globalBatch);
  if (training.precision != Precision::FP32)
    add(training.precision == Precision::BF16 ? "--bf16" : "--fp16");
  if (training.precision == Precision::FP16)
    add("--accumulate-allreduce-grads-in-fp32");
  if (training.reducePrecision == Precision::BF16)
    add("--grad-reduce-in-bf16");
  add("--attention-backend",
      std::string(training.flashAttention ? "flash" : "unfused"));
  for (auto [ours, theirs] : kMegatronOptimizers)
    if (job.optimizer == ours) {
      add("--optimizer", std::string(theirs));
      return Status::success();
    }
  return fail("optimizer is ", job.optimizer,
              ", which Megatron-LM has not, expected adamw, sgd or lion");
}

/// Zig-zag order is what its ring has, and the only one it shards sequences in.
void MegatronWriter::addMesh() {
  const Mesh &mesh = choice.mesh;
  add("--tensor-model-parallel-size", mesh[Axis::TP]);
  add("--pipeline-model-parallel-size", mesh[Axis::PP]);
  add("--context-parallel-size", mesh[Axis::CP]);
  if (mesh[Axis::CP] > 1)
    add("--cp-comm-type",
        std::string(choice.contextParallel == ContextParallel::Heads ? "a2a"
                                                                     : "p2p"));
  if (choice.sequenceParallel && mesh[Axis::TP] > 1)
    add("--sequence-parallel");
}

/// An even cut needs its chunks only; another is a layout in which stages
/// follow each other as in the forward pass.
void MegatronWriter::addStages() {
  if (choice.mesh[Axis::PP] == 1)
    return;
  if (isEven(choice.layers)) {
    if (choice.chunks > 1)
      add("--num-layers-per-virtual-pipeline-stage", choice.layers.front());
    return;
  }
  std::string layout = "E";
  for (size_t stage = 0; stage < choice.layers.size(); ++stage)
    layout +=
        (stage ? "|" : "") + std::string(size_t(choice.layers[stage]), 't');
  add("--pipeline-model-parallel-layout", "'" + layout + "L'");
}

/// The state of an optimizer on hosts is an option of the distributed one.
void MegatronWriter::addMemory() {
  bool offloads = offloadsOptimizer(choice.offload);
  if (choice.zero > 0 || offloads) {
    add("--use-distributed-optimizer");
    add("--overlap-grad-reduce");
    add("--overlap-param-gather");
  }
  if (offloads) {
    add("--optimizer-cpu-offload");
    add("--use-precision-aware-optimizer");
    add("--overlap-cpu-optimizer-d2h-h2d");
  }
  std::optional<Recompute> kind = choice.recompute.getUniform();
  if (kind == Recompute::None)
    return;
  bool isSelective = kind == Recompute::Selective;
  add("--recompute-granularity",
      std::string(isSelective ? "selective" : "full"));
  if (isSelective)
    return;
  add("--recompute-method", std::string(kind ? "uniform" : "block"));
  add("--recompute-num-layers", kind ? 1 : choice.recompute.getStage(0).full);
}

Result<Emitted> MegatronWriter::run() {
  Result<Launch> launch = getLaunch(job);
  if (!launch.ok())
    return launch.status();
  addModel();
  PLAIT_RETURN_IF_ERROR(addTraining());
  addMesh();
  addStages();
  addMemory();
  notes.push_back("Data, tokenizer, learning rate, steps and checkpoints are "
                  "yours: as arguments of this script.");
  std::string text = "#!/bin/bash\n" + printHead(job, notes);
  text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  text += printTorchrun(*launch) + " pretrain_gpt.py";
  for (const std::string &line : lines)
    text += " \\\n  " + line;
  return Emitted{text + " \\\n  \"$@\"\n"};
}

Result<Emitted> planner::emitMegatron(const Job &job) {
  return MegatronWriter(job).run();
}
