//===- Sites.cpp - Lists of actions, and where weights are ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What compiler, checker and runtime ask of a plan with sites.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Sites.h"

#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <charconv>
#include <numeric>

using namespace plait;
using namespace plait::plan;

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

/// Without a delay all that a fragment takes is in one step, in this order.
static void addFragments(const Outer &outer, std::vector<ListFacts> &lists) {
  uint32_t every = uint32_t(outer.every);
  for (int32_t p = 0; p < outer.fragments; ++p) {
    auto add = [&](FragmentDeed deed, const std::string &name, int32_t later,
                   uint32_t part) {
      uint32_t phase = uint32_t(outer.getSendingStep(p) + later) % every;
      lists.push_back({name, every, phase, 0, 0, deed, uint32_t(p), part});
    };
    std::string number = std::to_string(p + 1);
    add(FragmentDeed::Part, "part " + number, 0, 0);
    for (int32_t k = 0; k < outer.countParts(); ++k)
      add(FragmentDeed::Sum, "sum " + number + "." + std::to_string(k + 1),
          outer.delay ? k + 1 : 0, uint32_t(k));
    add(FragmentDeed::Blend, "blend " + number, outer.delay, 0);
  }
}

/// Agreements are counted from 1; matrix m is of agreements m + 1, m + 1 + t,
/// …, but for those that all sites have together.
std::vector<ListFacts> plan::listsOf(const Outer &outer, uint32_t mixings) {
  uint32_t every = uint32_t(outer.every), average = uint32_t(outer.average);
  std::vector<ListFacts> lists = {{"step"}, {"report"}};
  if (outer.is(Agreement::Streaming)) {
    addFragments(outer, lists);
    return lists;
  }
  if (outer.corrects()) {
    lists.push_back({"correct"});
    lists.back().corrects = true;
  }
  bool isGossip = outer.is(Agreement::Gossip);
  if (!isGossip || average)
    lists.push_back({"outer", isGossip ? every * average : every});
  for (uint32_t m = 0; m < mixings; ++m) {
    uint32_t shared = std::gcd(mixings, average);
    bool meets = average && (m + 1) % shared == 0;
    // All of its agreements are multiples of `average`.
    if (meets && shared == average)
      continue;
    lists.push_back({"mix " + std::to_string(m + 1), every * mixings,
                     every * ((m + 1) % mixings), meets ? every * average : 0,
                     m + 1});
  }
  return lists;
}

/// A plan without lists has the step alone.
static const fb::ActionList *listOf(const fb::Plan &plan,
                                    const fb::Action &action) {
  return action.list() < length(plan.lists()) ? plan.lists()->Get(action.list())
                                              : nullptr;
}

bool plan::isDue(const fb::Plan &plan, const fb::Action &action,
                 uint64_t number) {
  const fb::ActionList *list = listOf(plan, action);
  return !list || (number % list->every() == list->phase() &&
                   !(list->except() && number % list->except() == 0));
}

/// The steps that are left out are one in lcm, or none (Chinese remainder
/// theorem).
double plan::runsPerStep(const fb::ActionList &list) {
  uint64_t every = list.every(), except = list.except();
  double runs = 1.0 / double(every);
  if (except && list.phase() % std::gcd(every, except) == 0)
    runs -= 1.0 / double(std::lcm(every, except));
  return runs;
}

double plan::runsPerStep(const fb::Plan &plan, const fb::Action &action) {
  const fb::ActionList *list = listOf(plan, action);
  return list ? runsPerStep(*list) : 1;
}

//===----------------------------------------------------------------------===//
// Schemes
//===----------------------------------------------------------------------===//

/// The values that a median drops follow from the number of sites.
Outer plan::outerOf(const fb::Plan &plan) {
  const fb::OuterRule &rule = *plan.outer();
  Outer outer;
  outer.scheme = rule.scheme()->str();
  std::string graph = flatbuffers::GetString(rule.graph());
  outer.every = rule.every();
  outer.rate = rule.rate();
  outer.momentum = rule.momentum();
  outer.drop = outer.scheme == "median" ? 0 : rule.drop();
  outer.average = rule.average();
  outer.fragments = rule.fragments();
  outer.delay = rule.delay();
  outer.mix = rule.mix();
  outer.radius = rule.radius();
  if (!graph.empty())
    outer.scheme += ":" + graph;
  outer.sites = RankGrid(plan).sites();
  return outer;
}

std::string plan::describeOuter(const fb::Plan &plan) {
  return describeOuter(outerOf(plan));
}

Status plan::checkExchange(const fb::Plan &plan, uint32_t list,
                           uint32_t exchange) {
  uint32_t mixing =
      list < length(plan.lists()) ? plan.lists()->Get(list)->mixing() : 0;
  const auto *mixings = plan.outer() ? plan.outer()->mixings() : nullptr;
  if (mixing < 1 || mixing > length(mixings))
    return fail("is of an exchange in list ", list, ", which has none");
  const auto *exchanges = mixings->Get(mixing - 1)->exchanges();
  if (exchange < 1 || exchange > length(exchanges))
    return fail("is of exchange ", exchange, ", there are ", length(exchanges));
  const fb::SiteExchange &one = *exchanges->Get(exchange - 1);
  uint32_t sites = RankGrid(plan).sites();
  if (one.targets()->size() != sites || one.weights()->size() != sites)
    return fail("is of an exchange of ", one.targets()->size(),
                " sites, there are ", sites);
  for (int32_t target : *one.targets())
    if (target < -1 || target >= int64_t(sites))
      return fail("is of an exchange with site ", target, ", there are ",
                  sites);
  return Status::success();
}

const fb::SiteExchange &plan::exchangeOf(const fb::Plan &plan, uint32_t list,
                                         uint32_t exchange) {
  uint32_t mixing = plan.lists()->Get(list)->mixing();
  return *plan.outer()
              ->mixings()
              ->Get(mixing - 1)
              ->exchanges()
              ->Get(exchange - 1);
}

/// Who receives looks for who sends to it.
std::optional<uint32_t> plan::partnerOf(const fb::Plan &plan,
                                        const RankGrid &mesh, uint32_t rank,
                                        const fb::Action &action) {
  if (!action.exchange())
    return mesh.withIndex(rank, 0, action.peer());
  const auto &targets =
      *exchangeOf(plan, action.list(), action.exchange()).targets();
  int32_t site = int32_t(mesh.index(rank, mesh.sitesAxis())), other = -1;
  if (action.kind() == fb::ActionKind::Recv)
    other = int32_t(std::find(targets.begin(), targets.end(), site) -
                    targets.begin());
  else
    other = targets.Get(site);
  if (other < 0 || other == int32_t(targets.size()))
    return std::nullopt;
  return mesh.withIndex(rank, mesh.sitesAxis(), uint32_t(other));
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

/// Masters of bf16 copies are divided as the optimizer's state is, other
/// weights are whole.
ElementRange plan::weightRange(const fb::Plan &plan, const fb::Shard &shard) {
  bool isMaster = shard.compute_dtype() == fb::DType::BF16;
  if (isMaster && shard.division())
    return {shard.weight(), shard.division()->elements()};
  const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
  int64_t elements = countElements(RankGrid(plan), *parameter.shape(),
                                   dimsOf(shard, /*isDivided=*/isMaster));
  return {shard.weight(), uint64_t(elements)};
}

/// Names have the number of their layer as a word of its own.
static std::optional<uint32_t> layerOf(std::string_view name) {
  while (!name.empty()) {
    std::string_view word = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(word.size() + 1, name.size()));
    uint32_t layer;
    const char *end = word.data() + word.size();
    auto [last, error] = std::from_chars(word.data(), end, layer);
    if (error == std::errc() && last == end)
      return layer;
  }
  return std::nullopt;
}

uint32_t plan::fragmentOf(std::string_view name, uint32_t fragments) {
  std::optional<uint32_t> layer = layerOf(name);
  return layer ? *layer % fragments : fragments - 1;
}

/// A parameter is in the message in which its first element would be, if
/// elements were cut evenly.
std::vector<FragmentPlace>
plan::placeInFragments(const Outer &outer, std::span<const SizedName> all) {
  std::vector<FragmentPlace> places(all.size());
  if (!outer.fragments)
    return places;
  std::vector<uint64_t> sizes(outer.fragments, 0), seen(outer.fragments, 0);
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return all[i].name; });
  for (size_t i : order) {
    places[i].fragment = fragmentOf(all[i].name, uint32_t(outer.fragments));
    sizes[places[i].fragment] += all[i].elements;
  }
  for (size_t i : order) {
    uint32_t fragment = places[i].fragment;
    if (all[i].elements)
      places[i].part = uint32_t(seen[fragment] * uint64_t(outer.countParts()) /
                                sizes[fragment]);
    seen[fragment] += all[i].elements;
  }
  return places;
}

std::vector<FragmentPlace> plan::placeInFragments(const fb::Plan &plan,
                                                  const Outer &outer) {
  std::vector<SizedName> all;
  for (const fb::Parameter *parameter : *plan.parameters()) {
    uint64_t elements = parameter->frozen() ? 0 : 1;
    for (int64_t size : *parameter->box_shape())
      elements *= uint64_t(size);
    all.push_back({parameter->name()->string_view(), elements});
  }
  return placeInFragments(outer, all);
}

/// The copies of what is divided are made when the next step begins.
bool plan::roundsWeight(const fb::Shard &shard) {
  return shard.compute_dtype() == fb::DType::BF16 && !shard.division() &&
         !shard.state_dims();
}
