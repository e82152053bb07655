//===- Family.h - Plans for fewer nodes beside the first --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_FAMILY_H
#define PLAIT_TOOLS_PLAITC_FAMILY_H

#include "plait/Driver/Planning.h"

#include <functional>

namespace plait {

/// Chooses what the options leave open, for one plan. False after a message.
using ChoosePlan =
    std::function<bool(CompileOptions &options, PlanningOptions &planning)>;

/// The ranks of a mesh such as "pp=2,dp=4"; those of a bad one are told by the
/// compilation.
int64_t countRanks(const std::string &mesh);

/// The plans of --also, whose words are the sizes of a cluster ("7x8", "6") or
/// a mesh ("pp=2,dp=3"). Each is called as plan/FamilyNames.h says.
class Family {
public:
  /// Fails where a word is none of the two, or there is no file to name the
  /// others after.
  static Result<Family> create(const CompileOptions &options,
                               const PlanningOptions &planning,
                               const std::vector<std::string> &words);

  /// Compiles all of them. Returns false after a message.
  bool compile(const ChoosePlan &choose);
  /// Fails where the first plan, of `mesh`, has the name of another's size.
  Status checkFirst(const std::string &mesh) const;

private:
  struct Member {
    std::string word;
    CompileOptions options;
    PlanningOptions planning;
  };

  Family() = default;
  Status compile(Member &member, const ChoosePlan &choose, bool &hasFailed);

  std::string output; // of the first plan
  std::vector<Member> members;
  std::vector<std::pair<int64_t, std::string>> written; // ranks and name
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_FAMILY_H
