//===- Explore.h - Branch and bound --------------------------- -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SEARCH_EXPLORE_H
#define PLAIT_LIB_PLANNER_SEARCH_EXPLORE_H

#include "Search/Bounds.h"
#include "Search/Enumerate.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>

namespace plait::planner {

/// The input of a search. Has references: lives as long as one search.
struct SearchInput {
  WorkSource &source;
  const Cluster &cluster;
  const Training &training;
  const SearchSpace &space;
  const Pins &pins;
};

/// Configurations that differ in their schedule, its chunks, the cut of the
/// layers, the ZeRO stage and what lies on hosts only.
struct Cell {
  double seconds = 0; // no member is faster
  Mesh mesh;
  const Work *work = nullptr;
  int64_t microBatch = 1;
  const Recomputation *recompute = nullptr; // of the choices
  ContextParallel contextParallel = ContextParallel::Gather;
  const ScheduleChoice *like = nullptr; // what all of its schedules are
  const Probe *probe = nullptr; // null: not made yet, `work` is of another size
  double step = 0;    // what a member takes at least beside its pipeline
  double streams = 0; // and with it, by Bounds::getStreamSeconds()
  double leastStep = 0, leastStreams = 0; // the same, with whatever is on hosts
  double leastSeconds = 0; // `seconds`, with whatever is on hosts
  double gathered = 0;     // bytes, by Bounds::getGathered()
  bool hasStep = false;    // which has been found
  bool isNarrow = false;   // by all bounds that need no schedule
  int64_t index = 0;       // of the first node, in the order of enumeration
  int64_t members = 1;     // nodes of the mesh with the same schedule and cut
};

/// Configurations of a cell that differ in their ZeRO stage only.
struct Node : Cell {
  const ScheduleChoice *schedule = nullptr;
  double pipeline = 0; // seconds, at least
  bool even = false;   // the same number of layers on each virtual stage
  Offload offload = Offload::None;
  /// The number of those with the same mesh and schedule, and with anything on
  /// hosts or nothing.
  int family = 0;
  bool isShort = false; // is among those that may fit with less on the device
};

/// Cells or nodes, the most promising first. They stay where they are: what is
/// ordered are their bounds.
template <typename T> class Heap {
public:
  bool empty() const { return order.empty(); }
  const T &front() const { return items[order.front().place]; }
  void clear() { *this = {}; }
  void add(const T &item) {
    size_t place = items.size();
    if (free.empty()) {
      items.push_back(item);
    } else {
      place = free.back();
      free.pop_back();
      items[place] = item;
    }
    order.push_back({item.seconds, item.index, place});
    std::push_heap(order.begin(), order.end(), isLater);
  }
  T take() {
    std::pop_heap(order.begin(), order.end(), isLater);
    size_t place = order.back().place;
    order.pop_back();
    free.push_back(place);
    return items[place];
  }
  template <typename Visit> void forEach(Visit visit) const {
    for (const Entry &entry : order)
      visit(items[entry.place]);
  }

private:
  struct Entry {
    double seconds;
    int64_t index;
    size_t place;
  };
  /// Equal bounds go in the order of enumeration.
  static bool isLater(const Entry &a, const Entry &b) {
    return std::tie(a.seconds, a.index) > std::tie(b.seconds, b.index);
  }
  std::deque<T> items;
  std::vector<size_t> free; // places of items that have been taken
  std::vector<Entry> order;
};

/// An estimated member of a node.
struct Leaf {
  double seconds = 0;
  double update = 0; // of these, for what replicas exchange and the optimizer
  PerPlace<double> needs;    // bytes
  bool exceedsOther = false; // it needs more of another place than there is

  double getPeak() const { return needs[MemoryPlace::Arena]; }
  Configuration configuration;
};

/// Whether `a` is picked over `b`: faster, or as fast and simpler.
bool isBetter(const Leaf &a, const Leaf &b);

/// The answer of estimate() for a member of a node.
struct Estimated {
  std::string refusal; // it makes no sense; else empty
  /// A bound says that its pipeline takes as long as `pipeline` and `cutoff`:
  /// nothing else is known of it.
  bool isSlow = false;
  Leaf leaf;
  bool fits = false;
  double resident = 0; // bytes, with activations
  double pipeline = 0; // seconds, with what is fixed
  double limit = 0;    // exact unless it takes longer than so many seconds
  double cutoff = 0;   // it does unless its pipeline takes less than these
};

/// Bounds and estimates that several explorations of the same input share, and
/// which configurations do not fit although they were estimated to.
class Knowledge {
public:
  explicit Knowledge(const SearchInput &input)
      : bounds(input.cluster, input.training), input(input) {}

  Bounds bounds;

  /// Estimates with `withheld` bytes less on each device, exactly as far as it
  /// takes less than `limit` seconds. May be called by any number of threads.
  Estimated estimate(const Node &node, const Configuration &configuration,
                     double limit, double withheld = 0);
  /// Excludes one configuration, layers included, of which the estimate has
  /// missed so many bytes of each place; and of those that differ
  /// in layers, replicas and what these divide only the ones that do not fit
  /// either if they are underestimated by nine tenths as much, or by half where
  /// the pipeline differs, too.
  void refuse(const Configuration &configuration,
              const PerPlace<double> &missed);
  /// Notes that a configuration has been placed and fits, whatever those that
  /// are like it have missed.
  void accept(const Configuration &configuration) {
    accepted.push_back(configuration);
  }
  bool isAccepted(const Configuration &configuration) const {
    return std::ranges::find(accepted, configuration) != accepted.end();
  }
  enum class Refusal : uint8_t { None, Inferred, Placed };
  /// `needs`: bytes that are estimated.
  Refusal getRefusal(const Configuration &configuration,
                     const PerPlace<double> &needs) const;
  /// The most bytes of a device that were missed of what is like it.
  double getMissed(const Configuration &configuration) const;

private:
  /// The node, without what the others fix, and the ZeRO stage.
  using Key = std::tuple<const Work *, Mesh, int64_t, const Recomputation *,
                         ContextParallel, const ScheduleChoice *, bool, Offload,
                         int, double>;
  Estimated makeEstimate(const Node &node, const Configuration &configuration,
                         double withheld, double limit);

  const SearchInput &input;
  struct Refused {
    Configuration configuration;
    PerPlace<double> missed; // bytes
  };
  std::vector<Refused> refused;
  std::vector<Configuration> accepted;
  std::mutex mutex; // of what follows
  std::map<Key, Estimated> known;
};

/// Calls `take` for all numbers below `count`, in several threads.
void shareOut(size_t count, const std::function<void(size_t)> &take);

class Explorer {
public:
  /// `knowledge` is of the same input and choices. The best `kept` families are
  /// wanted exactly, of those that take less than `most` seconds.
  Explorer(const SearchInput &input, const Choices &choices,
           Knowledge &knowledge, size_t kept = listed, double most = 1e300)
      : input(input), choices(choices), knowledge(knowledge),
        bounds(knowledge.bounds), kept(kept), most(most), threshold(most) {}

  void run();
  /// Whether anything fits, which is sooner known than what is fastest.
  bool runUntilSomethingFits();

  /// The best of each family that was found to fit, best first. All that are
  /// better than the `kept`th are exact.
  /// Those that leave devices idle are among them where they are faster than
  /// all that do not, and those with something on hosts where they are faster
  /// than all without.
  std::vector<Leaf> getFamilies() const;
  /// Explores, of the works that run() has found, what has one stage and takes
  /// less than `most` seconds. Returns what getFamilies() does of that.
  std::vector<Leaf> findOneStage(double most) const;
  /// When nothing fits: the configuration that needs the least.
  std::optional<Leaf> findSmallest();
  const Work *getWork(const Configuration &configuration) const;
  /// Returns the works by what layers are split over, for the most sequences.
  const std::map<Degrees, const Work *> &getWorks() const { return works; }

  /// Whether each layer's recomputation is searched for.
  bool fitsRecompute() const {
    return choices.recompute.size() == 1 && choices.recompute.front().isAuto;
  }

  SearchCounts counts;
  double idealSeconds = 0;
  /// The fastest that was excluded without having been placed itself.
  double inferredSeconds = 1e300;
  /// Returns what a user may wonder about, a sentence each.
  std::vector<std::string> getNotes() const;
  /// How many degrees of tensor parallelism the model can be split into, and
  /// meshes that divide.
  int splits = 0;
  int64_t meshes = 0;
  /// The failure that estimate() gave of the last configuration that makes no
  /// sense.
  std::string refusal;

  static constexpr size_t listed = 11; // the pick and ten others

private:
  /// The result of exploring a node.
  struct Outcome {
    std::optional<Leaf> best, smallest;
    double inferredSeconds = 1e300;
    int estimated = 0;
    double bytes = 0;     // too many, by a bound
    bool isShort = false; // some ZeRO stage does not fit
    std::string refusal;
  };

  void addTensor(int tensor, bool sequenceParallel);
  void addDegrees(const WorkQuestion &question);
  std::vector<WorkQuestion> getQuestions(int tensor,
                                         bool sequenceParallel) const;
  std::vector<int> getExpertDegrees(int tensor) const;
  void refuseTensor(int tensor, std::string reason);
  void addFurtherTensors();
  void addIdle();
  void addSmallestIdle();
  void addIdleMesh(const Work &work, const Mesh &mesh);
  /// Seconds that a sequence takes at least, whatever is chosen, on one replica
  /// with one stage.
  double getLeastSeconds(const Work &work, int context);
  double getBestSeconds() const;
  /// No configuration of a degree that has not been asked for is faster.
  double getTensorSeconds(int tensor, bool sequenceParallel) const;
  void addWork(const Work *work);
  void noteExchange(const Work &work, double sequences);
  bool isProfiled(const Configuration &configuration) const;
  double getLeastWork(Configuration configuration, bool splits);
  void addMesh(const Work &work, const Mesh &mesh);
  void addCells(Cell cell, int64_t nodes);
  void addCell(Cell cell, const Configuration &configuration);
  bool measure(Cell &cell, const Configuration &configuration);
  double getVagueSeconds(const Cell &cell, const Configuration &configuration);
  void narrow(Cell cell);
  void addStep(Cell &cell, const Configuration &configuration);
  bool mayFit(const Cell &cell, Configuration configuration) const;
  void reopenUnfit();
  /// Bounds what members of a cell take at least beside their pipeline, and in
  /// all by what streams are busy.
  struct StepBound {
    double step = 0, streams = 0;
    bool mayFit = false; // some member
  };
  StepBound getStepBound(const Cell &cell, Configuration configuration,
                         std::span<const Offload> kinds) const;
  bool mayGainOffloaded(const Cell &cell);
  void expand(const Cell &cell);
  int getFamily(const Node &node);
  void addNode(Node node);
  void noteTooLarge(double bytes, const Node &node);
  void explore();
  void exploreOpen();
  bool mayBeShort(const Node &node) const;
  void noteShort(Node &node);
  void exploreOffload();
  void keepForOffload(const Cell &cell);
  void addOffloaded(Offload offload);
  double getPlainSeconds(bool usesAll) const;
  bool isFasterOffloaded(const Node &node) const;
  bool mayGain(const Node &node) const;
  std::vector<const Leaf *> getListed() const;
  std::optional<Node> takeNext();
  std::optional<Node> takeSearched();
  void exploreInOrder(std::optional<Node> (Explorer::*take)());
  void evaluateRound(std::vector<Node> &round, std::vector<Outcome> &outcomes);
  Outcome evaluate(Node &node);
  void raise(Node &node) const;
  Outcome estimateMembers(const Node &node, const std::vector<int> &zeros,
                          double limit) const;
  bool refuses(const Estimated &member, Outcome &outcome) const;
  void merge(Node &node, const Outcome &outcome);
  double getThreshold() const;
  Configuration toConfiguration(const Node &node) const;

  const SearchInput &input;
  const Choices &choices;
  Knowledge &knowledge;
  Bounds &bounds;
  const size_t kept;
  const double most;
  std::map<Degrees, const Work *> works;
  /// Why the model cannot be split, and into how many parts.
  std::vector<std::pair<std::string, std::vector<int>>> refusedTensors;
  std::vector<int> slowTensors; // that a bound rules out
  /// Numbers of families by mesh, schedule and whether anything lies on hosts;
  /// -1: not met yet. The nodes of a cell share a mesh, so the latest one is
  /// kept at hand.
  using FamilyIds = std::map<Mesh, std::vector<int>>;
  FamilyIds familyIds;
  FamilyIds::value_type *latestFamilies = nullptr;
  Heap<Cell> cells;
  // Nodes of those that were expanded, and of them those of schedules that are
  // searched for.
  Heap<Node> open, searched;
  std::vector<std::pair<double, Node>> tooLarge; // with their bytes
  /// Cells that the bound on memory rules out, which are not opened unless
  /// nothing else fits; and whether they are. Both lists are of searches that
  /// have found nothing so far.
  std::vector<Cell> unfit;
  bool opensUnfit = false;
  std::deque<Node> shortNodes; // nothing of which lies on hosts so far
  /// Keeps cells that are too slow with nothing on hosts, or do not fit so.
  std::vector<Cell> shortCells;
  std::vector<std::optional<Leaf>> best; // by family
  std::vector<int> found;                // families that have one, in order
  std::optional<Leaf> smallest;
  bool stopsAtFirst = false;
  bool hasOneStage = false; // all that is explored
  int64_t enumerated = 0;   // nodes
  double threshold;         // no slower family is among the best
  /// The seconds that all devices together take, once that is known: with idle
  /// ones only what is faster counts.
  double fullSeconds = 1e300;
  /// While nothing else is explored: what is as slow does not count.
  double ceiling = 1e300;
  std::map<std::pair<const Work *, int>, double> leastSeconds;
  /// Bounds by works that were asked for, by what layers are split over and the
  /// sequences of a rank.
  std::map<Degrees, std::map<double, ExchangeBound>> exchanges;
  std::set<std::pair<const Work *, Mesh>> idleMeshes; // that have been added
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SEARCH_EXPLORE_H
