//===- JointSearch.cpp - Cut, placement and order together ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A shape is a number of virtual stages a rank and their placement. For each:
//
//  1. Some cuts, by work and by memory, are ordered by the greedy engine under
//     several policies: without guidance, by the rhythms of V-Half and V-Min,
//     and in the order of F and I of each named schedule. The best is kept.
//  2. Its policy is followed through other cuts: one layer at a time goes from
//     a stage to another, as long as that helps.
//  3. What is best is improved as a job shop (OrderSearch.h), cut and order at
//     once.
//
// What is left of the work is given to fewer and fewer shapes, as in successive
// halving (Jamieson and Talwalkar 2016): which shape is best shows long before
// its best order is found. All stop at the bound.

#include "plait/Schedule/JointSearch.h"
#include "ControllableMemory.h"
#include "OrderSearch.h"
#include "plait/Schedule/Generators.h"
#include "plait/Schedule/StageCut.h"
#include "plait/Schedule/Verify.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace plait;
using namespace plait::schedule;

static constexpr double never = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Problems
//===----------------------------------------------------------------------===//

static Status checkTime(const Layer &layer, const char *what, double value) {
  if (value >= 0 && value <= 1e12)
    return Status::success();
  return fail("layer '", layer.name, "': ", what, " is ", value,
              ", expected 0 to 1e+12");
}

/// The bounds on values are those of Costs and MemoryModel, checked here
/// because messages can name the layer. Problem::check() covers the sizes; of
/// the number of chunks, where it is open, the least is what has to be
/// possible.
Status JointProblem::check() const {
  PLAIT_RETURN_IF_ERROR(
      Problem({stages, chunks.value_or(1), microbatches}).check());
  if (!(transfer >= 0 && transfer <= 1e12))
    return fail("time of a transfer is ", transfer, ", expected 0 to 1e+12");
  if (!(memory.limit >= 0 && memory.limit <= 1e12))
    return fail("memory limit is ", memory.limit, ", expected 0 to 1e+12");
  for (const Layer &layer : layers) {
    PLAIT_RETURN_IF_ERROR(checkTime(layer, "f", layer.forward));
    PLAIT_RETURN_IF_ERROR(checkTime(layer, "b", layer.backwardInput));
    PLAIT_RETURN_IF_ERROR(checkTime(layer, "w", layer.backwardWeight));
    PLAIT_RETURN_IF_ERROR(checkTime(layer, "activation", layer.activation));
  }
  uint64_t least = uint64_t(stages) * chunks.value_or(1);
  if (layers.size() < least)
    return fail(layers.size(), " layers are fewer than the ", least,
                " virtual stages of ", stages, " ranks");
  return Status::success();
}

/// One walk over the layers, in the order of the stages. Expects a cut of all
/// layers: the counts add up to as many as there are.
StageSums schedule::sumStages(const JointProblem &problem,
                              const std::vector<int> &cut) {
  StageSums sums;
  sums.costs.transfer = problem.transfer;
  auto layer = problem.layers.begin();
  for (int count : cut) {
    Layer sum;
    for (; count > 0; --count, ++layer) {
      sum.forward += layer->forward;
      sum.backwardInput += layer->backwardInput;
      sum.backwardWeight += layer->backwardWeight;
      sum.activation += layer->activation;
    }
    sums.costs.forwards.push_back(sum.forward);
    sums.costs.backwardInputs.push_back(sum.backwardInput);
    sums.costs.backwardWeights.push_back(sum.backwardWeight);
    sums.activations.push_back(sum.activation);
  }
  return sums;
}

//===----------------------------------------------------------------------===//
// Greedy schedules
//===----------------------------------------------------------------------===//

namespace {

/// How the greedy engine is guided.
struct Policy {
  /// F and I of a named schedule; empty: none.
  std::vector<std::vector<Action>> order = {};
  std::optional<Rhythm> rhythm = std::nullopt;
  bool inputFirst = false;
  /// Waits for work rather than delay it by a W, as far as the bound leaves
  /// time for that.
  bool waits = false;
};

/// A number of virtual stages a rank and where they are.
struct Shape {
  Problem problem;
  std::vector<Policy> policies;
  size_t policy = 0; // the best one
  Candidate best = {};

  /// F, I and W of each virtual stage and microbatch: what one run of the
  /// engine starts.
  uint64_t countActions() const {
    return 3 * uint64_t(problem.virtualStages()) * problem.microbatches;
  }
};

/// Runs the steps of the banner on all shapes of one problem. Every shape keeps
/// its best candidate, infinite where the engine found none within the memory
/// limit; candidates only ever get faster, and all are sound and within the
/// limit.
class JointSearch {
public:
  explicit JointSearch(const JointProblem &problem)
      : problem(problem), bound(boundMakespan(problem)) {}

  Result<JointResult> run();

private:
  void addShape(uint32_t chunks, Placement placement);
  Candidate order(const Shape &shape, const Policy &policy,
                  const std::vector<int> &cut);
  void tryPolicies(Shape &shape);
  void moveLayers(Shape &shape);
  void improve(Shape &shape, uint64_t seed);
  void keepBest(size_t count);

  const JointProblem &problem;
  // A lower bound on the makespan: a candidate that meets it needs no
  // improvement.
  double bound;
  std::vector<Shape> shapes;
};

} // namespace

/// The cut by work alone.
static std::vector<int> cutByWork(const JointProblem &problem,
                                  const Problem &shape) {
  std::vector<double> work;
  for (const Layer &layer : problem.layers)
    work.push_back(layer.forward + layer.backwardInput + layer.backwardWeight);
  return cutStages(work, std::nullopt, std::nullopt, shape);
}

namespace {

/// Levels when ranks would end if they never waited after their first start:
/// layers go from stage to stage, those in between pass one on, as long as that
/// makes the latest earlier and the others more even.
class CutLeveler {
public:
  CutLeveler(const JointProblem &problem, const Problem &shape)
      : problem(problem), shape(shape) {
    for (const Layer &layer : problem.layers) {
      double whole = layer.backwardInput + layer.backwardWeight;
      forward.push_back(forward.back() + layer.forward);
      work.push_back(work.back() + layer.forward + whole);
    }
  }

  /// Descends by single layers until none helps. Each pass tries all pairs of
  /// stages, so that a pass costs their square times one walk over the stages;
  /// the tolerance keeps rounding from moving a layer to and fro.
  std::vector<int> run(std::vector<int> cut) {
    double best = measure(cut);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t from = 0; from < cut.size(); ++from)
        for (size_t to = 0; to < cut.size(); ++to) {
          if (from == to || cut[from] < 2)
            continue;
          --cut[from], ++cut[to];
          double unevenness = measure(cut);
          if (unevenness < best * (1 - 1e-9)) {
            best = unevenness;
            changed = true;
          } else {
            ++cut[from], --cut[to];
          }
        }
    }
    return cut;
  }

private:
  /// A maximum with a slope: in the 16th power the latest rank outweighs all
  /// others, but what evens out the others still counts, and may be what lets
  /// the next move help the latest. By the mean, so that it stays in the range
  /// of a double.
  double measure(const std::vector<int> &cut) {
    ends.assign(shape.stages, -1);
    size_t next = 0;
    for (uint32_t stage = 0; stage < cut.size(); ++stage) {
      double &end = ends[shape.rankOf(stage)];
      // A rank starts when the first microbatch has come through the stages in
      // front, and has its work for all microbatches from then on.
      if (end < 0) // its first stage
        end = forward[next] + stage * problem.transfer;
      size_t first = next;
      next += size_t(cut[stage]);
      end += (work[next] - work[first]) * shape.microbatches;
    }
    double mean = std::accumulate(ends.begin(), ends.end(), 0.0) / shape.stages;
    double sum = 0;
    for (double end : ends)
      sum += mean > 0 ? std::pow(end / mean, 16) : 0;
    return sum;
  }

  const JointProblem &problem;
  const Problem &shape;
  std::vector<double> forward = {0}, work = {0}; // of the layers in front
  std::vector<double> ends;                      // by rank
};

} // namespace

/// Lists where to begin. The last is for little memory.
static std::vector<std::vector<int>> listCuts(const JointProblem &problem,
                                              const Problem &shape) {
  std::vector<int> byWork = cutByWork(problem, shape);
  std::vector<std::vector<int>> cuts = {byWork,
                                        CutLeveler(problem, shape).run(byWork)};
  if (problem.memory.limit == 0)
    return cuts;
  std::vector<double> activations;
  for (const Layer &layer : problem.layers)
    activations.push_back(layer.activation);
  cuts.push_back(cutStages(activations, std::nullopt, std::nullopt, shape));
  return cuts;
}

/// F and I of `schedule`; a whole backward has an I as well.
static std::vector<std::vector<Action>> takeOrder(const Schedule &schedule) {
  std::vector<std::vector<Action>> order;
  for (const std::vector<Action> &actions : schedule.ranks) {
    std::vector<Action> &list = order.emplace_back();
    for (Action action : actions) {
      if (action.kind == ActionKind::BackwardWeight)
        continue;
      if (action.kind == ActionKind::Backward)
        action.kind = ActionKind::BackwardInput;
      list.push_back(action);
    }
  }
  return order;
}

/// Ways to order `shape`, apart from how long a rank waits.
static std::vector<Policy> listPolicies(const Problem &shape) {
  std::vector<Policy> policies = {{.inputFirst = true}, {.inputFirst = false}};
  if (shape.chunks == 2 && shape.placement == Placement::VShape)
    for (const Rhythm &rhythm :
         {getHalfRhythm(shape.stages), getMinRhythm(shape.stages)})
      policies.push_back({.rhythm = rhythm});
  for (const Generator &generator : getGenerators()) {
    bool isPlaced = shape.chunks == 1 || generator.placement == shape.placement;
    if (!isPlaced || generator.searches || shape.chunks < generator.minChunks ||
        shape.chunks > generator.maxChunks)
      continue;
    Result<Schedule> schedule = generate(generator.name, shape);
    if (schedule.ok())
      policies.push_back({.order = takeOrder(*schedule)});
  }
  size_t count = policies.size();
  // Each again, with waits: which of the two is better depends on how the
  // layers' work divides, and one run of the engine tells.
  for (size_t i = 0; i < count; ++i) {
    policies.push_back(policies[i]);
    policies.back().waits = true;
  }
  return policies;
}

/// One run of the greedy engine: `policy` translated into the engine's terms
/// for this cut. Memory is that of the cut's stages, so that one policy may fit
/// with a cut and not with another; the result is then infinite.
Candidate JointSearch::order(const Shape &shape, const Policy &policy,
                             const std::vector<int> &cut) {
  StageSums sums = sumStages(problem, cut);
  MemoryModel memory = problem.memory;
  memory.sizes = std::move(sums.activations);
  GreedyPolicy greedy;
  // A rank that is idle for longer than its allowance cannot end at the bound,
  // which no order beats.
  greedy.inputFirst = policy.inputFirst;
  for (uint32_t rank = 0; rank < shape.problem.stages; ++rank)
    greedy.allowance.push_back(
        policy.waits
            ? std::max(0.0, bound - getWork(shape.problem, sums.costs, rank))
            : 0);
  Pattern pattern;
  if (policy.rhythm) {
    // A pattern or an order says itself when each chunk runs. Memory reserved
    // for later chunks would delay it. Without the reservation a run may get
    // stuck; it is then infinite and never the best.
    pattern = makePattern(shape.problem, *policy.rhythm);
    greedy.pattern = &pattern;
    greedy.window = policy.rhythm->window;
    greedy.reserves = false;
  } else if (!policy.order.empty()) {
    greedy.order = &policy.order;
    greedy.reserves = false;
  }
  GreedyResult result = runGreedy(shape.problem, sums.costs, memory, greedy);
  return {shape.problem, cut, std::move(result.ranks), result.makespan};
}

/// Step 1: every start with every policy, the product of two short lists. Of
/// equal ones the first stays, so that the order of listPolicies decides.
void JointSearch::tryPolicies(Shape &shape) {
  shape.best.makespan = never;
  for (const std::vector<int> &cut : listCuts(problem, shape.problem))
    for (size_t i = 0; i < shape.policies.size(); ++i) {
      Candidate candidate = order(shape, shape.policies[i], cut);
      if (candidate.makespan >= shape.best.makespan)
        continue;
      shape.best = std::move(candidate);
      shape.policy = i;
    }
}

/// A shape that Problem::check() refuses is left out and is no error: the
/// largest chunks may give too many virtual stages where smaller ones do not.
void JointSearch::addShape(uint32_t chunks, Placement placement) {
  Shape shape{{problem.stages, chunks, problem.microbatches, placement}, {}};
  if (!shape.problem.check().ok())
    return;
  shape.policies = listPolicies(shape.problem);
  tryPolicies(shape);
  shapes.push_back(std::move(shape));
}

//===----------------------------------------------------------------------===//
// Search
//===----------------------------------------------------------------------===//

/// Step 2.
void JointSearch::moveLayers(Shape &shape) {
  if (shape.best.makespan == never)
    return;
  // Actions that the engine starts: a fraction of a second.
  constexpr uint64_t mostVisits = 3'000'000;
  const Policy &policy = shape.policies[shape.policy];
  improveCut(shape.best.cut, mostVisits / shape.countActions(),
             [&](const std::vector<int> &cut) {
               if (shape.best.makespan <= bound)
                 return false;
               Candidate moved = order(shape, policy, cut);
               if (moved.makespan >= shape.best.makespan * (1 - 1e-12))
                 return false;
               shape.best = std::move(moved);
               return true;
             });
}

/// Step 3. What annealing returns may be no better than its start, where the
/// start was as good as this shape gets.
void JointSearch::improve(Shape &shape, uint64_t seed) {
  if (shape.best.makespan == never || shape.best.makespan <= bound)
    return;
  // Few actions have few orders.
  uint64_t actions =
      3 * uint64_t(shape.problem.virtualStages()) * shape.problem.microbatches;
  OrderSearchOptions options;
  options.visits = std::min<uint64_t>(40'000'000, 1000 * actions * actions);
  options.bound = bound;
  options.seed = seed;
  Candidate improved = improveOrder(problem, shape.best, options);
  if (improved.makespan < shape.best.makespan)
    shape.best = std::move(improved);
}

/// Keeps of equal ones those with fewer virtual stages.
void JointSearch::keepBest(size_t count) {
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const Shape &a, const Shape &b) {
                     return a.best.makespan < b.best.makespan;
                   });
  if (shapes.size() > count)
    shapes.resize(count);
}

/// Costs and activations are summed once more for the cut, since a candidate
/// carries neither: they follow from it.
static JointResult toResult(const JointProblem &problem, Candidate candidate,
                            std::string kind) {
  StageSums sums = sumStages(problem, candidate.cut);
  JointResult result;
  result.schedule = {candidate.problem, std::move(kind),
                     std::move(candidate.ranks), problem.memory};
  result.schedule.memory.sizes = std::move(sums.activations);
  result.cut = std::move(candidate.cut);
  result.costs = std::move(sums.costs);
  return result;
}

/// Halving, in four rounds: all shapes are ordered, eight have their layers
/// moved, four are annealed, two of these twice more with other seeds. Effort
/// goes up by round as the number of shapes goes down. Deterministic: work is
/// counted in visits of actions, never in seconds.
Result<JointResult> JointSearch::run() {
  uint32_t most = uint32_t(problem.layers.size()) / problem.stages;
  if (problem.stages == 1)
    most = 1; // nobody to take turns with
  // More virtual stages a rank shorten the waits at both ends as many times,
  // and add as many messages (Narayanan et al. 2021, section 2.2.2): beyond 16
  // little is left to gain.
  uint32_t first = problem.chunks.value_or(1);
  uint32_t last = problem.chunks.value_or(std::min(most, 16u));
  for (uint32_t chunks = first; chunks <= last; ++chunks) {
    addShape(chunks, Placement::RoundRobin);
    if (chunks > 1 && problem.stages > 1)
      addShape(chunks, Placement::VShape);
  }
  keepBest(8);
  for (Shape &shape : shapes)
    moveLayers(shape);
  keepBest(4);
  for (Shape &shape : shapes)
    improve(shape, 1);
  keepBest(2);
  // Annealing goes on from the best, so that another seed is another way out of
  // where the last one ended.
  for (uint64_t seed = 2; seed < 4; ++seed)
    for (Shape &shape : shapes)
      improve(shape, seed);
  keepBest(1);
  if (shapes.empty() || shapes.front().best.makespan == never)
    return fail("no order was found that holds at most ", problem.memory.limit,
                " of activations on every rank");
  // Last, W move forward where the makespan does not grow, which saves memory.
  return toResult(problem, advanceWeights(problem, shapes.front().best),
                  "auto");
}

Result<JointResult> schedule::searchJointly(const JointProblem &problem) {
  PLAIT_RETURN_IF_ERROR(problem.check());
  return JointSearch(problem).run();
}

//===----------------------------------------------------------------------===//
// One order
//===----------------------------------------------------------------------===//

/// The cut by work; where that does not keep the limit, layers move for as long
/// as ranks hold less beyond it.
static std::vector<int> cutWithinLimit(const JointProblem &problem,
                                       Schedule order) {
  std::vector<int> cut = cutByWork(problem, order.problem);
  if (problem.memory.limit == 0)
    return cut;
  order.memory = problem.memory;
  auto measureExcess = [&](const std::vector<int> &cut) {
    order.memory.sizes = sumStages(problem, cut).activations;
    double excess = 0;
    for (uint32_t rank = 0; rank < order.problem.stages; ++rank) {
      double held = peakActivations(order, rank);
      excess += problem.memory.allows(held) ? 0 : held - problem.memory.limit;
    }
    return excess;
  };
  double least = measureExcess(cut);
  if (least == 0)
    return cut;
  // Actions that are walked over: a fraction of a second.
  constexpr uint64_t mostVisits = 20'000'000;
  uint64_t actions =
      3 * uint64_t(order.problem.virtualStages()) * order.problem.microbatches;
  return improveCut(std::move(cut), mostVisits / actions,
                    [&](const std::vector<int> &moved) {
                      double excess = measureExcess(moved);
                      if (excess >= least)
                        return false;
                      least = excess;
                      return true;
                    });
}

/// The order stays, layers move: the annealer with its moves of work switched
/// off, which needs a start within the limit.
Result<JointResult> schedule::searchCut(const JointProblem &problem,
                                        const Schedule &order) {
  PLAIT_RETURN_IF_ERROR(problem.check());
  if (problem.layers.size() < order.problem.virtualStages())
    return fail(problem.layers.size(), " layers are fewer than the ",
                order.problem.virtualStages(), " virtual stages of the order");
  Candidate start{order.problem, cutWithinLimit(problem, order), order.ranks};
  start.makespan = measureOrder(problem, start);
  if (start.makespan == never)
    return fail("no cut was found whose order holds at most ",
                problem.memory.limit, " of activations on every rank");
  OrderSearchOptions options;
  options.visits = 20'000'000;
  options.bound = boundMakespan(problem);
  options.movesWork = false;
  Candidate best = improveOrder(problem, start, options);
  return toResult(problem,
                  best.makespan < start.makespan ? std::move(best)
                                                 : std::move(start),
                  order.kind);
}

/// The generator's order is made for even stages, whatever the layers: the
/// order of a handcrafted schedule does not depend on costs. That of `zb-auto`
/// does, and is here the one for equal costs.
Result<JointResult> schedule::searchCut(const JointProblem &problem,
                                        const std::string &name) {
  Result<const Generator *> generator = findGenerator(name);
  if (!generator.ok())
    return generator.status();
  Result<uint32_t> chunks =
      chooseChunks(**generator, problem.chunks.value_or(0));
  if (!chunks.ok())
    return chunks.status();
  PLAIT_RETURN_IF_ERROR(problem.check());
  Result<Schedule> order =
      generate(name, {problem.stages, *chunks, problem.microbatches});
  if (!order.ok())
    return order.status();
  return searchCut(problem, *order);
}
