//===- Mesh.h - Axes of a mesh, and their sizes -----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one table of the axes along which a training is spread, and a mesh as a
// value over it. What an axis means is a fact of its row; whoever asks for
// "those that split the batch" or "those over which gradients are summed" asks
// the facts, and a new row is among the answers.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_MESH_H
#define PLAIT_CONFIGURATION_MESH_H

#include "plait/Support/Status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace plait {

/// The kinds of things that an axis splits.
enum class Splits : uint8_t {
  Stages,   // the layers: a rank has some stages of the model
  Batch,    // the sequences of a microbatch
  Sequence, // the tokens of each sequence
  Anything  // of each operation whatever is cheapest
};

/// Dimensions that tokens and targets share: batch and sequence.
inline constexpr unsigned kTokenDims = 2;

/// Axes of a mesh, outermost first: ranks are numbered with the last one
/// fastest, so that what communicates most has the nearest neighbours. The
/// order of ranks is said here alone.
enum class Axis : uint8_t { PP, Replicate, DP, EP, CP, TP };

/// Facts of an axis.
struct AxisFacts {
  Axis axis;
  std::string_view name; // in IR, in plans and of `--mesh`
  Splits splits;
  /// Whether ZeRO divides state over it: of all that its ranks have the same
  /// of.
  bool dividesState = false;
  /// Whether a mesh has it only where it has more than one rank. The others
  /// are always there, so that meshes of most plans have the same axes.
  bool onDemand = false;
  /// Whether experts are split over it: its ranks have other experts each,
  /// whose gradients are not summed over it, and the same of all else.
  bool splitsExperts = false;

  /// Whether it splits the tokens. Its ranks hold the same parameters, but for
  /// experts that it splits, and gradients are summed over it at the end of a
  /// step.
  constexpr bool splitsTokens() const {
    return splits == Splits::Batch || splits == Splits::Sequence;
  }
  constexpr bool splitsBatch() const { return splits == Splits::Batch; }
  /// Whether ZeRO divides the state of experts over it, of which those that it
  /// splits are on one of its ranks each.
  constexpr bool dividesExperts() const {
    return dividesState && !splitsExperts;
  }
  /// Whether it is one of replicas, which meet nowhere but at the end of a
  /// step.
  constexpr bool splitsReplicas() const {
    return splitsBatch() && !splitsExperts;
  }
  /// Whether its ranks are groups of replicas that have a copy of the state
  /// each, however a group divides its own (HSDP).
  constexpr bool copiesState() const {
    return splitsReplicas() && !dividesState;
  }
  /// The dimension of tokens and targets that it splits; none: it leaves them
  /// whole.
  constexpr std::optional<unsigned> tokenDim() const {
    if (!splitsTokens())
      return std::nullopt;
    return splitsBatch() ? 0 : 1;
  }
};

/// All axes, in the order of Axis.
inline constexpr AxisFacts kAxes[] = {
    {Axis::PP, "pp", Splits::Stages},
    {Axis::Replicate, "replicate", Splits::Batch, /*dividesState=*/false,
     /*onDemand=*/true},
    {Axis::DP, "dp", Splits::Batch, /*dividesState=*/true},
    {Axis::EP, "ep", Splits::Batch, /*dividesState=*/true,
     /*onDemand=*/true, /*splitsExperts=*/true},
    {Axis::CP, "cp", Splits::Sequence, /*dividesState=*/true,
     /*onDemand=*/true},
    {Axis::TP, "tp", Splits::Anything},
};

constexpr const AxisFacts &getFacts(Axis axis) { return kAxes[size_t(axis)]; }

/// The axis called `name`, or null.
constexpr const AxisFacts *findAxis(std::string_view name) {
  for (const AxisFacts &facts : kAxes)
    if (facts.name == name)
      return &facts;
  return nullptr;
}

/// "pp, replicate, dp, ep, cp or tp".
std::string joinAxisNames();

/// One value for each axis.
template <typename T> class PerAxis {
public:
  T &operator[](Axis axis) { return values[size_t(axis)]; }
  const T &operator[](Axis axis) const { return values[size_t(axis)]; }
  auto begin() const { return values.begin(); }
  auto end() const { return values.end(); }
  auto operator<=>(const PerAxis &) const = default;

private:
  std::array<T, std::size(kAxes)> values = {};
};

/// The ranks along each axis, all at least 1.
class Mesh {
public:
  /// More ranks than any cluster has; products of sizes stay far from overflow.
  static constexpr int64_t kMostRanks = int64_t(1) << 24;

  Mesh();

  /// Reads "pp=2,dp=4", axes in any order; "1" and the empty text are one rank.
  /// Fails on an axis that there is not or that is named twice, on a size that
  /// is not positive, and on more than kMostRanks in all.
  static Result<Mesh> parse(std::string_view text);
  /// Takes axes and their sizes, as IR and plans have them; fails like parse().
  static Result<Mesh>
  get(std::span<const std::pair<std::string_view, int64_t>> sizes);
  /// The text that parse() reads, without axes that are there on demand and
  /// have one rank; or with other signs, "pp 2, dp 4".
  std::string print(std::string_view assign = "=",
                    std::string_view separate = ",") const;

  int &operator[](Axis axis) { return sizes[axis]; }
  int operator[](Axis axis) const { return sizes[axis]; }

  /// Ranks along all axes whose facts `holds`.
  template <typename Predicate> int64_t product(Predicate &&holds) const {
    int64_t ranks = 1;
    for (const AxisFacts &facts : kAxes)
      if (std::invoke(holds, facts))
        ranks *= sizes[facts.axis];
    return ranks;
  }
  int64_t ranks() const {
    return product([](const AxisFacts &) { return true; });
  }
  /// Parts of a microbatch: each has sequences of its own.
  int64_t batchParts() const { return product(&AxisFacts::splitsBatch); }
  /// Ranks that hold the same parameters, over which gradients are summed.
  int64_t replicas() const { return product(&AxisFacts::splitsTokens); }
  /// Those of them that have one copy of the state together, as it is divided
  /// by programs that do so over the ranks of a sequence, too.
  int64_t sharers() const {
    return replicas() / product(&AxisFacts::copiesState);
  }
  /// The distance between the numbers of neighbours along `axis`.
  int64_t stride(Axis axis) const {
    return product([=](const AxisFacts &facts) { return facts.axis > axis; });
  }
  /// Whether a mesh in IR names `facts`.
  bool names(const AxisFacts &facts) const {
    return !facts.onDemand || sizes[facts.axis] > 1;
  }

  auto operator<=>(const Mesh &) const = default;

private:
  PerAxis<int> sizes;
};

} // namespace plait

#endif // PLAIT_CONFIGURATION_MESH_H
