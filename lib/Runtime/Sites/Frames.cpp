//===- Frames.cpp - What sites and their coordinator say ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Frames, and what follows from the plan about their sizes.
//
//===----------------------------------------------------------------------===//

#include "Frames.h"

#include "plait/Plan/Container.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"
#include "plait/Runtime/Sites.h"
#include "plait/Runtime/Slices.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

using namespace plait;
using namespace plait::runtime;
using plan::length;
using Json = nlohmann::ordered_json;

/// Changes with the frames.
static constexpr char protocol[] = "plait-sites 2";

//===----------------------------------------------------------------------===//
// Frames
//===----------------------------------------------------------------------===//

std::string Hello::print() const {
  Json json = {{"protocol", protocol}, {"site", site}, {"plan", hash}};
  json["settings"] = settings;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Whatever has connected may have sent it.
Result<Hello> Hello::parse(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto isNumber = [&](const char *key) {
    return json.contains(key) && json[key].is_number_unsigned();
  };
  if (!json.is_object() || json.value("protocol", Json()) != protocol ||
      !isNumber("site") || !isNumber("plan") || !json.contains("settings") ||
      !json["settings"].is_object())
    return fail("what has connected is no site of this version of plait");
  Hello hello = {
      uint32_t(std::min<uint64_t>(json["site"].get<uint64_t>(), UINT32_MAX)),
      json["plan"].get<uint64_t>(),
      {}};
  for (const auto &[name, value] : json["settings"].items())
    if (value.is_string())
      hello.settings[name] = value;
  return hello;
}

bool runtime::sendFrame(int connection, FrameHeader header,
                        std::span<const std::byte> payload) {
  header.bytes = payload.size();
  return sendAll(connection, &header, sizeof header) &&
         sendAll(connection, payload.data(), payload.size());
}

void runtime::prepareConnection(int connection) {
  int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(connection, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/// The last colon separates, as in `--metrics-port`.
Result<HostPort> runtime::parseHostPort(const std::string &place,
                                        const std::string &host,
                                        const std::string &option) {
  size_t colon = place.rfind(':');
  HostPort result = {colon == place.npos ? host : place.substr(0, colon), 0};
  std::string port = colon == place.npos ? place : place.substr(colon + 1);
  bool isPort = !port.empty() && port.size() <= 5 &&
                port.find_first_not_of("0123456789") == port.npos &&
                std::stoul(port) <= UINT16_MAX;
  if (!isPort || result.host.empty())
    return fail("`", option, "`: '", place, "' is no ",
                host.empty() ? "HOST:PORT" : "port, 0 to 65535, nor HOST:PORT");
  if (result.host.size() > 2 && result.host.front() == '[' &&
      result.host.back() == ']')
    result.host = result.host.substr(1, result.host.size() - 2);
  result.port = uint16_t(std::stoul(port));
  return result;
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

Status runtime::checkSitesApart(const fb::Plan &plan) {
  if (!plan.outer())
    return Status::failure("the plan has no sites: compile it with `mesh` "
                           "sites=S and `outer`");
  if (plan::backendOf(plan) != "cpu")
    return fail("the plan is for ", plan::backendOf(plan),
                ", sites that are runs of their own are processors");
  Outer outer = plan::outerOf(plan);
  bool isKnown = outer.scheme == "average" || outer.scheme == "diloco";
  if (!isKnown)
    return fail("the plan's sites agree by ", plan::describeOuter(plan),
                ", sites that are runs of their own by average or diloco");
  return Status::success();
}

std::vector<uint8_t> runtime::makeSitePlan(const fb::Plan &plan) {
  fb::PlanT copy;
  plan.UnPackTo(&copy);
  copy.mesh[plan::RankGrid(plan).sitesAxis()]->size = 1;
  // It is of no use here, and large.
  copy.reference.clear();
  return plan::packPlan(copy);
}

/// Ranges are of f32.
std::vector<KeptRange> runtime::getKeptRanges(const fb::Plan &plan,
                                              uint32_t rank) {
  plan::RankGrid mesh(plan);
  std::vector<KeptRange> ranges;
  const fb::Program &program = *plan.programs()->Get(mesh.index(rank, 0));
  for (uint32_t i = 0; i < length(program.shards()); ++i) {
    const fb::Shard &shard = *program.shards()->Get(i);
    const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
    auto add = [&](const ShardTensor &tensor, KeptRange::Kind kind) {
      Piece piece(mesh, rank, shard, parameter, tensor);
      ranges.push_back({piece.offset,
                        uint64_t(piece.part.count) * piece.elementBytes(),
                        kind});
    };
    add(weightOf(shard), KeptRange::Weights);
    for (uint32_t j = 0; j < length(shard.state()); ++j) {
      const fb::StateSlot &slot = *shard.state()->Get(j);
      std::string_view name = slot.name()->string_view();
      bool isShared =
          name == plan::kAnchorState || name == plan::kOuterMomentumState;
      add(stateOf(shard, slot), isShared ? KeptRange::Outer : KeptRange::Own);
    }
  }
  return ranges;
}

SiteBytes runtime::countSiteBytes(const fb::Plan &plan, uint32_t rank) {
  plan::RankGrid mesh(plan);
  SiteBytes bytes;
  for (const KeptRange &range : getKeptRanges(plan, rank))
    bytes.state += range.bytes;
  const fb::Program &program = *plan.programs()->Get(mesh.index(rank, 0));
  for (uint32_t i = 0; i < length(program.actions()); ++i) {
    const fb::Action &action = *program.actions()->Get(i);
    if (!plan::isScheme(action) || plan::isTransfer(action))
      continue;
    const auto &steps = *program.functions()->Get(action.function())->steps();
    for (const fb::Step *step : steps)
      if (const auto *sum = step->step_as_CollectiveStep();
          sum && sum->axis() == mesh.sitesAxis())
        bytes.offer += uint64_t(sum->chunk()) * sizeof(float);
  }
  return bytes;
}

SiteBytes runtime::countSiteBytes(const fb::Plan &plan) {
  SiteBytes bytes;
  for (uint32_t rank = 0; rank < plan::RankGrid(plan).ranks(); ++rank) {
    SiteBytes one = countSiteBytes(plan, rank);
    bytes.offer += one.offer;
    bytes.state += one.state;
  }
  return bytes;
}
