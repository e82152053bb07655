//===- search_methods.cpp - plait's search beside other methods -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   plait-bench-methods [NAME]
//
// lets random search, simulated annealing and an epsilon-greedy policy look for
// the fastest configuration, for all models or those with NAME in their name,
// with as many evaluations as plait's search makes, a tenth of that and ten
// times as many, and prints how much slower than plait's optimum the best is
// that each has found by then: the median of ten seeds, and the best. An
// evaluation is a call of the planner's estimate(); one that is asked for twice
// counts once. Fails where a method finds something faster than the optimum.
//
//===----------------------------------------------------------------------===//

#include "MethodSpace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <set>

using namespace plait;
using namespace plait::planner;

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

struct Parameters {
  /// A method minimises the logarithm of the seconds. A point that does not fit
  /// has this added, and the logarithm of its load as often: so that memory is
  /// found before time.
  double penalty = 2;
  /// Annealing: the temperature falls geometrically over the evaluations.
  double hottest = 0.5, coldest = 0.01;
  /// The policy: how often it draws, at first and at the end, falling linearly,
  /// and how far an action's value moves to what came of it.
  double drawnFirst = 0.5, drawnLast = 0.05;
  double rate = 0.3;
};

/// Evaluates for one run of one method, and remembers.
class Evaluator {
public:
  Evaluator(MethodSpace &space, size_t most, const Parameters &parameters)
      : space(space), most(most), parameters(parameters) {}

  bool isDone() const { return best.size() >= most || asked >= 50 * most; }
  double getProgress() const { return double(best.size()) / double(most); }
  /// Returns what is to be minimised.
  double getScore(const Point &point);

  /// Seconds of the fastest that fits, by number of evaluations.
  std::vector<double> best;
  Point fastest{};

private:
  MethodSpace &space;
  size_t most;
  const Parameters &parameters;
  size_t asked = 0;
  std::map<Point, double> known;
};

} // namespace

double Evaluator::getScore(const Point &point) {
  ++asked;
  auto [entry, isNew] = known.try_emplace(point, never);
  if (!isNew)
    return entry->second;
  std::optional<Value> value = space.evaluate(point);
  double before = best.empty() ? never : best.back();
  best.push_back(before);
  if (!value)
    return never;
  entry->second = std::log(value->seconds);
  if (!value->fits()) {
    entry->second += parameters.penalty * (1 + std::log(value->load));
  } else if (value->seconds < before) {
    best.back() = value->seconds;
    fastest = point;
  }
  return entry->second;
}

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

using Generator = std::mt19937_64;

static int drawOf(const std::vector<int> &values, Generator &generator) {
  return values[std::uniform_int_distribution<size_t>(0, values.size() -
                                                             1)(generator)];
}

static double drawShare(Generator &generator) {
  return std::uniform_real_distribution<double>(0, 1)(generator);
}

/// Every choice uniformly.
static std::optional<Point> drawPoint(MethodSpace &space,
                                      Generator &generator) {
  return space.make([&](Choice, const Point &, const std::vector<int> &values) {
    return drawOf(values, generator);
  });
}

static void searchAtRandom(MethodSpace &space, Evaluator &evaluator,
                           const Parameters &, Generator &generator) {
  while (!evaluator.isDone())
    if (std::optional<Point> point = drawPoint(space, generator))
      evaluator.getScore(*point);
}

/// One choice is made anew, half of the time the next value up or down; the
/// others stay, or go to the nearest value that is left of them.
static std::optional<Point> move(MethodSpace &space, const Point &from,
                                 Generator &generator) {
  std::vector<int> open;
  for (size_t i = 0; i < choiceCount; ++i)
    if (space.getValues(from, Choice(i)).size() > 1)
      open.push_back(int(i));
  const Choice moved = Choice(drawOf(open, generator));
  return space.make(
      [&](Choice choice, const Point &, const std::vector<int> &values) {
        auto nearest = std::ranges::min_element(values, {}, [&](int value) {
          return std::abs(value - from[size_t(choice)]);
        });
        if (choice != moved)
          return *nearest;
        size_t place = size_t(nearest - values.begin());
        if (drawShare(generator) < 0.5)
          return drawOf(values, generator);
        bool isUp = place == 0 ||
                    (place + 1 < values.size() && drawShare(generator) < 0.5);
        return values[isUp ? place + 1 : place - 1];
      });
}

/// Kirkpatrick, Gelatt and Vecchi 1983.
static void anneal(MethodSpace &space, Evaluator &evaluator,
                   const Parameters &parameters, Generator &generator) {
  std::optional<Point> now;
  while (!now)
    now = drawPoint(space, generator);
  double score = evaluator.getScore(*now);
  while (!evaluator.isDone()) {
    std::optional<Point> next = move(space, *now, generator);
    if (!next)
      continue;
    double other = evaluator.getScore(*next);
    double temperature =
        parameters.hottest * std::pow(parameters.coldest / parameters.hottest,
                                      evaluator.getProgress());
    if (other <= score ||
        drawShare(generator) < std::exp((score - other) / temperature)) {
      now = next;
      score = other;
    }
  }
}

/// Monte-Carlo control of a row of decisions (Sutton and Barto 2018, chapter 5)
/// with a table of action values: of each value of a choice, beside the tp and
/// the pp that have been chosen before. The reward of a whole configuration is
/// the score, negated. What has not been tried is only ever drawn.
static void followPolicy(MethodSpace &space, Evaluator &evaluator,
                         const Parameters &parameters, Generator &generator) {
  std::map<std::array<int, 4>, double> values;
  std::vector<std::array<int, 4>> actions;
  auto choose = [&](Choice choice, const Point &point,
                    const std::vector<int> &from) {
    auto getKey = [&](int value) {
      return std::array<int, 4>{int(choice), point[size_t(Choice::Tensor)],
                                point[size_t(Choice::Pipeline)], value};
    };
    double share =
        parameters.drawnFirst + (parameters.drawnLast - parameters.drawnFirst) *
                                    evaluator.getProgress();
    int chosen = drawOf(from, generator);
    if (drawShare(generator) >= share) {
      double best = never;
      for (int value : from)
        if (auto known = values.find(getKey(value));
            known != values.end() && known->second < best) {
          best = known->second;
          chosen = value;
        }
    }
    actions.push_back(getKey(chosen));
    return chosen;
  };
  while (!evaluator.isDone()) {
    actions.clear();
    std::optional<Point> point = space.make(choose);
    if (!point)
      continue;
    double score = evaluator.getScore(*point);
    if (score == never)
      continue;
    for (const std::array<int, 4> &action : actions) {
      auto [entry, isNew] = values.try_emplace(action, score);
      entry->second += parameters.rate * (score - entry->second);
    }
  }
}

namespace {
struct Method {
  const char *name;
  void (*run)(MethodSpace &, Evaluator &, const Parameters &, Generator &);
};
constexpr Method methods[] = {{"random search", searchAtRandom},
                              {"annealing", anneal},
                              {"epsilon-greedy", followPolicy}};
} // namespace

//===----------------------------------------------------------------------===//
// Figures
//===----------------------------------------------------------------------===//

/// "12.3 (0.0)": percent slower than `optimum`, median and best of all runs.
static std::string summarize(std::vector<double> seconds, double optimum) {
  std::ranges::sort(seconds);
  auto print = [&](double found) {
    char text[32] = "none fits";
    if (found < never)
      std::snprintf(text, sizeof text, "%.1f", 100 * (found / optimum - 1));
    return std::string(text);
  };
  size_t half = seconds.size() / 2;
  return print((seconds[(seconds.size() - 1) / 2] + seconds[half]) / 2) + " (" +
         print(seconds.front()) + ")";
}

/// False where something faster than the optimum was found.
static bool compare(const Case &one, const Parameters &parameters, int seeds,
                    int firstSeed) {
  MethodSpace space(one);
  Result<SearchResult> result = space.search();
  if (!result.ok()) {
    std::printf("%s: %s\n", one.name.c_str(),
                result.status().message().c_str());
    return false;
  }
  const double optimum = result->lowerBoundSeconds;
  const size_t evaluations = size_t(result->counts.estimated);
  std::printf("\n%s: %.4f s, %zu evaluations of %lld configurations, %.2f s\n",
              one.name.c_str(), optimum, evaluations,
              (long long)result->counts.considered, result->counts.seconds);
  bool isOptimal = true;
  for (const Method &method : methods) {
    const size_t counts[] = {evaluations / 10, evaluations, 10 * evaluations};
    std::vector<double> found[std::size(counts)];
    for (int seed = firstSeed; seed < firstSeed + seeds; ++seed)
      // Each number of evaluations is a run of its own: schedules of
      // temperature and of epsilon are made for it.
      for (size_t i = 0; i < std::size(counts); ++i) {
        Generator generator{uint64_t(seed)};
        Evaluator evaluator(space, std::max<size_t>(1, counts[i]), parameters);
        method.run(space, evaluator, parameters, generator);
        found[i].push_back(evaluator.best.back());
        // Sums of the same terms in another order.
        if (evaluator.best.back() >= optimum * (1 - 1e-9))
          continue;
        isOptimal = false;
        std::printf("BEATEN: %.6f s by %s\n", evaluator.best.back(),
                    print(space.toConfiguration(evaluator.fastest)).c_str());
      }
    std::printf("| %s |", method.name);
    for (const std::vector<double> &seconds : found)
      std::printf(" %s |", summarize(seconds, optimum).c_str());
    std::printf("\n");
  }
  return isOptimal;
}

int main(int argc, char **argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string filter = argc > 1 ? argv[1] : "";
  bool isOptimal = true;
  for (const Case &one : getCases())
    if (one.name.find(filter) != std::string::npos)
      isOptimal &= compare(one, Parameters(), 10, 1);
  return isOptimal ? 0 : 1;
}
