//===- ConfigReader.cpp - The fields of a config.json ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields of a JSON object, read with their checks. The importer must refuse
// what it does not understand, so a reader keeps a set of the names that
// somebody has asked for, whatever came of it; what is in the object and not in
// the set is an error at the end. Messages name the field with its path, the
// value, and what would have been accepted. A value of a hostile file never
// reaches the model unchecked: sizes are bounded, numbers finite, strings one
// of a list.
//
//===----------------------------------------------------------------------===//

#include "ConfigReader.h"

#include "plait/Plan/CheckJson.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <limits>

using namespace llvm;
using namespace plait::hf;

/// The parser knows nothing of keys that are there twice, of nesting that would
/// overflow its stack, and of the mark that UTF-8 may begin with.
ConfigReader::ConfigReader(StringRef text) {
  text.consume_front("\xef\xbb\xbf");
  if (plait::Status status = plait::checkJson(arrayRefFromStringRef(text));
      !status.ok()) {
    fail(status.message());
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

/// A reader of an object inside of another one, which it copies.
ConfigReader::ConfigReader(const json::Object &object, StringRef prefix)
    : object(object), prefix(prefix) {}

/// The first message stays, since what follows may be its consequence.
void ConfigReader::fail(const Twine &text) {
  if (!failed())
    message = text.str();
}

/// Does not count as reading: who asks for absence alone has not used the
/// value.
bool ConfigReader::has(StringRef field) const {
  const json::Value *value = object.get(field);
  return value && value->kind() != json::Value::Null;
}

/// Null is told from absent where the two mean different things: "none" and
/// "the usual".
bool ConfigReader::isNull(StringRef field) {
  known.insert(field);
  return object.get(field) && !has(field);
}

/// The only place at which fields become known, beside isNull() and ignore().
const json::Value *ConfigReader::find(StringRef field) {
  known.insert(field);
  return has(field) ? object.get(field) : nullptr;
}

/// A field whose absence is an error is still known: it must not be reported as
/// missing and as unknown.
const json::Value *ConfigReader::find(StringRef field, bool hasFallback) {
  const json::Value *value = find(field);
  if (!value && !hasFallback)
    fail("field \"" + prefix + field + "\" is missing");
  return value;
}

/// Values may be long lists; they are cut, and what the cut leaves of a letter
/// of several bytes is mended, as messages are UTF-8.
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

/// The least is the harmless value after an error: sizes divide others.
int64_t ConfigReader::toInteger(StringRef field, const json::Value &value,
                                int64_t least, int64_t most) {
  std::optional<int64_t> integer = value.getAsInteger();
  if (integer && *integer >= least && *integer <= most)
    return *integer;
  failOn(field, value,
         "an integer from " + Twine(least) + " to " + Twine(most));
  return least;
}

/// Integers of JSON only: 12.0 is one to the parser as well, 12.5 and "12" are
/// not.
int64_t ConfigReader::getSize(StringRef field, std::optional<int64_t> fallback,
                              int64_t most) {
  const json::Value *value = find(field, fallback.has_value());
  return value ? toInteger(field, *value, 1, most) : fallback.value_or(1);
}

int64_t ConfigReader::getCount(StringRef field, int64_t fallback) {
  const json::Value *value = find(field);
  return value ? toInteger(field, *value, 0, kLargestSize) : fallback;
}

/// JSON itself has no infinity, but 1e999 parses as one.
static bool isFloat(double number) {
  return std::abs(number) <= std::numeric_limits<float>::max();
}

/// Nor 0 in fp32.
double ConfigReader::getPositive(StringRef field,
                                 std::optional<double> fallback) {
  const json::Value *value = find(field, fallback.has_value());
  if (!value)
    return fallback.value_or(1.0);
  std::optional<double> number = value->getAsNumber();
  if (number && *number >= std::numeric_limits<float>::denorm_min() &&
      isFloat(*number))
    return *number;
  failOn(field, *value, "a number above 0, in the range of fp32");
  return 1.0;
}

double ConfigReader::getNonNegative(StringRef field, double fallback) {
  const json::Value *value = find(field);
  if (!value)
    return fallback;
  std::optional<double> number = value->getAsNumber();
  if (number && *number >= 0.0 && isFloat(*number))
    return *number;
  failOn(field, *value, "a number of at least 0, in the range of fp32");
  return fallback;
}

/// Only the words true and false: 0 and 1 are numbers to JSON.
bool ConfigReader::getFlag(StringRef field, bool fallback) {
  const json::Value *value = find(field);
  if (!value)
    return fallback;
  if (std::optional<bool> flag = value->getAsBoolean())
    return *flag;
  failOn(field, *value, "true or false");
  return fallback;
}

/// Compares exactly: model files spell these in one way.
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

/// Collects those that are fine and compares numbers at the end: any other
/// element makes the list too short.
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

/// A list may be longer, as Hugging Face has it.
SmallVector<bool> ConfigReader::getBits(StringRef field, int64_t count) {
  const json::Value *value = find(field);
  if (!value)
    return {};
  const json::Array *list = value->getAsArray();
  SmallVector<bool> bits;
  for (int64_t i = 0, n = list ? list->size() : 0; i < n && i < count; ++i)
    if (std::optional<int64_t> bit = (*list)[i].getAsInteger();
        bit && (*bit == 0 || *bit == 1))
      bits.push_back(*bit);
  if (int64_t(bits.size()) == count)
    return bits;
  failOn(field, *value, "a 0 or 1 for each of " + Twine(count) + " layers");
  return {};
}

SmallVector<double> ConfigReader::getPositives(StringRef field, int64_t count) {
  const json::Value *value = find(field, /*hasFallback=*/false);
  if (!value)
    return {};
  const json::Array *list = value->getAsArray();
  SmallVector<double> numbers;
  for (int64_t i = 0, n = list ? list->size() : 0; i < n; ++i)
    if (std::optional<double> number = (*list)[i].getAsNumber();
        number && *number > 0.0)
      numbers.push_back(*number);
  if (list && int64_t(list->size()) == count &&
      int64_t(numbers.size()) == count)
    return numbers;
  failOn(field, *value, "a list of " + Twine(count) + " numbers above 0");
  return {};
}

/// The inner reader has its own set of known names; what it does not know is
/// told together with what is not known here.
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
  reader.findUnknown();
  unknown.insert(reader.unknown.begin(), reader.unknown.end());
  if (reader.failed())
    fail(reader.message);
}

/// An absent field has the supported value. Numbers are equal whether or not
/// they have a fraction of 0.
void ConfigReader::require(StringRef field, StringRef supported) {
  const json::Value *value = find(field);
  if (value && *value != cantFail(json::parse(supported)))
    failOn(field, *value, supported + ": nothing else is supported");
}

/// Refuses fields that change the arithmetic by being there at all.
void ConfigReader::requireAbsent(StringRef field) {
  if (const json::Value *value = find(field))
    failOn(field, *value, "null: nothing else is supported");
}

/// 1 would drop everything, and what stays is divided by 1 minus the
/// probability.
double ConfigReader::getDropout(StringRef field, double fallback) {
  double probability = getNonNegative(field, fallback);
  if (probability < 1.0)
    return probability;
  failOn(field, *object.get(field), "a probability below 1");
  return fallback;
}

/// A `*` matches fields that are there; names are compared from the beginning
/// only.
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

/// Those of an inner object are added to those of the outer one.
void ConfigReader::findUnknown() {
  for (const auto &entry : object)
    if (!known.contains(entry.first))
      unknown.emplace(prefix + StringRef(entry.first).str(),
                      entry.second.kind() != json::Value::Null);
}

/// Names in alphabetical order, as the order of a JSON object in memory is
/// arbitrary, and as JSON has them, in one line. A hostile file may have more
/// than anybody reads.
std::string ConfigReader::finish(ArrayRef<std::string> accepted) {
  findUnknown();
  for (const std::string &field : accepted)
    if (!unknown.contains(field))
      fail("no unknown field is called \"" + field + "\"");
  constexpr size_t most = 50;
  std::string names;
  raw_string_ostream stream(names);
  size_t count = 0;
  for (const auto &[name, says] : unknown)
    if (says && !is_contained(accepted, name) && count++ < most)
      stream << (count > 1 ? ", " : "") << json::Value(name);
  if (count > most)
    stream << " and " << count - most << " more";
  if (count)
    fail(Twine("unknown field") + (count > 1 ? "s " : " ") + names +
         " might change the arithmetic; `ignore-field` NAME says that one "
         "does not");
  return message;
}
