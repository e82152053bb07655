//===- MethodSpace.cpp - The planner's space as a row of choices ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MethodSpace.h"

#include <algorithm>
#include <numeric>

using namespace plait;
using namespace plait::planner;

MethodSpace::MethodSpace(const Case &one)
    : source(one.shape), cluster(*parseCluster(one.cluster)),
      training(one.getTraining()), space(SearchSpace::all()) {
  space.schedule.clear();
  for (const schedule::Generator &generator : schedule::getGenerators())
    if (!generator.searches) {
      generators.push_back(&generator);
      space.schedule.push_back(generator.name);
    }
}

const Work *MethodSpace::getWork(int tensor, bool sequenceParallel) {
  std::string reason;
  return source.get(tensor, sequenceParallel, /*sequences=*/1, reason);
}

static int at(const Point &point, Choice choice) {
  return point[size_t(choice)];
}

/// The members of `from` that `keep` says.
template <typename Keep>
static std::vector<int> filter(std::vector<int> from, const Keep &keep) {
  std::erase_if(from, [&](int value) { return !keep(value); });
  return from;
}

/// `first` to `last`.
static std::vector<int> range(int first, int last) {
  std::vector<int> values(size_t(std::max(0, last - first + 1)));
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<int> MethodSpace::getValues(const Point &point, Choice choice) {
  const int ranks = cluster.devices();
  const int context = at(point, Choice::Context);
  const int tensor = at(point, Choice::Tensor);
  const int pipeline = at(point, Choice::Pipeline);
  auto getReplicas = [&](int pp) { return ranks / (context * tensor * pp); };
  auto getStages = [&] { return pipeline * at(point, Choice::Chunks); };
  auto places = [](const auto &list) { return range(0, int(list.size()) - 1); };
  switch (choice) {
  case Choice::Context:
    return filter(space.mesh[Axis::CP], [&](int cp) {
      return training.sequence % cp == 0 && ranks % cp == 0;
    });
  case Choice::Tensor:
    return filter(range(1, cluster.devicesPerNode), [&](int tp) {
      return ranks % (context * tp) == 0 && getWork(tp, false);
    });
  case Choice::Pipeline: {
    int most = int(getWork(tensor, false)->mostStages());
    return filter(range(1, most), [&](int pp) {
      return ranks % (context * tensor * pp) == 0 &&
             training.globalBatch % getReplicas(pp) == 0;
    });
  }
  case Choice::Schedule: {
    // One stage has no schedule.
    auto isPossible = [&](int place) {
      const schedule::Generator &row = *generators[size_t(place)];
      return pipeline == 1 ? std::string_view(row.name) == Strategy().schedule
                           : int64_t(pipeline) * row.minChunks <=
                                 getWork(tensor, false)->mostStages();
    };
    return filter(places(generators), isPossible);
  }
  case Choice::Chunks: {
    const schedule::Generator &row =
        *generators[size_t(at(point, Choice::Schedule))];
    return filter(space.chunks, [&](int chunks) {
      return chunks >= int(row.minChunks) && chunks <= int(row.maxChunks) &&
             (pipeline > 1 ? int64_t(pipeline) * chunks <=
                                 getWork(tensor, false)->mostStages()
                           : chunks == 1);
    });
  }
  case Choice::Cut:
    return range(0, pipeline > 1 &&
                        getWork(tensor, false)->layers() % getStages() == 0);
  case Choice::MicroBatch:
    return filter(range(1, 128), [&](int size) {
      return training.globalBatch / getReplicas(pipeline) % size == 0;
    });
  case Choice::Recompute:
    return places(space.recompute);
  case Choice::Zero:
    return getReplicas(pipeline) > 1 ? places(space.zero) : range(0, 0);
  case Choice::SequenceParallel:
    return range(0, tensor > 1);
  case Choice::ContextParallel:
    return context > 1 ? places(space.contextParallel) : range(0, 0);
  case Choice::Offload:
    return places(space.offload);
  }
  return {};
}

std::optional<Point> MethodSpace::make(
    const std::function<int(Choice, const Point &, const std::vector<int> &)>
        &choose) {
  Point point{};
  for (size_t i = 0; i < choiceCount; ++i) {
    std::vector<int> values = getValues(point, Choice(i));
    if (values.empty())
      return std::nullopt;
    point[i] =
        values.size() == 1 ? values.front() : choose(Choice(i), point, values);
  }
  return point;
}

Configuration MethodSpace::toConfiguration(const Point &point) {
  Configuration result;
  result.mesh[Axis::CP] = at(point, Choice::Context);
  result.mesh[Axis::TP] = at(point, Choice::Tensor);
  result.mesh[Axis::PP] = at(point, Choice::Pipeline);
  result.mesh[Axis::DP] = cluster.devices() / int(result.mesh.ranks());
  result.schedule = generators[size_t(at(point, Choice::Schedule))]->name;
  result.chunks = at(point, Choice::Chunks);
  result.microBatch = at(point, Choice::MicroBatch);
  result.recompute = space.recompute[size_t(at(point, Choice::Recompute))];
  result.zero = space.zero[size_t(at(point, Choice::Zero))];
  result.sequenceParallel = at(point, Choice::SequenceParallel) != 0;
  result.contextParallel =
      space.contextParallel[size_t(at(point, Choice::ContextParallel))];
  result.offload = space.offload[size_t(at(point, Choice::Offload))];
  if (at(point, Choice::Cut)) {
    int stages = result.mesh[Axis::PP] * result.chunks;
    result.layers.assign(size_t(stages),
                         int(getWork(result.mesh[Axis::TP], false)->layers()) /
                             stages);
  }
  return result;
}

std::optional<Value> MethodSpace::evaluate(const Point &point) {
  Configuration configuration = toConfiguration(point);
  Result<Estimate> estimate = planner::estimate(
      *getWork(configuration.mesh[Axis::TP], configuration.sequenceParallel),
      cluster, training, configuration);
  if (!estimate.ok())
    return std::nullopt;
  const Device &device = cluster.device;
  PerPlace<double> needs = estimate->getNeeds();
  double load = 0;
  for (const MemoryPlaceFacts &facts : memoryPlaces)
    if (double room = device.getRoom(facts.place); room > 0)
      load = std::max(load, needs[facts.place] / room);
  return Value{estimate->iterationSeconds, load};
}

Result<SearchResult> MethodSpace::search() {
  return planner::search(source, cluster, training, space);
}
