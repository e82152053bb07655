//===- MegatronFlags.cpp - What Megatron-LM is told -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Words into values. A flag is one of three kinds: it is read; it is of data,
// rates, logs or checkpoints, which a step does not depend on; or it changes
// what plait does not model, and is refused by its name. Any other is unknown,
// and may be mistyped.
//
//===----------------------------------------------------------------------===//

#include "Export/MegatronFlags.h"
#include "plait/Support/Suggest.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <variant>

using namespace plait;
using namespace plait::planner;

//===----------------------------------------------------------------------===//
// The flags
//===----------------------------------------------------------------------===//

/// The value that a flag sets. A bool has none behind it.
using Target =
    std::variant<bool MegatronFlags::*, int64_t MegatronFlags::*,
                 std::optional<int64_t> MegatronFlags::*,
                 double MegatronFlags::*, std::string MegatronFlags::*>;

/// Several names of one value are how versions of Megatron-LM differ.
static const std::map<std::string, Target, std::less<>> &getFlags() {
  using F = MegatronFlags;
  static const std::map<std::string, Target, std::less<>> flags = {
      {"tensor-model-parallel-size", &F::tensor},
      {"pipeline-model-parallel-size", &F::pipeline},
      {"context-parallel-size", &F::context},
      {"num-layers-per-virtual-pipeline-stage", &F::layersPerChunk},
      {"num-virtual-stages-per-pipeline-rank", &F::chunks},
      {"pipeline-model-parallel-layout", &F::layout},
      {"cp-comm-type", &F::contextKind},
      {"sequence-parallel", &F::sequenceParallel},
      {"use-distributed-optimizer", &F::dividesState},
      {"optimizer-cpu-offload", &F::offloads},
      {"recompute-activations", &F::selective},
      {"recompute-granularity", &F::recompute},
      {"recompute-method", &F::recomputeMethod},
      {"recompute-num-layers", &F::recomputeLayers},
      {"micro-batch-size", &F::microBatch},
      {"global-batch-size", &F::globalBatch},
      {"seq-length", &F::sequence},
      {"bf16", &F::bf16},
      {"fp16", &F::fp16},
      {"grad-reduce-in-bf16", &F::reducesInBf16},
      {"use-flash-attn", &F::usesFlash},
      {"attention-backend", &F::attention},
      {"optimizer", &F::optimizer},
      {"num-layers", &F::layers},
      {"hidden-size", &F::hidden},
      {"ffn-hidden-size", &F::inner},
      {"num-attention-heads", &F::heads},
      {"group-query-attention", &F::groupsQueries},
      {"num-query-groups", &F::groups},
      {"kv-channels", &F::headSize},
      {"max-position-embeddings", &F::positions},
      {"vocab-size", &F::vocab},
      {"make-vocab-size-divisible-by", &F::vocabDivisor},
      {"swiglu", &F::swiglu},
      {"untie-embeddings-and-output-weights", &F::untied},
      {"disable-bias-linear", &F::noBias},
      {"add-qkv-bias", &F::headBiases},
      {"qk-layernorm", &F::headNorms},
      {"no-bias-gelu-fusion", &F::exactGelu},
      {"use-rope-scaling", &F::scalesRope},
      {"rope-scaling-factor", &F::ropeFactor},
      {"normalization", &F::normalization},
      {"position-embedding-type", &F::position},
      {"use-rotary-position-embeddings", &F::usesRotary},
      {"no-position-embedding", &F::noPosition},
      {"rotary-base", &F::theta},
      {"norm-epsilon", &F::epsilon},
      {"attention-dropout", &F::attentionDropout},
      {"hidden-dropout", &F::hiddenDropout},
  };
  return flags;
}

/// Beginnings of flags that a step does not depend on: data, rates, lengths of
/// runs, logs, checkpoints, start-up. Those at the end are habits that
/// megatron-core is predicted with.
static constexpr std::string_view harmless[] = {
    "lr",           "min-lr",       "adam-",
    "weight-decay", "clip-grad",    "sgd-",
    "train-",       "exit-",        "eval-",
    "data-path",    "data-cache",   "data-args",
    "mock-data",    "split",        "num-workers",
    "tokenizer",    "vocab-file",   "merge-file",
    "dataloader",   "no-create-",   "no-mmap-",
    "save",         "load",         "ckpt-",
    "no-save-",     "no-load-",     "dist-ckpt-",
    "use-dist-",    "async-save",   "use-checkpoint-",
    "log-",         "no-log-",      "wandb-",
    "tensorboard-", "timing-",      "profile",
    "seed",         "init-method-", "distributed-",
    "local-rank",   "manual-gc",    "no-check-for-nan",
    "use-mcore-",   "transformer-", "initial-loss-scale",
    "loss-scale",   "hysteresis",   "attention-softmax-in-fp32",
    "accumulate-",  "overlap-",     "use-precision-aware-",
    "no-masked-",   "no-rope-",     "cross-entropy-",
    "bias-",        "no-bias-swig", "no-bias-drop",
    "use-cpu-init", "use-flash-",   "finetune",
    "start-weight", "end-weight",   "override-opt",
    "te-rng-",      "rerun-",       "no-use-tokenizer"};

/// Beginnings of flags that change arithmetic, layout or speed in a way that is
/// not predicted.
static constexpr std::string_view refused[] = {
    "num-experts",
    "expert-",
    "moe-",
    "multi-latent-attention",
    "mtp-",
    "fp8-",
    "fp4-",
    "use-megatron-fsdp",
    "use-torch-fsdp2",
    "data-parallel-sharding-strategy",
    "window-",
    "squared-relu",
    "hybrid-",
    "is-hybrid-",
    "rotary-percent",
    "rampup-batch-size",
    "step-batch-size",
    "decoder-first-pipeline",
    "decoder-last-pipeline",
    "account-for-",
    "num-distributed-optimizer-instances",
    "cpu-offloading",
    "optimizer-offload-fraction",
    "recompute-modules",
    "microbatch-group-size",
    "apply-layernorm-1p",
    "tp-comm-overlap",
    "encoder-",
    "hierarchical-context",
    "distribute-saved-activations",
    "gtp-",
    "model-parallel-size",
    "spec",
    "external-cuda-graph",
    "enable-cuda-graph",
    "cuda-graph-",
    "no-gradient-accumulation-fusion",
    "delay-wgrad-compute",
    "defer-embedding-wgrad"};

/// Whether one of `beginnings` is that of `flag`.
static bool isAmong(std::string_view flag,
                    std::span<const std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) {
    return flag.starts_with(beginning);
  });
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

/// Reads a number that is not negative.
static Status parseNumber(const std::string &flag, const std::string &text,
                          double &value) {
  const char *end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end && value >= 0 && value <= 1e18)
    return Status::success();
  return fail("--", flag, " is '", text, "', expected a number from 0");
}

/// Sets what a flag with a value says.
static Status set(MegatronFlags &flags, const std::string &flag,
                  const Target &target, const std::string &value) {
  if (auto *number = std::get_if<int64_t MegatronFlags::*>(&target))
    return parse("--" + flag, value, flags.**number);
  if (auto *number =
          std::get_if<std::optional<int64_t> MegatronFlags::*>(&target))
    return parse("--" + flag, value, flags.**number);
  if (auto *number = std::get_if<double MegatronFlags::*>(&target))
    return parseNumber(flag, value, flags.**number);
  flags.*std::get<std::string MegatronFlags::*>(target) = value;
  return Status::success();
}

static Status failUnknownFlag(const std::string &flag) {
  std::vector<std::string> names;
  for (const auto &[name, target] : getFlags())
    names.push_back("--" + name);
  std::string nearest = suggest("--" + flag, names);
  return fail("unknown flag '--", flag, "' of Megatron-LM",
              nearest.empty() ? "" : ", did you mean " + nearest + "?",
              nearest.empty() ? ": " : " ",
              "if it changes neither arithmetic nor layout, say "
              "`ignore-field` ",
              flag);
}

/// Whether a word is what scripts have between arrays of flags.
static bool isOfShell(const std::string &word) {
  return word.starts_with('$') || word.find('=') != word.npos ||
         word == "export" || word == "&" || word == "exec";
}

Result<MegatronFlags> planner::parseMegatronFlags(const Given &given) {
  MegatronFlags flags;
  const std::vector<std::string> &words = given.words;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string flag = words[i];
    if (!flag.starts_with("--")) {
      if (isOfShell(flag))
        continue;
      return fail("'", flag,
                  "' is no flag of Megatron-LM, expected one such "
                  "as --num-layers");
    }
    flag.erase(0, 2);
    std::optional<std::string> value;
    if (size_t equals = flag.find('='); equals != flag.npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    }
    auto found = getFlags().find(flag);
    if (found == getFlags().end()) {
      if (!isAmong(flag, harmless) &&
          std::ranges::find(given.ignored, flag) == given.ignored.end())
        return isAmong(flag, refused)
                   ? fail("--", flag,
                          " changes what plait does not model of "
                          "Megatron-LM")
                   : failUnknownFlag(flag);
      // Its values, as many as there are.
      while (i + 1 < words.size() && !words[i + 1].starts_with("--"))
        ++i;
      continue;
    }
    if (auto *flagged = std::get_if<bool MegatronFlags::*>(&found->second)) {
      if (value)
        return fail("--", flag, " takes no value, got '", *value, "'");
      flags.**flagged = true;
      continue;
    }
    if (!value && i + 1 < words.size() && !words[i + 1].starts_with("--"))
      value = words[++i];
    if (!value || value->empty())
      return fail("--", flag, " has no value");
    PLAIT_RETURN_IF_ERROR(set(flags, flag, found->second, *value));
  }
  return flags;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

namespace {

/// Writes repetitions out: "E|(t|)*3" is "E|t|t|t|". Commas are for the eye.
class LayoutReader {
public:
  explicit LayoutReader(const std::string &text) : text(text) {}

  Result<std::string> run() {
    Result<std::string> all = readSequence(/*depth=*/0);
    if (all.ok() && at != text.size())
      return fail("bracket ", at + 1, " closes nothing");
    return all;
  }

private:
  static constexpr size_t most = 1 << 16; // letters
  static constexpr int deepest = 16;

  /// Up to a closing bracket or the end.
  Result<std::string> readSequence(int depth) {
    std::string all;
    while (at < text.size() && text[at] != ')') {
      char letter = text[at++];
      std::string part(1, letter);
      if (letter == ',' || letter == ' ')
        continue;
      if (letter == '(') {
        Result<std::string> inner = depth < deepest
                                        ? readSequence(depth + 1)
                                        : fail("brackets are too deep");
        if (!inner.ok())
          return inner;
        if (at == text.size())
          return fail("a bracket is not closed");
        ++at;
        part = *inner;
      } else if (std::string_view("EtL|").find(letter) == std::string::npos) {
        return fail("'", letter, "' is no E, t, L or |");
      }
      Result<int64_t> times = readTimes();
      if (!times.ok())
        return times.status();
      if (all.size() + part.size() * size_t(*times) > most)
        return fail("it has more than ", most, " letters");
      for (int64_t i = 0; i < *times; ++i)
        all += part;
    }
    return all;
  }

  Result<int64_t> readTimes() {
    if (at == text.size() || text[at] != '*')
      return int64_t(1);
    int64_t times = 0;
    auto [end, error] =
        std::from_chars(text.data() + at + 1, text.data() + text.size(), times);
    if (error != std::errc() || times < 1 || times > int64_t(most))
      return fail("'*' has no number of times behind it");
    at = size_t(end - text.data());
    return times;
  }

  const std::string &text;
  size_t at = 0;
};

} // namespace

Result<std::vector<int>> planner::parseLayout(const std::string &text) {
  auto refuse = [&](const std::string &why) {
    return fail("--pipeline-model-parallel-layout is '", text, "': ", why);
  };
  Result<std::string> whole = LayoutReader(text).run();
  if (!whole.ok())
    return refuse(whole.status().message());
  if (!whole->starts_with('E') || !whole->ends_with('L') ||
      std::ranges::count(*whole, 'E') != 1 ||
      std::ranges::count(*whole, 'L') != 1)
    return refuse("expected E at its beginning and L at its end, once each");
  std::vector<int> layers = {0};
  for (char letter : *whole)
    if (letter == '|')
      layers.push_back(0);
    else
      layers.back() += letter == 't';
  return layers;
}
