//===- Space.cpp - Spaces, pins and their words ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Search.h"

#include "plait/Schedule/Generators.h"

#include <charconv>
#include <limits>
#include <set>

using namespace plait;
using namespace plait::planner;

SearchSpace SearchSpace::all() {
  SearchSpace space;
  space.name = "all";
  space.schedules.clear();
  for (const schedule::Generator &generator : schedule::getGenerators())
    space.schedules.push_back(generator.name);
  space.recompute = {Recompute::None, Recompute::Selective, Recompute::Full};
  space.zero = {0, 1, 2, 3};
  space.sequenceParallel = {false, true};
  space.chunks = {1, 2, 3, 4, 5, 6, 7, 8};
  space.context = {1, 2, 4, 8, 16, 32, 64};
  return space;
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

std::string planner::print(const Configuration &configuration) {
  std::ostringstream out;
  out << "pp " << configuration.pipeline << ", dp " << configuration.data
      << ", tp " << configuration.tensor;
  if (configuration.context > 1)
    out << ", cp " << configuration.context;
  if (configuration.pipeline > 1)
    out << ", " << configuration.schedule;
  if (configuration.chunks > 1)
    out << ", chunks " << configuration.chunks;
  out << ", micro-batch " << configuration.microBatch;
  if (configuration.recompute != Recompute::None)
    out << ", recompute " << print(configuration.recompute);
  if (configuration.zero > 0)
    out << ", zero " << configuration.zero;
  if (configuration.sequenceParallel)
    out << ", sp";
  return out.str();
}

//===----------------------------------------------------------------------===//
// Pins
//===----------------------------------------------------------------------===//

namespace {

/// Reads "name=value" entries into pins.
class PinReader {
public:
  Status add(std::string_view entry);
  Pins pins;

private:
  Status addNumber(const std::string &name, std::string_view text);
  Status addWord(const std::string &name, const std::string &text);

  std::set<std::string> seen;
};

} // namespace

static std::string_view trim(std::string_view text) {
  while (text.starts_with(' '))
    text.remove_prefix(1);
  while (text.ends_with(' '))
    text.remove_suffix(1);
  return text;
}

Status PinReader::addNumber(const std::string &name, std::string_view text) {
  int64_t least = name == "zero" ? 0 : 1;
  int64_t most = name == "zero" ? 3 : std::numeric_limits<int>::max();
  int64_t value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      value < least || value > most)
    return fail(name, " is '", text, "', expected ", least, " to ", most);
  if (name == "micro-batch") {
    pins.microBatch = value;
    return Status::success();
  }
  std::optional<int> &target = name == "pp"       ? pins.pipeline
                               : name == "dp"     ? pins.data
                               : name == "tp"     ? pins.tensor
                               : name == "cp"     ? pins.context
                               : name == "chunks" ? pins.chunks
                                                  : pins.zero;
  target = int(value);
  return Status::success();
}

Status PinReader::addWord(const std::string &name, const std::string &text) {
  if (name == "recompute")
    return parse(name, text, pins.recompute);
  if (name == "sp" || name == "sequence-parallel")
    return parse(name, text, pins.sequenceParallel);
  Result<const schedule::Generator *> generator = schedule::findGenerator(text);
  if (!generator.ok())
    return generator.status();
  pins.schedule = text;
  return Status::success();
}

Status PinReader::add(std::string_view entry) {
  size_t equals = entry.find('=');
  if (equals == std::string_view::npos)
    return fail("'", entry, "' is no pin, expected name=value");
  std::string name(trim(entry.substr(0, equals)));
  std::string value(trim(entry.substr(equals + 1)));
  if (!seen.insert(name).second)
    return fail(name, " is given twice");
  for (const char *number :
       {"pp", "dp", "tp", "cp", "chunks", "zero", "micro-batch"})
    if (name == number)
      return addNumber(name, value);
  for (const char *word : {"schedule", "recompute", "sp", "sequence-parallel"})
    if (name == word)
      return addWord(name, value);
  return fail("unknown pin '", name,
              "', expected one of pp, dp, tp, cp, chunks, zero, micro-batch, "
              "schedule, recompute, sp");
}

Result<Pins> planner::parsePins(const std::string &text) {
  PinReader reader;
  std::string_view rest = text;
  while (true) {
    size_t comma = rest.find(',');
    PLAIT_RETURN_IF_ERROR(reader.add(trim(rest.substr(0, comma))));
    if (comma == std::string_view::npos)
      return std::move(reader.pins);
    rest.remove_prefix(comma + 1);
  }
}

std::string planner::print(const Pins &pins) {
  std::ostringstream out;
  auto add = [&](const char *name, const auto &value) {
    out << (out.tellp() > 0 ? "," : "") << name << "=" << value;
  };
  const std::pair<const char *, const std::optional<int> &> numbers[] = {
      {"pp", pins.pipeline}, {"dp", pins.data},       {"tp", pins.tensor},
      {"cp", pins.context},  {"chunks", pins.chunks}, {"zero", pins.zero}};
  for (const auto &[name, value] : numbers)
    if (value)
      add(name, *value);
  if (pins.microBatch)
    add("micro-batch", *pins.microBatch);
  if (pins.schedule)
    add("schedule", *pins.schedule);
  if (pins.recompute)
    add("recompute", print(*pins.recompute));
  if (pins.sequenceParallel)
    add("sp", *pins.sequenceParallel ? "on" : "off");
  return out.str();
}
