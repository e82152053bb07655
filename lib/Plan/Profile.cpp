//===- Profile.cpp - Measured times of a run ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes the profile as docs/Plan.md lists its fields. Reading it back is the
// planner's, which alone has a use for it.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Profile.h"

#include "plait/Plan/Files.h"

#include <nlohmann/json.hpp>

#include <cinttypes>

using namespace plait;
using namespace plait::plan;
using Json = nlohmann::ordered_json; // fields in the order of the documentation

/// Steps are in the plan's order and have no number.
static Json toJson(const FunctionProfile &function) {
  Json steps = Json::array();
  for (const StepProfile &step : function.steps)
    steps.push_back({{"kind", step.kind},
                     {"location", step.location},
                     {"seconds", step.seconds},
                     {"waiting_seconds", step.waiting},
                     {"processor_seconds", step.processor}});
  return {{"name", function.name},
          {"action", fb::EnumNameActionKind(function.action)},
          {"calls", function.calls},
          {"steps", std::move(steps)}};
}

/// These fields together identify a transfer of its program.
static Json toJson(const TransferProfile &transfer) {
  return {{"kind", fb::EnumNameActionKind(transfer.kind)},
          {"direction", fb::EnumNameDirection(transfer.direction)},
          {"peer", transfer.peer},
          {"tensor", transfer.tensor},
          {"bytes", transfer.bytes},
          {"calls", transfer.calls},
          {"seconds", transfer.seconds},
          {"waiting_seconds", transfer.waiting},
          {"processor_seconds", transfer.processor}};
}

/// Programs are in the plan's order as well.
static Json toJson(const ProgramProfile &program) {
  Json functions = Json::array(), transfers = Json::array();
  for (const FunctionProfile &function : program.functions)
    functions.push_back(toJson(function));
  for (const TransferProfile &transfer : program.transfers)
    transfers.push_back(toJson(transfer));
  return {{"arena_bytes", program.arenaBytes},
          {"functions", std::move(functions)},
          {"transfers", std::move(transfers)}};
}

/// Prints leading zeros, so that all have one length.
std::string plan::identify(uint64_t hash) {
  char text[32];
  std::snprintf(text, sizeof text, "xxh3-%016" PRIx64, hash);
  return text;
}

/// The mesh keeps the order of its axes.
Status plan::writeProfile(const Profile &profile, const std::string &path) {
  Json mesh = Json::object(), programs = Json::array();
  for (const auto &[axis, size] : profile.mesh)
    mesh[axis] = size;
  for (const ProgramProfile &program : profile.programs)
    programs.push_back(toJson(program));
  Json content = {{"plan", profile.plan},
                  {"mesh", std::move(mesh)},
                  {"threads", profile.threads},
                  {"overlap", profile.overlap},
                  {"steps", profile.steps},
                  {"step_seconds", profile.stepSeconds},
                  {"overhead_seconds", profile.overheadSeconds},
                  {"programs", std::move(programs)}};
  return writeTextFile(path, content.dump(1) + "\n");
}
