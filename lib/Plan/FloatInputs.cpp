//===- FloatInputs.cpp - Rows of a batch with numbers ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/FloatInputs.h"

#include "plait/Plan/Metrics.h"

#include <set>

using namespace plait;
using namespace plait::plan;

/// The most words of a row: 4 GiB.
static constexpr uint64_t kMostWords = uint64_t(1) << 30;

static uint32_t countInputs(const fb::Plan &plan) {
  return plan.float_inputs() ? plan.float_inputs()->size() : 0;
}

/// Counts the numbers of a position or of a sequence. More than a row may have
/// is cut off.
static uint64_t countOfEach(const fb::FloatInput &input) {
  uint64_t numbers = 1;
  if (const auto *shape = input.shape())
    for (uint32_t extent : *shape)
      numbers = std::min(kMostWords + 1, numbers * extent);
  return numbers;
}

std::vector<FloatPart> plan::getFloatParts(const fb::Plan &plan) {
  std::vector<FloatPart> parts;
  uint64_t begin = 0;
  for (uint32_t i = 0; i < countInputs(plan); ++i) {
    const fb::FloatInput &input = *plan.float_inputs()->Get(i);
    uint64_t ofEach = countOfEach(input);
    uint64_t numbers = input.of_positions() ? ofEach * plan.sequence() : ofEach;
    parts.push_back({input.name()->str(), begin, numbers, ofEach});
    begin += numbers;
  }
  return parts;
}

uint64_t plan::countRowWords(const fb::Plan &plan) {
  uint64_t words = uint64_t(plan.sequence()) + 1;
  for (const FloatPart &part : getFloatParts(plan))
    words += part.numbers;
  return words;
}

uint64_t plan::countColumns(const fb::Plan &plan, const fb::Input &input) {
  switch (input.kind()) {
  case fb::InputKind::Keys:
    return 1;
  case fb::InputKind::Features:
  case fb::InputKind::Context: {
    bool isOfPositions = input.kind() == fb::InputKind::Features;
    if (input.float_input() >= countInputs(plan) ||
        plan.float_inputs()->Get(input.float_input())->of_positions() !=
            isOfPositions)
      return 0;
    return getFloatParts(plan)[input.float_input()].numbers;
  }
  default:
    return plan.sequence();
  }
}

Status plan::checkFloatInputs(const fb::Plan &plan) {
  if (countInputs(plan) > kMostFloatInputs)
    return fail("has ", countInputs(plan), " float inputs, expected at most ",
                kMostFloatInputs);
  std::set<std::string> names;
  for (uint32_t i = 0; i < countInputs(plan); ++i) {
    const fb::FloatInput &input = *plan.float_inputs()->Get(i);
    std::string name = input.name()->str();
    if (!isLossName(name))
      return fail("float input ", i, " is called '", name,
                  "', expected letters, digits and underscores");
    if (!names.insert(name).second)
      return fail("has two float inputs '", name, "'");
    if (countOfEach(input) == 0)
      return fail("float input '", name, "' has no numbers");
  }
  if (countRowWords(plan) > kMostWords)
    return fail("has rows of ", countRowWords(plan),
                " numbers, expected at most ", kMostWords);
  return Status::success();
}
