//===- Outer.cpp - What flows between sites -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of schemes and the text of one, and how many sites a mesh has.
// Equal meanings have one text: an option is left out where it is as usual.
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Outer.h"

#include "plait/Configuration/Configuration.h"
#include "plait/Configuration/Mesh.h"

#include <algorithm>
#include <charconv>
#include <optional>

using namespace plait;

static constexpr std::string_view kNone = "none", kSites = "sites";

static constexpr OuterScheme kSchemes[] = {
    {"average", /*hasOptimizer=*/false, 0, 0},
    {"diloco", /*hasOptimizer=*/true, 0.7, 0.9},
};

std::span<const OuterScheme> plait::getOuterSchemes() { return kSchemes; }

static const OuterScheme *find(std::string_view name) {
  auto found = std::ranges::find(kSchemes, name, &OuterScheme::name);
  return found == std::end(kSchemes) ? nullptr : found;
}

/// The shortest text that reads as the same number.
static std::string printNumber(double value) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end);
}

std::string plait::print(const Outer &value) {
  if (!value.isOn())
    return std::string(kNone);
  const OuterScheme &scheme = *find(value.scheme);
  std::string text = value.scheme + ":" + std::to_string(value.every);
  if (value.rate != scheme.rate)
    text += ",rate=" + printNumber(value.rate);
  if (value.momentum != scheme.momentum)
    text += ",momentum=" + printNumber(value.momentum);
  if (value.sites)
    text += "+" + std::string(kSites) + ":" + std::to_string(value.sites);
  return text;
}

/// Takes what is in front of `separator`, which is removed too; nothing is left
/// where there is none.
static std::string_view take(std::string_view &text, char separator) {
  size_t end = text.find(separator);
  std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

/// None where `text` is not a number as a whole.
template <typename T>
static std::optional<T> readNumber(std::string_view text) {
  T value;
  const char *end = text.data() + text.size();
  auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end && !text.empty()
             ? std::optional(value)
             : std::nullopt;
}

static Status parseCount(std::string_view name, std::string_view what,
                         std::string_view text, int64_t &value) {
  constexpr int64_t most = Mesh::kMostRanks;
  std::optional<int64_t> read = readNumber<int64_t>(text);
  if (!read || *read < 1 || *read > most)
    return fail(name, " has ", what, " \"", text, "\", expected 1 to ", most);
  value = *read;
  return Status::success();
}

/// One of "rate=0.5" and "momentum=0", each once. Written so that NaN fails.
static Status parseOption(std::string_view name, std::string_view text,
                          Outer &value, std::string &seen) {
  std::string_view number = text;
  std::string word(take(number, '='));
  bool isRate = word == "rate";
  if (!find(value.scheme)->hasOptimizer)
    return fail(name, " has option \"", text, "\", but ", value.scheme,
                " has none");
  if ((!isRate && word != "momentum") || seen.find(word) != std::string::npos)
    return fail(name, " has option \"", text,
                "\", expected rate=R or momentum=M, each once");
  seen += word;
  std::optional<double> read = readNumber<double>(number);
  // Nesterov's momentum does not converge from 1 on.
  if (!read || !(*read >= 0) ||
      !(isRate ? *read > 0 && *read <= 10 : *read < 1))
    return fail(name, " has ", word, " \"", number, "\", expected ",
                isRate ? "above 0 and at most 10" : "0 or more, and below 1");
  (isRate ? value.rate : value.momentum) = *read;
  return Status::success();
}

/// "average:8" or "diloco:30,rate=0.5".
static Status parseScheme(std::string_view name, std::string_view text,
                          Outer &value) {
  std::string_view all = text;
  std::string_view word = take(text, ':');
  const OuterScheme *scheme = find(word);
  if (!scheme) {
    std::vector<std::string> names = {std::string(kNone)};
    for (const OuterScheme &known : kSchemes)
      names.emplace_back(known.name);
    return fail(name, " is \"", word, "\", expected ", joinChoices(names));
  }
  if (word.size() == all.size())
    return fail(name, " is \"", all, "\", expected the steps behind it, as ",
                word, ":8");
  value.scheme = word;
  value.rate = scheme->rate;
  value.momentum = scheme->momentum;
  PLAIT_RETURN_IF_ERROR(
      parseCount(name, "steps", take(text, ','), value.every));
  if (all.back() == ',')
    return fail(name, " is \"", all, "\", which ends with a comma");
  std::string seen;
  while (!text.empty())
    PLAIT_RETURN_IF_ERROR(parseOption(name, take(text, ','), value, seen));
  return Status::success();
}

Status plait::parse(std::string_view name, std::string_view text,
                    Outer &value) {
  value = Outer();
  if (text == kNone)
    return Status::success();
  bool hasMore = text.find('+') != std::string_view::npos;
  PLAIT_RETURN_IF_ERROR(parseScheme(name, take(text, '+'), value));
  if (!hasMore)
    return Status::success();
  std::string_view number = text;
  if (take(number, ':') != kSites)
    return fail(name, " has \"", text, "\" behind the scheme, expected ",
                kSites, ":N");
  return parseCount(name, kSites, number, value.sites);
}

/// The axis's size, which is cut out of `mesh`; 0: it names none.
static Result<int64_t> cutSites(std::string &mesh) {
  std::string rest;
  std::string_view text = mesh;
  int64_t sites = 0;
  while (!text.empty()) {
    std::string_view entry = take(text, ',');
    std::string_view size = entry;
    if (take(size, '=') != kSites) {
      rest += (rest.empty() ? "" : ",") + std::string(entry);
      continue;
    }
    if (sites)
      return fail("mesh \"", mesh, "\" names axis \"", kSites, "\" twice");
    PLAIT_RETURN_IF_ERROR(parseCount("mesh", kSites, size, sites));
  }
  if (sites)
    mesh = rest;
  return sites;
}

Status plait::takeSites(std::string &mesh, Outer &outer) {
  Result<int64_t> sites = cutSites(mesh);
  if (!sites.ok())
    return sites.status();
  if (*sites && !outer.isOn())
    return fail("`mesh` has ", *sites, *sites == 1 ? " site" : " sites",
                ", but no `outer` says what flows between them, such as "
                "average:8");
  if (*sites && outer.sites && *sites != outer.sites)
    return fail("`mesh` has ", *sites, " sites, but `outer` is ", print(outer));
  if (outer.isOn() && !*sites && !outer.sites)
    return fail("`outer` is ", print(outer),
                ", but `mesh` has no sites, as in dp=2,sites=2");
  if (*sites)
    outer.sites = *sites;
  return Status::success();
}
