//===- Exchange.cpp - What a rank exchanges in a step ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The names of exchanges, and lists in which each kind stands once.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Exchange.h"

#include <algorithm>
#include <iterator>
#include <tuple>

using namespace plait;
using namespace plait::planner;

std::string Exchange::getName() const {
  if (std::optional<CollectiveKind> kind = getCollective(carrier))
    return std::string(getFacts(*kind).name);
  if (carrier == Carrier::Send)
    return "send";
  return (carrier == Carrier::To ? "to-" : "from-") +
         std::string(getFacts(place).name);
}

std::string_view planner::getName(Moment moment) {
  static constexpr std::string_view names[] = {
      "gather", "forward", "backward", "reduce", "optimizer", "agreement"};
  return names[size_t(moment)];
}

double Exchange::getSent() const {
  std::optional<CollectiveKind> kind = getCollective(carrier);
  return kind ? bytes * getSentShare(*kind, members) : bytes;
}

double ExchangeList::getSent() const {
  double bytes = 0;
  for (const Exchange &exchange : exchanges)
    bytes += exchange.getSent();
  return bytes;
}

/// Copies between places are behind all axes.
static auto getKey(const Exchange &exchange) {
  size_t axis = exchange.axis ? size_t(*exchange.axis) : std::size(kAxes);
  return std::tuple(axis, exchange.place, exchange.moment, exchange.carrier,
                    exchange.members);
}

void ExchangeList::add(const Exchange &exchange) {
  if (exchange.count == 0)
    return;
  auto place =
      std::ranges::lower_bound(exchanges, getKey(exchange), {}, getKey);
  if (place == exchanges.end() || !place->isAlike(exchange)) {
    exchanges.insert(place, exchange);
    return;
  }
  place->count += exchange.count;
  place->bytes += exchange.bytes;
  place->seconds += exchange.seconds;
  place->hidden += exchange.hidden;
}
