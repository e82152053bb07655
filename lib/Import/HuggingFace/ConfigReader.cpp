//===- ConfigReader.cpp - The fields of a config.json ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cmath>

using namespace llvm;
using namespace plait::hf;

/// The parser recurses; a file with this many brackets is no config.
static constexpr int64_t kMostBrackets = 1000;

ConfigReader::ConfigReader(StringRef text) {
  int64_t brackets = text.count('{') + text.count('[');
  if (brackets > kMostBrackets) {
    fail("is not a model's config: it has " + Twine(brackets) +
         " brackets, at most " + Twine(kMostBrackets) + " are read");
    return;
  }
  Expected<json::Value> value = json::parse(text);
  if (!value)
    fail("is not JSON: " + toString(value.takeError()));
  else if (!value->getAsObject())
    fail("is not a JSON object");
  else
    object = std::move(*value->getAsObject());
}

ConfigReader::ConfigReader(const json::Object &object, StringRef prefix)
    : object(object), prefix(prefix) {}

void ConfigReader::fail(const Twine &text) {
  if (!failed())
    message = text.str();
}

bool ConfigReader::has(StringRef field) const {
  const json::Value *value = object.get(field);
  return value && value->kind() != json::Value::Null;
}

bool ConfigReader::isNull(StringRef field) {
  known.insert(field);
  return object.get(field) && !has(field);
}

const json::Value *ConfigReader::find(StringRef field) {
  known.insert(field);
  return has(field) ? object.get(field) : nullptr;
}

const json::Value *ConfigReader::find(StringRef field, bool hasFallback) {
  const json::Value *value = find(field);
  if (!value && !hasFallback)
    fail("field \"" + prefix + field + "\" is missing");
  return value;
}

void ConfigReader::failOn(StringRef field, const json::Value &value,
                          const Twine &expected) {
  std::string shown;
  raw_string_ostream(shown) << value;
  constexpr size_t most = 60;
  if (shown.size() > most)
    shown = json::fixUTF8(StringRef(shown).take_front(most)) + " …";
  fail("field \"" + prefix + field + "\" is " + shown + ", expected " +
       expected);
}

int64_t ConfigReader::toInteger(StringRef field, const json::Value &value,
                                int64_t least, int64_t most) {
  std::optional<int64_t> integer = value.getAsInteger();
  if (integer && *integer >= least && *integer <= most)
    return *integer;
  failOn(field, value,
         "an integer from " + Twine(least) + " to " + Twine(most));
  return least;
}

int64_t ConfigReader::getSize(StringRef field, std::optional<int64_t> fallback,
                              int64_t most) {
  const json::Value *value = find(field, fallback.has_value());
  return value ? toInteger(field, *value, 1, most) : fallback.value_or(1);
}

int64_t ConfigReader::getCount(StringRef field, int64_t fallback) {
  const json::Value *value = find(field);
  return value ? toInteger(field, *value, 0, kLargestSize) : fallback;
}

double ConfigReader::getPositive(StringRef field,
                                 std::optional<double> fallback) {
  const json::Value *value = find(field, fallback.has_value());
  if (!value)
    return fallback.value_or(1.0);
  std::optional<double> number = value->getAsNumber();
  if (number && *number > 0.0 && std::isfinite(*number))
    return *number;
  failOn(field, *value, "a number above 0");
  return 1.0;
}

double ConfigReader::getNonNegative(StringRef field, double fallback) {
  const json::Value *value = find(field);
  if (!value)
    return fallback;
  std::optional<double> number = value->getAsNumber();
  if (number && *number >= 0.0 && std::isfinite(*number))
    return *number;
  failOn(field, *value, "a number that is at least 0");
  return fallback;
}

bool ConfigReader::getFlag(StringRef field, bool fallback) {
  const json::Value *value = find(field);
  if (!value)
    return fallback;
  if (std::optional<bool> flag = value->getAsBoolean())
    return *flag;
  failOn(field, *value, "true or false");
  return fallback;
}

std::string ConfigReader::getChoice(StringRef field,
                                    ArrayRef<StringRef> choices,
                                    std::optional<StringRef> fallback) {
  std::string expected = "one of \"" + join(choices, "\", \"") + "\"";
  const json::Value *value = find(field);
  if (!value) {
    if (!fallback)
      fail("field \"" + prefix + field + "\" is missing, expected " + expected);
    return fallback.value_or("").str();
  }
  std::optional<StringRef> text = value->getAsString();
  if (text && llvm::is_contained(choices, *text))
    return text->str();
  failOn(field, *value, expected);
  return fallback.value_or("").str();
}

SmallVector<std::string> ConfigReader::getChoices(StringRef field,
                                                  ArrayRef<StringRef> choices,
                                                  int64_t count) {
  const json::Value *value = find(field);
  if (!value)
    return {};
  const json::Array *list = value->getAsArray();
  SmallVector<std::string> texts;
  for (int64_t i = 0, n = list ? list->size() : 0; i < n; ++i)
    if (std::optional<StringRef> text = (*list)[i].getAsString();
        text && llvm::is_contained(choices, *text))
      texts.push_back(text->str());
  if (list && int64_t(list->size()) == count && int64_t(texts.size()) == count)
    return texts;
  failOn(field, *value,
         Twine(count) + " of \"" + join(choices, "\", \"") + "\"");
  return {};
}

void ConfigReader::readObject(StringRef field,
                              function_ref<void(ConfigReader &)> read) {
  const json::Value *value = find(field);
  if (!value)
    return;
  const json::Object *inner = value->getAsObject();
  if (!inner)
    return failOn(field, *value, "an object");
  ConfigReader reader(*inner, prefix + field.str() + ".");
  read(reader);
  if (std::string text = reader.finish(); !text.empty())
    fail(text);
}

void ConfigReader::requireFlag(StringRef field, bool supported) {
  if (getFlag(field, supported) != supported)
    failOn(field, *object.get(field),
           Twine(supported ? "true" : "false") + ": nothing else is supported");
}

void ConfigReader::requireNumber(StringRef field, double supported) {
  if (getPositive(field, supported) != supported)
    failOn(field, *object.get(field),
           Twine(std::to_string(supported)) + ": nothing else is supported");
}

void ConfigReader::requireAbsent(StringRef field) {
  if (const json::Value *value = find(field))
    failOn(field, *value, "null: nothing else is supported");
}

double ConfigReader::getDropout(StringRef field, double fallback) {
  double probability = getNonNegative(field, fallback);
  if (probability < 1.0)
    return probability;
  failOn(field, *object.get(field), "a probability below 1");
  return fallback;
}

void ConfigReader::ignore(ArrayRef<StringRef> fields) {
  for (StringRef field : fields) {
    if (!field.consume_back("*")) {
      known.insert(field);
      continue;
    }
    for (const auto &entry : object)
      if (StringRef(entry.first).starts_with(field))
        known.insert(entry.first);
  }
}

std::string ConfigReader::finish() {
  std::vector<std::string> unknown;
  for (const auto &entry : object)
    if (!known.contains(entry.first))
      unknown.push_back(StringRef(entry.first).str());
  // The order of a JSON object in memory is arbitrary.
  if (!unknown.empty())
    fail("unknown field \"" + prefix +
         *std::min_element(unknown.begin(), unknown.end()) +
         "\" might change the arithmetic");
  return message;
}
