//===- Shape.cpp - A transformer as programs have flags for it ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Export/Shape.h"

#include <cmath>
#include <nlohmann/json.hpp>

using namespace plait;
using namespace plait::planner;
using json = nlohmann::ordered_json;

/// The value of a field, or `usual` where it is missing or null.
template <typename T>
static T get(const json &config, const char *name, T usual) {
  auto found = config.find(name);
  return found == config.end() || found->is_null() ? usual : found->get<T>();
}

/// Frequencies as Llama 3.1 scales them; Megatron-LM has its other numbers as
/// constants.
static Status readRope(const json &config, Shape &shape) {
  shape.theta = get(config, "rope_theta", 10000.0);
  constexpr double most = 1e15; // of which doubles have all whole numbers
  if (shape.theta != std::floor(shape.theta) || shape.theta > most)
    return fail("rope_theta is no whole number up to 1e15");
  const json scaling = get(config, "rope_scaling", json());
  if (scaling.is_null())
    return Status::success();
  bool isUsual = get(scaling, "rope_type", std::string()) == "llama3" &&
                 get(scaling, "low_freq_factor", 0.0) == 1 &&
                 get(scaling, "high_freq_factor", 0.0) == 4 &&
                 get(scaling, "original_max_position_embeddings", 0) == 8192;
  if (!isUsual)
    return fail("rope_scaling is not that of Llama 3.1");
  shape.ropeFactor = get(scaling, "factor", 1.0);
  return Status::success();
}

/// Reads what each family has beyond Llama. A window that no sequence fills
/// changes nothing.
static Status readLlama(const json &config, int64_t sequence, Shape &shape) {
  std::string type = get(config, "model_type", std::string());
  shape.isLlama = true;
  shape.layers = get(config, "num_hidden_layers", int64_t(0));
  shape.hidden = get(config, "hidden_size", int64_t(0));
  shape.inner = get(config, "intermediate_size", int64_t(0));
  shape.heads = get(config, "num_attention_heads", int64_t(1));
  shape.groups = get(config, "num_key_value_heads", shape.heads);
  shape.headSize = get(config, "head_dim", shape.hidden / shape.heads);
  shape.positions = get(config, "max_position_embeddings", sequence);
  shape.epsilon = get(config, "rms_norm_eps", 1e-6);
  shape.tied = get(config, "tie_word_embeddings", false);
  shape.headBiases = type == "qwen2";
  shape.headNorms = type == "qwen3";
  shape.attentionDropout = get(config, "attention_dropout", 0.0);
  shape.hiddenDropout = get(config, "resid_pdrop", 0.0);
  for (const char *bias : {"attention_bias", "mlp_bias"})
    if (get(config, bias, false))
      return fail(bias, " is true");
  bool isOptional = type == "qwen2" || type == "qwen3";
  bool hasWindow = !isOptional || get(config, "use_sliding_window", false);
  int64_t window = get(config, "sliding_window", sequence);
  if (hasWindow && window < sequence)
    return fail("sliding_window is ", window);
  return readRope(config, shape);
}

static Status readGPT2(const json &config, Shape &shape) {
  shape.layers = get(config, "n_layer", int64_t(0));
  shape.hidden = get(config, "n_embd", int64_t(0));
  shape.inner = get(config, "n_inner", 4 * shape.hidden);
  shape.heads = shape.groups = get(config, "n_head", int64_t(1));
  shape.headSize = shape.hidden / shape.heads;
  shape.positions = get(config, "n_positions", int64_t(1024));
  shape.epsilon = get(config, "layer_norm_epsilon", 1e-5);
  shape.tied = get(config, "tie_word_embeddings", true);
  shape.exactGelu =
      get(config, "activation_function", std::string("gelu_new")) == "gelu";
  shape.attentionDropout = get(config, "attn_pdrop", 0.1);
  shape.hiddenDropout = get(config, "resid_pdrop", 0.1);
  if (shape.hiddenDropout != get(config, "embd_pdrop", 0.1))
    return fail("resid_pdrop and embd_pdrop differ");
  return Status::success();
}

/// The importer has accepted the text, but for fields that it was told to
/// ignore.
Result<Shape> planner::readShape(const std::string &text,
                                 int64_t sequence) try {
  const json config = json::parse(text);
  Shape shape;
  shape.vocab = get(config, "vocab_size", int64_t(0));
  std::string type = get(config, "model_type", std::string());
  Status read = fail("model_type is ", type);
  if (type == "gpt2")
    read = readGPT2(config, shape);
  for (const char *known : {"llama", "mistral", "phi3", "qwen2", "qwen3"})
    if (type == known)
      read = readLlama(config, sequence, shape);
  if (!read.ok())
    return read;
  return shape;
} catch (const json::exception &) {
  return fail("its config.json has a value of another type");
}

/// The family that has what the shape has.
std::string planner::printConfig(const Shape &shape) {
  json config;
  if (!shape.isLlama) {
    config = {{"model_type", "gpt2"},
              {"n_layer", shape.layers},
              {"n_embd", shape.hidden},
              {"n_inner", shape.inner},
              {"n_head", shape.heads},
              {"n_positions", shape.positions},
              {"layer_norm_epsilon", shape.epsilon},
              {"activation_function", shape.exactGelu ? "gelu" : "gelu_new"},
              {"attn_pdrop", shape.attentionDropout},
              {"resid_pdrop", shape.hiddenDropout},
              {"embd_pdrop", shape.hiddenDropout}};
  } else {
    config = {{"model_type", shape.headNorms    ? "qwen3"
                             : shape.headBiases ? "qwen2"
                                                : "llama"},
              {"num_hidden_layers", shape.layers},
              {"hidden_size", shape.hidden},
              {"intermediate_size", shape.inner},
              {"num_attention_heads", shape.heads},
              {"num_key_value_heads", shape.groups},
              {"head_dim", shape.headSize},
              {"max_position_embeddings", shape.positions},
              {"rms_norm_eps", shape.epsilon},
              {"rope_theta", shape.theta},
              {"hidden_act", "silu"},
              {"attention_dropout", shape.attentionDropout}};
    if (shape.ropeFactor)
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", *shape.ropeFactor},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 8192}};
  }
  config["tie_word_embeddings"] = shape.tied;
  config["vocab_size"] = shape.vocab;
  return config.dump(2) + "\n";
}
