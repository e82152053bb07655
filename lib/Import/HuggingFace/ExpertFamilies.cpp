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
                           int64_t usualCount, int64_t usualChoices) {
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
                              int64_t usualChoices) {
  Experts experts =
      readExperts(config, "num_experts", usualCount, usualChoices);
  experts.routing.normalized = config.getFlag("norm_topk_prob", false);
  nameMlp(experts);
  return experts;
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

/// Yang et al. 2025, "Qwen3 Technical Report", its mixtures of experts. All
/// layers are such, and a window is that of all of them.
Model hf::readQwen3Experts(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {32768, 1e-6, /*groups=*/4});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.headNorms = true;
  llama.experts = readMlpExperts(config, 128, 8);
  llama.experts->inner = config.getSize("moe_intermediate_size", 768);
  bool hasWindow = config.getFlag("use_sliding_window", false);
  if (hasWindow)
    readWindow(llama, config, 4096);
  else
    config.ignore({"sliding_window"});
  config.ignore({"max_window_layers"});
  config.require("mlp_bias", "false");
  config.require("decoder_sparse_step", "1");
  config.require("mlp_only_layers", "[]");
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

/// DeepSeek-AI 2024, "DeepSeek-V3 Technical Report". The older fields of its
/// own code say how it routes and balances: the routing is the only one there
/// is, and what balances is asked for elsewhere.
Model hf::readDeepseekV3(ConfigReader &config, int64_t sequence) {
  Usual usual{4096, 1e-6, /*groups=*/128, /*headSize=*/64, /*isLatent=*/true};
  Llama llama = readCommon(config, usual);
  Experts experts = readExperts(config, "n_routed_experts", 256, 8);
  experts.inner = config.getSize("moe_intermediate_size", 2048);
  experts.shared = config.getCount("n_shared_experts", 1) * experts.inner;
  experts.dense = config.getCount("first_k_dense_replace", 3);
  experts.biased = true;
  experts.routing.scores = nn::Scores::Sigmoid;
  experts.routing.normalized = config.getFlag("norm_topk_prob", true);
  experts.routing.scaled = config.getPositive("routed_scaling_factor", 2.5);
  nameMlp(experts);
  readGroups(experts, config);
  llama.experts = experts;
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  config.require("moe_layer_freq", "1");
  config.require("scoring_func", "\"sigmoid\"");
  config.require("topk_method", "\"noaux_tc\"");
  config.ignore({"aux_loss_alpha", "ep_size", "seq_aux"});
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
