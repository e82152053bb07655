//===- LayerNormFamilies.cpp - Families like Llama with another norm ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Families with rotary embedding whose norms take the mean of a row off: most
// of them turn a part of each head, add attention and MLP to the same input,
// and have an MLP that nothing opens. Fallbacks are those of Hugging Face's
// configs.
//
//===----------------------------------------------------------------------===//

#include "LlamaFields.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// Black et al. 2022, "GPT-NeoX-20B", and Biderman et al. 2023, "Pythia": the
/// rows of each head's query, key and value are together.
Model hf::readGPTNeoX(ConfigReader &config, int64_t sequence) {
  Usual usual{2048, 1e-5};
  usual.turned = 0.25;
  usual.gelu = "gelu";
  usual.epsilonField = "layer_norm_eps";
  usual.thetaField = "rotary_emb_base";
  usual.turnedField = "rotary_pct";
  Llama llama = readCommon(config, usual);
  llama.names = {"gpt_neox",  "embed_in", "final_layer_norm", "embed_out",
                 "attention", "dense",    "dense_4h_to_h",    "dense_h_to_4h"};
  llama.normKind = NormKind::Layer;
  llama.parallel = config.getFlag("use_parallel_residual", true);
  llama.fileHeads = Heads::ByHead;
  llama.headBias = llama.outBias = config.getFlag("attention_bias", true);
  llama.mlpBias = true;
  llama.residualDropout = config.getDropout("hidden_dropout", 0.0);
  llama.embeddingDropout = llama.residualDropout;
  requireOwnKeys(llama, config);
  config.requireAbsent("head_dim");
  // The first of the released models has two of these, and Hugging Face's model
  // does not read any.
  config.ignore({"attention_probs_dropout_prob", "classifier_dropout",
                 "hidden_dropout_prob"});
  return makeModel(std::move(llama), config, sequence);
}

/// Li et al. 2023, "Textbooks Are All You Need II: phi-1.5"; Phi-1 and Phi-2
/// are the same.
Model hf::readPhi(ConfigReader &config, int64_t sequence) {
  Usual usual{2048, 1e-5};
  usual.turned = 0.5;
  usual.gelu = "gelu_new";
  usual.epsilonField = "layer_norm_eps";
  Llama llama = readCommon(config, usual);
  llama.names.norm = "final_layernorm";
  llama.names.out = "dense";
  llama.names.first = "fc1";
  llama.names.down = "fc2";
  llama.normKind = NormKind::Layer;
  llama.norms.beforeMLP = {};
  llama.parallel = true;
  llama.headBias = llama.outBias = llama.mlpBias = llama.logitBias = true;
  llama.residualDropout = config.getDropout("resid_pdrop", 0.0);
  llama.embeddingDropout = config.getDropout("embd_pdrop", 0.0);
  return makeModel(std::move(llama), config, sequence);
}

/// Lozhkov et al. 2024, "StarCoder 2 and The Stack v2".
Model hf::readStarcoder2(ConfigReader &config, int64_t sequence) {
  Usual usual{4096, 1e-5, /*groups=*/2};
  usual.gelu = "gelu_pytorch_tanh";
  usual.epsilonField = "norm_epsilon";
  usual.isTied = true;
  Llama llama = readCommon(config, usual);
  readWindow(llama, config, 0);
  llama.names.first = "c_fc";
  llama.names.down = "c_proj";
  llama.normKind = NormKind::Layer;
  llama.headBias = llama.outBias = llama.mlpBias =
      config.getFlag("use_bias", true);
  llama.residualDropout = config.getDropout("residual_dropout", 0.0);
  llama.embeddingDropout = config.getDropout("embedding_dropout", 0.0);
  // Configs of the released models say this of the program that trained them,
  // and Hugging Face's model does not read it.
  config.ignore({"activation_function", "attention_softmax_in_fp32",
                 "layer_norm_epsilon", "mlp_type", "norm_type",
                 "scale_attention_softmax_in_fp32", "scale_attn_weights"});
  return makeModel(std::move(llama), config, sequence);
}

/// Bellagente et al. 2024, "Stable LM 2 1.6B Technical Report". Dropout would
/// be of the MLP alone, and no model has any.
Model hf::readStableLM(ConfigReader &config, int64_t sequence) {
  Usual usual{4096, 1e-5, /*groups=*/32};
  usual.turned = 0.25;
  usual.epsilonField = "layer_norm_eps";
  Llama llama = readCommon(config, usual);
  llama.normKind = NormKind::Layer;
  llama.headBias = config.getFlag("use_qkv_bias", false);
  llama.parallel = config.getFlag("use_parallel_residual", false);
  if (llama.parallel)
    llama.norms.beforeMLP = {};
  if (config.getFlag("qk_layernorm", false))
    llama.ownHeadNorms = "_layernorm.norms.*";
  return makeModel(std::move(llama), config, sequence);
}

/// Groeneveld et al. 2024, "OLMo: Accelerating the Science of Language Models".
/// Norms have an epsilon that no config says.
Model hf::readOlmo(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {2048, 1e-5});
  llama.epsilon = 1e-5;
  llama.normKind = NormKind::LayerAlone;
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  config.require("clip_qkv", "null");
  config.require("mlp_bias", "false");
  return makeModel(std::move(llama), config, sequence);
}

/// Cohere 2024, Command R and R+. Releases of `transformers` differ in the
/// theta of a config that does not say it.
Model hf::readCohere(ConfigReader &config, int64_t sequence) {
  if (!config.has("rope_theta") && !config.has("rope_parameters"))
    config.fail("field \"rope_theta\" is missing: releases of transformers "
                "differ in what it is then");
  Usual usual{8192, 1e-5};
  usual.interleaved = true;
  usual.isTied = true;
  usual.epsilonField = "layer_norm_eps";
  Llama llama = readCommon(config, usual);
  llama.normKind = NormKind::LayerWithoutBias;
  llama.norms.beforeMLP = {};
  llama.parallel = true;
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.logitFactor = config.getPositive("logit_scale", 0.0625);
  if (config.getFlag("use_qk_norm", false))
    llama.ownHeadNorms = "_norm";
  return makeModel(std::move(llama), config, sequence);
}
