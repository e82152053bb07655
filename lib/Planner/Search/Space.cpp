//===- Space.cpp - Spaces, pins and their words ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Spaces, pins and configurations as words. What can be chosen is listed in one
// table, which visitStrategy walks: a new field is in the plainest space and
// can be pinned without a line here. The sizes of the mesh are no part of a
// strategy and have their own names; print() of a configuration alone picks its
// fields, because most are only worth a word where they are not at their
// default.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Search.h"

#include "plait/Schedule/Generators.h"

#include <algorithm>
#include <sstream>

using namespace plait;
using namespace plait::planner;

/// Each list gets the one value that a Strategy has by default, but for the
/// microbatch: any that divides, because none is plainer than another.
SearchSpace::SearchSpace() {
  const Strategy plainest;
  visitStrategy([](const Field &, auto &values,
                   const auto &value) { values.assign(1, value); },
                *this, plainest);
  microBatch.clear();
  for (const AxisFacts &facts : kAxes)
    if (facts.onDemand)
      mesh[facts.axis] = {1};
}

/// Auto is not among the kinds of recomputation: to fit layers one by one takes
/// a search several times as long, and is asked for (see restrictRecompute).
SearchSpace SearchSpace::all() {
  SearchSpace space;
  // The words of a message about what the space has not.
  space.name = "all";
  space.schedule.clear();
  for (const schedule::Generator &generator : schedule::getGenerators())
    space.schedule.push_back(generator.name);
  space.recompute = {Recompute::None, Recompute::Selective, Recompute::Full};
  space.zero = {0, 1, 2, 3};
  space.sequenceParallel = {false, true};
  space.contextParallel = {ContextParallel::Gather, ContextParallel::Heads,
                           ContextParallel::Zigzag};
  space.expertExchange = {ExpertExchange::Tokens, ExpertExchange::Rows};
  space.offload.assign(getOffloads().begin(), getOffloads().end());
  space.chunks = {1, 2, 3, 4, 5, 6, 7, 8};
  space.mesh[Axis::EP] = {1, 2, 4, 8, 16, 32, 64};
  space.mesh[Axis::CP] = {1, 2, 4, 8, 16, 32, 64};
  for (const AxisFacts &facts : kAxes)
    for (int groups = 2; facts.copiesState() && groups <= 4096; groups *= 2)
      space.mesh[facts.axis].push_back(groups);
  return space;
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

/// The kind, or of how many layers which is.
static std::string summarize(const Configuration &configuration) {
  const Recomputation &recompute = configuration.recompute;
  if (recompute.getUniform() || configuration.layers.empty())
    return print(recompute);
  // Counted over all stages: layer by layer it would be a page.
  int all = 0, full = 0, selective = 0;
  for (size_t stage = 0; stage < configuration.layers.size(); ++stage)
    for (int layer = 0; layer < configuration.layers[stage]; ++layer, ++all) {
      Recompute kind = recompute.getStage(stage).getKind(layer);
      full += kind == Recompute::Full;
      selective += kind == Recompute::Selective;
    }
  std::ostringstream out;
  // Both kinds and their numbers, or that there are none: "full in 4 and
  // selective in 8 of 32 layers".
  if (full)
    out << "full in " << full << (selective ? " and " : "");
  if (selective)
    out << "selective in " << selective;
  out << (full + selective ? "" : "none") << " of " << all << " layers";
  return out.str();
}

/// Sizes of the mesh always, the rest where it is not at its default or where
/// it makes a difference: one stage has no schedule to speak of, unless that
/// runs gradients of weights apart.
std::string planner::print(const Configuration &configuration) {
  std::ostringstream out;
  out << configuration.mesh.print(" ", ", ");
  auto generator = schedule::findGenerator(configuration.schedule);
  if (configuration.mesh[Axis::PP] > 1 ||
      (generator.ok() && (*generator)->splitsBackward))
    out << ", " << configuration.schedule;
  if (configuration.chunks > 1)
    out << ", chunks " << configuration.chunks;
  out << ", micro-batch " << configuration.microBatch;
  if (configuration.recompute != Recompute::None)
    out << ", recompute " << summarize(configuration);
  if (configuration.zero > 0)
    out << ", zero " << configuration.zero;
  if (configuration.sequenceParallel)
    out << ", sp";
  if (configuration.mesh[Axis::CP] > 1 &&
      configuration.contextParallel != ContextParallel::Gather)
    out << ", context-parallel " << print(configuration.contextParallel);
  if (configuration.mesh[Axis::EP] > 1 &&
      configuration.expertExchange != ExpertExchange::Tokens)
    out << ", expert-exchange " << print(configuration.expertExchange);
  if (configuration.offload != Offload::None)
    out << ", offload " << print(configuration.offload);
  return out.str();
}

//===----------------------------------------------------------------------===//
// Pins
//===----------------------------------------------------------------------===//

bool Pins::isMeshPinned() const {
  return std::ranges::any_of(
      mesh, [](const std::optional<int> &size) { return size.has_value(); });
}

bool Pins::isMeshGiven() const {
  return std::ranges::all_of(kAxes, [&](const AxisFacts &facts) {
    return facts.onDemand || mesh[facts.axis];
  });
}

Mesh Pins::getMesh() const {
  Mesh result;
  for (const AxisFacts &facts : kAxes)
    result[facts.axis] = mesh[facts.axis].value_or(1);
  return result;
}

static std::string_view trim(std::string_view text) {
  while (text.starts_with(' '))
    text.remove_prefix(1);
  while (text.ends_with(' '))
    text.remove_suffix(1);
  return text;
}

/// Calls `visit(name, pin)` for the size of each axis of the mesh and for each
/// field of a strategy that can be written between commas.
template <typename Visit, typename AnyPins>
static void visitPins(Visit &&visit, AnyPins &pins) {
  for (const AxisFacts &facts : kAxes)
    visit(facts.name, pins.mesh[facts.axis]);
  visitStrategy(
      [&]<typename Pin>(const Field &field, Pin &pin) {
        // The layers of each stage are a list with commas of its own, and have
        // an option.
        if constexpr (!std::is_same_v<std::remove_const_t<Pin>,
                                      std::optional<std::vector<int>>>)
          visit(field.name, pin);
      },
      pins);
}

/// The words that pins have of their own: short ones.
static std::string_view getFieldName(std::string_view name) {
  return name == "sp" ? "sequence-parallel" : name;
}
static std::string_view getShortName(std::string_view name) {
  return name == "sequence-parallel" ? "sp" : name;
}

/// Reads a "name=value" entry by asking each pin whether it has that name:
/// there are a dozen, and the names in a message then come from the same walk.
static Status addPin(std::string_view entry, Pins &pins) {
  size_t equals = entry.find('=');
  std::string_view given = trim(entry.substr(0, equals));
  std::string_view value = trim(entry.substr(equals + 1));
  // Empty until a pin has that name: a walk cannot be left early.
  std::optional<Status> status;
  std::vector<std::string_view> names;
  visitPins(
      [&](std::string_view name, auto &pin) {
        names.push_back(getShortName(name));
        if (equals == std::string_view::npos || name != getFieldName(given))
          return;
        status = pin ? fail(given, " is given twice") : parse(name, value, pin);
      },
      pins);
  if (status)
    return *status;
  std::string expected = joinChoices({names.begin(), names.end()});
  if (equals == std::string_view::npos)
    return fail("'", entry, "' is no pin, expected name=value, where name is ",
                expected);
  return fail("unknown pin '", given, "', expected one of ", expected);
}

/// An empty text is one empty entry, which is refused: callers without pins do
/// not call this.
Result<Pins> planner::parsePins(const std::string &text) {
  Pins pins;
  std::string_view rest = text;
  while (true) {
    size_t comma = rest.find(',');
    PLAIT_RETURN_IF_ERROR(addPin(trim(rest.substr(0, comma)), pins));
    if (comma == std::string_view::npos)
      return pins;
    rest.remove_prefix(comma + 1);
  }
}

static std::string printPin(bool value) { return value ? "on" : "off"; }
template <typename T> static std::string printPin(const T &value) {
  return print(value);
}

/// In the order of the table and in the words that parsePins reads.
std::string planner::print(const Pins &pins) {
  std::string text;
  visitPins(
      [&](std::string_view name, const auto &pin) {
        if (pin)
          text += (text.empty() ? "" : ",") + std::string(getShortName(name)) +
                  "=" + printPin(*pin);
      },
      pins);
  return text;
}
