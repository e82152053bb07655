//===- Json.h - Parsing JSON with the place of an error ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLAN_JSON_H
#define PLAIT_PLAN_JSON_H

#include "plait/Plan/CheckJson.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace plait {

/// Builds the value that a text says, and ends at the first thing for which
/// parseJson() refuses it.
template <typename Json> class JsonBuilder : public nlohmann::json_sax<Json> {
public:
  JsonBuilder(std::span<const uint8_t> text, int deepest)
      : text(text), deepest(deepest) {}

  Result<Json> finish() {
    return status.ok() ? Result<Json>(std::move(root)) : status;
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string &) override {
    return add(value);
  }
  bool string(std::string &value) override { return add(std::move(value)); }
  /// JSON has none.
  bool binary(typename Json::binary_t &) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string &value) override {
    name = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &error) override {
    return refuse(describeJsonError(text, position, error.what()));
  }

private:
  bool refuse(Status why) {
    status = std::move(why);
    return false;
  }

  /// Goes into what is open; a value of its own is the whole text.
  bool add(Json value) { return place(std::move(value)) != nullptr; }

  /// Null where the object has the key already.
  Json *place(Json value) {
    if (opened.empty()) {
      root = std::move(value);
      return &root;
    }
    if (opened.back()->is_array())
      return &opened.back()->emplace_back(std::move(value));
    auto [where, isNew] = opened.back()->emplace(name, std::move(value));
    if (!isNew)
      refuse(fail("has the key ", Json(name).dump(), " twice in one object"));
    return isNew ? &*where : nullptr;
  }

  bool open(Json value) {
    if (int(opened.size()) >= deepest)
      return refuse(fail("nests deeper than ", deepest, " levels"));
    Json *added = place(std::move(value));
    if (added)
      opened.push_back(added);
    return added;
  }
  bool close() {
    opened.pop_back();
    return true;
  }

  std::span<const uint8_t> text;
  int deepest;
  Json root;
  std::vector<Json *> opened; // outermost first
  std::string name;           // of the next value of an object
  Status status = Status::success();
};

/// Parses `text`. A failure goes on after the name of what is read, as in "is
/// not JSON: 3:14: …": line and column count from 1, the column in bytes. What
/// nests deeper than `deepest` is refused, since what works on nested values
/// recurses; and so is an object that has a key twice, even with the same
/// value: readers differ in which one counts.
template <typename Json>
Result<Json> parseJson(std::span<const uint8_t> text,
                       int deepest = kDeepestJson) {
  JsonBuilder<Json> builder(text, deepest);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.finish();
}

} // namespace plait

#endif // PLAIT_PLAN_JSON_H
