//===- LlamaFamilies.cpp - Configs of dense models like Llama -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LlamaFields.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

Model hf::readLlama(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {2048, 1e-6});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.mlpBias = config.getFlag("mlp_bias", false);
  config.requireAbsent("sliding_window");
  return makeModel(std::move(llama), config, sequence);
}

/// Jiang et al. 2023, "Mistral 7B".
Model hf::readMistral(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {131072, 1e-6, /*groups=*/8});
  readWindow(llama, config, 4096);
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  return makeModel(std::move(llama), config, sequence);
}

/// Yang et al. 2024, "Qwen2 Technical Report"; Qwen2.5 is the same.
Model hf::readQwen2(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {32768, 1e-6, /*groups=*/32});
  llama.headBias = true;
  readLayerWindows(llama, config);
  config.require("mlp_bias", "false");
  config.require("use_mrope", "false");
  return makeModel(std::move(llama), config, sequence);
}

/// Yang et al. 2025, "Qwen3 Technical Report", its dense models.
Model hf::readQwen3(ConfigReader &config, int64_t sequence) {
  Llama llama =
      readCommon(config, {32768, 1e-6, /*groups=*/32, /*headSize=*/128});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.headNorms = true;
  config.require("mlp_bias", "false");
  readLayerWindows(llama, config);
  return makeModel(std::move(llama), config, sequence);
}

/// Norms behind attention and MLP alone.
static constexpr Norms kNormsBehind = {
    {}, "post_attention_layernorm", {}, "post_feedforward_layernorm"};

/// OLMo et al. 2024, "2 OLMo 2 Furious".
Model hf::readOlmo2(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {2048, 1e-5});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.jointNorms = true;
  llama.norms = kNormsBehind;
  config.require("mlp_bias", "false");
  return makeModel(std::move(llama), config, sequence);
}

/// Olmo et al. 2025, "Olmo 3": three of four layers have a window, and only the
/// others have scaled frequencies.
Model hf::readOlmo3(ConfigReader &config, int64_t sequence) {
  Usual usual{2048, 1e-5};
  usual.theta = 500000.0;
  usual.windowTheta = usual.theta;
  Llama llama = readCommon(config, usual);
  readAlternatingWindows(llama, config, 4096, /*period=*/4);
  readRopes(llama, config, usual, /*windowField=*/"");
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.jointNorms = true;
  llama.norms = kNormsBehind;
  config.require("mlp_bias", "false");
  return makeModel(std::move(llama), config, sequence);
}

/// Abdin et al. 2024, "Phi-3 Technical Report".
Model hf::readPhi3(ConfigReader &config, int64_t sequence) {
  Usual usual{4096, 1e-5};
  usual.turned = 1.0;
  Llama llama = readCommon(config, usual);
  llama.fileHeads = Heads::Merged;
  llama.mergedGate = true;
  readWindow(llama, config, 0);
  llama.residualDropout = config.getDropout("resid_pdrop", 0.0);
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  config.require("lm_head_bias", "false");
  for (StringRef field : {"full_attn_mod", "interpolate_factor"})
    config.require(field, "1");
  // Hugging Face's model has no dropout behind the embedding, and the length
  // that scaled frequencies were trained with changes nothing without scaling.
  config.ignore({"embd_pdrop", "original_max_position_embeddings"});
  return makeModel(std::move(llama), config, sequence);
}

/// Granite Team, IBM 2024, "Granite 3.0 Language Models": Llama with factors of
/// what a layer adds, of scores, and of both ends.
Model hf::readGranite(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {2048, 1e-6});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.mlpBias = config.getFlag("mlp_bias", false);
  llama.embeddingFactor = config.getPositive("embedding_multiplier", 1.0);
  llama.residualFactor = config.getPositive("residual_multiplier", 1.0);
  llama.scoreFactor = config.getPositive("attention_multiplier", 1.0);
  llama.logitFactor = 1.0 / config.getPositive("logits_scaling", 1.0);
  return makeModel(std::move(llama), config, sequence);
}

/// Bakouch et al. 2025, "SmolLM3": in every fourth layer positions turn
/// nothing.
Model hf::readSmolLM3(ConfigReader &config, int64_t sequence) {
  Usual usual{32768, 1e-6, /*groups=*/4};
  usual.theta = 2000000.0;
  usual.isTied = true;
  Llama llama = readCommon(config, usual);
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.mlpBias = config.getFlag("mlp_bias", false);
  int64_t period = config.getSize("no_rope_layer_interval", 4);
  SmallVector<bool> turns = config.getBits("no_rope_layers", llama.layers);
  for (int64_t layer = 0; layer < llama.layers; ++layer)
    if (turns.empty() ? (layer + 1) % period == 0 : !turns[layer])
      llama.kinds[layer].rope.reset();
  config.require("use_sliding_window", "false");
  config.getChoices("layer_types", {"full_attention"}, llama.layers);
  config.ignore({"max_window_layers", "sliding_window"});
  return makeModel(std::move(llama), config, sequence);
}

/// Reads what all of Gemma's models have: norms that begin at 1, embeddings
/// that are scaled, and GELU.
static Llama readGemmaFields(ConfigReader &config, Usual usual) {
  usual.opensByGelu = usual.isTied = true;
  usual.headSize = 256;
  Llama llama = readCommon(config, usual);
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.normsFromOne = true;
  llama.embeddingFactor = std::sqrt(double(llama.hidden));
  config.require("use_bidirectional_attention", "false");
  return llama;
}

/// Mesnard et al. 2024, "Gemma: Open Models Based on Gemini Research and
/// Technology".
Model hf::readGemma(ConfigReader &config, int64_t sequence) {
  Llama llama = readGemmaFields(config, {8192, 1e-6, /*groups=*/16});
  return makeModel(std::move(llama), config, sequence);
}

/// Reads what the second and third have: norms on both sides, and scores scaled
/// by a number of the config.
static Llama readGemma2Fields(ConfigReader &config, const Usual &usual) {
  Llama llama = readGemmaFields(config, usual);
  llama.norms = {"input_layernorm", "post_attention_layernorm",
                 "pre_feedforward_layernorm", "post_feedforward_layernorm"};
  llama.scoreFactor =
      1.0 / std::sqrt(config.getPositive("query_pre_attn_scalar", 256.0));
  return llama;
}

/// Reads a bound of scores or logits, which null turns off.
static double readCap(ConfigReader &config, StringRef field, double usual) {
  return config.isNull(field) ? 0.0 : config.getPositive(field, usual);
}

/// Riviere et al. 2024, "Gemma 2: Improving Open Language Models at a Practical
/// Size".
Model hf::readGemma2(ConfigReader &config, int64_t sequence) {
  Llama llama = readGemma2Fields(config, {8192, 1e-6, /*groups=*/4});
  readAlternatingWindows(llama, config, 4096, /*period=*/2);
  config.ignore({"sliding_window_size"}); // what the first release called it
  llama.scoreCap = readCap(config, "attn_logit_softcapping", 50.0);
  llama.logitCap = readCap(config, "final_logit_softcapping", 30.0);
  return makeModel(std::move(llama), config, sequence);
}

/// Kamath et al. 2025, "Gemma 3 Technical Report", its models of text. Hugging
/// Face's model has no bound of scores, whatever the config says.
Model hf::readGemma3(ConfigReader &config, int64_t sequence) {
  Usual usual{131072, 1e-6, /*groups=*/4};
  usual.theta = 1e6;
  usual.windowTheta = 1e4;
  Llama llama = readGemma2Fields(config, usual);
  llama.headNorms = true;
  int64_t period = config.getSize("sliding_window_pattern", 6);
  readAlternatingWindows(llama, config, 4096, period);
  readRopes(llama, config, usual, "rope_local_base_freq");
  config.ignore({"_sliding_window_pattern"}); // saved with the types of layers
  config.requireAbsent("attn_logit_softcapping");
  if (config.has("final_logit_softcapping"))
    llama.logitCap = config.getPositive("final_logit_softcapping");
  return makeModel(std::move(llama), config, sequence);
}

/// GLM et al. 2024, "ChatGLM: A Family of Large Language Models from GLM-130B
/// to GLM-4 All Tools": half of each head turns, in pairs of neighbours.
static Llama readGlmFields(ConfigReader &config) {
  Usual usual{131072, 1.5625e-7, /*groups=*/2, /*headSize=*/128};
  usual.turned = 0.5;
  usual.interleaved = true;
  Llama llama = readCommon(config, usual);
  llama.headBias = config.getFlag("attention_bias", true);
  llama.mergedGate = true;
  config.require("mlp_bias", "false");
  return llama;
}

Model hf::readGlm(ConfigReader &config, int64_t sequence) {
  return makeModel(readGlmFields(config), config, sequence);
}

/// GLM-4 of April 2025, with norms on both sides.
Model hf::readGlm4(ConfigReader &config, int64_t sequence) {
  Llama llama = readGlmFields(config);
  llama.norms = {"input_layernorm", "post_self_attn_layernorm",
                 "post_attention_layernorm", "post_mlp_layernorm"};
  return makeModel(std::move(llama), config, sequence);
}
