//===- MethodSpace.h - The planner's space as a row of choices --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What search_methods.cpp searches: the space of plait's own search as choices
// that are made one after another, each with the values that the earlier ones
// leave. No value is offered that the planner would refuse, so that no method
// loses evaluations to configurations that make no sense.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_BENCH_METHODSPACE_H
#define PLAIT_BENCH_METHODSPACE_H

#include "Models.h"

#include "plait/Planner/Search.h"
#include "plait/Schedule/Generators.h"

#include <array>
#include <functional>
#include <map>
#include <optional>

namespace plait::planner {

/// The choices of a configuration, in the order in which they are made.
enum class Choice : uint8_t {
  Context,
  Tensor,
  Pipeline, // replicas are what is left
  Schedule,
  Chunks,
  Cut, // 0: by cost, 1: evenly
  MicroBatch,
  Recompute,
  Zero,
  SequenceParallel,
  ContextParallel,
  Offload,
};
inline constexpr size_t choiceCount = size_t(Choice::Offload) + 1;

/// A value for each choice: sizes as they are, words by their place.
using Point = std::array<int, choiceCount>;

/// The answer of an evaluation.
struct Value {
  double seconds = 0;
  /// The memory that is needed, as a part of what there is, on the device or
  /// the host that is short most; at most 1 where it fits.
  double load = 0;

  bool fits() const { return load <= 1; }
};

/// All devices of the case, inside of nodes for tp, and no schedule that is
/// searched for: a single one takes seconds for the larger models.
class MethodSpace {
public:
  explicit MethodSpace(const Case &one);

  /// The values of `choice` beside the earlier ones of `point`, ascending;
  /// empty: these lead nowhere.
  std::vector<int> getValues(const Point &point, Choice choice);

  /// `choose(choice, values)` is asked for one of the values for each choice of
  /// which there are several; none where they lead nowhere.
  std::optional<Point>
  make(const std::function<int(Choice, const Point &, const std::vector<int> &)>
           &choose);

  /// None where the planner says that it makes no sense.
  std::optional<Value> evaluate(const Point &point);
  Configuration toConfiguration(const Point &point);

  /// The best there is, by plait.
  Result<SearchResult> search();

private:
  const Work *getWork(int tensor, bool sequenceParallel);

  TransformerSource source;
  Cluster cluster;
  Training training;
  SearchSpace space;
  std::vector<const schedule::Generator *> generators; // as in the space
};

} // namespace plait::planner

#endif // PLAIT_BENCH_METHODSPACE_H
