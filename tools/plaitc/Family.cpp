//===- Family.cpp - Plans for fewer nodes beside the first ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plans of one model for several numbers of ranks, named after the first. Each
// has its own copy of all options, changed by one word of --also, and goes
// through the same choice and compilation.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include "plait/Plan/FamilyNames.h"
#include "plait/Plan/Files.h"
#include "plait/Planner/Cluster.h"

#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace plait;

/// Counts a mesh that cannot be parsed as one rank: compilation refuses it with
/// a message of its own.
int64_t plait::countRanks(const std::string &mesh) {
  Result<Mesh> parsed = Mesh::parse(mesh);
  return parsed.ok() ? parsed->ranks() : 1;
}

/// Lets `options` be for the cluster or mesh that `word` says.
/// 1. A mesh takes the place of --mesh.
/// 2. Sizes are of the cluster that is given, else of this machine, for which
///    the planner chooses.
static Status resize(const std::string &word, CompileOptions &options) {
  bool isMesh = word.find('=') != word.npos;
  if (isMesh && !options.cluster.empty())
    return fail("with --cluster it takes sizes, such as 7x8");
  // 1. A mesh.
  if (isMesh) {
    auto pins = planner::parsePins(word);
    options.mesh = word;
    return pins.status();
  }
  // 2. A size.
  std::string name = "host"; // this machine, as for --mesh alone
  if (options.cluster.empty()) {
    options.mesh.clear();
  } else {
    auto cluster = planner::parseCluster(options.cluster);
    if (!cluster.ok())
      return cluster.status();
    name = cluster->source;
  }
  options.cluster = name + ":" + word;
  return planner::parseCluster(options.cluster).status();
}

/// Words are checked before anything is compiled.
Result<Family> Family::create(const CompileOptions &options,
                              const PlanningOptions &planning,
                              const std::vector<std::string> &words) {
  Family family;
  if (!words.empty() &&
      (options.output.empty() || isStandardOutput(options.output)))
    return Status::failure("--also names its plans after --output, which has "
                           "to be a file");
  family.output = options.output;
  for (const std::string &word : words) {
    Member member = {word, options, planning};
    // What is told is told of the first plan.
    member.planning.explain = false;
    member.planning.trainTokens = 0;
    // Files of the first plan's report would be overwritten.
    for (std::string *file :
         {&member.planning.json, &member.planning.whyNot,
          &member.planning.report, &member.planning.trace,
          &member.planning.profile, &member.options.dumpPhasesTo})
      file->clear();
    if (Status status = resize(word, member.options); !status.ok())
      return fail("--also ", word, ": ", status.message());
    family.members.push_back(std::move(member));
  }
  return family;
}

/// `hasFailed` is set after a failure that has been told. Compiles one member:
/// chooses its strategy, names it by its ranks, writes it. On a cluster that
/// nothing fits is a failure, on this machine the default strategy stays.
Status Family::compile(Member &member, const ChoosePlan &choose,
                       bool &hasFailed) {
  // Set where the planner has nothing for this member.
  std::string notFound;
  // Each member has its own answer, and its own warning.
  member.planning.notFound = &notFound;
  hasFailed = !choose(member.options, member.planning);
  if (hasFailed || (!notFound.empty() && !member.options.cluster.empty()))
    return Status::failure(notFound);
  if (!notFound.empty()) // as for the first plan
    llvm::errs() << "plaitc: warning: --also " << member.word
                 << " is the default strategy, since the planner has none for "
                    "this machine: "
                 << notFound << "\n";
  // Known from the mesh that was chosen.
  int64_t ranks = countRanks(member.options.mesh);
  for (const auto &[others, name] : written)
    if (others == ranks)
      return fail("'", name, "' is for ", ranks, " ranks already");
  member.options.output = plan::familyName(output, uint32_t(ranks));
  hasFailed = !plait::compile(member.options);
  if (hasFailed)
    return Status::failure("");
  written.push_back({ranks, member.options.output});
  return Status::success();
}

/// Stops at the first failure.
bool Family::compile(const ChoosePlan &choose) {
  for (Member &member : members) {
    bool hasFailed = false;
    Status status = compile(member, choose, hasFailed);
    if (status.ok())
      continue;
    if (!hasFailed)
      llvm::errs() << "plaitc: error: --also " << member.word << ": "
                   << status.message() << "\n";
    return false;
  }
  return true;
}

/// Plans of a family are named by their ranks: no two may have as many.
Status Family::checkFirst(const std::string &mesh) const {
  int64_t ranks = countRanks(mesh);
  for (const auto &[others, name] : written)
    if (others == ranks)
      return fail("--also has a plan for ", ranks, " ranks, as many as '",
                  output, "'");
  return Status::success();
}
