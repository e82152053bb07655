//===- ExpertFamilies.cpp - Configs of mixtures of experts ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LlamaFields.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// A stack in a file has a tensor for each expert, and at most so many.
static constexpr int64_t kMostExperts = 1 << 16;

/// The choices of a token are among `count` experts.
static Experts readExperts(ConfigReader &config, StringRef countField,
                           int64_t usualCount,
                           std::optional<int64_t> usualChoices) {
  Experts experts = {};
  experts.count = config.getSize(countField, usualCount, kMostExperts);
  int64_t choices = experts.routing.choices =
      config.getSize("num_experts_per_tok", usualChoices);
  if (choices > experts.count)
    config.fail("field \"num_experts_per_tok\" is " + Twine(choices) +
                ", more than \"" + countField + "\", " + Twine(experts.count));
  return experts;
}

/// Under the names of the MLP that they replace.
static void nameMlp(Experts &experts) {
  experts.block = "mlp";
  experts.gate = "gate_proj";
  experts.up = "up_proj";
  experts.down = "down_proj";
}

/// Reads experts as Qwen3 and OLMoE have them: under the names of the MLP that
/// they replace.
static Experts readMlpExperts(ConfigReader &config, int64_t usualCount,
                              int64_t usualChoices,
                              StringRef countField = "num_experts") {
  Experts experts = readExperts(config, countField, usualCount, usualChoices);
  experts.routing.normalized = config.getFlag("norm_topk_prob", false);
  nameMlp(experts);
  return experts;
}

/// Refuses layers of Qwen's mixtures that have an MLP in place of experts.
static void requireExpertsEverywhere(ConfigReader &config) {
  config.require("mlp_bias", "false");
  config.require("decoder_sparse_step", "1");
  config.require("mlp_only_layers", "[]");
}

/// Jiang et al. 2024, "Mixtral of Experts".
Model hf::readMixtral(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {131072, 1e-5, /*groups=*/8});
  readWindow(llama, config, 0);
  llama.experts = readExperts(config, "num_local_experts", 8, 2);
  llama.experts->inner = llama.inner;
  llama.experts->routing.normalized = true;
  llama.experts->block = "block_sparse_moe";
  llama.experts->gate = "w1";
  llama.experts->up = "w3";
  llama.experts->down = "w2";
  config.require("attention_bias", "false");
  config.require("router_jitter_noise", "0.0");
  return makeModel(std::move(llama), config, sequence);
}

/// Yang et al. 2024, "Qwen2 Technical Report", its mixtures of experts, and
/// those of Qwen1.5. All layers are such.
Model hf::readQwen2Experts(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {32768, 1e-6, /*groups=*/16});
  llama.headBias = config.getFlag("qkv_bias", true);
  llama.experts = readMlpExperts(config, 60, 4);
  llama.experts->inner = config.getSize("moe_intermediate_size", 1408);
  llama.experts->shared =
      config.getSize("shared_expert_intermediate_size", 5632);
  llama.experts->sharedBlock = "shared_expert";
  llama.experts->opensShared = true;
  config.require("attention_bias", "false");
  config.require("use_sliding_window", "false");
  config.getChoices("layer_types", {"full_attention"}, llama.layers);
  config.ignore({"max_window_layers", "sliding_window"});
  requireExpertsEverywhere(config);
  return makeModel(std::move(llama), config, sequence);
}

/// Yang et al. 2025, "Qwen3 Technical Report", its mixtures of experts. All
/// layers are such, and a window is that of all of them.
Model hf::readQwen3Experts(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {32768, 1e-6, /*groups=*/4});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.headNorms = true;
  // Newer releases of `transformers` save it under the other name.
  bool isNew = config.has("num_local_experts") && !config.has("num_experts");
  llama.experts = readMlpExperts(config, 128, 8,
                                 isNew ? "num_local_experts" : "num_experts");
  llama.experts->inner = config.getSize("moe_intermediate_size", 768);
  bool hasWindow = config.getFlag("use_sliding_window", false);
  if (hasWindow)
    readWindow(llama, config, 4096);
  else
    config.ignore({"sliding_window"});
  config.ignore({"max_window_layers"});
  requireExpertsEverywhere(config);
  return makeModel(std::move(llama), config, sequence);
}

/// Muennighoff et al. 2024, "OLMoE: Open Mixture-of-Experts Language Models".
Model hf::readOlmoe(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {4096, 1e-5});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.jointNorms = true;
  llama.experts = readMlpExperts(config, 64, 8);
  llama.experts->inner = llama.inner;
  config.require("mlp_bias", "false");
  config.require("clip_qkv", "null");
  return makeModel(std::move(llama), config, sequence);
}

/// Groups of experts; all of them in one where a config says so.
static void readGroups(Experts &experts, ConfigReader &config) {
  Routing &routing = experts.routing;
  routing.groups = config.getSize("n_group", 8);
  routing.kept = config.getSize("topk_group", 4);
  int64_t each = experts.count / routing.groups;
  if (experts.count % routing.groups || (routing.groups > 1 && each < 2))
    config.fail("field \"n_routed_experts\" is " + Twine(experts.count) +
                ", expected a multiple of \"n_group\", " +
                Twine(routing.groups) + ", with two experts a group or more");
  if (routing.kept > routing.groups)
    config.fail("field \"topk_group\" is " + Twine(routing.kept) +
                ", more than \"n_group\", " + Twine(routing.groups));
  if (routing.choices > routing.kept * each)
    config.fail("field \"num_experts_per_tok\" is " + Twine(routing.choices) +
                ", more than the experts of \"topk_group\" groups, " +
                Twine(routing.kept * each));
}

/// Reads what DeepSeek's models have in common: latent attention, experts that
/// all tokens share, layers in front without experts. Older fields of their own
/// code say how experts are balanced, which is asked for elsewhere.
static Llama readDeepseek(ConfigReader &config, const Usual &usual,
                          const Experts &usualExperts) {
  Llama llama = readCommon(config, usual);
  std::optional<int64_t> choices = usualExperts.routing.choices;
  Experts experts = readExperts(config, "n_routed_experts", usualExperts.count,
                                *choices ? choices : std::nullopt);
  experts.inner = config.getSize("moe_intermediate_size", usualExperts.inner);
  experts.shared =
      config.getCount("n_shared_experts", usualExperts.shared) * experts.inner;
  experts.dense = config.getCount("first_k_dense_replace", usualExperts.dense);
  experts.routing.scaled =
      config.getPositive("routed_scaling_factor", usualExperts.routing.scaled);
  nameMlp(experts);
  llama.experts = experts;
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  config.require("moe_layer_freq", "1");
  config.ignore({"aux_loss_alpha", "ep_size", "seq_aux"});
  return llama;
}

/// DeepSeek-AI 2024, "DeepSeek-V2", its models that choose among all experts
/// (V2-Lite).
Model hf::readDeepseekV2(ConfigReader &config, int64_t sequence) {
  Usual usual{2048, 1e-6, /*groups=*/std::nullopt, /*headSize=*/64,
              /*isLatent=*/true};
  Experts experts{.count = 64, .inner = 1407, .shared = 2};
  Llama llama = readDeepseek(config, usual, experts);
  config.require("rope_interleave", "true");
  config.require("norm_topk_prob", "false");
  config.require("scoring_func", "\"softmax\"");
  config.require("topk_method", "\"greedy\"");
  config.ignore({"n_group", "topk_group"}); // of another method
  return makeModel(std::move(llama), config, sequence);
}

/// DeepSeek-AI 2024, "DeepSeek-V3 Technical Report".
Model hf::readDeepseekV3(ConfigReader &config, int64_t sequence) {
  Usual usual{4096, 1e-6, /*groups=*/128, /*headSize=*/64, /*isLatent=*/true};
  Experts experts{.count = 256, .inner = 2048, .shared = 1, .dense = 3};
  experts.routing.choices = 8;
  experts.routing.scaled = 2.5;
  Llama llama = readDeepseek(config, usual, experts);
  llama.experts->biased = true;
  llama.experts->routing.scores = nn::Scores::Sigmoid;
  llama.experts->routing.normalized = config.getFlag("norm_topk_prob", true);
  readGroups(*llama.experts, config);
  config.require("scoring_func", "\"sigmoid\"");
  config.require("topk_method", "\"noaux_tc\"");
  int64_t further = config.getCount("num_nextn_predict_layers", 0) +
                    config.getCount("num_mtp_layers", 0);
  Model model = makeModel(std::move(llama), config, sequence);
  if (further)
    model.leftOut = "the layers that predict further tokens "
                    "(\"num_nextn_predict_layers\") are left out";
  return model;
}

/// OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card". The older fields of
/// its own code repeat others.
Model hf::readGptOss(ConfigReader &config, int64_t sequence) {
  Usual usual{131072, 1e-5, /*groups=*/8, /*headSize=*/64};
  usual.theta = 150000.0;
  Llama llama = readCommon(config, usual);
  // What a config without either has is a scaling of its own.
  if (!config.has("rope_scaling") && !config.has("rope_parameters"))
    config.fail("fields \"rope_scaling\" and \"rope_parameters\" are missing, "
                "expected one of them");
  llama.headBias = llama.outBias = config.getFlag("attention_bias", true);
  llama.sinks = true;
  readAlternatingWindows(llama, config, 128, /*period=*/2);
  Experts experts = readExperts(config, "num_local_experts", 128, 4);
  experts.inner = llama.inner;
  experts.routing.scores = nn::Scores::ChosenSoftmax;
  experts.block = "mlp";
  experts.clamp = Clamp{config.getPositive("swiglu_alpha", 1.702),
                        config.getPositive("swiglu_limit", 7.0)};
  llama.experts = experts;
  config.ignore({"experts_per_token", "initial_context_length"});
  return makeModel(std::move(llama), config, sequence);
}
