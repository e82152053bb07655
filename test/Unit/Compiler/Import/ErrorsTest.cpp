//===- ErrorsTest.cpp - Models that are refused ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <regex>

using namespace plait;
using namespace plait::test;

namespace {
class ImportErrors : public ImportHarness {
protected:
  /// Exactly one error, of one line, with all of `fragments`.
  void expectError(const Imported &result,
                   const std::vector<std::string> &fragments) {
    ASSERT_EQ(result.errors.size(), 1u);
    const std::string &error = result.errors.front();
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    for (const std::string &fragment : fragments)
      EXPECT_NE(error.find(fragment), std::string::npos)
          << "no '" << fragment << "' in: " << error;
  }
  /// `more` are fields that follow, or replace, those of a valid config.
  void refuse(const std::string &config, const std::string &more,
              const std::vector<std::string> &fragments) {
    expectError(importText(replace(config, more) + ", " + more + "}"),
                fragments);
  }

private:
  /// `config` without the fields that `more` has: a key is there once.
  static std::string replace(std::string config, const std::string &more) {
    const std::regex field("\"\\w+\":");
    for (std::sregex_iterator at(more.begin(), more.end(), field), end;
         at != end; ++at)
      config = std::regex_replace(
          config, std::regex(",\\s*" + at->str() + "[^,]*"), "");
    return config;
  }
};
} // namespace

TEST_F(ImportErrors, Files) {
  expectError(importPath("absent"), {"absent", "cannot open config"});
  expectError(importText(""), {"config.json", "is not JSON"});
  expectError(importText("{\"model_type"), {"config.json", "is not JSON"});
  expectError(importText("[1, 2]"), {"config.json", "is not a JSON object"});
  expectError(importText(std::string(100000, '[')), {"nests deeper than 64"});
  std::string config = std::string(kLlama) + "}";
  EXPECT_TRUE(importText("\xef\xbb\xbf" + config).module);
  expectError(importText("\xef\xbb\xbf\xef\xbb\xbf" + config), {"is not JSON"});
  expectError(importText("// a comment\n" + config), {"is not JSON: 1:1:"});
  expectError(importText(config.substr(0, config.size() - 1) + ",}"),
              {"is not JSON"});
  expectError(importText(config + "{}"), {"is not JSON"});
  expectError(importText("{}"), {"model_type", "missing", "gpt2", "llama"});
  expectError(importText("{\"model_type\": \"bert\"}"),
              {"model_type", "bert", "gpt2", "llama"});
  expectError(importText("{\"model_type\": 2}"), {"model_type", "is 2"});
}

TEST_F(ImportErrors, Options) {
  std::string config = std::string(kGPT2) + "}";
  expectError(importText(config, 0, 16),
              {"batch is 0, expected from 1 to 16777216"});
  expectError(importText(config, 1, -1), {"sequence", "is -1"});
  expectError(
      importText(config, 1 << 20, 8192),
      {"sequence is 8192", "at most 4096 with a microbatch of 1048576"});
  expectError(importText(config, 1, 33), {"n_positions", "32", "33"});
  expectError(importText(std::string(kLlama) + "}", 1, 2049),
              {"max_position_embeddings", "2048", "2049"});
}

TEST_F(ImportErrors, Values) {
  refuse(kGPT2, "\"n_layer\": null", {"\"n_layer\" is missing"});
  refuse(kGPT2, "\"n_layer\": \"four\"", {"n_layer", "four", "integer"});
  refuse(kGPT2, "\"n_layer\": 2.5", {"n_layer", "2.5", "integer"});
  refuse(kGPT2, "\"n_layer\": 10001", {"n_layer", "10001", "10000"});
  refuse(kGPT2, "\"n_embd\": -64", {"n_embd", "-64"});
  refuse(kGPT2, "\"n_embd\": 0", {"n_embd", "is 0"});
  refuse(kGPT2, "\"vocab_size\": 1e30", {"vocab_size", "16777216"});
  refuse(kGPT2, "\"layer_norm_epsilon\": 0", {"layer_norm_epsilon"});
  refuse(kGPT2, "\"layer_norm_epsilon\": 1e-300",
         {"layer_norm_epsilon", "1e-300", "above 0, in the range of fp32"});
  refuse(kGPT2, "\"initializer_range\": -1", {"initializer_range", "-1"});
  refuse(kGPT2, "\"initializer_range\": 1e300",
         {"initializer_range", "e+300", "at least 0, in the range of fp32"});
  refuse(kGPT2, "\"attn_pdrop\": 1.0", {"attn_pdrop", "below 1"});
  refuse(kGPT2, "\"n_head\": 5",
         {"n_embd", "12, which is not a multiple of \"n_head\", 5"});
  refuse(kGPT2, "\"tie_word_embeddings\": \"yes\"",
         {"tie_word_embeddings", "yes", "true or false"});
}

TEST_F(ImportErrors, KeysThatAreThereTwice) {
  expectError(importText(std::string(kGPT2) + ", \"n_layer\": 2}"),
              {"has the key \"n_layer\" twice in one object"});
  expectError(importText(std::string(kLlama) +
                         ", \"rope_scaling\": {\"rope_type\": \"default\","
                         "\"rope_type\": \"default\"}}"),
              {"\"rope_type\" twice"});
  expectError(importText(std::string(kLlama) + ", \"id2label\": {\"0\": 1, "
                                               "\"0\": 2}}"),
              {"\"0\" twice"});
}

TEST_F(ImportErrors, Numbers) {
  for (const char *value : {"NaN", "Infinity", "-Infinity", "1e999", "0x10"})
    refuse(kLlama, std::string("\"rope_theta\": ") + value, {"is not JSON"});
  refuse(kLlama, "\"max_position_embeddings\": 99999999999999999999999999",
         {"max_position_embeddings", "16777216"});
  refuse(kLlama, "\"head_dim\": -8", {"head_dim", "-8"});
  refuse(kLlama, "\"head_dim\": \"8\"", {"head_dim", "integer"});
}

TEST_F(ImportErrors, UnknownFieldsTogether) {
  const std::string fields =
      ", \"zeta\": 0, \"alpha\": false, \"empty\": null, \"rope_scaling\": "
      "{\"rope_type\": \"default\", \"note\": 1}}";
  const std::string advice =
      " might change the arithmetic; `ignore-field` NAME "
      "says that one does not";
  Imported all = importText(kLlama + fields);
  expectError(all, {"unknown fields \"alpha\", \"rope_scaling.note\", "
                    "\"zeta\"" +
                    advice});
  const std::vector<std::string> names = {"zeta", "alpha", "rope_scaling.note"};
  EXPECT_TRUE(importIgnoring(kLlama + fields, names).module);
  EXPECT_TRUE(importIgnoring(kLlama + fields, {"zeta", "alpha", "empty", "zeta",
                                               "rope_scaling.note"})
                  .module);
  expectError(importIgnoring(kLlama + fields, {"alpha", "rope_scaling.note"}),
              {"unknown field \"zeta\"" + advice});
  std::string many;
  for (int i = 100; i < 160; ++i)
    many += ", \"x\\n" + std::to_string(i) + "\": 1";
  expectError(
      importText(kLlama + many + "}"),
      {R"(unknown fields "x\n100", )", R"("x\n149" and 10 more might)"});
  // What plait knows is not the user's to vouch for.
  for (const char *known : {"hidden_act", "rope_scaling", "use_cache", "none"})
    expectError(importIgnoring(kLlama + fields, {known}),
                {"no unknown field is called \"" + std::string(known) + "\""});
}

/// Fields that have one value with which they ask for nothing.
TEST_F(ImportErrors, FieldsWithOneValue) {
  const std::pair<const char *, const char *> fields[] = {
      {"rope_interleaved", "false"}, {"num_experts", "0"},
      {"pretraining_tp", "1"},       {"logits_scaling", "1"},
      {"use_qk_norm", "false"},      {"is_causal", "true"}};
  for (auto [name, value] : fields) {
    std::string field = std::string("\"") + name + "\": ";
    EXPECT_TRUE(importText(kLlama + (", " + field) + value + "}").module);
    EXPECT_TRUE(importText(kLlama + (", " + field) + "null}").module);
    refuse(kLlama, field + "7", {name, "is 7", "nothing else is supported"});
  }
}

TEST_F(ImportErrors, GPT2) {
  refuse(kGPT2, "\"activation_function\": \"relu6\"",
         {"activation_function", "relu6", "gelu_new"});
  refuse(kGPT2, "\"scale_attn_weights\": false", {"scale_attn_weights"});
  refuse(kGPT2, "\"scale_attn_by_inverse_layer_idx\": true",
         {"scale_attn_by_inverse_layer_idx", "true", "false"});
  refuse(kGPT2, "\"reorder_and_upcast_attn\": true",
         {"reorder_and_upcast_attn"});
  refuse(kGPT2, "\"add_cross_attention\": true", {"add_cross_attention"});
  refuse(kGPT2, "\"pruned_heads\": {\"0\": [1]}", {"pruned_heads.0"});
  refuse(kGPT2, "\"moe\": 8, \"alpha\": 1",
         {"unknown fields \"alpha\", \"moe\" might change the arithmetic"});
}

TEST_F(ImportErrors, Llama) {
  refuse(kLlama, "\"hidden_act\": \"gelu\"", {"hidden_act", "gelu", "silu"});
  refuse(kLlama, "\"num_key_value_heads\": 3",
         {"num_attention_heads", "4",
          "which is not a multiple of \"num_key_value_heads\", 3"});
  refuse(kLlama, "\"num_attention_heads\": 6",
         {"hidden_size", "16",
          "which is not a multiple of \"num_attention_heads\", 6"});
  refuse(kLlama, "\"head_dim\": 5",
         {"head_dim", "5 is odd, but rotary embedding works on pairs"});
  refuse(kLlama, "\"pretraining_tp\": 2", {"pretraining_tp", "2"});
  refuse(kLlama, "\"sliding_window\": 4096", {"sliding_window", "4096"});
  refuse(kLlama, "\"quantization_config\": {}", {"quantization_config"});
  refuse(kLlama, "\"rope_theta\": 0", {"rope_theta"});
}

TEST_F(ImportErrors, Experts) {
  std::string mixtral = likeLlama("mixtral"), qwen3 = likeLlama("qwen3_moe");
  refuse(mixtral, "\"num_experts_per_tok\": 9",
         {R"(field "num_experts_per_tok" is 9)", R"("num_local_experts", 8)"});
  refuse(mixtral, "\"num_local_experts\": 0", {"num_local_experts", "is 0"});
  refuse(mixtral, "\"num_local_experts\": 65537",
         {"field \"num_local_experts\" is 65537", "from 1 to 65536"});
  refuse(mixtral, "\"router_jitter_noise\": 0.1",
         {"router_jitter_noise", "0.1", "nothing else is supported"});
  refuse(mixtral, "\"output_router_logits\": true",
         {"field \"output_router_logits\" is true: the loss of routers that it "
          "turns on depends on how a batch is cut"});
  refuse(qwen3, "\"decoder_sparse_step\": 2", {"decoder_sparse_step", "is 2"});
  refuse(qwen3, "\"mlp_only_layers\": [0]", {"mlp_only_layers"});
  refuse(qwen3, "\"num_local_experts\": 4",
         {R"(field "num_experts_per_tok" is 8)", R"("num_local_experts", 4)"});
  refuse(qwen3, R"("num_experts": 8, "num_local_experts": 8)",
         {"unknown field \"num_local_experts\""});
  std::string olmoe = likeLlama("olmoe");
  refuse(olmoe, "\"clip_qkv\": 8.0", {"clip_qkv", "8", "expected null"});
  refuse(olmoe, "\"num_experts_per_tok\": 65",
         {R"(field "num_experts_per_tok" is 65)", R"("num_experts", 64)"});
}

TEST_F(ImportErrors, DeepSeek) {
  std::string own = likeLlama("deepseek_v3");
  refuse(own, "\"v_head_dim\": 128",
         {"field \"num_key_value_heads\" is 2",
          "expected \"num_attention_heads\", 4"});
  std::string heads = "\"num_key_value_heads\": 2";
  own.replace(own.find(heads), heads.size(), "\"num_key_value_heads\": 4");
  refuse(own, "\"qk_nope_head_dim\": 5",
         {"field \"qk_nope_head_dim\" is 5, expected an even number"});
  refuse(own, "\"v_head_dim\": 193",
         {"field \"v_head_dim\" is 193", "\"qk_rope_head_dim\", 192"});
  refuse(own, "\"n_routed_experts\": 12",
         {"field \"n_routed_experts\" is 12", "a multiple of \"n_group\", 8"});
  refuse(own, "\"n_routed_experts\": 8", {"two experts a group or more"});
  refuse(own, "\"topk_group\": 9",
         {"field \"topk_group\" is 9, more than \"n_group\", 8"});
  refuse(own, "\"n_routed_experts\": 16, \"topk_group\": 2",
         {"field \"num_experts_per_tok\" is 8", "groups, 4"});
  refuse(own, "\"scoring_func\": \"softmax\"", {"scoring_func", "softmax"});
  refuse(own, "\"attention_bias\": true", {"attention_bias", "true"});
  refuse(own, "\"q_lora_rank\": 0", {"q_lora_rank", "is 0"});
  refuse(likeLlama("qwen3_moe"), "\"num_nextn_predict_layers\": 1",
         {"num_nextn_predict_layers", "1"});
}

TEST_F(ImportErrors, DeepSeekV2AndQwen2Experts) {
  std::string deepseek = likeLlama("deepseek_v2");
  std::string heads = "\"num_key_value_heads\": 2";
  deepseek.replace(deepseek.find(heads), heads.size(),
                   "\"num_key_value_heads\": 4");
  refuse(deepseek, "\"v_head_dim\": 128",
         {"\"num_experts_per_tok\" is missing"});
  deepseek += ", \"num_experts_per_tok\": 6";
  refuse(deepseek, "\"topk_method\": \"group_limited_greedy\"",
         {"topk_method", "expected \"greedy\""});
  refuse(deepseek, "\"norm_topk_prob\": true", {"norm_topk_prob", "true"});
  refuse(deepseek, "\"scoring_func\": \"sigmoid\"", {"scoring_func"});
  refuse(deepseek, "\"rope_interleave\": false", {"rope_interleave"});
  std::string qwen2 = likeLlama("qwen2_moe");
  std::string groups = ", \"num_key_value_heads\": 4";
  refuse(qwen2, "\"mlp_only_layers\": [1]" + groups, {"mlp_only_layers"});
  refuse(qwen2, "\"decoder_sparse_step\": 2" + groups, {"decoder_sparse_step"});
  refuse(qwen2, "\"shared_expert_intermediate_size\": 0" + groups,
         {"shared_expert_intermediate_size", "is 0"});
  refuse(qwen2, "\"use_sliding_window\": true" + groups,
         {"use_sliding_window"});
}

TEST_F(ImportErrors, GptOss) {
  std::string own = likeLlama("gpt_oss");
  refuse(own, "\"sliding_window\": 4",
         {"fields \"rope_scaling\" and \"rope_parameters\" are missing, "
          "expected one of them"});
  own += ", \"rope_parameters\": {\"rope_type\": \"default\"}";
  refuse(own, "\"num_experts_per_tok\": 129",
         {"field \"num_experts_per_tok\" is 129",
          "more than \"num_local_experts\", 128"});
  refuse(own, "\"sliding_window\": null",
         {"field \"layer_types\" has \"sliding_attention\", but "
          "\"sliding_window\" is null"});
  refuse(own, "\"layer_types\": [\"full_attention\"]", {"layer_types"});
  refuse(own, "\"swiglu_limit\": 0", {"swiglu_limit", "is 0"});
  refuse(own, "\"swiglu_alpha\": -1", {"swiglu_alpha", "is -1"});
  refuse(own, "\"norm_topk_prob\": true", {"norm_topk_prob"});
  refuse(own, "\"quantization_config\": {\"quant_method\": \"mxfp4\"}",
         {"field \"quantization_config\" is", "mxfp4"});
}

TEST_F(ImportErrors, LongRope) {
  std::string phi3 = likeLlama("phi3");
  // Heads of 4 elements, of which 2 pairs turn.
  auto describe = [](const std::string &fields) {
    return "\"max_position_embeddings\": 64, "
           "\"original_max_position_embeddings\": 16, "
           "\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": [2, "
           "3]" +
           fields + "}";
  };
  refuse(phi3, describe(""), {"short_factor", "missing"});
  refuse(phi3, describe(", \"short_factor\": [1]"),
         {"short_factor", "a list of 2 numbers above 0"});
  refuse(phi3, describe(", \"short_factor\": [1, 0]"),
         {"short_factor", "a list of 2 numbers above 0"});
  refuse(phi3, describe(", \"short_factor\": [1, 1.5]"),
         {"field \"short_factor\" of the rotary embedding has 1.5",
          "expected 1: other factors are not supported"});
  refuse(phi3, describe(", \"short_factor\": [1, 1], \"factor\": 2"),
         {"field \"factor\" of the rotary embedding is 2.0",
          "expected \"max_position_embeddings\" over "
          "\"original_max_position_embeddings\", 4.0"});
  refuse(phi3,
         describe(", \"short_factor\": [1, 1], "
                  "\"original_max_position_embeddings\": 1"),
         {"field \"original_max_position_embeddings\" is 1, expected more"});
  // The factors of longer sequences are others.
  refuse(phi3,
         describe(", \"short_factor\": [1, 1], "
                  "\"original_max_position_embeddings\": 4"),
         {"\"original_max_position_embeddings\" is 4, too few"});
}

TEST_F(ImportErrors, LlamasFamilies) {
  std::string mistral = likeLlama("mistral"), phi3 = likeLlama("phi3");
  std::string qwen2 = likeLlama("qwen2"), qwen3 = likeLlama("qwen3");
  refuse(mistral, "\"sliding_window\": 0", {"sliding_window", "is 0"});
  refuse(mistral, "\"attention_bias\": true",
         {"attention_bias", "true", "expected false"});
  refuse(phi3, "\"partial_rotary_factor\": 0.1",
         {"partial_rotary_factor", "0.1", "an even number from 2 on"});
  refuse(phi3,
         "\"partial_rotary_factor\": 0.5, \"rope_parameters\": {"
         "\"rope_type\": \"default\", \"partial_rotary_factor\": 1.0}",
         {"partial_rotary_factor", "0.5", "1.0"});
  refuse(phi3, "\"rope_scaling\": {\"type\": \"dynamic\"}",
         {"rope_scaling.type", "dynamic", "llama3"});
  refuse(phi3, "\"attention_bias\": true", {"attention_bias", "true"});
  refuse(phi3, "\"resid_pdrop\": 1", {"resid_pdrop", "below 1"});
  // Without the field Hugging Face's has eight.
  expectError(importText(R"({"model_type": "mistral", "vocab_size": 11,
                  "hidden_size": 16, "intermediate_size": 20,
                  "num_hidden_layers": 2, "num_attention_heads": 4})"),
              {"num_attention_heads", "4", "num_key_value_heads", "8"});
  refuse(qwen2, "\"use_mrope\": true", {"use_mrope", "true"});
  refuse(qwen2, "\"max_window_layers\": -1", {"max_window_layers", "-1"});
  refuse(qwen2, "\"layer_types\": [\"full_attention\"]",
         {"layer_types", "expected 2 of", "sliding_attention"});
  refuse(qwen3, "\"layer_types\": [\"full_attention\", \"linear\"]",
         {"layer_types", "linear", "expected 2 of"});
  refuse(qwen3, "\"layer_types\": {}", {"layer_types", "expected 2 of"});
  refuse(qwen2, "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         {"field \"layer_types\" has \"sliding_attention\", but "
          "\"use_sliding_window\" is not set"});
}

TEST_F(ImportErrors, Gemma) {
  std::string gemma = likeLlama("gemma"), gemma2 = likeLlama("gemma2");
  std::string gemma3 = likeLlama("gemma3_text");
  // Only the approximation by tanh, by whatever name.
  refuse(gemma, "\"hidden_act\": \"silu\"", {"hidden_act", "silu"});
  refuse(gemma2, "\"hidden_activation\": \"gelu\"",
         {"hidden_activation", "gelu_pytorch_tanh"});
  refuse(gemma, "\"use_bidirectional_attention\": true",
         {"use_bidirectional_attention", "true"});
  refuse(gemma2, "\"attn_logit_softcapping\": 0",
         {"field \"attn_logit_softcapping\" is 0"});
  refuse(gemma2, "\"query_pre_attn_scalar\": -1",
         {"query_pre_attn_scalar", "is -1"});
  refuse(gemma, "\"query_pre_attn_scalar\": 1", {"query_pre_attn_scalar"});
  refuse(gemma3, "\"attn_logit_softcapping\": 50.0",
         {"attn_logit_softcapping", "50", "expected null"});
  refuse(gemma3, "\"sliding_window_pattern\": 0",
         {"sliding_window_pattern", "is 0"});
  refuse(gemma3, "\"sliding_window\": null", {"\"sliding_window\" is null"});
  refuse(gemma3,
         "\"rope_local_base_freq\": 100.0, \"rope_parameters\": "
         "{\"sliding_attention\": {\"rope_type\": \"default\", "
         "\"rope_theta\": 10.0}}",
         {"field \"rope_local_base_freq\" is 100",
          "that of the rotary embedding 10"});
  refuse(gemma3, "\"rope_parameters\": {\"rope_type\": \"default\"}",
         {"rope_parameters.rope_type"});
}

TEST_F(ImportErrors, GraniteOlmo3AndSmolLM3) {
  std::string granite = likeLlama("granite"), olmo3 = likeLlama("olmo3");
  std::string smollm3 = likeLlama("smollm3");
  refuse(granite, "\"logits_scaling\": 0", {"logits_scaling", "is 0"});
  refuse(granite, "\"residual_multiplier\": \"1\"", {"residual_multiplier"});
  refuse(kLlama, "\"residual_multiplier\": 0.5",
         {"residual_multiplier", "0.5", "expected 1"});
  refuse(olmo3, "\"sliding_window\": 4",
         {"field \"rope_theta\" is missing", "\"rope_parameters\""});
  refuse(olmo3, "\"rope_theta\": 10000.0",
         {"field \"rope_theta\" is 10000", "expected 500000"});
  refuse(smollm3, "\"no_rope_layers\": [1]",
         {"no_rope_layers", "a 0 or 1 for each of 2 layers"});
  refuse(smollm3, "\"no_rope_layers\": [1, 2]", {"no_rope_layers", "[1,2]"});
  refuse(smollm3, "\"no_rope_layers\": 1", {"no_rope_layers", "is 1"});
  refuse(smollm3, "\"use_sliding_window\": true", {"use_sliding_window"});
  refuse(smollm3, "\"layer_types\": [\"sliding_attention\"]", {"layer_types"});
}

TEST_F(ImportErrors, PartsOfHeads) {
  auto like = [](const std::string &family, const std::string &more) {
    return "{\"model_type\": \"" + family +
           "\", \"vocab_size\": 16, \"hidden_size\": 32, "
           "\"num_hidden_layers\": 2, \"intermediate_size\": 8, "
           "\"num_attention_heads\": 4" +
           more;
  };
  std::string neox = like("gpt_neox", ""), phi = like("phi", "");
  std::string stablelm = like("stablelm", ", \"num_key_value_heads\": 4");
  refuse(neox, "\"rotary_pct\": 0.2",
         {"\"rotary_pct\" is 0.2", "1 of the 8 elements", "even number"});
  refuse(neox, "\"rotary_pct\": 1.5", {"rotary_pct", "12 of the 8"});
  refuse(neox, "\"rotary_pct\": 0", {"rotary_pct", "is 0"});
  refuse(neox,
         "\"rotary_pct\": 0.5, \"rope_parameters\": {\"rope_type\": "
         "\"default\", \"partial_rotary_factor\": 0.25}",
         {"field \"rotary_pct\" is 0.5", "0.25"});
  refuse(neox, "\"num_key_value_heads\": 2",
         {"num_key_value_heads", "is 2", "\"num_attention_heads\", 4"});
  refuse(neox, "\"hidden_act\": \"relu\"", {"hidden_act", "relu", "gelu"});
  refuse(phi, "\"partial_rotary_factor\": 0.4",
         {"partial_rotary_factor", "3 of the 8 elements"});
  refuse(phi, "\"qk_layernorm\": true", {"qk_layernorm", "expected false"});
  refuse(stablelm, "\"hidden_dropout\": 0.1",
         {"hidden_dropout", "0.1", "expected 0"});
  refuse(like("cohere", ""), "\"logit_scale\": 0.5",
         {"field \"rope_theta\" is missing", "differ in what it is then"});
  refuse(like("olmo", ""), "\"clip_qkv\": 8.0",
         {"clip_qkv", "is 8", "expected null"});
  refuse(like("cohere", ", \"rope_theta\": 10.0"),
         "\"partial_rotary_factor\": 0.5", {"partial_rotary_factor", "0.5"});
  refuse(like("starcoder2", ""), "\"norm_epsilon\": 0",
         {"norm_epsilon", "is 0"});
}

TEST_F(ImportErrors, RopeScaling) {
  refuse(kLlama, "\"rope_scaling\": 8", {"rope_scaling", "object"});
  refuse(kLlama, "\"rope_scaling\": {\"factor\": 4}",
         {"\"rope_scaling.rope_type\" is missing, expected one of", "llama3"});
  for (const char *name : {"type", "rope_type"})
    refuse(kLlama,
           std::string("\"rope_scaling\": {\"") + name +
               "\": \"dynamic\", \"factor\": 4}",
           {"rope_scaling", "dynamic", "llama3"});
  refuse(kLlama, "\"rope_scaling\": {\"type\": \"yarn\"}",
         {"rope_scaling.factor", "missing"});
  refuse(kLlama,
         "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
         "\"beta_fast\": 0.001, \"beta_slow\": 32}",
         {"fields \"beta_fast\" and \"beta_slow\" of the rotary embedding are "
          "0.001",
          "expected the first to be more"});
  refuse(kLlama, "\"rope_scaling\": {\"rope_type\": \"llama3\"}",
         {"rope_scaling.factor", "missing"});
  refuse(kLlama,
         "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8,"
         "\"low_freq_factor\": 4, \"high_freq_factor\": 4,"
         "\"original_max_position_embeddings\": 64}",
         {"field \"high_freq_factor\" of the rotary embedding is 4",
          "low_freq_factor"});
  refuse(kLlama,
         "\"rope_parameters\": {\"rope_type\": \"default\","
         "\"partial_rotary_factor\": 0.5}",
         {"rope_parameters.partial_rotary_factor"});
  // What is said twice, and not alike.
  refuse(kLlama,
         "\"rope_scaling\": {\"rope_type\": \"default\"},"
         "\"rope_parameters\": {\"rope_type\": \"default\"}",
         {"fields \"rope_scaling\" and \"rope_parameters\" both describe the "
          "rotary embedding, expected one of them"});
  refuse(kLlama,
         "\"rope_theta\": 50, \"rope_parameters\":"
         "{\"rope_type\": \"default\", \"rope_theta\": 100}",
         {"rope_theta", "is 50.0", "but that of the rotary embedding 100.0"});
}

TEST_F(ImportErrors, IR) {
  const std::string attribute =
      "attributes {plait.model = {layers = 1 : i64, vocab = 8 : i64,"
      "model_type = \"mlir\", name = \"m\"}} ";
  expectError(importIR("module {}"),
              {"module has no function @loss from tokens and targets to the "
               "loss and the number of targets"});
  expectError(importIR("module " + attribute +
                       "{ func.func @loss(%a: tensor<2xi32>) { return } }"),
              {"@loss", "(tensor<2xi32>) -> ()", "tensor<BxSxi32>"});
  expectError(importIR("module { nn.broken }"), {"nn.broken"});
  const std::string loss =
      "{ func.func @loss(%a: tensor<2x4xi32>, %b: tensor<2x4xi32>) ->"
      "(tensor<f32>, tensor<f32>) { %0 = nn.fill 1.0 : tensor<f32>\n"
      "return %0, %0 : tensor<f32>, tensor<f32> } }";
  expectError(importIR("module " + loss), {"plait.model", "vocab"});
  EXPECT_TRUE(importIR("module " + attribute + loss).module);
}
