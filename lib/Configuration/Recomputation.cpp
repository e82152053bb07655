//===- Recomputation.cpp - Which layers are recomputed ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text form of what is computed again in the backward pass, stage by
// stage, and what of it fits a pipeline. print() and parse() are inverse to
// each other, and what is equal prints equally.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Configuration.h"

#include "FailParsing.h"

using namespace plait;

/// A stage in which all layers are alike: kAll stands for however many there
/// are, which is not known here.
static Recomputation::Stage makeStage(Recompute kind) {
  return {kind == Recompute::Full ? Recomputation::kAll : 0,
          kind == Recompute::Selective ? Recomputation::kAll : 0};
}

/// Auto keeps one stage, of which nothing is recomputed, until it is resolved.
Recomputation::Recomputation(Recompute kind)
    : stages{makeStage(kind)}, isAuto(kind == Recompute::Auto) {}

/// Layers that are recomputed whole come first, then those of which what is
/// cheap is, then the rest.
Recompute Recomputation::Stage::getKind(int layer) const {
  if (layer < full)
    return Recompute::Full;
  return layer - full < selective ? Recompute::Selective : Recompute::None;
}

/// Compares with each of the four that there are: equal meanings are equal
/// values, see parse(). A search asks for every cell: nothing is allocated.
std::optional<Recompute> Recomputation::getUniform() const {
  if (stages.size() != 1)
    return std::nullopt;
  for (Recompute kind : {Recompute::Auto, Recompute::None, Recompute::Selective,
                         Recompute::Full})
    if (stages.front() == makeStage(kind) &&
        isAuto == (kind == Recompute::Auto))
      return kind;
  return std::nullopt;
}

/// "full:4+selective", the inverse of parseStage(). A count is left out where
/// it is all layers.
static std::string printStage(const Recomputation::Stage &stage) {
  std::string text;
  for (auto [kind, count] : {std::pair(Recompute::Full, stage.full),
                             std::pair(Recompute::Selective, stage.selective)})
    if (count > 0)
      text += (text.empty() ? "" : "+") + print(kind) +
              (count == Recomputation::kAll ? "" : ":" + std::to_string(count));
  return text.empty() ? print(Recompute::None) : text;
}

/// Runs of equal stages are one part with a number, "none*2".
std::string plait::print(const Recomputation &value) {
  if (value.isAuto)
    return print(Recompute::Auto);
  std::string text;
  // `next` is the first stage that differs.
  for (auto stage = value.stages.begin(); stage != value.stages.end();) {
    auto next = std::find_if(stage, value.stages.end(), [&](const auto &other) {
      return other != *stage;
    });
    text += (text.empty() ? "" : "/") + printStage(*stage) +
            (next - stage == 1 ? "" : "*" + std::to_string(next - stage));
    stage = next;
  }
  return text;
}

/// Takes what is in front of `separator`, which is removed too.
static std::string_view takeUntil(std::string_view &text, char separator) {
  std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

/// Whether nothing stands before, after or between two separators.
static bool hasEmptyPart(std::string_view text) {
  constexpr std::string_view separators = ":+/*";
  bool isEmpty = true;
  for (char letter : text) {
    bool separates = separators.find(letter) != std::string_view::npos;
    if (separates && isEmpty)
      return true;
    isEmpty = separates;
  }
  return isEmpty;
}

/// "full:4+selective".
/// Takes one part after another: a word, and behind a colon how many layers.
/// Kinds come from the most that is recomputed to the least, as layers of a
/// stage do, and nothing follows a part without a number, which takes all
/// layers that are left.
static Status parseStage(std::string_view name, std::string_view text,
                         Recomputation::Stage &stage) {
  // Each kind recomputes less than the one in front of it.
  Recompute last = Recompute::Auto;
  bool isLeft = true; // some layers of the stage are
  while (!text.empty()) {
    std::string_view count = takeUntil(text, '+');
    std::string_view word = takeUntil(count, ':');
    Recompute kind;
    PLAIT_RETURN_IF_ERROR(parse(name, word, kind));
    bool isNone = kind == Recompute::None;
    if (!isLeft || kind >= last || (isNone && !count.empty()))
      return fail(name, " has ", word,
                  " where it cannot stand, expected full:N before selective:N "
                  "before none");
    last = kind;
    isLeft = !isNone && !count.empty();
    int layers = Recomputation::kAll;
    if (!count.empty())
      PLAIT_RETURN_IF_ERROR(parse(name, count, layers));
    if (!isNone)
      (kind == Recompute::Full ? stage.full : stage.selective) = layers;
  }
  return Status::success();
}

Status plait::parse(std::string_view name, std::string_view text,
                    Recomputation &value) {
  // The grammar, from the outside in: stages between slashes, each perhaps with
  // a number of times behind an asterisk, each of kinds between plus signs.
  value = Recomputation();
  if (text == print(Recompute::Auto)) {
    value.isAuto = true;
    return Status::success();
  }
  if (hasEmptyPart(text))
    return failParsing(name, text,
                       "none, selective, full, auto, or layers of virtual "
                       "stages as full:4+selective/none*2");
  // A bound on memory: a short text may ask for a great many.
  constexpr size_t most = size_t(1) << 16; // virtual stages
  std::vector<Recomputation::Stage> stages;
  std::string_view rest = text;
  do {
    std::string_view times = takeUntil(rest, '/');
    std::string_view kinds = takeUntil(times, '*');
    Recomputation::Stage stage;
    int count = 1;
    PLAIT_RETURN_IF_ERROR(parseStage(name, kinds, stage));
    if (!times.empty())
      PLAIT_RETURN_IF_ERROR(parse(name, times, count));
    if (stages.size() + size_t(count) > most)
      return fail(name, " has more than ", most, " virtual stages");
    stages.insert(stages.end(), size_t(count), stage);
  } while (!rest.empty());
  // Equal meanings are equal values.
  bool isSame = std::all_of(stages.begin(), stages.end(), [&](const auto &one) {
    return one == stages.front();
  });
  // print() and getUniform() count on it: "full/full" is "full".
  stages.resize(isSame ? 1 : stages.size());
  value.stages = std::move(stages);
  return Status::success();
}

/// One entry stands for all stages.
Status plait::checkStages(const Recomputation &recompute, int64_t stages) {
  int64_t given = int64_t(recompute.stages.size());
  if (given == 1 || given == stages)
    return Status::success();
  return fail("recompute is given for ", given, " virtual stages (",
              print(recompute), "), the pipeline has ", stages);
}

Status plait::checkLayerCounts(const Recomputation &recompute, int64_t most) {
  for (const Recomputation::Stage &stage : recompute.stages)
    for (int count : {stage.full, stage.selective})
      if (count != Recomputation::kAll && count > most)
        return fail("recompute is ", print(recompute), ", which is of ", count,
                    " layers, but no virtual stage has more than ", most);
  return Status::success();
}
