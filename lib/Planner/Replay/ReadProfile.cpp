//===- ReadProfile.cpp - Reading what plait-run measured ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads what plait-run --profile has written. The file comes from outside:
// every number has a range, every list is checked for being one, and unknown
// fields are errors, so that a profile that is read can be used without further
// checks. Whether it is of the plan at hand is asked apart (checkProfile), as
// not every reader has one.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Defaults.h"
#include "plait/Planner/Json.h"
#include "plait/Planner/PlanCost.h"

using namespace plait;
using namespace plait::planner;
namespace fb = plait::plan::fb;

namespace {

// Wide enough for anything that was measured, narrow enough for sums.
constexpr Range seconds = {0, 1e9};
constexpr Range count = {0, 1e15};

/// Calls `parse(entry, where)` for every object of the list `name`.
/// The path of an entry goes along, for messages.
template <typename Parse>
Status forEach(Fields &fields, const char *name, Parse parse) {
  const Json *list = fields.require(name).get(name);
  if (!list)
    return fields.finish(); // a failure: the field is required
  if (!list->is_array())
    return fail(fields.path(name), " must be a list");
  for (size_t i = 0; i < list->size(); ++i)
    PLAIT_RETURN_IF_ERROR(
        parse((*list)[i],
              fields.path(std::string(name) + "[" + std::to_string(i) + "]")));
  return Status::success();
}

/// A number that is a count.
template <typename Integer>
void readCount(Fields &fields, const char *name, Integer &to, Range range) {
  // A double holds whole numbers up to 2^53, beyond all of the ranges here.
  double value = 0;
  fields.require(name).read(name, value, range);
  to = Integer(value);
}

/// Times of the clock, of waiting beside these, and of the processor.
template <typename Entry> void readTimes(Fields &fields, Entry &entry) {
  fields.require("seconds").read("seconds", entry.seconds, seconds);
  fields.require("waiting_seconds")
      .read("waiting_seconds", entry.waiting, seconds);
  fields.require("processor_seconds")
      .read("processor_seconds", entry.processor, seconds);
}

/// The enumerator called `name`; names end with a null.
template <typename Enum>
Status readEnum(Fields &fields, const char *field, const char *const *names,
                Enum &to) {
  std::string text;
  fields.require(field).read(field, text);
  // Of a field that is missing or no text that is what is wrong.
  if (!fields.get(field))
    return fields.finish();
  for (int i = 0; names[i]; ++i)
    if (text == names[i]) {
      to = Enum(i);
      return Status::success();
    }
  return fail(fields.path(field), " is '", text, "', which is unknown");
}

/// A function with its steps, in the plan's order: they are matched by index.
Status parseFunction(const Json &object, const std::string &where,
                     plan::FunctionProfile &function) {
  Fields fields(object, where);
  fields.require("name").read("name", function.name);
  PLAIT_RETURN_IF_ERROR(
      readEnum(fields, "action", fb::EnumNamesActionKind(), function.action));
  readCount(fields, "calls", function.calls, count);
  PLAIT_RETURN_IF_ERROR(
      forEach(fields, "steps", [&](const Json &entry, const std::string &path) {
        plan::StepProfile &step = function.steps.emplace_back();
        Fields fields(entry, path);
        fields.require("kind").read("kind", step.kind);
        fields.read("location", step.location);
        readTimes(fields, step);
        return fields.finish();
      }));
  return fields.finish();
}

/// Messages of one kind, direction, peer and tensor together. They are matched
/// by these.
Status parseTransfer(const Json &object, const std::string &where,
                     plan::TransferProfile &transfer) {
  Fields fields(object, where);
  PLAIT_RETURN_IF_ERROR(
      readEnum(fields, "kind", fb::EnumNamesActionKind(), transfer.kind));
  PLAIT_RETURN_IF_ERROR(readEnum(fields, "direction", fb::EnumNamesDirection(),
                                 transfer.direction));
  readCount(fields, "peer", transfer.peer, {0, 1e9});
  readCount(fields, "tensor", transfer.tensor, {0, 1e9});
  readCount(fields, "bytes", transfer.bytes, count);
  readCount(fields, "calls", transfer.calls, count);
  readTimes(fields, transfer);
  return fields.finish();
}

/// One program of the plan: what its ranks have allocated, its functions in the
/// plan's order, its messages in any.
Status parseProgram(const Json &object, const std::string &where,
                    plan::ProgramProfile &program) {
  Fields fields(object, where);
  readCount(fields, "arena_bytes", program.arenaBytes, count);
  PLAIT_RETURN_IF_ERROR(forEach(
      fields, "functions", [&](const Json &entry, const std::string &path) {
        return parseFunction(entry, path, program.functions.emplace_back());
      }));
  PLAIT_RETURN_IF_ERROR(forEach(
      fields, "transfers", [&](const Json &entry, const std::string &path) {
        return parseTransfer(entry, path, program.transfers.emplace_back());
      }));
  return fields.finish();
}

/// Axes come sorted by name and not in the plan's order: they are looked up by
/// name.
Status parseMesh(Fields &fields, plan::Profile &profile) {
  const Json *mesh = fields.require("mesh").get("mesh");
  if (!mesh)
    return fields.finish(); // a failure: the field is required
  if (!mesh->is_object())
    return fail(fields.path("mesh"), " must be an object");
  Fields sizes(*mesh, fields.path("mesh"));
  for (const auto &axis : mesh->items())
    readCount(sizes, axis.key().c_str(),
              profile.mesh.emplace_back(axis.key(), 0).second, {1, 1e9});
  return sizes.finish();
}

} // namespace

/// All fields are required but for locations: a profile that lacks one was
/// written by another version, and would be read as zeros.
static Result<plan::Profile> parseProfile(const Json &json,
                                          const std::string &where) {
  plan::Profile profile;
  Fields fields(json, where);
  fields.require("plan").read("plan", profile.plan);
  PLAIT_RETURN_IF_ERROR(parseMesh(fields, profile));
  readCount(fields, "threads", profile.threads, {1, 1e6});
  fields.require("overlap").read("overlap", profile.overlap);
  readCount(fields, "steps", profile.steps, {1, 1e15});
  fields.require("step_seconds")
      .read("step_seconds", profile.stepSeconds, seconds);
  fields.require("overhead_seconds")
      .read("overhead_seconds", profile.overheadSeconds, seconds);
  PLAIT_RETURN_IF_ERROR(forEach(
      fields, "programs", [&](const Json &entry, const std::string &where) {
        return parseProgram(entry, where, profile.programs.emplace_back());
      }));
  PLAIT_RETURN_IF_ERROR(fields.finish());
  return profile;
}

Result<plan::Profile> planner::readProfile(const std::string &path) {
  Result<Json> json = readJsonFile(path, "profile");
  if (!json.ok())
    return json.status();
  return parseProfile(*json, "profile '" + path + "':");
}

Result<std::vector<plan::Profile>>
planner::readProfiles(const std::string &path) {
  Result<Json> json = readJsonFile(path, "profile");
  if (!json.ok())
    return json.status();
  std::vector<plan::Profile> profiles;
  auto list = json->is_object() ? json->find("profiles") : json->end();
  if (!json->is_object() || list == json->end() || !list->is_array()) {
    auto profile = parseProfile(*json, "profile '" + path + "':");
    if (!profile.ok())
      return profile.status();
    profiles.push_back(std::move(*profile));
    return profiles;
  }
  for (size_t i = 0; i < list->size(); ++i) {
    auto profile = parseProfile((*list)[i], "profile " + std::to_string(i) +
                                                " of '" + path + "':");
    if (!profile.ok())
      return profile.status();
    profiles.push_back(std::move(*profile));
  }
  if (profiles.empty())
    return fail("'", path, "' has no profile");
  return profiles;
}

/// Whether there is an entry for every function and step.
/// Messages are not compared: a profile lists those that were sent.
static bool hasShapeOf(const plan::Profile &profile, const fb::Plan &plan) {
  if (profile.programs.size() != plan.programs()->size())
    return false;
  for (uint32_t i = 0; i < profile.programs.size(); ++i) {
    const auto &functions = profile.programs[i].functions;
    const auto *expected = plan.programs()->Get(i)->functions();
    if (functions.size() != plan::length(expected))
      return false;
    for (uint32_t j = 0; j < functions.size(); ++j) {
      const auto *steps = expected->Get(j)->steps();
      if (functions[j].steps.size() != plan::length(steps))
        return false;
    }
  }
  return true;
}

/// The hash tells plans apart; the shape is checked as well, since a file can
/// be edited, and steps are indexed by the plan's numbers.
Status planner::checkProfile(const plan::Profile &profile,
                             const std::string &path, const fb::Plan &plan,
                             uint64_t hash) {
  if (profile.plan != plan::identify(hash))
    return fail("profile '", path, "' is of another plan: it was taken of ",
                profile.plan, ", this one is ", plan::identify(hash));
  if (!hasShapeOf(profile, plan))
    return fail("profile '", path, "' does not have the steps of its plan");
  return Status::success();
}
