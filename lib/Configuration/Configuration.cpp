//===- Configuration.cpp - Configuration of a training --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text forms of a configuration and of its fields, and what of a
// configuration can be executed. Hardly a field is named here: almost
// everything goes through visitConfiguration(), by which a field that is added
// to the list in Configuration.h can be printed, parsed, pinned and checked at
// once.
//
// Text is a contract: plans, modules and command lines hold it, so that print()
// and parse() are inverse to each other, and what is equal prints equally.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Configuration.h"

#include "FailParsing.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <charconv>

using namespace plait;

/// Dashes are not possible in the names of MLIR's attributes.
std::string Field::getKeyword() const {
  std::string keyword = name;
  std::replace(keyword.begin(), keyword.end(), '-', '_');
  return keyword;
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

std::span<const Offload> plait::getOffloads() {
  static const std::vector<Offload> offloads = [] {
    std::vector<Offload> all;
    for (const MemoryPlaceFacts &activations : memoryPlaces)
      for (const MemoryPlaceFacts &optimizer : memoryPlaces)
        all.push_back({activations.place, optimizer.place});
    return all;
  }();
  return offloads;
}

std::span<const std::string_view> plait::getWords(Offload) {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (const Offload &offload : getOffloads())
      all.push_back(print(offload));
    return all;
  }();
  static const std::vector<std::string_view> words(texts.begin(), texts.end());
  return words;
}

/// Names what lies on the host by itself, what lies elsewhere with its place:
/// "optimizer+activations".
std::string plait::print(const Offload &value) {
  std::string text;
  auto add = [&](const char *what, MemoryPlace place) {
    if (place == MemoryPlace::Arena)
      return;
    text += (text.empty() ? "" : "+") + std::string(what);
    if (place != MemoryPlace::Host)
      text += ":" + std::string(getFacts(place).name);
  };
  add("optimizer", value.optimizer);
  add("activations", value.activations);
  return text.empty() ? "none" : text;
}

std::string plait::print(bool value) { return value ? "true" : "false"; }
std::string plait::print(int64_t value) { return std::to_string(value); }

/// Empty for none, which parse() reads as none.
std::string plait::print(const std::vector<int> &value) {
  std::string text;
  for (int entry : value)
    text += (text.empty() ? "" : ",") + std::to_string(entry);
  return text;
}

/// Joins for the end of a sentence: commas, and "or" before the last one.
std::string plait::joinChoices(const std::vector<std::string> &choices) {
  std::string text;
  for (size_t index = 0; index < choices.size(); ++index)
    text += (index == 0                    ? ""
             : index + 1 == choices.size() ? " or "
                                           : ", ") +
            choices[index];
  return text;
}

/// The name of a field that may stand in backquotes, as in messages.
static std::string_view bareName(std::string_view name) {
  return name.starts_with('`') ? name.substr(1, name.size() - 2) : name;
}

Status plait::findWord(std::string_view name, std::string_view text,
                       std::span<const std::string_view> words, size_t &index) {
  auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end())
    return failParsing(name, text, joinChoices({words.begin(), words.end()}));
  index = found - words.begin();
  return Status::success();
}

/// A list is as an option has it; where commas part fields, as in pins, it has
/// a plus.
Status plait::parse(std::string_view name, std::string_view text,
                    Offload &value) {
  std::string words(text);
  std::replace(words.begin(), words.end(), ',', '+');
  size_t index = 0;
  PLAIT_RETURN_IF_ERROR(findWord(name, words, getWords(value), index));
  value = getOffloads()[index];
  return Status::success();
}

Status plait::parse(std::string_view name, std::string_view text, bool &value) {
  // IR and print() say true and false; people may say on and off.
  value = text == "true" || text == "on";
  if (value || text == "false" || text == "off")
    return Status::success();
  return failParsing(name, text, "true, false, on or off");
}

/// Counts that are part of another field, such as layers of a recomputation,
/// are sizes.
static FieldRange getRange(std::string_view name) {
  FieldRange range;
  const TrainingConfiguration fields;
  visitConfiguration(
      [&](const Field &field, const auto &) {
        if (name == field.name)
          range = field.range;
      },
      fields);
  return range;
}

Status plait::parse(std::string_view name, std::string_view text,
                    int64_t &value) {
  const auto [first, last] = getRange(bareName(name));
  const char *textEnd = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), textEnd, value);
  if (error == std::errc() && end == textEnd && value >= first && value <= last)
    return Status::success();
  return failParsing(name, text,
                     std::to_string(first) + " to " + std::to_string(last));
}

/// The bounds of the wide one fit.
Status plait::parse(std::string_view name, std::string_view text, int &value) {
  int64_t wide = 0;
  PLAIT_RETURN_IF_ERROR(parse(name, text, wide));
  value = int(wide);
  return Status::success();
}

Status plait::parse(std::string_view name, std::string_view text,
                    std::string &value) {
  // Two fields are strings, each a name of a table; the table's own message
  // says which names there are.
  value = text;
  return bareName(name) == "optimizer" ? findOptimizer(text).status()
                                       : schedule::findGenerator(text).status();
}

Status plait::parse(std::string_view name, std::string_view text,
                    std::vector<int> &value) {
  value.clear();
  while (!text.empty()) {
    size_t comma = text.find(',');
    PLAIT_RETURN_IF_ERROR(
        parse(name, text.substr(0, comma), value.emplace_back()));
    if (comma == std::string_view::npos)
      break;
    text.remove_prefix(comma + 1);
    if (text.empty())
      return failParsing(name, text, "a number after the last comma");
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Configurations as text
//===----------------------------------------------------------------------===//

/// Visits all fields, as the list is not sorted by name; the names are
/// collected for the message meanwhile.
Status plait::setField(TrainingConfiguration &fields, std::string_view name,
                       std::string_view text) {
  // Nothing until the field is found.
  std::optional<Status> status;
  std::vector<std::string> names;
  visitConfiguration(
      [&](const Field &field, auto &value) {
        names.push_back(field.name);
        if (name == field.name)
          status = parse(name, text, value);
      },
      fields);
  if (status)
    return *status;
  return fail("there is no field \"", name, "\", expected ",
              joinChoices(names));
}

/// Only what differs from the defaults, so that a field that is added later
/// does not change the text of what was written before.
std::string plait::print(const TrainingConfiguration &configuration) {
  const TrainingConfiguration defaults;
  std::string text;
  visitConfiguration(
      [&](const Field &field, const auto &value, const auto &usual) {
        if (value != usual)
          text += (text.empty() ? "" : ";") + std::string(field.name) + "=" +
                  print(value);
      },
      configuration, defaults);
  return text;
}

/// A field that occurs twice has the last value.
Result<TrainingConfiguration> plait::parseConfiguration(std::string_view text) {
  TrainingConfiguration configuration;
  while (!text.empty()) {
    std::string_view entry = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    size_t equals = entry.find('=');
    if (equals == std::string_view::npos)
      return fail("\"", entry, "\" is no field, expected name=value");
    PLAIT_RETURN_IF_ERROR(setField(configuration, entry.substr(0, equals),
                                   entry.substr(equals + 1)));
  }
  return configuration;
}

//===----------------------------------------------------------------------===//
// Pins
//===----------------------------------------------------------------------===//

/// A pin that disagrees with given IR is an error and not an override: the IR
/// was compiled with the other value. The first one that does is reported.
Result<TrainingConfiguration> plait::apply(const ConfigurationPins &pins,
                                           TrainingConfiguration base,
                                           bool isGiven) {
  Status status = Status::success();
  visitConfiguration(
      [&](const Field &field, const auto &pin, auto &value) {
        if (isGiven && pin && *pin != value && status.ok())
          status = fail("`", field.name, "` is ", print(*pin),
                        ", but the module was compiled with ", show(value));
        if (pin)
          value = *pin;
      },
      pins, base);
  if (!status.ok())
    return status;
  return base;
}

/// A remainder would be samples that no rank trains on.
Result<int64_t>
plait::countMicrobatches(const TrainingConfiguration &configuration,
                         int64_t replicas) {
  int64_t sites = configuration.outer.countSites();
  int64_t filled = configuration.microBatch * replicas * sites;
  if (configuration.globalBatch % filled)
    return fail("global batch ", configuration.globalBatch,
                " is not divisible by micro batch ", configuration.microBatch,
                " times ", replicas, replicas == 1 ? " replica" : " replicas",
                sites > 1 ? " times sites " + std::to_string(sites) : "", " = ",
                filled);
  return configuration.globalBatch / filled;
}

//===----------------------------------------------------------------------===//
// Abilities
//===----------------------------------------------------------------------===//

/// Schedules and optimizers are those of their tables: whoever adds a row there
/// has nothing to do here. Fields that are not mentioned may have any value
/// that parses.
static ConfigurationSpace makeExecutable() {
  ConfigurationSpace space;
  for (const schedule::Generator &generator : schedule::getGenerators())
    space.schedule.push_back(generator.name);
  space.zero = {0, 1, 2, 3};
  space.precision = {Precision::FP32, Precision::BF16};
  space.reducePrecision = {Precision::FP32, Precision::BF16};
  for (const Optimizer &optimizer : getOptimizers())
    space.optimizer.emplace_back(optimizer.name);
  return space;
}

/// Made once, on first use: the tables that it is made of are of other
/// libraries.
const ConfigurationSpace &plait::getExecutable() {
  static const ConfigurationSpace space = makeExecutable();
  return space;
}

namespace {
/// Finds the first field whose value is none of those that can be executed.
struct ExecutableCheck {
  Status status = Status::success();

  // The first failure stays; an empty list allows everything.
  template <typename T>
  void operator()(const Field &field, const T &value,
                  const std::vector<T> &known) {
    if (!status.ok() || known.empty() ||
        std::find(known.begin(), known.end(), value) != known.end())
      return;
    std::vector<std::string> choices;
    for (const T &choice : known)
      choices.push_back(print(choice));
    status =
        fail(field.name, " is ", print(value),
             ", which cannot be compiled, expected ", joinChoices(choices));
  }
};
} // namespace

/// How many chunks a schedule can order is a fact of the schedule.
/// So the schedule's generator is asked.
static Status checkChunks(const Strategy &strategy) {
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(strategy.schedule);
  if (!generator.ok())
    return generator.status();
  return schedule::chooseChunks(**generator, uint32_t(strategy.chunks))
      .status();
}

/// Checks what no list of values says.
static Status checkValues(const Strategy &strategy) {
  if (strategy.recompute.isAuto)
    return fail("recompute is auto, which is resolved for the memory of a "
                "`cluster`: give one, or another kind");
  return checkChunks(strategy);
}

/// Tables first, then what depends on several fields.
Status plait::checkExecutable(const Strategy &strategy) {
  ExecutableCheck check;
  visitStrategy(check, strategy, getExecutable());
  return check.status.ok() ? checkValues(strategy) : check.status;
}

/// Checks what replicas that send momentum exclude: what has none, and what
/// leaves a replica without all of it in the arena.
static Status checkMomentum(const TrainingConfiguration &configuration) {
  if (!sendsMomentum(configuration.compress))
    return Status::success();
  std::string what = "compress is " + print(configuration.compress);
  if (configuration.optimizer != "adamw")
    return fail(what, ", which is defined for optimizer adamw, not ",
                configuration.optimizer);
  if (offloadsOptimizer(configuration.offload))
    return fail(what, ", which takes no offload of the optimizer, but it is ",
                print(configuration.offload));
  return Status::success();
}

/// Checks what compressed sums exclude: what divides them, and what rounds
/// them before.
static Status checkCompression(const TrainingConfiguration &configuration) {
  if (!configuration.compress.isOn())
    return Status::success();
  std::string what = "compress is " + print(configuration.compress);
  PLAIT_RETURN_IF_ERROR(checkZero(configuration.compress, configuration.zero));
  Result<const Optimizer *> optimizer = findOptimizer(configuration.optimizer);
  if (!optimizer.ok())
    return optimizer.status();
  if ((*optimizer)->updatesMatrices())
    PLAIT_RETURN_IF_ERROR(
        checkZeroOfMatrices(configuration.compress, configuration.zero));
  if (configuration.reducePrecision != Precision::FP32)
    return fail(what, ", which takes reduce-precision fp32, not ",
                print(configuration.reducePrecision));
  if (sendsDifferences(configuration.compress) &&
      configuration.optimizer != "sgd")
    return fail(what, ", which is defined for optimizer sgd, not ",
                configuration.optimizer);
  return checkMomentum(configuration);
}

/// Checks what sites exclude: what leaves a rank without whole weights of its
/// site in the arena, and what is another replica's own already.
static Status checkOuter(const TrainingConfiguration &configuration) {
  if (!configuration.outer.isOn())
    return Status::success();
  std::string what = "outer is " + print(configuration.outer);
  if (configuration.zero > 2)
    return fail(what, ", which takes zero 0 to 2, not ", configuration.zero);
  if (offloadsOptimizer(configuration.offload))
    return fail(what, ", which takes no offload of the optimizer, but it is ",
                print(configuration.offload));
  if (!getCompressionStates(configuration.compress).empty())
    return fail(what, ", which takes no feedback, but compress is ",
                print(configuration.compress));
  if (sendsFactors(configuration.compress))
    return fail(what, ", which takes no factors of matrices, but compress is ",
                print(configuration.compress));
  if (configuration.outer.corrects() && configuration.optimizer != "sgd")
    return fail(what, ", which corrects gradients and takes optimizer sgd: ",
                configuration.optimizer, " moves weights by something else");
  return Status::success();
}

Status plait::checkExecutable(const TrainingConfiguration &configuration) {
  ExecutableCheck check;
  visitConfiguration(check, configuration, getExecutable());
  PLAIT_RETURN_IF_ERROR(check.status);
  PLAIT_RETURN_IF_ERROR(checkValues(configuration));
  PLAIT_RETURN_IF_ERROR(checkCompression(configuration));
  return checkOuter(configuration);
}
