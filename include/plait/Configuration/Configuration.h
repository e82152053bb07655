//===- Configuration.h - Configuration of a training ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one list of what can be chosen of a training, beside its mesh. Everything
// that speaks of these choices is a view of the list: the attribute
// `#plait.configuration` of a module, the options of plaitc, the pins and the
// search space of the planner, and the table of what can be executed. A field
// that is added here is an option, a pin and a part of the attribute at once;
// what is left to do is the pass that reads it.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_CONFIGURATION_H
#define PLAIT_CONFIGURATION_CONFIGURATION_H

#include "plait/Configuration/Compressors.h"
#include "plait/Configuration/Outer.h"
#include "plait/Support/MemoryPlaces.h"
#include "plait/Support/Status.h"

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// The words of an enumeration, `all`, in the order of its values. Those of a
/// kind that has them are all that options, pins, IR and help need to know: see
/// HasWords. Kinds that cannot be executed have words as well, which the
/// message that refuses them names.
template <typename Kind> struct Words;
template <typename Kind>
concept HasWords = requires { Words<Kind>::all; };

/// Says what the backward pass computes again: nothing; of each layer what is
/// cheap for the memory that it frees, as norms, activations and the inside of
/// an attention that is not one step (other frameworks: that alone, Korthikanti
/// et al. 2022); or whole layers. Auto is for the planner to resolve: of each
/// layer the least with which the model fits.
enum class Recompute : uint8_t { None, Selective, Full, Auto };
template <> struct Words<Recompute> {
  static constexpr std::string_view all[] = {"none", "selective", "full",
                                             "auto"};
};

/// The kind of recomputation of each layer. Of a virtual stage the first layers
/// are those of which most is: their backward pass comes last, when what the
/// others have kept is free (the "block" method of Megatron-LM).
struct Recomputation {
  static constexpr int kAll = std::numeric_limits<int>::max();

  /// Layers of one virtual stage: the first `full` are computed again whole, of
  /// the next `selective` what is cheap, of the others nothing. There may be
  /// fewer than are asked for.
  struct Stage {
    int full = 0, selective = 0;
    /// Returns the kind of a layer, counted from the first of the stage.
    Recompute getKind(int layer) const;
    auto operator<=>(const Stage &) const = default;
  };

  /// The stages in the order of the forward pass; one stands for all.
  std::vector<Stage> stages = {Stage()};
  bool isAuto = false;

  Recomputation() = default;
  /// The same for all layers.
  Recomputation(Recompute kind);

  const Stage &getStage(size_t stage) const {
    return stages[stages.size() == 1 ? 0 : stage];
  }
  /// Returns what is said of all layers alike, or Auto; none where layers
  /// differ.
  std::optional<Recompute> getUniform() const;

  auto operator<=>(const Recomputation &) const = default;
};

/// The precision of activations and matmuls. 16-bit training keeps fp32 master
/// weights and moments.
enum class Precision : uint8_t { FP32, BF16, FP16 };
template <> struct Words<Precision> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "fp16"};
};

/// Flash is one step that never writes its scores; unfused are matmuls
/// and kernels. Auto is flash on devices that compute every attention of the
/// model so, on processors from 256 keys on, else unfused.
enum class AttentionKind : uint8_t { Auto, Flash, Unfused };
template <> struct Words<AttentionKind> {
  static constexpr std::string_view all[] = {"auto", "flash", "unfused"};
};

/// Says what matmuls do to their results: nothing, add a bias, or take GELU and
/// its gradient too.
enum class EpilogueKind : uint8_t { None, Bias, All };
template <> struct Words<EpilogueKind> {
  static constexpr std::string_view all[] = {"none", "bias", "all"};
};

/// Says what the ranks of cp, which have a part of each sequence, exchange so
/// that queries meet the keys of all parts. Gather: keys and values, which each
/// rank then has whole; under a causal mask the last one has the most work.
/// Heads: sequences for heads, by all-to-alls before attention and after it, so
/// that each rank has some heads of all queries (Jacobs et al. 2023, "DeepSpeed
/// Ulysses"); they have to divide the heads. Zigzag: keys and values, but a
/// rank has two pieces of a sequence, one as far from its beginning as the
/// other from its end, so that all have the same work
/// (plait/Support/ChunkOrder.h).
enum class ContextParallel : uint8_t { Gather, Heads, Zigzag };
template <> struct Words<ContextParallel> {
  static constexpr std::string_view all[] = {"gather", "heads", "zigzag"};
};

/// Says what the ranks of ep, which have some of the experts each, exchange
/// around those. Tokens: all that they have. Rows: each token with the ranks
/// whose experts it has chosen, and what each of these makes of it.
enum class ExpertExchange : uint8_t { Tokens, Rows };
template <> struct Words<ExpertExchange> {
  static constexpr std::string_view all[] = {"tokens", "rows"};
};

/// Says what lies in the memory of hosts, or another place, and comes to the
/// device where it is used: what the optimizer alone reads and writes (its
/// state, and masters of bf16 copies; Ren et al. 2021, "ZeRO-Offload"), and
/// what forward passes keep for backward ones (Rhu et al. 2016, "vDNN").
struct Offload {
  MemoryPlace activations = MemoryPlace::Arena, optimizer = MemoryPlace::Arena;

  auto operator<=>(const Offload &) const = default;

  static const Offload None, Optimizer, Activations, Both; // to the host
};
inline constexpr Offload Offload::None = {};
inline constexpr Offload Offload::Optimizer = {.optimizer = MemoryPlace::Host};
inline constexpr Offload Offload::Activations = {.activations =
                                                     MemoryPlace::Host};
inline constexpr Offload Offload::Both = {MemoryPlace::Host, MemoryPlace::Host};

constexpr bool offloadsOptimizer(Offload offload) {
  return offload.optimizer != MemoryPlace::Arena;
}
constexpr bool offloadsActivations(Offload offload) {
  return offload.activations != MemoryPlace::Arena;
}

/// Lists what can lie where: nothing elsewhere first, then less before more.
std::span<const Offload> getOffloads();

/// Bounds what a number may be, or each of a list; both are included. If not
/// said otherwise it is a size: products of these stay far from overflow.
struct FieldRange {
  int64_t first = 1, last = int64_t(1) << 24;
};
/// The first and the last stage may be embedding and head alone.
inline constexpr FieldRange kLayerCounts = {.first = 0};
inline constexpr FieldRange kZeroStages = {0, 3};
/// More pieces have more latency than anything hides, or more code than a plan
/// should have; the planner weighs each number of them.
inline constexpr FieldRange kPieces = {1, 64};

/// The fields that the planner chooses beside the mesh: X(type, member, name,
/// default, range, phase, help). The name is that of an option and of a pin; in
/// IR it has underscores. The range bounds numbers, and says nothing of others.
/// The phase is the first one that reads the field: in IR that it has left, the
/// field may not be changed any more.
#define PLAIT_STRATEGY_FIELDS(X)                                               \
  X(std::string, schedule, "schedule", "1f1b", {}, "stage",                    \
    "the order of a step")                                                     \
  X(int, chunks, "chunks", 1, {}, "stage",                                     \
    "virtual stages of a rank; if not given, as few as `schedule` orders")     \
  X(std::vector<int>, layers, "layers", {}, kLayerCounts, "stage",             \
    "of each virtual stage, e.g. 11,11,10; if not given, cut by cost")         \
  X(int64_t, microBatch, "micro-batch", 1, {}, "shard",                        \
    "sequences of a microbatch on one data-parallel rank")                     \
  X(Recomputation, recompute, "recompute", Recompute::None, {}, "checkpoint",  \
    "what the backward pass recomputes: none; selective: what is\n"            \
    "cheap; full: whole layers; full:4+selective: of each virtual stage\n"     \
    "the first 4, cheap of the rest; auto: the least that fits a\n"            \
    "`cluster`")                                                               \
  X(int, zero, "zero", 0, kZeroStages, "shard",                                \
    "replicas shard 1: optimizer state, 2: gradients as well,\n"               \
    "3: parameters as well, as FSDP does")                                     \
  X(bool, sequenceParallel, "sequence-parallel", false, {}, "shard",           \
    "ranks of tp split the sequence where that is cheaper")                    \
  X(ContextParallel, contextParallel, "context-parallel",                      \
    ContextParallel::Gather, {}, "shard",                                      \
    "for attention, ranks of cp gather keys and values, or exchange\n"         \
    "positions for heads (all-to-all); zigzag: gather, each having two\n"      \
    "pieces of a sequence, so that all have the same work")                    \
  X(ExpertExchange, expertExchange, "expert-exchange", ExpertExchange::Tokens, \
    {}, "partition",                                                           \
    "around experts, ranks of ep exchange all tokens; or rows, on\n"           \
    "processors: each token with the ranks of its experts alone")              \
  X(Offload, offload, "offload", Offload::None, {}, "partition",               \
    "CPU offload, to the memory of the host: of what only the\n"               \
    "optimizer uses, of what backward passes need")

/// The fields that are given, or follow from what the training runs on.
#define PLAIT_TRAINING_FIELDS(X)                                               \
  X(int64_t, globalBatch, "global-batch", 1, {}, "schedule",                   \
    "sequences of a step")                                                     \
  X(int64_t, sequence, "seq", 128, {}, "shard", "tokens of a sequence")        \
  X(Precision, precision, "precision", Precision::FP32, {}, "shard",           \
    "of the arithmetic; if not given, bf16 with a `cluster` of GPUs,\n"        \
    "else fp32; fp16 is for `predict` alone")                                  \
  X(Precision, reducePrecision, "reduce-precision", Precision::FP32, {},       \
    "partition",                                                               \
    "of the sums of gradients over ranks: bf16 sends half of the bytes,\n"     \
    "and the optimizer gets gradients that are rounded to it")                 \
  X(Compression, compress, "compress", {}, {}, "partition",                    \
    "what ranks of dp send of gradients, as SCHEME[:BLOCK][+feedback]:\n"      \
    "int8 is 8 bits an element and a scale for each BLOCK (256);\n"            \
    "feedback adds what was lost to the next step's gradients")                \
  X(Outer, outer, "outer", {}, {}, "schedule",                                 \
    "what `sites` of the mesh exchange, every H steps: average:H is\n"         \
    "their weights (local SGD, FedAvg); diloco:H[,rate=R,momentum=M]\n"        \
    "is what they moved by, for a second SGD (0.7, 0.9); median:H and\n"       \
    "trimmed:H[,drop=D]; clip:H,radius=R; gossip:GRAPH[,every=H,\n"            \
    "average=A] with their neighbours alone: ring, grid, exponential,\n"       \
    "one-peer or a file")                                                      \
  X(AttentionKind, attention, "attention", AttentionKind::Auto, {}, "lower",   \
    "flash: one step, scores never in memory; auto: flash on GPUs\n"           \
    "in bf16, and on processors from 256 tokens a sequence on")                \
  X(EpilogueKind, epilogues, "epilogues", EpilogueKind::None, {}, "lower",     \
    "in one step with matmuls; all: bias, GELU and its gradient; if\n"         \
    "not given, all on GPUs (bias for sm_80), else none")                      \
  X(int, tensorOverlap, "tp-comm-overlap", 1, kPieces, "shard",                \
    "chunks of what ranks of tp exchange, each sent during the matmul\n"       \
    "of another; if not given, 4 on GPUs, else 1")                             \
  X(int, lossChunks, "loss-chunks", 1, kPieces, "differentiate",               \
    "chunks of rows in which a step computes logits, loss and their\n"         \
    "gradients, so that all logits are never in memory at once; if not\n"      \
    "given, 8 where nothing else fits a `cluster`, else 1")                    \
  X(std::string, optimizer, "optimizer", "adamw", {}, "shard",                 \
    "what updates parameters")                                                 \
  X(bool, deterministic, "deterministic", false, {}, "steps",                  \
    "the same bits in every run on GPUs too, for memory and time")

#define PLAIT_MEMBER(type, member, name, value, range, phase, help)            \
  type member = value;
#define PLAIT_PIN(type, member, name, value, range, phase, help)               \
  std::optional<type> member;
#define PLAIT_LIST(type, member, name, value, range, phase, help)              \
  std::vector<type> member;

/// How the work of a step is spread and ordered, beside the mesh. Sizes are in
/// sequences and in layers; `layers` has one entry for each virtual stage, in
/// the order of the forward pass, or none.
struct Strategy {
  PLAIT_STRATEGY_FIELDS(PLAIT_MEMBER)
  bool operator==(const Strategy &) const = default;
};

/// All of it. Sizes are in sequences (of a step, over all ranks) and tokens.
struct TrainingConfiguration : Strategy {
  PLAIT_TRAINING_FIELDS(PLAIT_MEMBER)
  bool operator==(const TrainingConfiguration &) const = default;
};

/// The part of it that somebody has decided.
struct StrategyPins {
  PLAIT_STRATEGY_FIELDS(PLAIT_PIN)
};
struct ConfigurationPins : StrategyPins {
  PLAIT_TRAINING_FIELDS(PLAIT_PIN)
};

/// The values that each field may have; none: any that parses.
struct StrategySpace {
  PLAIT_STRATEGY_FIELDS(PLAIT_LIST)
};
struct ConfigurationSpace : StrategySpace {
  PLAIT_TRAINING_FIELDS(PLAIT_LIST)
};

#undef PLAIT_MEMBER
#undef PLAIT_PIN
#undef PLAIT_LIST

/// The list's entry for a field. The strings are literals and live for ever.
struct Field {
  const char *name, *phase, *help;
  bool isStrategy;
  FieldRange range;

  /// Returns the name as IR spells it.
  std::string getKeyword() const;
};

/// Calls `visit(field, member…)` for each field of a strategy, with that member
/// of each of `views`, which are any of the structures above.
template <typename Visit, typename... Views>
void visitStrategy(Visit &&visit, Views &...views) {
#define PLAIT_VISIT(type, member, name, value, range, phase, help)             \
  visit(Field{name, phase, help, true, range}, views.member...);
  PLAIT_STRATEGY_FIELDS(PLAIT_VISIT)
#undef PLAIT_VISIT
}

/// Likewise for all fields of a configuration.
template <typename Visit, typename... Views>
void visitConfiguration(Visit &&visit, Views &...views) {
  visitStrategy(visit, views...);
#define PLAIT_VISIT(type, member, name, value, range, phase, help)             \
  visit(Field{name, phase, help, false, range}, views.member...);
  PLAIT_TRAINING_FIELDS(PLAIT_VISIT)
#undef PLAIT_VISIT
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

template <HasWords Kind> std::string print(Kind value) {
  return std::string(Words<Kind>::all[size_t(value)]);
}
/// "full", or by virtual stage "full:4+selective/selective*2/none": of the
/// first stage four layers and the others, of the next two all, of the last
/// none.
std::string print(const Recomputation &value);
/// "none", "optimizer", "activations" or "optimizer+activations", which is read
/// with a comma as well.
std::string print(const Offload &value);
std::string print(bool value); // true or false
std::string print(int64_t value);
inline std::string print(int value) { return print(int64_t(value)); }
inline std::string print(const std::string &value) { return value; }
std::string print(const std::vector<int> &value); // "11,11,10"

/// Prints a value as messages show it: an empty list is "none".
template <typename T> std::string show(const T &value) {
  std::string text = print(value);
  return text.empty() ? "none" : text;
}

/// Finds the index of `text` among `words`. Fails naming `name`, the text and
/// the words.
Status findWord(std::string_view name, std::string_view text,
                std::span<const std::string_view> words, size_t &index);

/// Reads the value of the field called `name`. Fails with a message that names
/// the field, the text and what is expected: on a word there is none of, on a
/// number outside of the field's range (of a size's where there is no such
/// field), and on a schedule or an optimizer that there is not. A bool is true,
/// false, on or off.
template <HasWords Kind>
Status parse(std::string_view name, std::string_view text, Kind &value) {
  size_t index = 0;
  PLAIT_RETURN_IF_ERROR(findWord(name, text, Words<Kind>::all, index));
  value = Kind(index);
  return Status::success();
}
Status parse(std::string_view name, std::string_view text,
             Recomputation &value);
Status parse(std::string_view name, std::string_view text, Offload &value);
Status parse(std::string_view name, std::string_view text, bool &value);
Status parse(std::string_view name, std::string_view text, int64_t &value);
Status parse(std::string_view name, std::string_view text, int &value);
Status parse(std::string_view name, std::string_view text, std::string &value);
Status parse(std::string_view name, std::string_view text,
             std::vector<int> &value);
template <typename T>
Status parse(std::string_view name, std::string_view text,
             std::optional<T> &value) {
  return parse(name, text, value.emplace());
}

/// Returns the words of a kind, in the order of its values.
template <HasWords Kind> std::span<const std::string_view> getWords(Kind) {
  return Words<Kind>::all;
}
std::span<const std::string_view> getWords(Offload); // as getOffloads()

/// Reads one field of any of the views; fails as parse() does, and where no
/// field is called `name`, with a list of those there are.
Status setField(TrainingConfiguration &fields, std::string_view name,
                std::string_view text);

/// The fields that are not at their default, "seq=32;layers=2,2", in the order
/// of the list, and the inverse.
std::string print(const TrainingConfiguration &configuration);
Result<TrainingConfiguration> parseConfiguration(std::string_view text);

/// "a, b or c".
std::string joinChoices(const std::vector<std::string> &choices);

//===----------------------------------------------------------------------===//
// Pins
//===----------------------------------------------------------------------===//

/// `base` with what is pinned. Where `base` is `given` (by IR that is compiled
/// further) a pin has to agree with it: fails naming the field and both values.
Result<TrainingConfiguration> apply(const ConfigurationPins &pins,
                                    TrainingConfiguration base, bool isGiven);

/// The microbatches of a step on one of `replicas` data-parallel ranks, at
/// least
/// 1. Fails where they do not fill the global batch.
Result<int64_t> countMicrobatches(const TrainingConfiguration &configuration,
                                  int64_t replicas);

//===----------------------------------------------------------------------===//
// Abilities
//===----------------------------------------------------------------------===//

/// Returns what the compiler can turn into a plan and the runtime executes: the
/// one table of it. Compiler, planner and help ask it.
const ConfigurationSpace &getExecutable();

/// Success when all values are executable; else a failure that names the field,
/// its value and the values there are.
Status checkExecutable(const TrainingConfiguration &configuration);
Status checkExecutable(const Strategy &strategy);

/// Success where `recompute` says something of each of `stages` virtual stages.
Status checkStages(const Recomputation &recompute, int64_t stages);

/// Success where `recompute` asks for no more layers than `most`, which some
/// virtual stage has. Others may have fewer.
Status checkLayerCounts(const Recomputation &recompute, int64_t most);

} // namespace plait

#endif // PLAIT_CONFIGURATION_CONFIGURATION_H
