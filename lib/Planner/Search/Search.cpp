//===- Search.cpp - Picking a configuration -------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From a space to an answer: search() asks the explorer for the fastest member
// of each family (mesh and schedule), and Summary turns these into what a user
// is told: the pick, how it could be improved by moving layers, the runners-up,
// the pick with one thing changed, the bounds. whyNot() is a second search
// under pins and a comparison of the two. The explorer's figures are estimates
// already. They are computed once more here because it keeps only seconds and
// bytes of each, not where the time goes.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Search.h"
#include "Search/Explore.h"
#include "Search/Failure.h"
#include "Search/Parts.h"
#include "Search/Simplest.h"
#include "plait/Planner/Abilities.h"
#include "plait/Schedule/StageCut.h"

#include <algorithm>
#include <chrono>
#include <tuple>

using namespace plait;
using namespace plait::planner;

namespace {

/// Adds up what calls take.
class Stopwatch {
public:
  template <typename Call> auto time(Call call) {
    Lap lap{elapsed};
    return call();
  }
  double seconds() const { return elapsed.count(); }

private:
  using Clock = std::chrono::steady_clock;
  struct Lap {
    std::chrono::duration<double> &elapsed;
    Clock::time_point start = Clock::now();

    ~Lap() { elapsed += Clock::now() - start; }
  };

  std::chrono::duration<double> elapsed{0};
};

/// Passes questions on: profiles are the compiler's time, not the search's.
class TimedSource : public WorkSource {
public:
  TimedSource(WorkSource &source, Stopwatch &watch)
      : source(source), watch(watch) {}

  const Work *get(const Degrees &degrees, double sequences,
                  std::string &reason) override {
    return watch.time([&] { return source.get(degrees, sequences, reason); });
  }
  void prepare(std::span<const WorkQuestion> questions) override {
    watch.time([&] { source.prepare(questions); });
  }
  int64_t countExperts() override { return source.countExperts(); }

private:
  WorkSource &source;
  Stopwatch &watch;
};

/// Turns what was explored into a result.
/// Built once; choose() and complete() are called once, in this order. Expects
/// that the explorer has found at least one family.
class Summary {
public:
  /// `ranks` are those of all devices.
  Summary(const SearchInput &input, const Explorer &explorer,
          const Knowledge &knowledge, int ranks)
      : input(input), explorer(explorer), knowledge(knowledge), ranks(ranks) {}

  /// The pick and its estimate, which may be changed before complete().
  Status choose();
  SearchResult &getResult() { return result; }
  /// The fastest, where something simpler is picked and it may not fit: its
  /// estimate is near to the limit.
  std::optional<Configuration> getDoubtful() const;
  /// Everything that is told beside it.
  Status complete();

private:
  void noteFaster();
  void moveLayers();
  Result<Alternative> makeExact(const Configuration &configuration) const;
  Status addRunnersUp(const std::vector<Leaf> &families);
  Status addAllDevices(const std::vector<Leaf> &families);
  void addVariants();
  void addVariant(const std::string &change, Configuration configuration);
  void addMeshVariants();

  const SearchInput &input;
  const Explorer &explorer;
  const Knowledge &knowledge;
  int ranks;
  std::vector<Leaf> families; // the pick's in front
  std::optional<Leaf> fastest;
  // Filled in from top to bottom: what comes later is compared with the pick.
  SearchResult result;
};

} // namespace

/// Completes a configuration with what the estimate chose for it (layers and
/// recomputation), so that it can be compiled as it stands. `pick` has to be
/// final: the sentence about the loss is made from it.
static Alternative makeAlternative(const std::string &change,
                                   Configuration configuration,
                                   Estimate estimate, const Estimate &pick,
                                   const Cluster &cluster) {
  Alternative alternative;
  alternative.change = change;
  alternative.fits = !estimate.isTooLarge(cluster.device);
  alternative.configuration = std::move(configuration);
  alternative.configuration.layers = estimate.layers;
  alternative.configuration.recompute = estimate.recompute;
  alternative.estimate = std::move(estimate);
  alternative.why = explainLoss(pick, alternative, cluster);
  return alternative;
}

/// Of a configuration that was explored.
Result<Alternative>
Summary::makeExact(const Configuration &configuration) const {
  Result<Estimate> estimate =
      planner::estimate(*explorer.getWork(configuration), input.cluster,
                        input.training, configuration);
  if (!estimate.ok())
    return estimate.status();
  return makeAlternative("", configuration, std::move(*estimate),
                         result.estimate, input.cluster);
}

/// Says what the pick was preferred to.
void Summary::noteFaster() {
  double percent =
      100 * (1 - fastest->seconds / result.estimate.iterationSeconds);
  std::string faster = "is " + printNumber(percent, 1) +
                       " % faster, less than predictions are off by";
  result.notes.push_back(print(fastest->configuration) + ": " +
                         (percent < 0.05 ? "is as fast" : faster) +
                         ", and not as simple");
}

/// The cut by cost makes the slowest rank fast. In front of ranks that wait
/// anyway more layers may cost nothing: what the step takes is asked. Whether
/// the cuts on the way fit does not turn the way, so that more memory never
/// ends it sooner; the fastest of them that fits is taken.
void Summary::moveLayers() {
  constexpr size_t most = 300; // estimates: some hundredths of a second
  // A single stage has all layers, and a cut that is given is not to be
  // improved.
  if (result.configuration.mesh[Axis::PP] == 1 || input.pins.layers ||
      !getAbilities(input.training.framework).cutsUnevenly)
    return;
  Configuration moved = result.configuration;
  // With another cut each rank may need another mixture: it is fitted anew.
  if (explorer.fitsRecompute())
    moved.recompute = Recompute::Auto;
  double shortest = result.estimate.iterationSeconds;
  schedule::improveCut(
      result.estimate.layers, most, [&](const std::vector<int> &layers) {
        moved.layers = layers;
        Result<Estimate> estimate = planner::estimate(
            *result.work, input.cluster, input.training, moved);
        // Rounding is no gain: layers would move to and fro.
        if (!estimate.ok() ||
            estimate->iterationSeconds >= shortest * (1 - 1e-9))
          return false;
        shortest = estimate->iterationSeconds;
        Configuration other = moved;
        other.recompute = estimate->recompute;
        if (!estimate->isTooLarge(input.cluster.device) &&
            knowledge.getRefusal(other, estimate->getNeeds()) ==
                Knowledge::Refusal::None) {
          result.configuration = std::move(other);
          result.estimate = std::move(*estimate);
        }
        return true;
      });
}

/// Best first, as the families are. Exact ones only: beyond the kept ones the
/// explorer stops as soon as a bound says that they are slower. But the fastest
/// with nothing on hosts is exact, and takes the last place if none of the
/// others has measured times.
Status Summary::addRunnersUp(const std::vector<Leaf> &families) {
  for (size_t i = 1; i < families.size() && i < Explorer::listed; ++i) {
    Result<Alternative> other = makeExact(families[i].configuration);
    if (!other.ok())
      return other.status();
    result.runnersUp.push_back(std::move(*other));
  }
  auto isPlain = [](const auto &one) {
    return one.configuration.offload == Offload::None;
  };
  auto plain = std::ranges::find_if(families, isPlain);
  if (isPlain(result) || std::ranges::any_of(result.runnersUp, isPlain) ||
      plain == families.end())
    return Status::success();
  Result<Alternative> other = makeExact(plain->configuration);
  if (other.ok())
    result.runnersUp.back() = std::move(*other);
  return other.status();
}

/// What it costs or gains to leave devices idle is only known against the best
/// that uses all. There may be none that fits, and then the figure is missing.
Status Summary::addAllDevices(const std::vector<Leaf> &families) {
  result.idleDevices = ranks - int(result.configuration.ranks());
  result.hasExperts = input.source.countExperts() > 0;
  if (result.idleDevices == 0)
    return Status::success();
  auto usesAll = [&](const Leaf &leaf) {
    return leaf.configuration.ranks() == ranks;
  };
  auto best = std::find_if(families.begin(), families.end(), usesAll);
  if (best == families.end())
    return Status::success();
  Result<Alternative> all = makeExact(best->configuration);
  if (!all.ok())
    return all.status();
  result.allDevices = std::move(*all);
  return Status::success();
}

/// What makes no sense, or the program cannot run, is left out.
void Summary::addVariant(const std::string &change,
                         Configuration configuration) {
  const Work *work = explorer.getWork(configuration);
  if (!work)
    return;
  // The cut was made for the pick's costs; the variant gets its own.
  configuration.layers = input.pins.layers.value_or(std::vector<int>());
  // What was fitted to the pick's stages does not fit others.
  if (explorer.fitsRecompute() && !configuration.recompute.getUniform())
    configuration.recompute = Recompute::Auto;
  Result<Estimate> estimate =
      planner::estimate(*work, input.cluster, input.training, configuration);
  if (!estimate.ok())
    return;
  Configuration whole = configuration;
  whole.layers = estimate->layers;
  if (!getAbilities(input.training.framework).runs(whole, input.training))
    return;
  result.variants.push_back(makeAlternative(change, std::move(configuration),
                                            std::move(*estimate),
                                            result.estimate, input.cluster));
}

/// Half of one axis and twice as much of another.
void Summary::addMeshVariants() {
  // No axis that is there on demand: cp has another kind as its variant.
  auto show = [](const Mesh &mesh, const AxisFacts &facts) {
    return std::string(facts.name) + " " + std::to_string(mesh[facts.axis]);
  };
  for (const AxisFacts &from : kAxes)
    for (const AxisFacts &to : kAxes) {
      Configuration other = result.configuration;
      Mesh &mesh = other.mesh;
      if (from.axis == to.axis || from.onDemand || to.onDemand ||
          mesh[from.axis] % 2 != 0)
        continue;
      mesh[from.axis] /= 2;
      mesh[to.axis] *= 2;
      addVariant(show(mesh, from) + ", " + show(mesh, to), other);
    }
}

/// One thing changed at a time, whether it is in the space, pinned or fits, if
/// the program has it: it shows what the decision was worth. Each takes one
/// estimate.
void Summary::addVariants() {
  const Configuration &pick = result.configuration;
  auto with = [&](const std::string &change, auto set) {
    Configuration other = pick;
    set(other);
    addVariant(change, other);
  };
  for (Recompute kind :
       {Recompute::None, Recompute::Selective, Recompute::Full})
    // Selective recomputation is nothing where attention keeps no scores and
    // the framework has nothing else that is cheap.
    if (kind != pick.recompute &&
        (kind != Recompute::Selective || !input.training.flashAttention ||
         input.training.framework.recomputesCheap))
      with("recompute " + print(kind),
           [&](Configuration &c) { c.recompute = kind; });
  with(pick.sequenceParallel ? "sp off" : "sp on",
       [&](Configuration &c) { c.sequenceParallel = !c.sequenceParallel; });
  if (pick.mesh[Axis::CP] > 1) {
    for (ContextParallel other :
         {ContextParallel::Gather, ContextParallel::Heads,
          ContextParallel::Zigzag})
      if (other != pick.contextParallel)
        with("context-parallel " + print(other),
             [&](Configuration &c) { c.contextParallel = other; });
  }
  if (pick.mesh[Axis::EP] > 1)
    for (ExpertExchange other : {ExpertExchange::Tokens, ExpertExchange::Rows})
      if (other != pick.expertExchange)
        with("expert-exchange " + print(other),
             [&](Configuration &c) { c.expertExchange = other; });
  for (const AxisFacts &facts : kAxes)
    if (int groups = pick.mesh[facts.axis]; facts.copiesState() && groups > 1)
      with(std::string(facts.name) + " 1", [&](Configuration &c) {
        c.mesh[facts.axis] = 1;
        c.mesh[Axis::DP] *= groups;
      });
  for (int zero = 0; zero <= 3; ++zero)
    if (zero != pick.zero && pick.mesh.replicas() > 1)
      with("zero " + std::to_string(zero),
           [&](Configuration &c) { c.zero = zero; });
  if (pick.offload != Offload::None)
    with("offload none", [](Configuration &c) { c.offload = Offload::None; });
  // Sizes that do not divide are refused by the estimate, and left out.
  for (int64_t size : {pick.microBatch / 2, pick.microBatch * 2})
    if (size > 0)
      with("micro-batch " + std::to_string(size),
           [&](Configuration &c) { c.microBatch = size; });
  // Of the schedules those with one chunk a rank, which any number of layers
  // allows.
  for (const char *name : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
    if (name != pick.schedule && pick.mesh[Axis::PP] > 1)
      with(std::string("schedule ") + name, [&](Configuration &c) {
        c.schedule = name;
        c.chunks = 1;
      });
  addMeshVariants();
}

/// 1. The families, with the simplest of those within the band in front.
/// 2. The pick's estimate in full, and layers moved where that is faster: from
///    here on the pick is final.
Status Summary::choose() {
  families = explorer.getFamilies();
  fastest = families.front();
  preferSimple(families, explorer);
  result.configuration = families.front().configuration;
  result.work = explorer.getWork(result.configuration);
  Result<Estimate> estimate = planner::estimate(
      *result.work, input.cluster, input.training, result.configuration);
  if (!estimate.ok())
    return estimate.status();
  result.estimate = std::move(*estimate);
  moveLayers();
  return Status::success();
}

std::optional<Configuration> Summary::getDoubtful() const {
  constexpr double near = 0.9;
  const Configuration &found = fastest->configuration;
  if (found == families.front().configuration || knowledge.isAccepted(found) ||
      fastest->getPeak() < near * input.cluster.device.usableBytes())
    return std::nullopt;
  return found;
}

/// 1. Everything that is compared with the pick: what was faster, the
///    runners-up, all devices, the variants.
/// 2. Counts and bounds. Moving layers can make the pick faster than anything
///    that was explored, so that the bound is the less of the two.
Status Summary::complete() {
  result.notes = explorer.getNotes();
  if (isBetter(*fastest, families.front()))
    noteFaster();
  PLAIT_RETURN_IF_ERROR(addRunnersUp(families));
  PLAIT_RETURN_IF_ERROR(addAllDevices(families));
  addVariants();
  result.counts = explorer.counts;
  // Everything that was left out is slower, with layers cut by cost; and what
  // was never placed may fit after all.
  result.lowerBoundSeconds =
      std::min({fastest->seconds, result.estimate.iterationSeconds,
                explorer.inferredSeconds});
  result.idealSeconds = explorer.idealSeconds;
  return Status::success();
}

/// Places the fastest of one exploration: the pick, or what is faster and may
/// not fit. Returns nothing where it does not: `knowledge` then excludes it,
/// and `tooLarge` says why if it is the first. What fits and is not the pick
/// changes nothing that was explored, so that the pick is placed then.
static Result<std::optional<SearchResult>>
placeFastest(const SearchInput &input, const Explorer &explorer,
             Knowledge &knowledge, int ranks, const Placement &place,
             Status &tooLarge) {
  while (true) {
    Summary summary(input, explorer, knowledge, ranks);
    PLAIT_RETURN_IF_ERROR(summary.choose());
    SearchResult &result = summary.getResult();
    std::optional<Configuration> doubtful;
    if (place)
      doubtful = summary.getDoubtful();
    Configuration tried = doubtful.value_or(result.configuration);
    Estimate other; // of what is not the pick
    if (doubtful) {
      Result<Estimate> found = planner::estimate(
          *explorer.getWork(tried), input.cluster, input.training, tried);
      if (!found.ok())
        return found.status();
      other = std::move(*found);
    }
    Estimate &estimate = doubtful ? other : result.estimate;
    PerPlace<double> before = estimate.getNeeds();
    Status placed = place ? place(tried, estimate) : Status::success();
    if (!placed.ok() && !doubtful)
      return placed;
    bool fits = !placed.ok() || !estimate.isTooLarge(input.cluster.device);
    if (fits && doubtful) {
      // Nor is anything picked that cannot be placed.
      knowledge.accept(tried);
    } else if (fits) {
      PLAIT_RETURN_IF_ERROR(summary.complete());
      return std::optional(std::move(result));
    } else {
      if (tooLarge.ok())
        tooLarge = explainPlacement(tried, estimate, input.cluster);
      PerPlace<double> missed = estimate.getNeeds();
      for (const MemoryPlaceFacts &facts : memoryPlaces)
        missed[facts.place] -= before[facts.place];
      knowledge.refuse(tried, missed);
      return std::optional<SearchResult>();
    }
  }
}

/// The fastest that fits. Configurations are placed one by one, the fastest
/// first: each that does not fit is excluded, with those that it speaks for,
/// and what has been learnt of the others is kept, so that exploring again
/// takes little. If nothing is left, the message is of the first, the fastest.
static Result<SearchResult> searchPlaced(const SearchInput &input,
                                         const Choices &choices,
                                         const Placement &place) {
  Knowledge knowledge(input);
  Status tooLarge = Status::success();
  while (true) {
    Explorer explorer(input, choices, knowledge);
    explorer.run();
    // Nothing fits or nothing divides: the explorer knows what was refused and
    // why.
    if (explorer.getFamilies().empty())
      return tooLarge.ok() ? explainFailure(input, choices, explorer)
                           : tooLarge;
    Result<std::optional<SearchResult>> found = placeFastest(
        input, explorer, knowledge, choices.ranks, place, tooLarge);
    if (!found.ok())
      return found.status();
    if (*found)
      return std::move(**found);
  }
}

/// Pins and space are checked against each other first, since the explorer
/// relies on that. The result's `work` belongs to the source.
Result<SearchResult> planner::search(WorkSource &source, const Cluster &cluster,
                                     const Training &training,
                                     const SearchSpace &space, const Pins &pins,
                                     const Placement &place) {
  auto start = std::chrono::steady_clock::now();
  Stopwatch outside;
  TimedSource timed(source, outside);
  SearchInput input{timed, cluster, training, space, pins};
  Result<Choices> choices = Choices::get(space, pins, cluster, training);
  if (!choices.ok())
    return choices.status();
  Placement timedPlace;
  if (place)
    timedPlace = [&](const Configuration &configuration, Estimate &estimate) {
      return outside.time([&] { return place(configuration, estimate); });
    };
  Result<SearchResult> result = searchPlaced(input, *choices, timedPlace);
  if (!result.ok())
    return result.status();
  std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - start;
  // Profiles are counted apart, in `counts.profiles`.
  result->counts.seconds = elapsed.count() - outside.seconds();
  return result;
}

//===----------------------------------------------------------------------===//
// Why not another
//===----------------------------------------------------------------------===//

/// Adds a pinned value to a list of choices. An empty list means any value, and
/// has it already.
template <typename T>
static void admit(std::vector<T> &choices, const std::optional<T> &pin) {
  bool isAny = choices.empty();
  if (pin && !isAny &&
      std::find(choices.begin(), choices.end(), *pin) == choices.end())
    choices.push_back(*pin);
}

/// `space`, with what is pinned in it.
static SearchSpace admit(const SearchSpace &space, const Pins &pins) {
  SearchSpace wider = space;
  visitStrategy([](const Field &, auto &choices,
                   const auto &pin) { admit(choices, pin); },
                wider, pins);
  for (const AxisFacts &facts : kAxes)
    admit(wider.mesh[facts.axis], pins.mesh[facts.axis]);
  return wider;
}

/// The step and its parts, then the peak and its parts, each on the rank that
/// is worst under its own configuration: the two fullest stages need not be the
/// same.
static std::vector<Difference> compare(const Estimate &pick,
                                       const Estimate &other) {
  std::vector<Difference> differences;
  differences.push_back(
      {"step", pick.iterationSeconds, other.iterationSeconds});
  std::vector<Part> before = getTimeParts(pick), after = getTimeParts(other);
  for (size_t i = 0; i < before.size(); ++i)
    differences.push_back({before[i].name, before[i].value, after[i].value});
  const StageMemory &full = pick.memory[getFullestStage(pick)];
  const StageMemory &otherFull = other.memory[getFullestStage(other)];
  differences.push_back({"peak memory", full.peak(), otherFull.peak(), true});
  before = getMemoryParts(full);
  after = getMemoryParts(otherFull);
  for (size_t i = 0; i < before.size(); ++i)
    differences.push_back(
        {before[i].name, before[i].value, after[i].value, true});
  return differences;
}

/// The pins are admitted into the space first: a question may be about what the
/// space leaves out, while a search under the same pins would refuse it. Memory
/// that was placed is known of the pick alone, also where that is the answer.
Result<WhyNot> planner::whyNot(const SearchResult &pick, WorkSource &source,
                               const Cluster &cluster, const Training &training,
                               const SearchSpace &space, const Pins &pins) {
  Result<SearchResult> other =
      search(source, cluster, training, admit(space, pins), pins);
  if (!other.ok())
    return other.status();
  WhyNot answer;
  if (other->configuration == pick.configuration) {
    other->estimate.memory = pick.estimate.memory;
    other->estimate.isPlaced = pick.estimate.isPlaced;
  }
  answer.differences = compare(pick.estimate, other->estimate);
  answer.other =
      makeAlternative("", other->configuration, std::move(other->estimate),
                      pick.estimate, cluster);
  return answer;
}
