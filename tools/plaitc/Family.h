//===- Family.h - Plans for fewer nodes beside the first --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TOOLS_PLAITC_FAMILY_H
#define PLAIT_TOOLS_PLAITC_FAMILY_H

#include "Request.h"
#include "Terminal.h"

#include <functional>

namespace plait {

/// Does what plaitc does for each plan. Both return false after a message.
struct PlanMaker {
  /// Chooses what the request leaves open. `notFound` receives why the planner
  /// has nothing, where that is no failure.
  std::function<bool(Request &request, std::optional<Choice> &choice,
                     std::string &notFound)>
      choose;
  /// Compiles what was chosen, or else what the request says.
  std::function<bool(const Request &request,
                     const std::optional<Choice> &choice)>
      compile;
};

/// The ranks of a mesh such as "pp=2,dp=4"; those of a bad one are told by the
/// compilation.
int64_t countRanks(const std::string &mesh);

/// The plans of --also, whose words are the sizes of a cluster ("7x8", "6") or
/// a mesh ("pp=2,dp=3"). Each is called as plan/FamilyNames.h says.
class Family {
public:
  /// Fails where a word is none of the two, or there is no file to name the
  /// others after.
  static Result<Family> create(const Request &request,
                               const std::vector<std::string> &words);

  /// Compiles all of them. Returns false after a message.
  bool compile(const PlanMaker &maker, Terminal &terminal);
  /// Fails where the first plan, of `mesh`, has the name of another's size.
  Status checkFirst(const std::string &mesh) const;

private:
  struct Member {
    std::string word;
    Request request;
  };

  Family() = default;
  Status compile(Member &member, const PlanMaker &maker, Terminal &terminal,
                 bool &hasFailed);

  std::string output; // of the first plan
  std::vector<Member> members;
  std::vector<std::pair<int64_t, std::string>> written; // ranks and name
};

} // namespace plait

#endif // PLAIT_TOOLS_PLAITC_FAMILY_H
