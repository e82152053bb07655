//===- KeyHash.h - Hashes of what bounds depend on ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_KEYHASH_H
#define PLAIT_LIB_PLANNER_SEARCH_KEYHASH_H

#include "plait/Configuration/Configuration.h"
#include "plait/Configuration/Mesh.h"

#include <functional>
#include <tuple>
#include <unordered_map>

namespace plait::planner {

/// Hashes tuples of numbers, pointers, enumerations and parts of a
/// configuration.
struct KeyHash {
  template <typename... Parts>
  size_t operator()(const std::tuple<Parts...> &key) const {
    size_t hash = 0;
    std::apply([&](const auto &...parts) { (add(hash, parts), ...); }, key);
    return hash;
  }

private:
  template <typename Part> static void add(size_t &hash, const Part &part) {
    // An odd factor spreads what differs in low bits; the shift brings what
    // has got into high bits back, since buckets are chosen by the low ones.
    hash = (hash ^ std::hash<Part>()(part)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  static void add(size_t &hash, const Mesh &mesh) {
    for (const AxisFacts &facts : kAxes)
      add(hash, mesh[facts.axis]);
  }
  static void add(size_t &hash, const Offload &offload) {
    add(hash, offload.activations);
    add(hash, offload.optimizer);
  }
  static void add(size_t &hash, const Recomputation &recompute) {
    add(hash, recompute.isAuto);
    for (const Recomputation::Stage &stage : recompute.stages) {
      add(hash, stage.full);
      add(hash, stage.selective);
    }
  }
  static void add(size_t &hash, const std::vector<int> &numbers) {
    for (int number : numbers)
      add(hash, number);
  }
};

template <typename Key, typename Value>
using HashMap = std::unordered_map<Key, Value, KeyHash>;

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_KEYHASH_H
