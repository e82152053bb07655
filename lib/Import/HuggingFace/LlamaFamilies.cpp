//===- LlamaFamilies.cpp - Configs of Llama, Mistral, Qwen, Phi ---*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fallbacks are those of Hugging Face's config of the family: a saved config
// may leave out what has its usual value.
//
//===----------------------------------------------------------------------===//

#include "Llama.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

//===----------------------------------------------------------------------===//
// Fields of several families
//===----------------------------------------------------------------------===//

namespace {
/// The values that a family's config has where it says nothing.
struct Usual {
  int64_t positions;
  double epsilon;
  /// Nothing: as many as query heads, and hidden size / heads.
  std::optional<int64_t> groups = std::nullopt, headSize = std::nullopt;
  bool isLatent = false;
  double theta = 10000.0;
};
} // namespace

/// Heads, groups and head size depend on each other's absence: a null for the
/// groups means as many as heads, an absent field what the family usually has.
/// All three are positive even after an error, as they divide.
static void readHeads(Llama &llama, ConfigReader &config, const Usual &usual) {
  llama.heads = config.getSize("num_attention_heads");
  bool alone = !usual.groups || config.isNull("num_key_value_heads");
  llama.groups = config.getSize("num_key_value_heads",
                                alone ? llama.heads : *usual.groups);
  if (llama.heads % llama.groups)
    config.fail("field \"num_attention_heads\" is " + Twine(llama.heads) +
                ", which is not a multiple of \"num_key_value_heads\", " +
                Twine(llama.groups));
  if (!usual.headSize && !config.has("head_dim") && llama.hidden % llama.heads)
    config.fail("field \"hidden_size\" is " + Twine(llama.hidden) +
                ", which is not a multiple of \"num_attention_heads\", " +
                Twine(llama.heads));
  // The head size need not be the quotient, as Qwen3's is not: then the
  // projections are not square.
  int64_t quotient = std::max<int64_t>(llama.hidden / llama.heads, 1);
  llama.size = config.getSize("head_dim", usual.headSize.value_or(quotient));
  if (llama.size % 2)
    config.fail("a head size (\"head_dim\") of " + Twine(llama.size) +
                " is odd, but rotary embedding works on pairs");
}

/// Scaled frequencies as Llama 3.1 has them: high ones stay, low ones are
/// divided by `factor`, and those between are blended.
static RopeScaling readScaling(ConfigReader &rope) {
  RopeScaling result;
  result.factor = rope.getPositive("factor");
  result.low = rope.getPositive("low_freq_factor");
  result.high = rope.getPositive("high_freq_factor");
  result.original = rope.getSize("original_max_position_embeddings");
  if (!rope.failed() && result.high <= result.low)
    rope.fail("field \"high_freq_factor\" of the rotary embedding is " +
              Twine(std::to_string(result.high)) +
              ", expected more than \"low_freq_factor\", " +
              Twine(std::to_string(result.low)));
  return result;
}

/// All frequencies divided by `factor`, as Chen et al. 2023 interpolate
/// positions: they count as low ones, since every wave is longer than what was
/// trained with. The shortest has 2 pi positions.
static RopeScaling readLinear(ConfigReader &rope) {
  return {rope.getPositive("factor"), /*low=*/1.0, /*high=*/2.0,
          /*original=*/1};
}

/// Returns what cosines and sines of stretched frequencies are multiplied by
/// (Peng et al. 2023).
static double getAmplitude(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

/// A frequency that turns `turns` times within the positions that were trained
/// with is that of this pair.
static double findPair(double turns, int64_t positions, int64_t size,
                       double theta) {
  return size * std::log(positions / (turns * 2.0 * M_PI)) /
         (2.0 * std::log(theta));
}

/// YaRN as Hugging Face has it: the two bounds are numbers of turns, from which
/// numbers of pairs follow, and a number that is absent or 0 has its usual
/// value.
static Yarn readYarn(ConfigReader &rope, int64_t size, double theta,
                     int64_t positions) {
  Yarn yarn = {};
  auto getNumber = [&](StringRef field, double usual) {
    double number = rope.getNonNegative(field, 0.0);
    return number == 0.0 ? usual : number;
  };
  double fast = getNumber("beta_fast", 32.0),
         slow = getNumber("beta_slow", 1.0);
  double one = rope.getNonNegative("mscale", 0.0);
  double all = rope.getNonNegative("mscale_all_dim", 0.0);
  positions = rope.getSize("original_max_position_embeddings", positions);
  yarn.factor = rope.getPositive("factor");
  yarn.amplitude = one && all ? getAmplitude(yarn.factor, one) /
                                    getAmplitude(yarn.factor, all)
                              : getAmplitude(yarn.factor, 1.0);
  yarn.amplitude = rope.getPositive("attention_factor", yarn.amplitude);
  double score = all ? getAmplitude(yarn.factor, all) : 1.0;
  yarn.scores = score * score;
  yarn.first = findPair(fast, positions, size, theta);
  yarn.last = findPair(slow, positions, size, theta);
  if (rope.getFlag("truncate", true)) {
    yarn.first = std::floor(yarn.first);
    yarn.last = std::ceil(yarn.last);
  }
  yarn.first = std::max(yarn.first, 0.0);
  yarn.last = std::min(yarn.last, size - 1.0);
  if (yarn.first == yarn.last)
    yarn.last += 0.001;
  if (!rope.failed() && !(theta > 1.0 && yarn.first < yarn.last))
    rope.fail("fields \"beta_fast\" and \"beta_slow\" of the rotary embedding "
              "are " +
              Twine(std::to_string(fast)) + " and " +
              Twine(std::to_string(slow)) +
              ", of which no pairs of a head follow: expected the first to be "
              "more, and a \"rope_theta\" above 1");
  return yarn;
}

/// The part of each head that is rotated.
static constexpr StringLiteral kRotated = "partial_rotary_factor";

/// `rope_theta` and `rope_scaling`, which newer configs have as one object,
/// `rope_parameters`. Which of the two counts where they contradict each other
/// depends on the release of `transformers`.
static void readRope(Llama &llama, ConfigReader &config, double usualTheta) {
  llama.theta = config.getPositive("rope_theta", usualTheta);
  config.require(kRotated, "1.0");
  if (config.has("rope_scaling") && config.has("rope_parameters"))
    config.fail("fields \"rope_scaling\" and \"rope_parameters\" both "
                "describe the rotary embedding, expected one of them");
  bool hasTheta = config.has("rope_theta");
  // Configs of Phi-3 have it beside.
  int64_t positions = config.has("original_max_position_embeddings")
                          ? config.getSize("original_max_position_embeddings")
                          : llama.positions;
  auto readObject = [&llama, hasTheta, positions](ConfigReader &rope) {
    double theta = rope.getPositive("rope_theta", llama.theta);
    if (hasTheta && theta != llama.theta)
      rope.fail(
          "field \"rope_theta\" is " + Twine(std::to_string(llama.theta)) +
          ", but that of the rotary embedding " + Twine(std::to_string(theta)));
    llama.theta = theta;
    rope.require(kRotated, "1.0");
    // "type" is the older name; where there are both they agree.
    StringRef choices[] = {"default", "linear", "llama3", "yarn"};
    std::string type = rope.getChoice("type", choices, "default");
    if (rope.has("rope_type") || !rope.has("type"))
      type = rope.getChoice("rope_type", choices);
    if (type == "llama3")
      llama.scaling = readScaling(rope);
    else if (type == "linear")
      llama.scaling = readLinear(rope);
    else if (type == "yarn")
      llama.yarn =
          readYarn(rope, llama.latent ? llama.latent->rotated : llama.size,
                   llama.theta, positions);
  };
  config.readObject("rope_scaling", readObject);
  config.readObject("rope_parameters", readObject);
}

/// Multi-head latent attention: heads have other sizes than `head_dim`, which
/// says how much of them turns.
static void readLatent(Llama &llama, ConfigReader &config) {
  Latent latent;
  if (!config.isNull("q_lora_rank"))
    latent.queryRank = config.getSize("q_lora_rank", 1536);
  latent.keyRank = config.getSize("kv_lora_rank", 512);
  latent.still = config.getSize("qk_nope_head_dim", 128);
  latent.rotated = config.getSize("qk_rope_head_dim", 64);
  latent.value = config.getSize("v_head_dim", 128);
  latent.interleaved = config.getFlag("rope_interleave", true);
  for (auto [field, size] : {std::pair("qk_nope_head_dim", latent.still),
                             std::pair("qk_rope_head_dim", latent.rotated)})
    if (size % 2)
      config.fail(Twine("field \"") + field + "\" is " + Twine(size) +
                  ", expected an even number");
  llama.size = latent.still + latent.rotated;
  if (latent.value > llama.size)
    config.fail("field \"v_head_dim\" is " + Twine(latent.value) +
                ", expected at most the sum of \"qk_nope_head_dim\" and "
                "\"qk_rope_head_dim\", " +
                Twine(llama.size));
  if (llama.groups != llama.heads)
    config.fail("field \"num_key_value_heads\" is " + Twine(llama.groups) +
                ", expected \"num_attention_heads\", " + Twine(llama.heads));
  // Saved configs repeat both.
  config.ignore({"head_dim", "qk_head_dim"});
  llama.latent = latent;
}

/// Reads what all families have.
static Llama readCommon(ConfigReader &config, const Usual &usual) {
  Llama llama;
  llama.vocab = config.getSize("vocab_size");
  llama.hidden = config.getSize("hidden_size");
  llama.layers = config.getSize("num_hidden_layers", std::nullopt, kMostLayers);
  llama.inner = config.getSize("intermediate_size");
  llama.positions = config.getSize("max_position_embeddings", usual.positions);
  readHeads(llama, config, usual);
  if (usual.isLatent)
    readLatent(llama, config);
  readRope(llama, config, usual.theta);
  config.getChoice("hidden_act", {"silu", "swish"}, "silu"); // two names
  llama.epsilon = config.getPositive("rms_norm_eps", usual.epsilon);
  llama.std = config.getNonNegative("initializer_range", 0.02);
  llama.tied = config.getFlag("tie_word_embeddings", false);
  llama.attentionDropout = config.getDropout("attention_dropout", 0.0);
  return llama;
}

/// A window of all layers: `sliding_window`, or none where that is null. What
/// a config without the field has is `usual`, 0 for none.
static void readWindow(Llama &llama, ConfigReader &config, int64_t usual) {
  bool none = config.isNull("sliding_window");
  if (!config.has("sliding_window") && (none || !usual))
    return;
  llama.window = config.getSize("sliding_window", usual);
  llama.windowed.assign(llama.layers, true);
}

/// Qwen's windows: of the layers that `layer_types` names, else of those from
/// `max_window_layers` on; of none without `use_sliding_window`.
static void readLayerWindows(Llama &llama, ConfigReader &config) {
  constexpr int64_t usualWindow = 4096, usualFirst = 28;
  bool used = config.getFlag("use_sliding_window", false) &&
              !config.isNull("sliding_window");
  int64_t window = config.getSize("sliding_window", usualWindow);
  int64_t first = config.getCount("max_window_layers", usualFirst);
  SmallVector<std::string> types = config.getChoices(
      "layer_types", {"full_attention", "sliding_attention"}, llama.layers);
  llama.window = window;
  for (int64_t layer = 0; layer < llama.layers; ++layer)
    llama.windowed.push_back(types.empty()
                                 ? used && layer >= first
                                 : types[layer] == "sliding_attention");
  if (!used && llvm::is_contained(llama.windowed, true))
    config.fail("field \"layer_types\" has \"sliding_attention\", but "
                "\"use_sliding_window\" is not set");
}

/// GPT-OSS's windows: of the layers that `layer_types` names, else of every
/// other one from the first on.
static void readAlternatingWindows(Llama &llama, ConfigReader &config,
                                   int64_t usual) {
  bool none = config.isNull("sliding_window");
  llama.window = none ? 0 : config.getSize("sliding_window", usual);
  SmallVector<std::string> types = config.getChoices(
      "layer_types", {"full_attention", "sliding_attention"}, llama.layers);
  for (int64_t layer = 0; layer < llama.layers; ++layer)
    llama.windowed.push_back(
        types.empty() ? layer % 2 == 0 : types[layer] == "sliding_attention");
  if (none && llvm::is_contained(llama.windowed, true))
    config.fail("field \"layer_types\" has \"sliding_attention\", but "
                "\"sliding_window\" is null");
}

/// The fields are copied into what builds the model: the config is gone by
/// then.
static Model makeModel(Llama llama, ConfigReader &config, int64_t sequence) {
  checkSequence(config, "max_position_embeddings", llama.positions, sequence);
  int64_t vocab = llama.vocab, layers = llama.layers;
  return {vocab, layers, [llama = std::move(llama)](ModelBuilder &model) {
            return llama.build(model);
          }};
}

//===----------------------------------------------------------------------===//
// Families
//===----------------------------------------------------------------------===//

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

/// OLMo et al. 2024, "2 OLMo 2 Furious".
Model hf::readOlmo2(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {2048, 1e-5});
  llama.headBias = llama.outBias = config.getFlag("attention_bias", false);
  llama.jointNorms = llama.normsBehind = true;
  config.require("mlp_bias", "false");
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

/// Abdin et al. 2024, "Phi-3 Technical Report".
Model hf::readPhi3(ConfigReader &config, int64_t sequence) {
  Llama llama = readCommon(config, {4096, 1e-5});
  llama.merged = true;
  readWindow(llama, config, 0);
  llama.residualDropout = config.getDropout("resid_pdrop", 0.0);
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  // Hugging Face's model has no dropout behind the embedding, and the length
  // that scaled frequencies were trained with changes nothing without scaling.
  config.ignore({"embd_pdrop", "original_max_position_embeddings"});
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
  readAlternatingWindows(llama, config, 128);
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
