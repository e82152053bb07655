//===- LlamaFields.cpp - Fields of models like Llama ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LlamaFields.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

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

/// LongRoPE (Ding et al. 2024) as Hugging Face has it: each frequency is
/// divided by a factor, of which sequences up to `trained` positions have
/// others than longer ones. Those of short ones have to be 1, as Phi-4-mini's
/// are; what is left is what cosines and sines are multiplied by.
static Yarn readLongRope(ConfigReader &rope, int64_t size, int64_t trained,
                         int64_t positions) {
  rope.getPositives("long_factor", size / 2);
  for (double factor : rope.getPositives("short_factor", size / 2))
    if (factor != 1.0)
      rope.fail("field \"short_factor\" of the rotary embedding has " +
                Twine(std::to_string(factor)) +
                ", expected 1: other factors are not supported");
  double ratio = double(positions) / trained;
  if (double factor = rope.getPositive("factor", ratio); factor != ratio)
    rope.fail("field \"factor\" of the rotary embedding is " +
              Twine(std::to_string(factor)) +
              ", expected \"max_position_embeddings\" over "
              "\"original_max_position_embeddings\", " +
              Twine(std::to_string(ratio)));
  double usual =
      ratio <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(ratio) / std::log(trained));
  if (!std::isfinite(usual))
    rope.fail("field \"original_max_position_embeddings\" is 1, expected more");
  return {/*factor=*/1.0, /*first=*/0.0, /*last=*/1.0,
          rope.getPositive("attention_factor", usual), /*scores=*/1.0};
}

/// The base of frequencies, and the part of each head that turns, as most
/// families call them.
static constexpr StringLiteral kTheta = "rope_theta",
                               kTurned = "partial_rotary_factor";

namespace {
/// Names of the fields outside of an object that describe the rotary embedding,
/// too, where they are given: then the object has to say the same.
struct Outside {
  StringRef theta, turned = {};
  /// Whether models of the family may turn a part of each head.
  bool isPart = false;
};
} // namespace

/// Returns the number that an object has in `field`; where it has none, the
/// `present` one.
static double readAgain(ConfigReader &fields, StringRef field, double present,
                        StringRef outside) {
  double own = fields.getPositive(field, present);
  if (!outside.empty() && own != present)
    fields.fail(
        "field \"" + outside + "\" is " + Twine(std::to_string(present)) +
        ", but that of the rotary embedding " + Twine(std::to_string(own)));
  return own;
}

/// Returns how many elements of a head turn; a fraction of one is cut off, as
/// in Hugging Face's models.
static int64_t countTurned(const Llama &llama, const Rope &rope) {
  return llama.latent ? llama.turn->rotated : int64_t(llama.size * rope.turned);
}

/// Reads an object that describes the rotary embedding.
static void readRopeObject(ConfigReader &fields, Rope &rope,
                           const Outside &outside, const Llama &llama,
                           int64_t positions) {
  rope.theta = readAgain(fields, kTheta, rope.theta, outside.theta);
  if (outside.isPart)
    rope.turned = readAgain(fields, kTurned, rope.turned, outside.turned);
  else
    fields.require(kTurned, "1.0");
  // "type" is the older name; where there are both they agree.
  StringRef choices[] = {"default", "linear", "llama3", "longrope", "yarn"};
  std::string type = fields.getChoice("type", choices, "default");
  if (fields.has("rope_type") || !fields.has("type"))
    type = fields.getChoice("rope_type", choices);
  if (type == "llama3")
    rope.scaling = readScaling(fields);
  else if (type == "linear")
    rope.scaling = readLinear(fields);
  else if (type == "yarn")
    rope.yarn =
        readYarn(fields, countTurned(llama, rope), rope.theta, positions);
  if (type != "longrope")
    return;
  positions = fields.getSize("original_max_position_embeddings", positions);
  rope.mostPositions = positions;
  rope.yarn = readLongRope(fields, countTurned(llama, rope), positions,
                           llama.positions);
}

/// Which of two fields counts where they contradict each other depends on the
/// release of `transformers`.
static void refuseBoth(ConfigReader &config) {
  if (config.has("rope_scaling") && config.has("rope_parameters"))
    config.fail("fields \"rope_scaling\" and \"rope_parameters\" both "
                "describe the rotary embedding, expected one of them");
}

/// Reads theta and scaling, which newer configs have as one object,
/// `rope_parameters`.
static Rope readRope(const Llama &llama, ConfigReader &config,
                     const Usual &usual) {
  auto findGiven = [&](StringRef field) {
    return config.has(field) ? field : StringRef();
  };
  Outside outside{findGiven(usual.thetaField), findGiven(usual.turnedField),
                  usual.turned.has_value()};
  Rope rope{config.getPositive(usual.thetaField, usual.theta)};
  if (usual.turned)
    rope.turned = config.getPositive(usual.turnedField, *usual.turned);
  else
    config.require(kTurned, "1.0");
  // Releases 4.43 to 4.57 of `transformers` save GPT-NeoX's under both names.
  if (usual.thetaField != kTheta)
    readAgain(config, kTheta, rope.theta, usual.thetaField);
  if (usual.turned && usual.turnedField != kTurned)
    readAgain(config, kTurned, rope.turned, usual.turnedField);
  refuseBoth(config);
  // Configs of Phi-3 have it beside.
  int64_t positions = config.has("original_max_position_embeddings")
                          ? config.getSize("original_max_position_embeddings")
                          : llama.positions;
  for (StringRef field : {"rope_scaling", "rope_parameters"})
    config.readObject(field, [&](ConfigReader &fields) {
      readRopeObject(fields, rope, outside, llama, positions);
    });
  return rope;
}

/// Says which elements of a head turn: those in front, in the file's order.
static std::optional<Turn> findTurn(const Llama &llama, ConfigReader &config,
                                    const Rope &rope, const Usual &usual) {
  if (rope.turned == 1.0 && !usual.interleaved)
    return std::nullopt;
  Turn turn;
  turn.rotated = countTurned(llama, rope);
  turn.still = llama.size - turn.rotated;
  turn.leads = true;
  turn.interleaved = usual.interleaved;
  if (turn.rotated < 2 || turn.rotated % 2 || turn.still < 0)
    config.fail("field \"" + usual.turnedField + "\" is " +
                Twine(std::to_string(rope.turned)) + ", by which " +
                Twine(turn.rotated) + " of the " + Twine(llama.size) +
                " elements of a head turn, expected an even number from 2 on");
  return turn;
}

/// A scaling outside of `rope_parameters` is of layers without a window.
void hf::readRopes(Llama &llama, ConfigReader &config, const Usual &usual,
                   StringRef windowField) {
  config.require(kTurned, "1.0");
  refuseBoth(config);
  bool hasTheta = config.has(kTheta);
  Rope whole{config.getPositive(kTheta, usual.theta)};
  Rope windowed{*usual.windowTheta};
  bool hasOwn = !windowField.empty() && config.has(windowField);
  if (hasOwn)
    windowed.theta = config.getPositive(windowField);
  bool isOne = hasTheta && whole.theta == windowed.theta;
  if (windowField.empty() && !config.has("rope_parameters") && !isOne)
    config.fail("field \"rope_theta\" is " +
                (hasTheta ? Twine(std::to_string(whole.theta)) : "missing") +
                ": releases of transformers differ in what layers with a "
                "window then have, expected " +
                Twine(std::to_string(windowed.theta)) +
                " or \"rope_parameters\"");
  auto read = [&](ConfigReader &fields, StringRef field, Rope &rope,
                  StringRef outside) {
    fields.readObject(field, [&](ConfigReader &own) {
      readRopeObject(own, rope, {outside}, llama, llama.positions);
    });
  };
  StringRef given = hasTheta ? kTheta : "";
  read(config, "rope_scaling", whole, given);
  config.readObject("rope_parameters", [&](ConfigReader &types) {
    read(types, "full_attention", whole, given);
    read(types, "sliding_attention", windowed,
         hasOwn ? windowField : StringRef());
  });
  for (LayerKind &kind : llama.kinds)
    kind.rope = kind.window ? windowed : whole;
}

void hf::requireOwnKeys(const Llama &llama, ConfigReader &config) {
  if (llama.groups != llama.heads)
    config.fail("field \"num_key_value_heads\" is " + Twine(llama.groups) +
                ", expected \"num_attention_heads\", " + Twine(llama.heads));
}

/// Multi-head latent attention: heads have other sizes than `head_dim`, which
/// says how much of them turns.
static void readLatent(Llama &llama, ConfigReader &config) {
  Latent latent;
  if (!config.isNull("q_lora_rank"))
    latent.queryRank = config.getSize("q_lora_rank", 1536);
  latent.keyRank = config.getSize("kv_lora_rank", 512);
  latent.value = config.getSize("v_head_dim", 128);
  Turn turn;
  turn.still = config.getSize("qk_nope_head_dim", 128);
  turn.rotated = config.getSize("qk_rope_head_dim", 64);
  turn.interleaved = config.getFlag("rope_interleave", true);
  for (auto [field, size] : {std::pair("qk_nope_head_dim", turn.still),
                             std::pair("qk_rope_head_dim", turn.rotated)})
    if (size % 2)
      config.fail(Twine("field \"") + field + "\" is " + Twine(size) +
                  ", expected an even number");
  llama.size = turn.still + turn.rotated;
  if (latent.value > llama.size)
    config.fail("field \"v_head_dim\" is " + Twine(latent.value) +
                ", expected at most the sum of \"qk_nope_head_dim\" and "
                "\"qk_rope_head_dim\", " +
                Twine(llama.size));
  requireOwnKeys(llama, config);
  // Saved configs repeat both.
  config.ignore({"head_dim", "qk_head_dim"});
  llama.latent = latent;
  llama.turn = turn;
}

/// Gemma's configs have an older and a newer field, of which releases of
/// `transformers` read one, and mean the same by all of these names.
static void readGemmaActivation(ConfigReader &config) {
  StringRef tanh = "gelu_pytorch_tanh";
  config.getChoice("hidden_act", {tanh, "gelu"}, tanh);
  config.getChoice("hidden_activation", {tanh}, tanh);
}

static Activation readActivation(ConfigReader &config, const Usual &usual) {
  if (usual.opensByGelu) {
    readGemmaActivation(config);
    return Activation::GeluTanh;
  }
  if (!usual.gelu.empty()) {
    std::string name = config.getChoice(
        "hidden_act", {"gelu", "gelu_fast", "gelu_new", "gelu_pytorch_tanh"},
        usual.gelu);
    return name == "gelu" ? Activation::Gelu : Activation::GeluTanh;
  }
  config.getChoice("hidden_act", {"silu", "swish"}, "silu"); // two names
  return Activation::Silu;
}

Llama hf::readCommon(ConfigReader &config, const Usual &usual) {
  Llama llama;
  llama.vocab = config.getSize("vocab_size");
  llama.hidden = config.getSize("hidden_size");
  llama.layers = config.getSize("num_hidden_layers", std::nullopt, kMostLayers);
  llama.inner = config.getSize("intermediate_size");
  llama.positions = config.getSize("max_position_embeddings", usual.positions);
  readHeads(llama, config, usual);
  if (usual.isLatent)
    readLatent(llama, config);
  LayerKind kind;
  if (!usual.windowTheta) {
    kind.rope = readRope(llama, config, usual);
    if (!llama.latent)
      llama.turn = findTurn(llama, config, *kind.rope, usual);
  }
  llama.kinds.assign(llama.layers, kind);
  llama.activation = readActivation(config, usual);
  llama.epsilon = config.getPositive(usual.epsilonField, usual.epsilon);
  llama.std = config.getNonNegative("initializer_range", 0.02);
  llama.tied = config.getFlag("tie_word_embeddings", usual.isTied);
  llama.attentionDropout = config.getDropout("attention_dropout", 0.0);
  return llama;
}

void hf::readWindow(Llama &llama, ConfigReader &config, int64_t usual) {
  bool none = config.isNull("sliding_window");
  if (!config.has("sliding_window") && (none || !usual))
    return;
  int64_t window = config.getSize("sliding_window", usual);
  for (LayerKind &kind : llama.kinds)
    kind.window = window;
}

/// Returns which layers `layer_types` gives a window to, else those that
/// `isUsual` does.
static SmallVector<bool> readLayerTypes(const Llama &llama,
                                        ConfigReader &config,
                                        function_ref<bool(int64_t)> isUsual) {
  constexpr StringLiteral windowed = "sliding_attention";
  SmallVector<std::string> types = config.getChoices(
      "layer_types", {"full_attention", windowed}, llama.layers);
  SmallVector<bool> result;
  for (int64_t layer = 0; layer < llama.layers; ++layer)
    result.push_back(types.empty() ? isUsual(layer) : types[layer] == windowed);
  return result;
}

void hf::readLayerWindows(Llama &llama, ConfigReader &config) {
  constexpr int64_t usualWindow = 4096, usualFirst = 28;
  bool used = config.getFlag("use_sliding_window", false) &&
              !config.isNull("sliding_window");
  int64_t window = config.getSize("sliding_window", usualWindow);
  int64_t first = config.getCount("max_window_layers", usualFirst);
  SmallVector<bool> windowed =
      readLayerTypes(llama, config, [used, first](int64_t layer) {
        return used && layer >= first;
      });
  for (auto [kind, has] : llvm::zip(llama.kinds, windowed))
    kind.window = has ? window : 0;
  if (!used && llvm::is_contained(windowed, true))
    config.fail("field \"layer_types\" has \"sliding_attention\", but "
                "\"use_sliding_window\" is not set");
}

void hf::readAlternatingWindows(Llama &llama, ConfigReader &config,
                                int64_t usual, int64_t period) {
  bool none = config.isNull("sliding_window");
  int64_t window = none ? 0 : config.getSize("sliding_window", usual);
  SmallVector<bool> windowed = readLayerTypes(
      llama, config, [period](int64_t layer) { return (layer + 1) % period; });
  for (auto [kind, has] : llvm::zip(llama.kinds, windowed))
    kind.window = has ? window : 0;
  if (none && llvm::is_contained(windowed, true))
    config.fail("field \"layer_types\" has \"sliding_attention\", but "
                "\"sliding_window\" is null");
}

Model hf::makeModel(Llama llama, ConfigReader &config, int64_t sequence) {
  checkSequence(config, "max_position_embeddings", llama.positions, sequence);
  for (const LayerKind &kind : llama.kinds)
    if (kind.rope && kind.rope->mostPositions)
      checkSequence(config, "original_max_position_embeddings",
                    *kind.rope->mostPositions, sequence);
  int64_t vocab = llama.vocab, layers = llama.layers;
  return {vocab, layers, [llama = std::move(llama)](ModelBuilder &model) {
            return llama.build(model);
          }};
}
