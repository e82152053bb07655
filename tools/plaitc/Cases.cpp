//===- Cases.cpp - Several questions at once ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cases.h"

#include "plait/Configuration/Configuration.h"
#include "plait/Support/CommandLine.h"

#include <sstream>

using namespace plait;

/// Each value is read as the option reads one, with its bounds and messages.
bool Cases::take(const std::string &field, const std::string &text) {
  std::vector<int64_t> *values = field == "global-batch" ? &globalBatch
                                 : field == "seq"        ? &sequence
                                                         : nullptr;
  values = text.find(',') == text.npos ? nullptr : values;
  if (!values)
    return false;
  values->clear(); // the last list counts
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    tool::wholeAmount(part);
    std::optional<int64_t> value;
    if (Status status = parse(field, part, value); !status.ok())
      throw CLI::ValidationError(status.message());
    values->push_back(*value);
  }
  return true;
}

Status Cases::check(const CLI::App &app) const {
  if (!any())
    return Status::success();
  const char *list = !clusters.empty()      ? "--compare"
                     : !globalBatch.empty() ? "a list of --global-batch"
                                            : "a list of --seq";
  if (clusters.empty() && !app.count("--cluster"))
    return fail(list, " needs --cluster or --compare");
  // What is told or written for one answer.
  for (const char *single :
       {"--output", "--compile-to", "--dump-phases-to", "--explain",
        "--why-not", "--trace", "--profile", "--emit", "--from"})
    if (app.count(single))
      return fail(list, " excludes ", single);
  if (!clusters.empty() && app.count("--cluster"))
    return Status::failure("--compare excludes --cluster");
  return Status::success();
}

/// Labels say what has several values, as short as that is.
std::vector<Case> Cases::combine(const std::string &cluster) const {
  // Without a list there is one value, that of the options.
  auto getValues = [](const std::vector<int64_t> &list) {
    std::vector<std::optional<int64_t>> values(list.begin(), list.end());
    return values.empty() ? std::vector<std::optional<int64_t>>(1) : values;
  };
  bool isSwept = !globalBatch.empty() || !sequence.empty();
  const std::vector<std::string> names =
      clusters.empty() ? std::vector{cluster} : clusters;
  std::vector<Case> cases;
  for (size_t i = 0; i < names.size(); ++i)
    for (std::optional<int64_t> batch : getValues(globalBatch))
      for (std::optional<int64_t> length : getValues(sequence)) {
        std::string label = isSwept && names.size() > 1 ? names[i] : "";
        auto add = [&](const char *what, std::optional<int64_t> value) {
          if (value)
            label += (label.empty() ? "" : ", ") + std::string(what) +
                     std::to_string(*value);
        };
        add("batch ", batch);
        add("seq ", length);
        cases.push_back({i, names[i], batch, length, label});
      }
  return cases;
}
