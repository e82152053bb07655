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

#include <algorithm>

using namespace plait;

/// Counts a mesh that cannot be parsed as one rank: compilation refuses it with
/// a message of its own.
int64_t plait::countRanks(const std::string &mesh) {
  std::string site = mesh;
  Outer outer = {.scheme = "average",
                 .every = 1}; // any: only sites are asked for
  if (mesh.find("sites") != mesh.npos && !takeSites(site, outer).ok())
    return 1;
  Result<Mesh> parsed = Mesh::parse(site);
  return parsed.ok() ? parsed->ranks() * outer.countSites() : 1;
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
  std::string name = "host"; // this machine, as for --mesh without a cluster
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
Result<Family> Family::create(const Request &request,
                              const std::vector<std::string> &words) {
  Family family;
  if (!words.empty() && request.compile.pins.outer)
    return Status::failure("--also has no plans with --outer: a run cannot be "
                           "resumed with other sites");
  if (!words.empty() &&
      (request.output.empty() || isStandardOutput(request.output)))
    return Status::failure("--also names its plans after --output, which has "
                           "to be a file");
  family.output = request.output;
  for (const std::string &word : words) {
    Member member = {word, request};
    // What is told is told of the first plan, and written for it.
    member.request.report = ReportOptions();
    member.request.compile.dumpPhasesTo.clear();
    if (Status status = resize(word, member.request.compile); !status.ok())
      return fail("--also ", word, ": ", status.message());
    family.members.push_back(std::move(member));
  }
  return family;
}

/// `hasFailed` is set after a failure that has been told. Compiles one member:
/// chooses its strategy, names it by its ranks, writes it. On a cluster that
/// nothing fits is a failure, on this machine the default strategy stays.
Status Family::compile(Member &member, const PlanMaker &maker,
                       Terminal &terminal, bool &hasFailed) {
  Request &request = member.request;
  // Each member has its own answer, and its own warning.
  std::optional<Choice> choice;
  std::string notFound;
  request.planning.isTentative = true;
  hasFailed = !maker.choose(request, choice, notFound);
  if (hasFailed || (!notFound.empty() && !request.compile.cluster.empty()))
    return Status::failure(notFound);
  if (!notFound.empty()) // as for the first plan
    terminal.warn("--also " + member.word +
                  " is the default strategy, since the planner has none for "
                  "this machine: " +
                  notFound);
  // Known from the mesh that was chosen.
  int64_t ranks =
      countRanks(choice ? choice->getOptions().mesh : request.compile.mesh);
  for (const auto &[others, name] : written)
    if (others == ranks)
      return fail("'", name, "' is for ", ranks, " ranks already");
  request.output = plan::familyName(output, uint32_t(ranks));
  hasFailed = !maker.compile(request, choice);
  if (hasFailed)
    return Status::failure("");
  written.push_back({ranks, request.output});
  return Status::success();
}

/// Stops at the first failure.
bool Family::compile(const PlanMaker &maker, Terminal &terminal) {
  for (Member &member : members) {
    bool hasFailed = false;
    Status status = compile(member, maker, terminal, hasFailed);
    if (status.ok())
      continue;
    if (!hasFailed)
      terminal.error("--also " + member.word + ": " + status.message());
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
