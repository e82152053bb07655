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
#include "plait/Configuration/Mixing.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

using namespace plait;

static constexpr std::string_view kNone = "none", kSites = "sites";

// Nesterov's momentum does not converge from 1 on.
static constexpr OuterOption kRate = {.name = "rate",
                                      .number = &Outer::rate,
                                      .usual = 0.7,
                                      .most = 10,
                                      .hasLeast = false};
static constexpr OuterOption kMomentum = {.name = "momentum",
                                          .number = &Outer::momentum,
                                          .usual = 0.9,
                                          .most = 1,
                                          .hasMost = false};
static constexpr OuterOption kDiLoCoOptions[] = {kRate, kMomentum};
static constexpr OuterOption kSparseOptions[] = {{.name = "rate",
                                                  .number = &Outer::rate,
                                                  .usual = 1,
                                                  .most = 10,
                                                  .hasLeast = false}};
// No radius is usual: weights move by what model and learning rate make of it.
static constexpr OuterOption kClippingOptions[] = {{.name = "radius",
                                                    .number = &Outer::radius,
                                                    .most = 1e30,
                                                    .hasLeast = false},
                                                   kSparseOptions[0]};
static constexpr OuterOption kTrimmedOptions[] = {
    {.name = "drop", .count = &Outer::drop, .usual = 1, .least = 1}};
static constexpr OuterOption kGossipOptions[] = {
    {.name = "every", .count = &Outer::every, .usual = 1, .least = 1},
    {.name = "average", .count = &Outer::average, .usual = 0, .least = 1}};
static constexpr OuterOption kNeighbourOptions[] = {kGossipOptions[0]};
static constexpr OuterOption kStreamingOptions[] = {
    {.name = "fragments", .count = &Outer::fragments, .usual = 2, .least = 1},
    {.name = "delay", .count = &Outer::delay, .usual = 1},
    {.name = "mix",
     .number = &Outer::mix,
     .usual = 0.5,
     .most = 1,
     .hasMost = false},
    kRate,
    kMomentum};

static constexpr OuterScheme kSchemes[] = {
    {"average", Agreement::Mean, "8", {}, /*compresses=*/true},
    {"diloco", Agreement::Optimizer, "8", kDiLoCoOptions, /*compresses=*/true},
    {"median", Agreement::Middle, "8", {}},
    {"trimmed", Agreement::Middle, "8", kTrimmedOptions},
    {"clip", Agreement::Clipping, "8,radius=1", kClippingOptions},
    {"gossip", Agreement::Gossip, "ring", kGossipOptions},
    {"streaming", Agreement::Streaming, "8", kStreamingOptions,
     /*compresses=*/true},
    {"sparseloco", Agreement::Optimizer, "8", kSparseOptions,
     /*compresses=*/true, "topk2", /*decay=*/0.95},
    {.name = "scaffold",
     .agreement = Agreement::Mean,
     .example = "8",
     .corrects = true},
    {.name = "tracking",
     .agreement = Agreement::Gossip,
     .example = "ring",
     .options = kNeighbourOptions,
     .corrects = true,
     .keepsBefore = true},
    {.name = "awc",
     .agreement = Agreement::Gossip,
     .example = "ring",
     .options = kNeighbourOptions,
     .keepsBefore = true},
};

std::span<const OuterScheme> plait::getOuterSchemes() { return kSchemes; }

static const OuterScheme *find(std::string_view name) {
  auto found = std::ranges::find(kSchemes, name, &OuterScheme::name);
  return found == std::end(kSchemes) ? nullptr : found;
}

const OuterScheme &Outer::get() const { return *find(getName()); }

/// An option that is none makes it one that no check takes.
SiteCompression Outer::getCompression() const {
  SiteCompression value;
  const OuterScheme *known = find(getName());
  std::string_view text = known && known->compresses ? getGraph() : "";
  while (!text.empty()) {
    size_t end = std::min(text.find(','), text.size());
    std::string_view number = text.substr(0, end), rest = number;
    size_t sign = std::min(number.find('='), number.size() - 1);
    if (!parseSiteOption("", number.substr(0, sign), rest.substr(sign + 1),
                         value)
             .ok())
      value.decay = -1;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return value;
}

void Outer::setCompression(const SiteCompression &value) {
  if (is(Agreement::Mean))
    rate = 1;
  scheme = std::string(getName()) + ":" +
           print(value, "", /*decay=*/-1, /*hasUsual=*/true).substr(1);
}

int32_t Outer::countDropped() const {
  bool isMedian = is(Agreement::Middle) && get().options.empty();
  return isMedian ? int32_t(countSites() - 1) / 2 : drop;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

/// The shortest text that reads as the same number, without a plus sign, behind
/// which something else would begin.
static std::string printNumber(double value) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, std::remove(text, end, '+'));
}

static double getValue(const OuterOption &option, const Outer &value) {
  return option.number ? value.*option.number : double(value.*option.count);
}

static std::string printScheme(const Outer &value, bool hasUsual) {
  const OuterScheme &scheme = value.get();
  bool isGossip = scheme.agreement == Agreement::Gossip;
  std::string text = isGossip ? value.scheme
                              : std::string(value.getName()) + ":" +
                                    std::to_string(value.every);
  for (const OuterOption &option : scheme.options)
    if (double own = getValue(option, value);
        own != option.usual || (hasUsual && (own || option.number)))
      text += "," + std::string(option.name) + "=" + printNumber(own);
  return text + print(value.getCompression(), scheme.compressor, scheme.decay,
                      hasUsual);
}

std::string plait::print(const Outer &value) {
  if (!value.isOn())
    return std::string(kNone);
  std::string text = printScheme(value, /*hasUsual=*/false);
  if (value.sites)
    text += "+" + std::string(kSites) + ":" + std::to_string(value.sites);
  return text;
}

std::string plait::describeOuter(const Outer &value) {
  return printScheme(value, /*hasUsual=*/true);
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
                         std::string_view text, int32_t &value,
                         int32_t least = 1) {
  constexpr int32_t most = Mesh::kMostRanks;
  std::optional<int32_t> read = readNumber<int32_t>(text);
  if (!read || *read < least || *read > most)
    return fail(name, " has ", what, " \"", text, "\", expected ", least,
                " to ", most);
  value = *read;
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

/// Written so that NaN fails.
static bool isWithin(const OuterOption &option, double value) {
  return (value > option.least || (option.hasLeast && value == option.least)) &&
         (value < option.most || (option.hasMost && value == option.most));
}

/// "above 0 and at most 10".
static std::string describeBounds(const OuterOption &option) {
  std::string least = printNumber(option.least);
  std::string most = printNumber(option.most);
  return (option.hasLeast ? least + " or more" : "above " + least) +
         (option.hasMost ? " and at most " : ", and below ") + most;
}

/// Options that the scheme does not have are 0.
static Status checkOptions(std::string_view name, const Outer &value) {
  Outer rest = value;
  if (value.is(Agreement::Mean) && value.isCompressed() && value.rate == 1)
    rest.rate = 0;
  for (const OuterOption &option : value.get().options) {
    double own = getValue(option, value);
    if (option.number && !isWithin(option, own))
      return fail(name, " has ", option.name, " ", own, ", expected ",
                  describeBounds(option));
    if (option.count && own != option.usual && own < option.least)
      return fail(name, " has ", option.name, " ", own, ", expected ",
                  option.least, " or more");
    if (option.number)
      rest.*option.number = 0;
    else
      rest.*option.count = 0;
  }
  for (auto [what, number] :
       {std::pair("rate", rest.rate), std::pair("momentum", rest.momentum),
        std::pair("drop", double(rest.drop)),
        std::pair("average", double(rest.average)),
        std::pair("fragments", double(rest.fragments)),
        std::pair("delay", double(rest.delay)), std::pair("mix", rest.mix),
        std::pair("radius", rest.radius)})
    if (!(number == 0))
      return fail(name, " has ", what, " ", number, ", which ", value.getName(),
                  " has not");
  return Status::success();
}

/// Each fragment is sent in a step of its own and taken before it is sent
/// again. Lists of a plan have numbers of one byte, of which step and report
/// have two.
static Status checkFragments(std::string_view name, const Outer &value) {
  if (!value.is(Agreement::Streaming))
    return Status::success();
  int64_t fragments = value.fragments, delay = value.delay;
  if (fragments + delay > value.every)
    return fail(name, " has fragments ", fragments, " and delay ", delay,
                ", expected at most ", value.every,
                " together, the steps from one agreement to the next");
  constexpr int64_t most = 253;
  int64_t lists = fragments * (2 + value.countParts());
  return lists <= most ? Status::success()
                       : fail(name, " has fragments ", fragments, " and delay ",
                              delay, ", which takes ", lists,
                              " lists of actions, expected at "
                              "most ",
                              most);
}

static Status checkCompression(std::string_view name, const Outer &value) {
  const OuterScheme &scheme = value.get();
  SiteCompression compress = value.getCompression();
  PLAIT_RETURN_IF_ERROR(check(name, compress));
  if (!compress.isOn() && !scheme.compressor.empty())
    return fail(name, " has no compress, which ", scheme.name, " has");
  return Status::success();
}

Status plait::check(std::string_view name, const Outer &value) {
  const OuterScheme *scheme = find(value.getName());
  if (!scheme) {
    std::vector<std::string> names;
    for (const OuterScheme &known : kSchemes)
      names.emplace_back(known.name);
    return fail(name, " has scheme '", value.getName(), "', expected ",
                joinChoices(names));
  }
  PLAIT_RETURN_IF_ERROR(checkOptions(name, value));
  if (value.every < 1 || value.every > Mesh::kMostRanks)
    return fail(name, " has sites agree every ", value.every,
                " steps, expected 1 to ", Mesh::kMostRanks);
  // Both count steps: their product is looked for in each step's number.
  if (value.average > Mesh::kMostRanks / value.every)
    return fail(name, " has average ", value.average, " of every ", value.every,
                " steps, expected ", Mesh::kMostRanks, " steps at most");
  PLAIT_RETURN_IF_ERROR(checkFragments(name, value));
  bool isGossip = scheme->agreement == Agreement::Gossip;
  if (isGossip ? value.getGraph().empty()
               : value.scheme.size() > value.getName().size() &&
                     !value.isCompressed())
    return fail(name, " has graph '", value.getGraph(), "' in scheme '",
                value.getName(), "'");
  PLAIT_RETURN_IF_ERROR(checkCompression(name, value));
  if (!value.sites)
    return Status::success();
  if (2 * value.countDropped() >= value.sites)
    return fail(name, " has drop ", value.drop, ", which takes more than ",
                2 * value.drop, " sites, not ", value.sites);
  return isGossip ? makeMixings(name, value.getGraph(), value.sites).status()
                  : Status::success();
}

/// "expected rate=R or momentum=M, each once".
static std::string listOptions(const OuterScheme &scheme) {
  std::vector<std::string> names;
  for (const OuterOption &option : scheme.options)
    names.push_back(std::string(option.name) + "=" +
                    char(std::toupper(option.name[0])));
  if (scheme.compresses)
    names.insert(names.end(), {"compress=NAME", "chunk=C", "k=K", "decay=D"});
  return joinChoices(names) + (names.size() > 1 ? ", each once" : ", once");
}

/// One of the scheme's options, each once.
static Status parseOption(std::string_view name, std::string_view text,
                          Outer &value, SiteCompression &compress,
                          std::vector<std::string> &seen) {
  const OuterScheme &scheme = value.get();
  std::string_view number = text;
  std::string word(take(number, '='));
  if (scheme.compresses && isSiteOption(word) &&
      !std::ranges::count(seen, word)) {
    seen.push_back(word);
    return parseSiteOption(name, word, number, compress);
  }
  if (scheme.options.empty() && !scheme.compresses)
    return fail(name, " has option \"", text, "\", but ", scheme.name,
                " has none");
  auto found = std::ranges::find(scheme.options, word, &OuterOption::name);
  if (found == scheme.options.end() || std::ranges::count(seen, word))
    return fail(name, " has option \"", text, "\", expected ",
                listOptions(scheme));
  seen.push_back(word);
  if (found->count)
    return parseCount(name, word, number, value.*found->count,
                      int32_t(found->least));
  std::optional<double> read = readNumber<double>(number);
  if (!read || !isWithin(*found, *read))
    return fail(name, " has ", word, " \"", number, "\", expected ",
                describeBounds(*found));
  value.*found->number = *read;
  return Status::success();
}

/// Reads what is behind the colon: steps, or a graph.
static Status parseSubject(std::string_view name, std::string_view text,
                           Outer &value) {
  if (!value.is(Agreement::Gossip))
    return parseCount(name, "steps", text, value.every);
  Result<std::string> graph = readGraph(name, text);
  if (!graph.ok())
    return graph.status();
  value.scheme += ":" + *graph;
  return Status::success();
}

/// Fails where what has to be said is not among what was `seen`.
static Status checkGiven(std::string_view name, const OuterScheme &scheme,
                         const std::vector<std::string> &seen) {
  for (const OuterOption &option : scheme.options)
    if (option.number && !isWithin(option, option.usual) &&
        !std::ranges::count(seen, option.name))
      return fail(name, " has no ", option.name, ", expected one, as in ",
                  scheme.name, ":", scheme.example);
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
    return fail(name, " is \"", all, "\", expected the ",
                scheme->agreement == Agreement::Gossip ? "graph" : "steps",
                " behind it, as ", word, ":", scheme->example);
  value.scheme = word;
  for (const OuterOption &option : scheme->options)
    if (option.number)
      value.*option.number = option.usual;
    else
      value.*option.count = int32_t(option.usual);
  PLAIT_RETURN_IF_ERROR(parseSubject(name, take(text, ','), value));
  if (all.back() == ',')
    return fail(name, " is \"", all, "\", which ends with a comma");
  SiteCompression compress;
  compress.scheme = scheme->compressor;
  std::vector<std::string> seen;
  while (!text.empty())
    PLAIT_RETURN_IF_ERROR(
        parseOption(name, take(text, ','), value, compress, seen));
  PLAIT_RETURN_IF_ERROR(checkGiven(name, *scheme, seen));
  if (compress.isOn() && !std::ranges::count(seen, "decay"))
    compress.decay = scheme->decay;
  setUsual(compress);
  PLAIT_RETURN_IF_ERROR(check(name, compress));
  if (compress.isOn())
    value.setCompression(compress);
  return Status::success();
}

/// The plus sign that ends a scheme, which is not that of an exponent.
static size_t findEnd(std::string_view text) {
  auto isDigit = [&](size_t i) {
    return i < text.size() && std::isdigit(uint8_t(text[i]));
  };
  for (size_t i = text.find('+'); i != text.npos; i = text.find('+', i + 1))
    if (i < 2 || text[i - 1] != 'e' || !isDigit(i - 2) || !isDigit(i + 1))
      return i;
  return text.npos;
}

Status plait::parse(std::string_view name, std::string_view text,
                    Outer &value) {
  value = Outer();
  if (text == kNone)
    return Status::success();
  size_t end = findEnd(text);
  PLAIT_RETURN_IF_ERROR(parseScheme(name, text.substr(0, end), value));
  if (end == text.npos)
    return Status::success();
  text.remove_prefix(end + 1);
  std::string_view number = text;
  if (take(number, ':') != kSites)
    return fail(name, " has \"", text, "\" behind the scheme, expected ",
                kSites, ":N");
  PLAIT_RETURN_IF_ERROR(parseCount(name, kSites, number, value.sites));
  return check(name, value);
}

/// The axis's size, which is cut out of `mesh`; 0: it names none.
static Result<int32_t> cutSites(std::string &mesh) {
  std::string rest;
  std::string_view text = mesh;
  int32_t sites = 0;
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
  Result<int32_t> sites = cutSites(mesh);
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
  return outer.isOn() ? check("`outer`", outer) : Status::success();
}
