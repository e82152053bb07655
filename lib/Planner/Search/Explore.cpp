//===- Explore.cpp - Branch and bound -------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nodes are estimated in the order of their bounds, in rounds of fixed size: a
// round is shared between threads, and what it found is used from the next
// round on. So neither the result nor the counts depend on how many threads
// there are.
//
//===----------------------------------------------------------------------===//

#include "Search/Explore.h"
#include "Simulator/Estimator.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <tuple>
#include <utility>

using namespace plait;
using namespace plait::planner;

/// The groups that have a copy of the state each, along whatever axes.
static PerAxis<int> getGroups(const Mesh &mesh) {
  PerAxis<int> groups;
  for (const AxisFacts &facts : kAxes)
    if (facts.copiesState())
      groups[facts.axis] = mesh[facts.axis];
  return groups;
}

bool planner::isBetter(const Leaf &a, const Leaf &b) {
  auto key = [](const Leaf &leaf) {
    const Configuration &c = leaf.configuration;
    return std::make_tuple(
        leaf.seconds, c.offload, c.mesh[Axis::TP], c.mesh[Axis::PP],
        c.mesh[Axis::CP], getGroups(c.mesh), c.zero, c.chunks,
        std::cref(c.schedule), std::cref(c.recompute), c.microBatch,
        c.sequenceParallel, c.contextParallel, c.expertExchange);
  };
  return key(a) < key(b);
}

/// What another place has not room for is no way out of memory that is short.
static bool isSmaller(const Leaf &a, const Leaf &b) {
  auto key = [](const Leaf &leaf) {
    return std::pair(leaf.exceedsOther, leaf.getPeak());
  };
  return key(a) < key(b);
}

//===----------------------------------------------------------------------===//
// Estimates
//===----------------------------------------------------------------------===//

/// Raises the bound of a node to what its stages, as they are cut, take.
void Explorer::raise(Node &node) const {
  node.pipeline = std::max(
      node.pipeline, bounds.getCutStageSeconds(
                         *node.work, toConfiguration(node), node.like->splits));
}

/// Leaves out ZeRO stages that a bound rules out; all at once where the least
/// that a step takes beside its pipeline says so. While nothing is known to
/// fit, only memory does, and all that might need the least are estimated.
Explorer::Outcome Explorer::evaluate(Node &node) {
  double limit = threshold;
  if (const std::optional<Leaf> &known = best[node.family])
    limit = std::min(limit, known->seconds);
  bool isFirst = limit >= 1e300;
  Outcome outcome;
  if (!isFirst) {
    raise(node);
    if (node.pipeline + node.step >= limit && !mayBeShort(node))
      return outcome;
  }
  double usable = input.cluster.device.usableBytes();
  Configuration configuration = toConfiguration(node);
  double bytes = 0;
  outcome.bytes = std::numeric_limits<double>::max();
  // Where nobody asks for that, memory is first: its bound takes less time.
  bool asksShort = mayBeShort(node);
  auto takes = [&](double seconds) {
    return node.pipeline + bounds.getStepSeconds(*node.work, *node.probe,
                                                 configuration, seconds) >=
           limit;
  };
  auto isBeaten = [&](int zero) {
    configuration.zero = zero;
    bool isLarge =
        bounds.getBytes(*node.probe, configuration, node.gathered) > usable;
    if (!isFirst && isLarge && !asksShort)
      return true;
    // All nodes of a mesh share the bound of a step by the threshold.
    if (!isFirst && (takes(threshold) || (limit < threshold && takes(limit)) ||
                     bounds.getStreamSeconds(*node.work, *node.probe,
                                             configuration) >= limit))
      return true;
    outcome.isShort |= isLarge;
    if (!isFirst && isLarge)
      return true;
    bool isOut = node.mesh[Axis::PP] > 1 &&
                 bounds.isBeaten(*node.work, configuration, node.like->splits,
                                 limit, bytes);
    outcome.isShort |= isOut && bytes > usable;
    return isOut;
  };
  std::vector<int> zeros = choices.getZeroStages(node.mesh), left;
  for (int zero : zeros)
    if (isBeaten(zero))
      outcome.bytes = std::min(outcome.bytes, bytes);
    else
      left.push_back(zero);
  if (left.empty())
    return outcome;
  bool isShort = outcome.isShort;
  outcome = estimateMembers(node, isFirst ? zeros : left, limit);
  outcome.isShort |= isShort;
  return outcome;
}

/// Whether it was estimated to fit and is known not to. `outcome` keeps the
/// fastest that has not been placed itself.
bool Explorer::refuses(const Estimated &member, Outcome &outcome) const {
  const Leaf &leaf = member.leaf;
  Knowledge::Refusal refusal =
      knowledge.getRefusal(leaf.configuration, leaf.needs);
  if (member.fits && refusal == Knowledge::Refusal::Inferred)
    outcome.inferredSeconds = std::min(outcome.inferredSeconds, leaf.seconds);
  return member.fits && refusal != Knowledge::Refusal::None;
}

/// Tries ZeRO stages in descending order. A lower one holds no less and, but
/// for what passes wait for with ZeRO 2 and 3, does not run the pipeline any
/// faster, which rules out most of them.
Explorer::Outcome Explorer::estimateMembers(const Node &node,
                                            const std::vector<int> &zeros,
                                            double limit) const {
  Outcome outcome;
  Configuration configuration = toConfiguration(node);
  double usable = input.cluster.device.usableBytes();
  for (auto zero = zeros.rbegin(); zero != zeros.rend(); ++zero) {
    configuration.zero = *zero;
    Estimated member = knowledge.estimate(node, configuration, limit);
    if (!member.refusal.empty()) {
      outcome.refusal = std::move(member.refusal);
      break;
    }
    bool mayBeFaster = *zero >= 2 && choices.waitsForParts;
    bool isSlow = member.pipeline >= limit && !mayBeFaster;
    if (member.isSlow && !isSlow)
      continue;
    if (member.isSlow)
      break;
    ++outcome.estimated;
    bool isRefused = refuses(member, outcome);
    // The mixture fills the device: one that leaves what was missed is slower,
    // and may fit.
    if (isRefused && configuration.recompute.isAuto) {
      outcome.inferredSeconds =
          std::min(outcome.inferredSeconds, member.leaf.seconds);
      double missed = knowledge.getMissed(member.leaf.configuration);
      member = knowledge.estimate(node, configuration, limit, missed);
      isRefused = refuses(member, outcome);
    }
    const Leaf &leaf = member.leaf;
    if (!outcome.smallest || isSmaller(leaf, *outcome.smallest))
      outcome.smallest = leaf;
    bool fits = member.fits && !isRefused;
    outcome.isShort |= !fits;
    if (fits && (!outcome.best || isBetter(leaf, *outcome.best)))
      outcome.best = leaf;
    // But for the gradients that ZeRO 1 reduces into a buffer of their own, for
    // state that is not on the device.
    bool holdsMore = *zero == 1 && offloadsOptimizer(node.offload);
    if ((member.resident > usable && !holdsMore) || isSlow)
      break;
  }
  return outcome;
}

/// Some nodes take a thousand times as long as others, so that each is handed
/// out by itself.
void planner::shareOut(size_t count, const std::function<void(size_t)> &take) {
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < count; i = next++)
      take(i);
  };
  constexpr unsigned most = 8; // a round has few nodes that take long
  unsigned threads = std::clamp(std::thread::hardware_concurrency(), 2u, most);
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < std::min<size_t>(threads, count); ++i)
    helpers.emplace_back(work);
  work();
}

void Explorer::evaluateRound(std::vector<Node> &round,
                             std::vector<Outcome> &outcomes) {
  outcomes.assign(round.size(), Outcome());
  bounds.forgetSteps();
  shareOut(round.size(), [&](size_t i) { outcomes[i] = evaluate(round[i]); });
}

/// Called in the order of the round's nodes and not in that in which threads
/// finish, so that ties are decided the same way each time.
void Explorer::merge(Node &node, const Outcome &outcome) {
  counts.estimated += outcome.estimated;
  inferredSeconds = std::min(inferredSeconds, outcome.inferredSeconds);
  if (outcome.bytes > input.cluster.device.usableBytes())
    noteTooLarge(outcome.bytes, node);
  if (!outcome.refusal.empty())
    refusal = outcome.refusal;
  if (outcome.isShort)
    noteShort(node);
  if (outcome.smallest &&
      (!smallest || isSmaller(*outcome.smallest, *smallest)))
    smallest = outcome.smallest;
  std::optional<Leaf> &known = best[node.family];
  if (outcome.best && found.empty()) {
    tooLarge = {};
    unfit = {};
  }
  if (outcome.best && !known)
    found.insert(std::ranges::lower_bound(found, node.family), node.family);
  if (outcome.best && (!known || isBetter(*outcome.best, *known)))
    known = outcome.best;
}

/// What the last of the families that are kept takes.
double Explorer::getThreshold() const {
  std::vector<double> seconds;
  for (const Leaf *leaf : getListed())
    seconds.push_back(leaf->seconds);
  double least = std::min({fullSeconds, ceiling, most});
  if (seconds.size() < kept)
    return least;
  std::nth_element(seconds.begin(), seconds.begin() + (kept - 1),
                   seconds.end());
  return std::min(least, seconds[kept - 1]);
}

/// Schedules that are searched for take long to generate: they come last, when
/// most of them cannot win any more.
void Explorer::exploreOpen() {
  exploreInOrder(&Explorer::takeNext);
  exploreInOrder(&Explorer::takeSearched);
  cells.forEach([&](const Cell &cell) { keepForOffload(cell); });
  cells.clear();
  open.clear();
  searched.clear();
}

void Explorer::explore() {
  exploreOpen();
  exploreOffload();
}

/// The most promising node. Cells are expanded when one of their members may be
/// it.
std::optional<Node> Explorer::takeNext() {
  while (!cells.empty() && cells.front().seconds < threshold &&
         (open.empty() || cells.front().seconds <= open.front().seconds)) {
    Cell cell = cells.take();
    if (cell.isNarrow)
      expand(cell);
    else
      narrow(cell);
  }
  if (open.empty())
    return std::nullopt;
  return open.take();
}

std::optional<Node> Explorer::takeSearched() {
  if (searched.empty())
    return std::nullopt;
  return searched.take();
}

/// What a round finds tightens the threshold for the next one only. Where
/// bounds rule out nearly all of it the next one is longer: to share it takes
/// as long as to bound a hundred nodes.
void Explorer::exploreInOrder(std::optional<Node> (Explorer::*take)()) {
  constexpr size_t shortest = 128, longest = 1024, few = 16;
  size_t size = shortest;
  std::vector<Node> round;
  std::vector<Outcome> outcomes;
  bool isDone = false;
  while (!isDone && !(stopsAtFirst && getBestSeconds() < 1e300)) {
    round.clear();
    while (!isDone && round.size() < size) {
      std::optional<Node> node = (this->*take)();
      isDone = !node || node->seconds >= threshold;
      if (isDone)
        break;
      const std::optional<Leaf> &known = best[node->family];
      if (!known || node->seconds < known->seconds)
        round.push_back(*node);
    }
    evaluateRound(round, outcomes);
    int64_t former = counts.estimated;
    for (size_t i = 0; i < round.size(); ++i)
      merge(round[i], outcomes[i]);
    threshold = getThreshold();
    bool isBeaten = size_t(counts.estimated - former) < round.size() / few;
    size = isBeaten ? std::min(2 * size, longest) : shortest;
  }
}

//===----------------------------------------------------------------------===//
// Degrees of tensor parallelism
//===----------------------------------------------------------------------===//

/// Degrees of expert parallelism: what is pinned, or no more than there are
/// experts, and without tp, since each costs a profile.
std::vector<int> Explorer::getExpertDegrees(int tensor) const {
  std::vector<int> degrees;
  for (int experts : choices.mesh[Axis::EP])
    if (input.pins.mesh[Axis::EP] || experts == 1 ||
        (tensor == 1 && experts <= input.source.countExperts() &&
         choices.ranks % (tensor * experts) == 0 &&
         input.training.globalBatch % experts == 0))
      degrees.push_back(experts);
  return degrees;
}

/// Lists what is asked first of the model on `tensor` ranks.
std::vector<WorkQuestion> Explorer::getQuestions(int tensor,
                                                 bool sequenceParallel) const {
  // One rank has nothing to share a sequence with.
  if (tensor == 1 && sequenceParallel) {
    if (choices.sequenceParallel.size() > 1)
      return {};
    sequenceParallel = false;
  }
  std::vector<int64_t> sizes = choices.getMicroBatches(Mesh(), input.training);
  double most = sizes.empty() ? 1 : double(sizes.back());
  std::vector<WorkQuestion> questions;
  for (int experts : getExpertDegrees(tensor))
    for (ExpertExchange exchange : choices.getExpertExchange(experts))
      questions.push_back(
          {{tensor, experts, sequenceParallel, exchange}, most});
  return questions;
}

/// Asks for the model on `tensor` ranks and adds what can be done with it.
void Explorer::addTensor(int tensor, bool sequenceParallel) {
  for (const WorkQuestion &question : getQuestions(tensor, sequenceParallel))
    addDegrees(question);
}

void Explorer::addDegrees(const WorkQuestion &question) {
  const auto &[degrees, sequences] = question;
  std::string reason;
  const Work *work = input.source.get(degrees, sequences, reason);
  ++counts.profiles;
  if (!work) {
    refuseTensor(degrees.tensor, std::move(reason));
    return;
  }
  ++splits;
  addWork(work);
}

/// What differs from an earlier reason by the degree alone is told with it.
void Explorer::refuseTensor(int tensor, std::string reason) {
  std::string degree = "tp=" + std::to_string(tensor) + " ";
  if (size_t at = reason.find(degree); at != std::string::npos)
    reason.replace(at, degree.size(), "tp ");
  auto known = std::find_if(
      refusedTensors.begin(), refusedTensors.end(),
      [&](const auto &refused) { return refused.first == reason; });
  if (known == refusedTensors.end())
    refusedTensors.push_back({reason, {tensor}});
  else if (known->second.back() != tensor) // with sequence parallelism as well
    known->second.push_back(tensor);
}

/// Only the most sequences are asked for: others are where a bound lets them
/// win.
void Explorer::addWork(const Work *work) {
  Degrees degrees = getDegrees(*work);
  std::vector<Mesh> found = choices.getMeshes(degrees, work->mostStages(),
                                              input.training, input.pins);
  meshes += int64_t(found.size());
  double most = 0;
  for (const Mesh &mesh : found)
    for (int64_t size : choices.getMicroBatches(mesh, input.training))
      most = std::max(most, double(size) / mesh[Axis::CP]);
  std::string reason;
  if (most > 0)
    work = input.source.get(degrees, most, reason);
  if (!work)
    return refuseTensor(degrees.tensor, std::move(reason));
  works[degrees] = work;
  noteExchange(*work, most);
  for (const Mesh &mesh : found)
    if (!hasOneStage || mesh[Axis::PP] == 1)
      addMesh(*work, mesh);
}

/// Keeps what ranks of tp exchange at least. The more sequences, the less for
/// each: what is cheapest for fewer is a choice for more of them as well.
void Explorer::noteExchange(const Work &work, double sequences) {
  auto [entry, isNew] = exchanges[getDegrees(work)].try_emplace(sequences);
  if (isNew)
    entry->second = getExchangeBound(work, work.tensorParallel, input.cluster,
                                     input.training);
}

/// Whether its work takes no profile that was not made before.
bool Explorer::isProfiled(const Configuration &configuration) const {
  auto known = exchanges.find(configuration.degrees());
  return configuration.mesh[Axis::TP] == 1 ||
         (known != exchanges.end() &&
          known->second.contains(configuration.sequences()));
}

/// Seconds that a microbatch takes on a stage of the whole model, at least, and
/// forever where it makes no sense. Where its work is not known no profile is
/// asked for: ranks of tp compute no less together than one alone, and exchange
/// no less than with more sequences.
double Explorer::getLeastWork(Configuration configuration, bool splits) {
  bool isExact = isProfiled(configuration);
  ExchangeBound exchange;
  int parts = 1;
  if (!isExact) {
    double sequences = configuration.sequences();
    const auto &known = exchanges[configuration.degrees()];
    for (auto it = known.lower_bound(sequences); it != known.end(); ++it) {
      exchange.exposed =
          std::max(exchange.exposed, sequences * it->second.exposed);
      exchange.all = std::max(exchange.all, sequences * it->second.all);
    }
    parts = configuration.mesh[Axis::TP] * configuration.mesh[Axis::EP];
    configuration.mesh[Axis::TP] = configuration.mesh[Axis::EP] = 1;
    configuration.sequenceParallel = false;
    configuration.expertExchange = ExpertExchange::Tokens;
  }
  const Work *work = getWork(configuration);
  if (!work)
    return exchange.all;
  const auto &probe = bounds.getProbe(*work, configuration, splits);
  if (!probe.ok())
    return isExact ? 1e300 : exchange.all;
  return std::max(probe->work() / parts + exchange.exposed, exchange.all);
}

/// Every work of the kind gives a bound, and so does that of one rank. Ranks
/// that the degree does not divide are idle.
double Explorer::getTensorSeconds(int tensor, bool sequenceParallel) const {
  int ranks = choices.ranks - choices.ranks % tensor;
  double least = 0;
  for (const auto &[key, work] : works)
    if (key.experts == 1 &&
        (key.tensor == 1 || key.sequenceParallel == sequenceParallel))
      least = std::max(least, getTensorBound(*work, tensor, ranks,
                                             input.cluster, input.training));
  return least;
}

/// Those that a bound does not rule out.
void Explorer::addFurtherTensors() {
  for (int tensor : choices.tensorsByBound) {
    double best = std::min(getBestSeconds(), most);
    bool isAsked = false;
    for (bool sequenceParallel : choices.sequenceParallel)
      if (getTensorSeconds(tensor, sequenceParallel) < best) {
        addTensor(tensor, sequenceParallel);
        isAsked = true;
      }
    if (!isAsked)
      slowTensors.push_back(tensor);
    explore();
  }
}

//===----------------------------------------------------------------------===//
// The whole search
//===----------------------------------------------------------------------===//

double Explorer::getBestSeconds() const {
  double seconds = 1e300;
  for (int family : found)
    seconds = std::min(seconds, best[family]->seconds);
  return seconds;
}

/// Likely degrees of tp first; then further ones and configurations with idle
/// devices, as far as the best time found so far does not rule them out.
void Explorer::run() {
  std::vector<WorkQuestion> likely;
  for (int tensor : choices.tensorsFirst)
    for (bool sequenceParallel : choices.sequenceParallel)
      std::ranges::copy(getQuestions(tensor, sequenceParallel),
                        std::back_inserter(likely));
  input.source.prepare(likely);
  for (int tensor : choices.tensorsFirst)
    for (bool sequenceParallel : choices.sequenceParallel)
      addTensor(tensor, sequenceParallel);
  explore();
  addFurtherTensors();
  if (choices.mayIdle)
    addIdle();
  counts.pruned = counts.considered - counts.estimated;
}

bool Explorer::runUntilSomethingFits() {
  stopsAtFirst = true;
  run();
  return getBestSeconds() < 1e300;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

std::vector<std::string> Explorer::getNotes() const {
  std::vector<std::string> notes;
  auto add = [&](const std::vector<int> &tensors, const std::string &reason) {
    std::string text = "tp ";
    for (int tensor : tensors)
      text += (text == "tp " ? "" : ", ") + std::to_string(tensor);
    notes.push_back(text + ": " + reason);
  };
  for (const auto &[reason, tensors] : refusedTensors)
    add(tensors, reason);
  if (!slowTensors.empty())
    add(slowTensors, "work and communication alone take longer than the pick");
  return notes;
}

std::vector<Leaf> Explorer::getFamilies() const {
  std::vector<Leaf> families;
  for (const Leaf *leaf : getListed())
    families.push_back(*leaf);
  std::sort(families.begin(), families.end(), isBetter);
  return families;
}

std::vector<Leaf> Explorer::findOneStage(double most) const {
  Explorer other(input, choices, knowledge, listed, most);
  other.hasOneStage = true;
  for (const auto &[degrees, work] : works)
    other.addWork(work);
  other.explore();
  return other.getFamilies();
}

std::optional<Leaf> Explorer::findSmallest() {
  reopenUnfit();
  std::sort(tooLarge.begin(), tooLarge.end(), [](const auto &a, const auto &b) {
    return std::tie(a.first, a.second.index) <
           std::tie(b.first, b.second.index);
  });
  for (auto &[bytes, node] : tooLarge) {
    if (smallest && !smallest->exceedsOther && bytes >= smallest->getPeak())
      break;
    merge(node,
          estimateMembers(node, choices.getZeroStages(node.mesh), threshold));
  }
  return smallest;
}

const Work *Explorer::getWork(const Configuration &of) const {
  if (!works.contains(of.degrees()))
    return nullptr;
  std::string reason;
  return input.source.get(of.degrees(), of.sequences(), reason);
}
