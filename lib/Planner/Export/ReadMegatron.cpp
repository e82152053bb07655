//===- ReadMegatron.cpp - A layout of Megatron-LM -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From flags to pins: sizes are checked as Megatron-LM checks them, so that
// what it would refuse to start is an error here, with the flags in it.
//
//===----------------------------------------------------------------------===//

#include "Export/MegatronFlags.h"
#include "Export/Shape.h"
#include "Export/Text.h"

#include <numeric>

using namespace plait;
using namespace plait::planner;

namespace {

class MegatronReader {
public:
  explicit MegatronReader(const Given &given) : given(given) {}

  Result<GivenJob> run();

private:
  Status readMesh();
  Result<std::vector<int>> readLayout() const;
  Result<std::vector<int>> cutEvenly() const;
  Status readStages();
  Result<Recomputation> readRecomputation() const;
  Status readMemory();
  Status readTraining();
  Status readModel();
  Status makeShape(Shape &shape) const;

  const Given &given;
  MegatronFlags flags;
  GivenJob job;
};

} // namespace

static Status failMissing(const char *flag, const char *what) {
  return fail("--", flag, " is missing: ", what, " is not known without it");
}

/// Leaves the rest of the processes to data parallelism.
Status MegatronReader::readMesh() {
  int64_t devices = given.cluster.devices();
  int64_t world = given.processes ? given.processes : devices;
  if (world > devices)
    return fail("torchrun starts ", world, " processes, but the cluster has ",
                devices, " devices");
  int64_t model = 1;
  for (auto [axis, size] : {std::pair(Axis::TP, flags.tensor),
                            {Axis::PP, flags.pipeline},
                            {Axis::CP, flags.context}}) {
    if (size > Mesh::kMostRanks / model)
      return fail("tensor, pipeline and context parallel sizes have more than ",
                  Mesh::kMostRanks, " ranks");
    model *= size;
    job.pins.mesh[axis] = int(size);
  }
  if (world % model != 0)
    return fail("--tensor-model-parallel-size ", flags.tensor,
                " · --pipeline-model-parallel-size ", flags.pipeline,
                " · --context-parallel-size ", flags.context, " = ", model,
                " does not divide the world size ", world);
  job.pins.mesh[Axis::DP] = int(world / model);
  if (flags.contextKind != "p2p" && flags.contextKind != "a2a")
    return fail("--cp-comm-type is ", flags.contextKind,
                ", which is not modelled, expected p2p or a2a");
  if (flags.context > 1)
    job.pins.contextParallel = flags.contextKind == "a2a"
                                   ? ContextParallel::Heads
                                   : ContextParallel::Zigzag;
  job.pins.sequenceParallel = flags.sequenceParallel && flags.tensor > 1;
  return Status::success();
}

/// The stages of a layout: as many a rank as there are in all.
Result<std::vector<int>> MegatronReader::readLayout() const {
  Result<std::vector<int>> layers = parseLayout(flags.layout);
  if (!layers.ok())
    return layers;
  if (int64_t(layers->size()) % flags.pipeline != 0)
    return fail("--pipeline-model-parallel-layout has ", layers->size(),
                " stages, which is no multiple of "
                "--pipeline-model-parallel-size ",
                flags.pipeline);
  int sum = std::accumulate(layers->begin(), layers->end(), 0);
  if (sum != *flags.layers)
    return fail("--pipeline-model-parallel-layout has ", sum,
                " layers, --num-layers is ", *flags.layers);
  return layers;
}

/// Without a layout all virtual stages have as many layers.
Result<std::vector<int>> MegatronReader::cutEvenly() const {
  int64_t stages = flags.pipeline, chunks = flags.chunks.value_or(1);
  if (flags.layersPerChunk) {
    int64_t each = stages * *flags.layersPerChunk;
    if (*flags.layers % each != 0)
      return fail("--num-layers ", *flags.layers,
                  " is not divisible by --pipeline-model-parallel-size ",
                  stages, " · --num-layers-per-virtual-pipeline-stage ",
                  *flags.layersPerChunk, " = ", each);
    chunks = *flags.layers / each;
  }
  if (*flags.layers % (stages * chunks) != 0)
    return fail("--num-layers ", *flags.layers, " is not divisible by ",
                "--pipeline-model-parallel-size ", stages,
                chunks > 1 ? " · " + std::to_string(chunks) + " chunks" : "");
  return std::vector<int>(size_t(stages * chunks),
                          int(*flags.layers / (stages * chunks)));
}

Status MegatronReader::readStages() {
  if (int(flags.layersPerChunk.has_value()) + int(flags.chunks.has_value()) +
          int(!flags.layout.empty()) >
      1)
    return fail("of --num-layers-per-virtual-pipeline-stage, "
                "--num-virtual-stages-per-pipeline-rank and "
                "--pipeline-model-parallel-layout one can be given");
  if (!flags.layers)
    return failMissing("num-layers", "what a stage has");
  Result<std::vector<int>> layers =
      flags.layout.empty() ? cutEvenly() : readLayout();
  if (!layers.ok())
    return layers.status();
  int64_t chunks = int64_t(layers->size()) / flags.pipeline;
  if (flags.pipeline == 1 && chunks > 1)
    return fail("virtual stages need a --pipeline-model-parallel-size above 1");
  job.pins.chunks = int(chunks);
  job.pins.schedule = chunks > 1 ? "interleaved-1f1b" : "1f1b";
  if (flags.pipeline > 1)
    job.pins.layers = std::move(*layers);
  return Status::success();
}

Status MegatronReader::readMemory() {
  // With one replica there is nothing to divide.
  bool divides = *job.pins.mesh[Axis::DP] * flags.context > 1;
  job.pins.zero = flags.dividesState && divides ? 1 : 0;
  if (flags.offloads && !flags.dividesState)
    return fail("--optimizer-cpu-offload needs --use-distributed-optimizer");
  job.pins.offload = flags.offloads ? Offload::Optimizer : Offload::None;
  Result<Recomputation> recompute = readRecomputation();
  if (recompute.ok())
    job.pins.recompute = *recompute;
  return recompute.status();
}

/// The block method takes the first layers of each stage.
Result<Recomputation> MegatronReader::readRecomputation() const {
  if (flags.selective && flags.recompute == "full")
    return fail("--recompute-activations is selective, but "
                "--recompute-granularity is full");
  std::string kind = flags.selective ? "selective" : flags.recompute;
  if (kind.empty())
    return Recomputation(Recompute::None);
  if (kind == "selective")
    return Recomputation(Recompute::Selective);
  if (kind != "full")
    return fail("--recompute-granularity is '", kind,
                "', expected full or selective");
  if (flags.recomputeMethod == "block") {
    Recomputation block;
    block.stages = {{int(flags.recomputeLayers), 0}};
    return block;
  }
  if (flags.recomputeMethod != "uniform")
    return fail("--recompute-method is '", flags.recomputeMethod,
                "', expected uniform or block");
  if (flags.recomputeLayers != 1)
    return fail("--recompute-num-layers is ", flags.recomputeLayers,
                " with --recompute-method uniform, of which 1 is modelled");
  return Recomputation(Recompute::Full);
}

Status MegatronReader::readTraining() {
  for (auto [flag, value] : {std::pair("micro-batch-size", flags.microBatch),
                             {"global-batch-size", flags.globalBatch},
                             {"seq-length", flags.sequence}})
    if (!value)
      return failMissing(flag, "a step");
  int64_t replicas = *job.pins.mesh[Axis::DP];
  int64_t filled = *flags.microBatch * replicas;
  if (*flags.globalBatch % filled != 0)
    return fail("--global-batch-size ", *flags.globalBatch,
                " is not divisible by --micro-batch-size ", *flags.microBatch,
                " · dp ", replicas, " = ", filled);
  if (flags.bf16 && flags.fp16)
    return fail("--bf16 and --fp16 exclude each other");
  if (flags.context > 1 && *flags.sequence % (2 * flags.context) != 0)
    return fail("--seq-length ", *flags.sequence,
                " is not divisible by 2 · --context-parallel-size ",
                flags.context);
  job.pins.microBatch = *flags.microBatch;
  job.training.globalBatch = *flags.globalBatch;
  job.training.sequence = *flags.sequence;
  job.training.precision = flags.bf16   ? Precision::BF16
                           : flags.fp16 ? Precision::FP16
                                        : Precision::FP32;
  if (flags.reducesInBf16)
    job.training.reducePrecision = Precision::BF16;
  for (auto [ours, theirs] : kMegatronOptimizers)
    if (flags.optimizer == theirs)
      job.training.optimizer = ours;
  if (!job.training.optimizer)
    return fail("--optimizer is ", flags.optimizer,
                ", which is not modelled, expected adam, sgd or lion");
  bool isFused = flags.attention == "flash" || flags.attention == "fused";
  if (isFused || flags.usesFlash)
    job.training.attention = AttentionKind::Flash;
  else if (flags.attention == "unfused" || flags.attention == "local")
    job.training.attention = AttentionKind::Unfused;
  else if (flags.attention != "auto")
    return fail("--attention-backend is '", flags.attention,
                "', expected flash, fused, unfused, local or auto");
  return Status::success();
}

/// Accepts the two mixtures of norms, positions and MLPs that families of
/// Hugging Face have.
Status MegatronReader::makeShape(Shape &shape) const {
  bool isRms = flags.normalization == "RMSNorm",
       isRope = flags.position == "rope" || flags.usesRotary;
  shape.isLlama = isRms && isRope && flags.swiglu && flags.noBias;
  bool isGPT2 = flags.normalization == "LayerNorm" &&
                flags.position == "learned_absolute" && !flags.swiglu &&
                !flags.noBias && !flags.groupsQueries && !flags.headNorms &&
                !flags.headBiases && !flags.headSize && !isRope &&
                !flags.noPosition;
  if (!shape.isLlama && !isGPT2)
    return fail("the flags describe neither Llama (--swiglu, --normalization "
                "RMSNorm, --position-embedding-type rope, "
                "--disable-bias-linear) nor GPT-2 (none of these): give the "
                "model's config.json");
  if (flags.headNorms && flags.headBiases)
    return fail("--qk-layernorm and --add-qkv-bias are of no model that plait "
                "knows: give the model's config.json");
  if (*flags.hidden % *flags.heads != 0 && !flags.headSize)
    return fail("--hidden-size ", *flags.hidden,
                " is not divisible by --num-attention-heads ", *flags.heads);
  int64_t gated = *flags.hidden * 8 / 3 / 64 * 64; // Megatron-LM's own
  shape.layers = *flags.layers;
  shape.hidden = *flags.hidden;
  shape.heads = *flags.heads;
  shape.inner = flags.inner.value_or(flags.swiglu ? gated : 4 * shape.hidden);
  shape.groups = flags.groupsQueries ? flags.groups.value_or(1) : shape.heads;
  shape.headSize = flags.headSize.value_or(shape.hidden / shape.heads);
  shape.positions = flags.positions.value_or(*flags.sequence);
  return Status::success();
}

/// A divisor of 1 leaves the vocabulary as it is: that tp needs a multiple is
/// the compiler's affair.
Status MegatronReader::readModel() {
  if (given.hasModel) {
    job.notes.push_back("the model is the one that is given: its flags are not "
                        "read");
    return Status::success();
  }
  for (auto [flag, value] : {std::pair("hidden-size", flags.hidden),
                             {"num-attention-heads", flags.heads},
                             {"vocab-size", flags.vocab}})
    if (!value)
      return failMissing(flag, "the model, which can be a config.json,");
  Shape shape;
  PLAIT_RETURN_IF_ERROR(makeShape(shape));
  int64_t multiple =
      flags.vocabDivisor == 1 ? 1 : flags.vocabDivisor * flags.tensor;
  shape.vocab = (*flags.vocab + multiple - 1) / multiple * multiple;
  shape.tied = !flags.untied;
  shape.headBiases = flags.headBiases;
  shape.headNorms = flags.headNorms;
  shape.exactGelu = flags.exactGelu;
  shape.epsilon = flags.epsilon;
  shape.theta = flags.theta;
  if (flags.scalesRope)
    shape.ropeFactor = flags.ropeFactor;
  shape.attentionDropout = flags.attentionDropout;
  shape.hiddenDropout = flags.hiddenDropout;
  job.model = printConfig(shape);
  return Status::success();
}

Result<GivenJob> MegatronReader::run() {
  Result<MegatronFlags> parsed = parseMegatronFlags(given);
  if (!parsed.ok())
    return parsed.status();
  flags = std::move(*parsed);
  PLAIT_RETURN_IF_ERROR(readMesh());
  PLAIT_RETURN_IF_ERROR(readStages());
  PLAIT_RETURN_IF_ERROR(readMemory());
  PLAIT_RETURN_IF_ERROR(readTraining());
  PLAIT_RETURN_IF_ERROR(readModel());
  return std::move(job);
}

Result<GivenJob> planner::readMegatron(const Given &given) {
  return MegatronReader(given).run();
}
