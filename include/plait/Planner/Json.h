//===- Json.h - Reading objects field by field ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A field is a bare value or {"value": …, "source": "where it comes from"}.
// Every problem ends in one line that names the field by its path.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_JSON_H
#define PLAIT_PLANNER_JSON_H

#include "plait/Support/Status.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace plait::planner {

using Json = nlohmann::json;

struct Range {
  double low, high; // both included
};

/// Reads the fields of one object into variables. A field that is missing
/// leaves its variable alone, unless it is required. The first problem sticks;
/// later reads do nothing. "source" and "note" are allowed everywhere.
class Fields {
public:
  /// `where` begins messages: "hardware file 'h100': intra".
  Fields(const Json &object, std::string where);

  Fields &require(const char *name);
  void read(const char *name, std::string &to);
  void read(const char *name, bool &to);
  void read(const char *name, double &to, Range range);
  void read(const char *name, int &to, Range range);
  /// An array of arrays of `ranges.size()` numbers; where `ascending`, the
  /// first of each row grows.
  void read(const char *name, std::vector<std::vector<double>> &to,
            const std::vector<Range> &ranges, bool ascending);
  /// One row.
  void read(const char *name, std::vector<double> &to,
            const std::vector<Range> &ranges);
  /// A nested value; null where missing.
  const Json *get(const char *name);
  std::string path(const std::string &name) const { return where + name; }
  void fail(Status problem);

  /// The first problem, or a field that nobody asked for.
  Status finish();

private:
  const Json *find(const char *name);
  bool readNumber(const Json &value, const std::string &name, double &to,
                  Range range);
  bool readRow(const Json &value, const std::string &name,
               std::vector<double> &to, const std::vector<Range> &ranges);

  const Json &object;
  std::string where;
  std::set<std::string> known;
  Status status = Status::success();
};

/// Reads a file as one JSON object.
Result<Json> readJsonFile(const std::string &path, const std::string &what);

/// `names` as "a, b, c".
template <typename Names> std::string joinNames(const Names &names) {
  std::string text;
  for (const auto &name : names)
    text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

} // namespace plait::planner

#endif // PLAIT_PLANNER_JSON_H
