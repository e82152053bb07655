//===- Json.cpp - Reading objects field by field --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads JSON objects field by field, for hardware files, cluster files and
// profiles. A reader names every field that it knows, with its range; the first
// problem is kept and everything behind it is skipped, so that readers need no
// error handling of their own but finish(). What a file has and no reader asked
// for is an error as well: a mistyped field would silently keep its default.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Json.h"

#include "plait/Plan/Files.h"
#include "plait/Plan/Json.h"

#include <cmath>

using namespace plait;
using namespace plait::planner;

namespace {

/// {"value": v, "source": s} stands for v.
const Json &unwrap(const Json &value) {
  return value.is_object() && value.contains("value") ? value["value"] : value;
}

/// Short enough for a message of one line. Invalid UTF-8 is replaced: a dump
/// would throw.
std::string shorten(const Json &value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

} // namespace

/// Fails at once for what is no object; reads then find nothing.
Fields::Fields(const Json &object, std::string where)
    : object(object), where(std::move(where)) {
  if (!object.is_object())
    fail(plait::fail(this->where, " must be an object, not ", shorten(object)));
  this->where += this->where.ends_with(":") ? " " : ".";
}

/// The first problem stays: later ones may follow from it.
void Fields::fail(Status problem) {
  if (status.ok())
    status = std::move(problem);
}

/// Every name that is asked for becomes known, also where the field is missing:
/// finish() reports all others as unknown.
const Json *Fields::find(const char *name) {
  known.insert(name);
  if (!status.ok())
    return nullptr;
  auto it = object.find(name);
  return it == object.end() ? nullptr : &unwrap(*it);
}

/// Returns the object, so that a read can be chained. The read of a missing
/// field does nothing, since the failure is already noted.
Fields &Fields::require(const char *name) {
  if (!find(name))
    fail(plait::fail(where, name, " is missing"));
  return *this;
}

/// A value of another type is an error and never converted.
void Fields::read(const char *name, std::string &to) {
  const Json *value = find(name);
  if (!value)
    return;
  if (!value->is_string())
    return fail(
        plait::fail(where, name, " must be a text, not ", shorten(*value)));
  to = value->get<std::string>();
}

void Fields::read(const char *name, bool &to) {
  const Json *value = find(name);
  if (!value)
    return;
  if (!value->is_boolean())
    return fail(plait::fail(where, name, " must be true or false, not ",
                            shorten(*value)));
  to = value->get<bool>();
}

/// `to` changes only where the value is a number in range.
bool Fields::readNumber(const Json &value, const std::string &name, double &to,
                        Range range) {
  if (value.is_number()) {
    double number = value.get<double>();
    if (number >= range.low && number <= range.high) {
      to = number;
      return true;
    }
  }
  fail(plait::fail(where, name, " must be a number of ", range.low, " to ",
                   range.high, ", not ", shorten(value)));
  return false;
}

void Fields::read(const char *name, double &to, Range range) {
  if (const Json *value = find(name))
    readNumber(*value, name, to, range);
}

void Fields::read(const char *name, int &to, Range range) {
  const Json *value = find(name);
  double number = 0;
  if (!value || !readNumber(*value, name, number, range))
    return;
  // Refused, not rounded: half a device is a mistake.
  if (number != std::floor(number))
    return fail(plait::fail(where, name, " must be a whole number, not ",
                            shorten(*value)));
  to = int(number);
}

/// Exactly as many numbers as there are ranges: a short row has no sensible
/// default for its rest.
bool Fields::readRow(const Json &value, const std::string &name,
                     std::vector<double> &to,
                     const std::vector<Range> &ranges) {
  if (!value.is_array() || value.size() != ranges.size()) {
    fail(plait::fail(where, name, " must be ", ranges.size(), " numbers, not ",
                     shorten(value)));
    return false;
  }
  to.resize(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i)
    if (!readNumber(value[i], name + "[" + std::to_string(i) + "]", to[i],
                    ranges[i]))
      return false;
  return true;
}

void Fields::read(const char *name, std::vector<double> &to,
                  const std::vector<Range> &ranges) {
  if (const Json *value = find(name))
    readRow(*value, name, to, ranges);
}

/// Row by row, each with the same ranges; the first row that does not check
/// ends it, with its index in the message.
void Fields::read(const char *name, std::vector<std::vector<double>> &to,
                  const std::vector<Range> &ranges, bool ascending) {
  const Json *value = find(name);
  if (!value)
    return;
  if (!value->is_array())
    return fail(
        plait::fail(where, name, " must be a list, not ", shorten(*value)));
  to.clear();
  for (size_t i = 0; i < value->size(); ++i) {
    std::string row = name + ("[" + std::to_string(i) + "]");
    std::vector<double> numbers;
    if (!readRow((*value)[i], row, numbers, ranges))
      return;
    // Strictly, because tables are interpolated between neighbours.
    if (ascending && !to.empty() && numbers[0] <= to.back()[0])
      return fail(plait::fail(where, row, " must be above the one before, ",
                              to.back()[0], ", not ", numbers[0]));
    to.push_back(std::move(numbers));
  }
}

const Json *Fields::get(const char *name) { return find(name); }

/// Has to be called once all fields have been asked for. "source" and "note"
/// are for people.
Status Fields::finish() {
  if (!status.ok())
    return status;
  for (const auto &[name, value] : object.items())
    if (!known.count(name) && name != "source" && name != "note")
      return plait::fail(
          where, name, " is unknown; the fields here are: ", joinNames(known));
  return Status::success();
}

/// One object, nothing else: what follows can ask for fields at once.
Result<Json> planner::readJsonFile(const std::string &path,
                                   const std::string &what) {
  Result<std::string> text = readText(path, what);
  if (!text.ok())
    return text.status();
  // Deeper than any file is meant to be, and shallow enough for the parser's
  // stack.
  constexpr int deepest = 16;
  Result<Json> json = parseJson<Json>(
      {reinterpret_cast<const uint8_t *>(text->data()), text->size()}, deepest);
  if (!json.ok())
    return fail(what, " '", path, "' ", json.status().message());
  if (!json->is_object())
    return fail(what, " '", path, "' is not a JSON object");
  return json;
}
