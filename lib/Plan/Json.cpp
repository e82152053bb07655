//===- Json.cpp - Parsing JSON with the place of an error -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Json.h"

#include <algorithm>
#include <utility>
#include <vector>

using namespace plait;

namespace {

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

} // namespace

template <typename Json>
Result<Json> plait::parseJson(std::span<const uint8_t> text, int deepest) {
  JsonBuilder<Json> builder(text, deepest);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.finish();
}
template Result<nlohmann::json> plait::parseJson(std::span<const uint8_t>, int);
template Result<nlohmann::ordered_json>
plait::parseJson(std::span<const uint8_t>, int);

template <typename Json> Json plait::parsePrintedJson(std::string_view text) {
  return Json::parse(text);
}
template nlohmann::json plait::parsePrintedJson(std::string_view);
template nlohmann::ordered_json plait::parsePrintedJson(std::string_view);

Status plait::checkJson(std::span<const uint8_t> text, int deepest) {
  return parseJson<nlohmann::json>(text, deepest).status();
}

/// The library's own text has the place in another form, and may quote all that
/// it has read of a string:
/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax
/// error while parsing value - invalid literal; last read: 'x'".
Status plait::describeJsonError(std::span<const uint8_t> text, size_t read,
                                std::string_view reason) {
  read = std::min(read, text.size());
  // The byte at fault is the last one that was read.
  auto before = text.first(read > 0 ? read - 1 : 0);
  auto line = std::count(before.begin(), before.end(), uint8_t('\n'));
  auto start = std::find(before.rbegin(), before.rend(), uint8_t('\n'));
  reason = reason.substr(0, reason.find("; last read: "));
  for (std::string_view end : {": ", "] "})
    if (size_t at = reason.find(end); at != reason.npos) {
      reason.remove_prefix(at + end.size());
      break;
    }
  return fail("is not JSON: ", line + 1, ":", start - before.rbegin() + 1, ": ",
              reason);
}
