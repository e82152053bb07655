//===- OtherPrograms.h - Options of other programs --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// People come with the options of other programs in their fingers: those of
// Hugging Face's Trainer, Megatron-LM, DeepSpeed, torchrun and torchtitan. Each
// has an answer here, as slips of the finger have.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_OTHERPROGRAMS_H
#define PLAIT_SUPPORT_OTHERPROGRAMS_H

#include "plait/Support/Suggest.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plait::tool {

/// Options of other programs, without dashes in front, with blanks between
/// them, and what says the same in plait.
struct ForeignOption {
  std::string_view names;
  std::string_view tool;   // that has `option`; empty: none of them
  std::string_view option; // without dashes, and then what it takes
  std::string_view reason; // beside it, or instead
};

inline constexpr ForeignOption foreignOptions[] = {
    // The batch.
    {"batch-size train-batch-size global-batch-size gbs train-micro-batch",
     "plaitc", "global-batch", "the sequences of a step, over all ranks"},
    {"micro-batch-size mbs per-device-train-batch-size local-batch-size "
     "train-micro-batch-size-per-gpu per-gpu-train-batch-size",
     "plaitc", "micro-batch", ""},
    {"gradient-accumulation-steps accumulate-grad-batches grad-accum "
     "gradient-accumulation num-microbatches microbatches accumulation-steps",
     "", "",
     "gradient accumulation follows from --global-batch, --micro-batch and dp"},
    {"seq-length seq-len sequence-length max-seq-len max-seq-length "
     "context-length max-position-embeddings block-size max-length",
     "plaitc", "seq", ""},
    // How it is spread.
    {"tensor-model-parallel-size tensor-parallel-size tensor-parallel "
     "tensor-parallel-degree tp tp-size tp-degree",
     "plaitc", "mesh tp=N", ""},
    {"pipeline-model-parallel-size pipeline-parallel-size pipeline-parallel "
     "pipeline-parallel-degree pp pp-size pp-degree",
     "plaitc", "mesh pp=N", ""},
    {"context-parallel-size context-parallel-degree cp cp-size", "plaitc",
     "mesh cp=N", ""},
    {"data-parallel-size data-parallel-shard-degree dp dp-size "
     "data-parallel-replicate-degree",
     "plaitc", "mesh dp=N", ""},
    {"num-layers-per-virtual-pipeline-stage virtual-pipeline-size vpp "
     "num-virtual-stages-per-pipeline-rank",
     "plaitc", "chunks", "virtual stages of a rank"},
    {"pipeline-parallel-schedule pipeline-schedule", "plaitc", "schedule", ""},
    {"use-distributed-optimizer zero-stage stage deepspeed zero1 zero2 zero3 "
     "zero-optimization",
     "plaitc", "zero", "1, 2 or 3"},
    {"fsdp use-fsdp fully-sharded fsdp2 use-torch-fsdp2 use-megatron-fsdp",
     "plaitc", "zero 3", "it is FSDP"},
    {"recompute-granularity recompute-method recompute-activations "
     "activation-checkpointing gradient-checkpointing checkpoint-activations "
     "activation-checkpoint",
     "plaitc", "recompute", "none, selective or full"},
    {"cpu-offload offload-optimizer optimizer-cpu-offload offload-activations "
     "offload-optimizer-device",
     "plaitc", "offload", ""},
    {"sp use-sequence-parallel", "plaitc", "sequence-parallel", ""},
    {"tp-comm-overlap-ag async-tensor-parallel enable-async-tensor-parallel",
     "plaitc", "tp-comm-overlap", ""},
    {"gpus num-gpus devices-count gpus-per-node n-gpus world-size ngpu",
     "plaitc", "cluster h100:8",
     "or --mesh; ranks are started by mpirun, srun or torchrun"},
    {"nproc-per-node nnodes num-nodes nodes rdzv-backend rdzv-endpoint "
     "master-addr master-port node-rank standalone",
     "", "", "torchrun takes it, in front of the program: docs/Clusters.md"},
    // Arithmetic.
    {"bf16 fp16 mixed-precision dtype torch-dtype params-dtype", "plaitc",
     "precision bf16", ""},
    {"fp8 fp8-format float8 load-in-8bit load-in-4bit", "", "",
     "there is no training in less than 16 bits"},
    {"cost price-per-hour gpu-price hourly-price", "plaitc", "price",
     "of a device-hour"},
    {"hours days deadline max-days time-limit", "plaitc", "within",
     "days, for a comparison"},
    {"use-flash-attn flash-attn use-flash-attention flash-attention "
     "attn-implementation",
     "plaitc", "attention flash", ""},
    {"compile torch-compile", "", "", "every plan is compiled"},
    {"optim optimizer-name", "plaitc", "optimizer", ""},
    {"lora-rank lora-r lora-dim peft use-peft use-lora", "plaitc", "lora RANK",
     ""},
    {"lora-target-modules target-modules lora-target", "plaitc",
     "lora-targets NAME,NAME", ""},
    {"lora-dropout", "", "", "adapters have no dropout"},
    {"expert-model-parallel-size expert-parallel-size ep ep-size", "plaitc",
     "mesh ep=N", ""},
    {"num-experts moe", "", "", "experts are said by the model"},
    // The training.
    {"learning-rate base-lr max-lr", "plait-run", "lr", ""},
    {"lr-scheduler-type lr-decay-style scheduler lr-scheduler", "plait-run",
     "lr-schedule", ""},
    {"warmup warmup-iters lr-warmup-iters num-warmup-steps lr-warmup-steps",
     "plait-run", "warmup-steps", ""},
    {"lr-decay-iters lr-decay-steps", "plait-run", "decay-steps", ""},
    {"minimum-lr end-lr", "plait-run", "min-lr", ""},
    {"max-steps train-iters max-iters num-steps iterations iters "
     "num-train-steps training-steps total-steps",
     "plait-run", "steps", ""},
    {"num-epochs num-train-epochs max-epochs train-epochs", "plait-run",
     "epochs", ""},
    {"clip-grad max-grad-norm max-norm gradient-clipping gradient-clip-val",
     "plait-run", "grad-clip", ""},
    {"adam-beta1", "plait-run", "beta1", ""},
    {"adam-beta2", "plait-run", "beta2", ""},
    {"adam-eps adam-epsilon", "plait-run", "eps", ""},
    {"wd", "plait-run", "weight-decay", ""},
    {"lr-mult lr-scale param-groups parameter-groups lr-groups "
     "layerwise-lr-decay layer-lr-decay embedding-lr decoupled-lr",
     "plaitc", "lr-factor NAME=FACTOR", ""},
    {"freeze-layers freeze-parameters freeze-params frozen-parameters",
     "plaitc", "freeze NAME", ""},
    {"random-seed", "plait-run", "seed", ""},
    // Data and files.
    {"data-path train-data-path train-file dataset dataset-name data "
     "dataset-path train-data",
     "plait-run", "tokens", "files of plait-data"},
    {"valid-data-path validation-file eval-data valid-data", "plait-run",
     "eval-tokens", ""},
    {"eval-interval eval-steps-interval evaluation-strategy eval-strategy",
     "plait-run", "eval-every", ""},
    {"eval-iters", "plait-run", "eval-steps", ""},
    {"save-total-limit keep-latest-k keep-last", "plait-run", "keep", ""},
    {"save-steps save-interval checkpoint-interval save-every", "plait-run",
     "checkpoint-every", ""},
    {"save-dir checkpoint-dir output-dir dump-folder default-root-dir",
     "plait-run", "checkpoint", "and --export for the model folder"},
    {"load resume-from-checkpoint resume-from ckpt-path load-dir", "plait-run",
     "resume", ""},
    {"model-name-or-path model-name pretrained init-from model-id", "plait-run",
     "weights", "and the folder itself for plaitc"},
    {"log-interval logging-steps log-every log-freq", "plait-run",
     "print-every", ""},
    {"tensorboard-dir logging-dir", "plait-run", "tensorboard", ""},
    {"wandb wandb-project report-to mlflow", "", "",
     "plait-run has --tensorboard, --dashboard, --metrics-port and --log"},
    {"do-eval eval-only evaluate", "plait-run", "steps 0",
     "with --eval-tokens it evaluates only"},
    {"num-workers dataloader-num-workers", "", "",
     "data is read from token files, without workers"},
    {"token-budget num-tokens", "plaitc", "train-tokens", ""},
};

/// Options of plait's own tools, of which the wrong one may be asked.
inline constexpr std::pair<std::string_view, std::string_view> ownOptions[] = {
    {"plait-run",
     "weights tokens text shuffle eval-tokens eval-text eval-every check "
     "threads supervise log dashboard tensorboard save export checkpoint "
     "checkpoint-every keep resume seed steps epochs lr lr-schedule "
     "warmup-steps min-lr weight-decay grad-clip beta1 beta2 eps config "
     "print-every document-end"},
    {"plaitc",
     "mesh cluster global-batch micro-batch seq schedule chunks recompute zero "
     "offload precision attention optimizer optimizer-of dropout "
     "document-mask target-weights lora lora-alpha lora-targets no-decay "
     "freeze lr-factor balance "
     "backend explain why-not report compare train-tokens price pin "
     "predict no-reference"},
    {"plait-data", "tokenizer field lines eos workers"}};

/// Lower-case, without dashes in front, without the table that torchtitan puts
/// in front of a dot, and with dashes for underscores.
inline std::string normalizeOption(std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  if (size_t dot = name.rfind('.'); dot != name.npos)
    name.erase(0, dot + 1);
  for (char &letter : name)
    letter =
        letter == '_' ? '-' : std::tolower(static_cast<unsigned char>(letter));
  return name;
}

/// Whether one of `names`, with blanks between them, is `name`.
inline bool isOneOf(std::string_view names, const std::string &name) {
  return (" " + std::string(names) + " ").find(" " + name + " ") !=
         std::string::npos;
}

/// Says what `option` may have meant, to be put behind the error that `app` and
/// its command, if one was given, do not know it; empty where nobody can tell.
inline std::string suggestOption(const CLI::App &app,
                                 const std::string &option) {
  const CLI::App &command =
      app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  std::string name = normalizeOption(option);
  std::vector<std::string> names;
  for (const CLI::Option *one : command.get_options())
    for (const std::string &alias : one->get_lnames())
      names.push_back(alias);
  auto has = [&](std::string_view one) {
    return std::ranges::find(names, one) != names.end();
  };
  auto ask = [](std::string_view one) {
    return ", did you mean --" + std::string(one) + "?";
  };
  // Underscores, capitals.
  if (has(name))
    return ask(name);
  for (const ForeignOption &one : foreignOptions) {
    if (!isOneOf(one.names, name))
      continue;
    std::string reason(one.reason);
    if (one.option.empty())
      return ": " + reason;
    std::string more = reason.empty() ? "" : " (" + reason + ")";
    if (has(one.option.substr(0, one.option.find(' '))))
      return ", did you mean --" + std::string(one.option) + more + "?";
    return ": it is --" + std::string(one.option) + more + " of " +
           std::string(one.tool);
  }
  for (auto [tool, options] : ownOptions)
    if (isOneOf(options, name))
      return ": it is an option of " + std::string(tool);
  // A letter is not half a word: it may be any.
  std::string nearest = name.size() > 1 ? plait::suggest(name, names) : "";
  return nearest.empty() ? "" : ask(nearest);
}

} // namespace plait::tool

#endif // PLAIT_SUPPORT_OTHERPROGRAMS_H
