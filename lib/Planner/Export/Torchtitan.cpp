//===- Torchtitan.cpp - A run of torchtitan -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shell script that writes the order of a step as CSV, which torchtitan reads
// with PyTorch's own parser, and starts torchtitan with overrides of whatever
// configuration the user names. Its ranks are numbered as plait's.
//
//===----------------------------------------------------------------------===//

#include "Export/Text.h"
#include "plait/Schedule/Csv.h"
#include "plait/Schedule/Generators.h"

using namespace plait;
using namespace plait::planner;

namespace {

class TorchtitanWriter {
public:
  explicit TorchtitanWriter(const Job &job)
      : job(job), choice(job.configuration), training(job.training) {}

  Result<Emitted> run();

private:
  void add(const std::string &option, const std::string &value = "") {
    lines.push_back("--" + option + (value.empty() ? "" : " " + value));
  }
  void add(const std::string &option, int64_t value) {
    add(option, std::to_string(value));
  }
  Status addTraining();
  void addMesh();
  Status addPipeline();

  const Job &job;
  const Configuration &choice;
  const Training &training;
  std::vector<std::string> lines, notes;
  std::string csv; // empty: there is one stage
};

} // namespace

/// A step's microbatches are one local batch of a pipeline; without one they
/// are accumulated, each a local batch.
Status TorchtitanWriter::addTraining() {
  if (training.precision == Precision::FP16)
    return fail("precision is fp16, which torchtitan has not");
  if (job.optimizer != "adamw")
    return fail("optimizer is ", job.optimizer,
                ", of which torchtitan's options say nothing, expected adamw");
  bool hasStages = choice.mesh[Axis::PP] > 1;
  add("training.seq_len", training.sequence);
  add("training.global_batch_size", training.globalBatch);
  add("training.local_batch_size",
      hasStages ? training.globalBatch / choice.mesh.batchParts()
                : choice.microBatch);
  add("training.mixed_precision_param",
      training.precision == Precision::FP32 ? "float32" : "bfloat16");
  add("compile.enable");
  if (hasStages) // which its CUDA graphs do not support
    add("training.disable_cuda_graphs");
  return Status::success();
}

void TorchtitanWriter::addMesh() {
  const Mesh &mesh = choice.mesh;
  add("parallelism.data_parallel_replicate_degree", mesh[Axis::Replicate]);
  add("parallelism.data_parallel_shard_degree", mesh[Axis::DP]);
  add("parallelism.fsdp_reshard_after_forward",
      choice.zero == 3 ? "always" : "never");
  add("parallelism.context_parallel_degree", mesh[Axis::CP]);
  if (mesh[Axis::CP] > 1)
    add("parallelism.context_parallel_load_balancer",
        choice.contextParallel == ContextParallel::Zigzag ? "headtail"
                                                          : "None");
  add("parallelism.tensor_parallel_degree", mesh[Axis::TP]);
  if (mesh[Axis::TP] > 1)
    add(choice.sequenceParallel ? "parallelism.enable_sequence_parallel"
                                : "parallelism.no-enable_sequence_parallel");
}

/// The names of the layers of each stage, with what comes before and after
/// them.
static std::string listModules(const std::vector<int> &layers) {
  std::string text;
  int layer = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    std::vector<std::string> names;
    if (stage == 0)
      names.push_back("tok_embeddings");
    for (int i = 0; i < layers[stage]; ++i)
      names.push_back("layers." + std::to_string(layer++));
    if (stage + 1 == layers.size()) {
      names.push_back("norm");
      names.push_back("lm_head");
    }
    text += stage ? " " : "";
    for (size_t i = 0; i < names.size(); ++i)
      text += (i ? "," : "") + names[i];
  }
  return text;
}

/// The name of a schedule says which stages a rank has, the file their order.
Status TorchtitanWriter::addPipeline() {
  const Mesh &mesh = choice.mesh;
  add("parallelism.pipeline_parallel_degree", mesh[Axis::PP]);
  if (mesh[Axis::PP] == 1)
    return Status::success();
  schedule::Problem problem;
  problem.stages = uint32_t(mesh[Axis::PP]);
  problem.chunks = uint32_t(choice.chunks);
  problem.microbatches = uint32_t(choice.microbatches(training));
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(choice.schedule);
  if (!generator.ok())
    return generator.status();
  if ((*generator)->searches)
    return fail("schedule is ", choice.schedule,
                ", which is searched for by costs: pin another");
  Result<schedule::Schedule> order =
      schedule::generate(choice.schedule, problem);
  if (!order.ok())
    return order.status();
  csv = schedule::printCsv(*order);
  bool isV = (*generator)->placement == schedule::Placement::VShape;
  add("parallelism.pipeline_parallel_microbatch_size", choice.microBatch);
  add("parallelism.pipeline_parallel_schedule", isV ? "ZBVZeroBubble"
                                                : choice.chunks > 1
                                                    ? "Interleaved1F1B"
                                                    : "1F1B");
  add("parallelism.pipeline_parallel_schedule_csv", "\"$schedule\"");
  add("parallelism.module_fqns_per_model_part", listModules(choice.layers));
  return Status::success();
}

/// Subcommands of torchtitan come after all options.
Result<Emitted> TorchtitanWriter::run() {
  Result<Launch> launch = getLaunch(job);
  if (!launch.ok())
    return launch.status();
  PLAIT_RETURN_IF_ERROR(addTraining());
  addMesh();
  PLAIT_RETURN_IF_ERROR(addPipeline());
  notes.push_back("MODULE and CONFIG name the function that makes your "
                  "configuration, llama3 and llama3_8b say:");
  notes.push_back("its model has to be the one that was planned for.");
  notes.push_back("Data, optimizer, steps and checkpoints are that "
                  "configuration's.");
  std::string text = "#!/bin/bash\n" + printHead(job, notes);
  if (!csv.empty())
    text +=
        "schedule=${SCHEDULE:-schedule.csv}\ncat > \"$schedule\" <<'END'\n" +
        csv + "END\n";
  text += printTorchrun(*launch) +
          " -m torchtitan.train \\\n"
          "  --module \"${MODULE:?}\" --config \"${CONFIG:?}\"";
  for (const std::string &line : lines)
    text += " \\\n  " + line;
  text += " \\\n  \"$@\" activation-checkpoint:";
  return Emitted{
      text + print(choice.recompute.getUniform().value_or(Recompute::None)) +
      "\n"};
}

Result<Emitted> planner::emitTorchtitan(const Job &job) {
  return TorchtitanWriter(job).run();
}
