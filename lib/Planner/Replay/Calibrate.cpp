//===- Calibrate.cpp - Fitting a hardware file to measurements ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fits figures of a hardware file to measured steps. Each figure is multiplied
// by a factor, the logarithm of which is what the search moves: figures differ
// by many orders of magnitude, and none may become negative. The predictions
// are the cost model's own, asked again for every sample at every try, since
// how a figure enters into a cost is not known here. Each group of figures is
// fitted to samples of its own, in an order in which it may rely on the figures
// of those before: messages reach a part of the collectives' bandwidth.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Calibrate.h"

#include "plait/Plan/Defaults.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

using namespace plait;
using namespace plait::planner;
namespace fb = plait::plan::fb;

namespace {

constexpr int simple = int(Protocol::Simple);

/// Outer ones are between nodes.
enum class Group : uint8_t {
  Steps,
  Collectives,
  Messages,
  OuterCollectives,
  OuterMessages
};
constexpr Group groups[] = {Group::Steps, Group::Collectives, Group::Messages,
                            Group::OuterCollectives, Group::OuterMessages};

/// A figure that can be fitted. `get` is of a cluster, where ranks have their
/// share of the machine: the fit is about ratios.
struct Figure {
  Group group;
  const char *path;
  double &(*get)(Cluster &cluster);
  double most; // what a hardware file may say
};

template <Fabric Cluster::*links, double Fabric::*field>
double &getField(Cluster &cluster) {
  return cluster.*links.*field;
}

template <Fabric Cluster::*links, Algorithm algorithm>
double &getHop(Cluster &cluster) {
  return (cluster.*links).channels[int(algorithm)][simple].hop;
}

// Those that steps of a plan depend on; the bounds are those that a hardware
// file may have. A hop of 0 is of an algorithm that the hardware has not.
const Figure figures[] = {
    {Group::Steps, "device.fp32Flops",
     [](Cluster &c) -> double & {
       return c.device.peakFlops[size_t(Precision::FP32)];
     },
     1e18},
    {Group::Steps, "device.bf16Flops",
     [](Cluster &c) -> double & {
       return c.device.peakFlops[size_t(Precision::BF16)];
     },
     1e18},
    {Group::Steps, "device.matrix.rampTrips",
     [](Cluster &c) -> double & { return c.device.matrix.rampTrips; }, 1000},
    {Group::Steps, "device.memoryBandwidth",
     [](Cluster &c) -> double & { return c.device.memoryBandwidth; }, 1e15},
    {Group::Steps, "device.vectorFlops",
     [](Cluster &c) -> double & { return c.device.vectorFlops; }, 1e18},
    {Group::Steps, "device.launchSeconds",
     [](Cluster &c) -> double & { return c.device.launchSeconds; }, 1},
    {Group::Collectives, "intra.startSeconds",
     getField<&Cluster::intra, &Fabric::startSeconds>, 1},
    {Group::Collectives, "intra.ring.simple.hop",
     getHop<&Cluster::intra, Algorithm::Ring>, 1},
    {Group::Collectives, "intra.direct.simple.hop",
     getHop<&Cluster::intra, Algorithm::Direct>, 1},
    {Group::Collectives, "intra.bandwidth",
     getField<&Cluster::intra, &Fabric::bandwidth>, 1e15},
    {Group::Messages, "intra.transferLatency",
     getField<&Cluster::intra, &Fabric::transferLatency>, 1},
    {Group::Messages, "intra.transferFraction",
     getField<&Cluster::intra, &Fabric::transferFraction>, 1},
    {Group::OuterCollectives, "inter.startSeconds",
     getField<&Cluster::inter, &Fabric::startSeconds>, 1},
    {Group::OuterCollectives, "inter.ring.simple.hop",
     getHop<&Cluster::inter, Algorithm::Ring>, 1},
    {Group::OuterCollectives, "inter.direct.simple.hop",
     getHop<&Cluster::inter, Algorithm::Direct>, 1},
    {Group::OuterCollectives, "inter.bandwidth",
     getField<&Cluster::inter, &Fabric::bandwidth>, 1e15},
    {Group::OuterMessages, "inter.transferLatency",
     getField<&Cluster::inter, &Fabric::transferLatency>, 1},
    {Group::OuterMessages, "inter.transferFraction",
     getField<&Cluster::inter, &Fabric::transferFraction>, 1},
};
constexpr size_t figureCount = std::size(figures);

/// One kind of step or message of one program.
struct Sample {
  Group group = Group::Steps;
  std::string kind;
  size_t run = 0;
  const fb::Step *step = nullptr;  // or a message
  uint32_t source = 0, target = 0; // of a message: programs
  uint64_t bytes = 0;              // likewise
  double seconds = 0;              // of one call, measured
  double weight = 0;               // seconds of all its calls in a step
};

/// Logarithms of what each figure is multiplied by.
using Ratios = std::vector<double>;

/// The samples of all runs, and the ratios found so far: 0, nothing changed,
/// until run(). Runs may be of different numbers of ranks, each with a cluster
/// of its own.
class Fit {
public:
  Fit(std::span<const MeasuredRun> runs, std::vector<Cluster> clusters)
      : runs(runs), clusters(std::move(clusters)) {
    for (size_t i = 0; i < runs.size(); ++i) {
      meshes.emplace_back(runs[i].plan);
      for (uint32_t j = 0; j < runs[i].profile.programs.size(); ++j)
        collect(i, j);
    }
  }

  bool isEmpty() const { return samples.empty(); }
  bool has(Group group) const {
    return std::any_of(
        samples.begin(), samples.end(),
        [&](const Sample &sample) { return sample.group == group; });
  }
  void run();
  Calibration summarise(const Cluster &whole) const;

private:
  void collect(size_t run, uint32_t program);
  void add(Sample sample, double seconds, double calls);
  std::vector<Cluster> apply(const Ratios &ratios) const;
  double predict(const Sample &sample,
                 const std::vector<Cluster> &clusters) const;
  double getLoss(Group group, const Ratios &ratios) const;
  double startNear(Group group);
  double descend(Group group, double loss);
  void search(Group group);
  std::vector<Residual> getResiduals() const;

  std::span<const MeasuredRun> runs;
  std::vector<Cluster> clusters; // by run, before the fit
  std::vector<plan::RankGrid> meshes;
  // Of all runs and groups; each fit picks its own.
  std::vector<Sample> samples;
  Ratios ratios = Ratios(figureCount, 0);
};

} // namespace

//===----------------------------------------------------------------------===//
// What was measured
//===----------------------------------------------------------------------===//

/// Drops what took no time: it has no ratio, and says nothing.
void Fit::add(Sample sample, double seconds, double calls) {
  if (seconds <= 0 || calls <= 0)
    return;
  sample.seconds = seconds;
  sample.weight = seconds * calls;
  samples.push_back(std::move(sample));
}

/// Every kind of step of every function, and every message where it is
/// received. `ranks` is how many run the program, all of which count: the
/// weight is of the whole step.
void Fit::collect(size_t run, uint32_t index) {
  const plan::ProgramProfile &measured = runs[run].profile.programs[index];
  const fb::Program &program = *runs[run].plan.programs()->Get(index);
  // The first axis has the programs; the ranks of one are those of all others.
  double ranks = meshes[run].ranks() / meshes[run].size(0);
  // Ranks that share a thread wait for each other: then the processor's time,
  // not the clock's, is what a step took.
  double share = plan::backendOf(runs[run].plan) == "cpu"
                     ? double(meshes[run].ranks()) / runs[run].profile.threads
                     : 1;
  auto getSeconds = [&](const auto &entry) {
    return share > 1 ? share * entry.processor : entry.seconds;
  };
  for (size_t i = 0; i < measured.functions.size(); ++i) {
    const plan::FunctionProfile &function = measured.functions[i];
    for (size_t j = 0; j < function.steps.size(); ++j) {
      const fb::Step &step = *program.functions()->Get(i)->steps()->Get(j);
      const auto *fill = step.step_as_FillStep();
      if (fill && fill->first_microbatch_only())
        continue; // a mean over calls that do nothing
      Sample sample;
      if (step.step_as_CollectiveStep())
        sample.group = crossesNodes(step, meshes[run], clusters[run])
                           ? Group::OuterCollectives
                           : Group::Collectives;
      sample.kind = function.steps[j].kind;
      sample.run = run;
      sample.step = &step;
      add(std::move(sample), getSeconds(function.steps[j]),
          ranks * double(function.calls));
    }
  }
  for (const plan::TransferProfile &transfer : measured.transfers) {
    if (transfer.kind != fb::ActionKind::Recv)
      continue; // the receiver moves the bytes
    bool crosses =
        crossesNodes(transfer.peer, index, meshes[run], clusters[run]);
    Sample sample{crosses ? Group::OuterMessages : Group::Messages,
                  fb::EnumNameActionKind(transfer.kind), run};
    sample.source = transfer.peer;
    sample.target = index;
    sample.bytes = transfer.bytes;
    add(std::move(sample), getSeconds(transfer),
        ranks * double(transfer.calls));
  }
}

//===----------------------------------------------------------------------===//
// The fit
//===----------------------------------------------------------------------===//

/// The figures of each run's cluster, multiplied, up to what a file may say: a
/// fit must not write what cannot be read again.
std::vector<Cluster> Fit::apply(const Ratios &ratios) const {
  std::vector<Cluster> changed = clusters;
  for (Cluster &cluster : changed)
    for (size_t i = 0; i < figureCount; ++i) {
      double &value = figures[i].get(cluster);
      value = std::min(value * std::exp(ratios[i]), figures[i].most);
    }
  return changed;
}

/// Predicts by the functions that predictions use, so that what is fitted is
/// the model itself.
double Fit::predict(const Sample &sample,
                    const std::vector<Cluster> &clusters) const {
  const plan::RankGrid &mesh = meshes[sample.run];
  const Cluster &cluster = clusters[sample.run];
  if (sample.step)
    return stepSeconds(*sample.step, mesh, cluster);
  return messageSeconds(sample.source, sample.target, sample.bytes, mesh,
                        cluster);
}

/// The mean square of log(predicted / measured), by the seconds that samples
/// take of a step: twice too slow is as wrong as twice too fast, and what
/// takes long counts most.
double Fit::getLoss(Group group, const Ratios &ratios) const {
  std::vector<Cluster> changed = apply(ratios);
  double loss = 0, weight = 0;
  for (const Sample &sample : samples) {
    if (sample.group != group)
      continue;
    // A model that says 0 is as wrong as can be, but has a logarithm.
    double seconds = std::max(predict(sample, changed), 1e-12);
    double error = std::log(seconds / sample.seconds);
    loss += sample.weight * error * error;
    weight += sample.weight;
  }
  // Keeps in place what the samples do not depend on.
  double moved = 0;
  for (double ratio : ratios)
    moved += ratio * ratio;
  return loss / weight + 1e-6 * moved;
}

/// Searches along one figure after another; a step that helps grows, one that
/// does not turns round and shrinks (Rosenbrock 1960, without his rotations).
/// Returns the loss.
double Fit::descend(Group group, double loss) {
  // In logarithms: a factor of e^0.5 to begin with, a part in 100,000 at the
  // end, and nothing beyond e^12.
  constexpr double firstStep = 0.5, leastStep = 1e-5, mostRatio = 12;
  std::vector<double> steps(figureCount, firstStep);
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t i = 0; i < figureCount; ++i) {
      if (figures[i].group != group || std::abs(steps[i]) < leastStep)
        continue;
      moves = true;
      Ratios changed = ratios;
      changed[i] = std::clamp(changed[i] + steps[i], -mostRatio, mostRatio);
      double other = getLoss(group, changed);
      if (other < loss) {
        ratios = changed;
        loss = other;
        steps[i] *= 1.6;
      } else {
        steps[i] *= -0.5;
      }
    }
  }
  return loss;
}

/// Tries figures far from where they are, each with each, and goes to the best:
/// what a file assumes of a link may be wrong by orders of magnitude, and on
/// the way down from there bandwidth and latency can get into each other's
/// place. Returns the loss.
double Fit::startNear(Group group) {
  constexpr double offsets[] = {0, -2, 2, -4, 4};
  constexpr size_t mostTries = 1000;
  std::vector<size_t> moved;
  for (size_t i = 0; i < figureCount; ++i)
    if (figures[i].group == group)
      moved.push_back(i);
  // As many offsets of each as there is time for.
  size_t each = std::size(offsets);
  while (std::pow(double(each), double(moved.size())) > mostTries)
    each -= 2;
  Ratios best = ratios;
  double least = getLoss(group, ratios);
  std::vector<size_t> chosen(moved.size(), 0);
  auto advance = [&] {
    for (size_t &choice : chosen) {
      if (++choice < each)
        return true;
      choice = 0;
    }
    return false;
  };
  while (advance()) {
    Ratios changed = ratios;
    for (size_t i = 0; i < moved.size(); ++i)
      changed[moved[i]] += offsets[chosen[i]];
    if (double loss = getLoss(group, changed); loss < least) {
      least = loss;
      best = std::move(changed);
    }
  }
  ratios = std::move(best);
  return least;
}

/// Starts over with large steps as long as that helps: figures that can stand
/// in for each other shrink each other's steps too early.
void Fit::search(Group group) {
  constexpr int mostRounds = 200;
  double loss = startNear(group);
  for (int round = 0; round < mostRounds; ++round) {
    double before = loss;
    loss = descend(group, loss);
    if (loss > before * (1 - 1e-6))
      break;
  }
}

void Fit::run() {
  for (Group group : groups)
    if (has(group))
      search(group);
}

//===----------------------------------------------------------------------===//
// What is told of it
//===----------------------------------------------------------------------===//

/// Returns errors by kind of step, in the order of their names, weighted by
/// time, like the loss, but without squares: they are for people.
std::vector<Residual> Fit::getResiduals() const {
  std::vector<Cluster> fitted = apply(ratios);
  std::map<std::string, Residual> kinds;
  for (const Sample &sample : samples) {
    Residual &residual = kinds[sample.kind];
    residual.kind = sample.kind;
    ++residual.samples;
    residual.measured += sample.weight;
    double after = predict(sample, fitted) / sample.seconds;
    double before = predict(sample, clusters) / sample.seconds;
    residual.predicted += sample.weight * after;
    residual.errorBefore += sample.weight * std::abs(before - 1);
    residual.errorAfter += sample.weight * std::abs(after - 1);
  }
  std::vector<Residual> residuals;
  for (auto &[kind, residual] : kinds) {
    residual.errorBefore /= residual.measured;
    residual.errorAfter /= residual.measured;
    residuals.push_back(residual);
  }
  return residuals;
}

/// `whole` is the machine of one rank: figures as the file has them.
/// Tells of all figures of the groups that were measured, also of those that
/// the fit left where they were.
Calibration Fit::summarise(const Cluster &whole) const {
  Calibration calibration;
  calibration.residuals = getResiduals();
  for (size_t i = 0; i < figureCount; ++i) {
    Cluster cluster = whole;
    double before = figures[i].get(cluster);
    if (!has(figures[i].group) || before == 0)
      continue;
    calibration.values.push_back(
        {figures[i].path, before,
         std::min(before * std::exp(ratios[i]), figures[i].most)});
  }
  return calibration;
}

/// Six digits: more than a measurement has.
static double roundValue(double value) {
  if (value == 0)
    return 0;
  double scale = std::pow(10.0, 5 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

/// Rows are replaced as a whole: what surrounds the hop at `path`.
static std::vector<double> getRow(const Cluster &whole, std::string_view path,
                                  double hop) {
  const Fabric &links = path.starts_with("intra") ? whole.intra : whole.inter;
  Algorithm algorithm =
      path.find("direct") != path.npos ? Algorithm::Direct : Algorithm::Ring;
  const Channel &channel = links.channels[int(algorithm)][simple];
  return {channel.base, hop, channel.fraction, channel.fill, channel.fillBytes};
}

/// Extends the file that was started from and states what was fitted alone,
/// each figure at its path. The order is that of the table, so that the same
/// input gives the same bytes.
static std::string writeJson(const Calibration &calibration,
                             const Cluster &whole, const std::string &base,
                             const std::string &name, uint32_t cores) {
  nlohmann::ordered_json file = {{"extends", base}, {"name", name}};
  if (whole.device.target.empty())
    file["cores"] = {{"value", cores}, {"source", "the threads of the runs"}};
  for (const FittedValue &value : calibration.values) {
    // Down to the object that the figure stands in; objects on the way are
    // made.
    nlohmann::ordered_json *place = &file;
    std::string path = value.path;
    // A file states a hop in one row with other figures of its channel, not as
    // a field of its own.
    bool isHop = path.ends_with(".hop");
    if (isHop)
      path.resize(path.size() - 4);
    for (size_t dot; (dot = path.find('.')) != path.npos;) {
      place = &(*place)[path.substr(0, dot)];
      path.erase(0, dot + 1);
    }
    nlohmann::ordered_json &entry = (*place)[path];
    if (isHop)
      entry["value"] = getRow(whole, value.path, roundValue(value.after));
    else
      entry["value"] = roundValue(value.after);
    entry["source"] = "measured";
  }
  return file.dump(2) + "\n";
}

/// 1. Each run gets a cluster of the base with as many nodes and ranks as it
///    had, and so its share of a machine.
/// 2. The fit moves ratios, which are the same for all numbers of ranks.
/// 3. They are applied to the whole machine, that of one rank, which is what a
///    file describes.
Result<Calibration> planner::calibrate(std::span<const MeasuredRun> runs,
                                       const std::string &base,
                                       const std::string &name) {
  Result<Cluster> whole = parseCluster(base + ":1");
  if (!whole.ok())
    return whole.status();
  for (const MeasuredRun &run : runs)
    if (std::string_view backend = plan::backendOf(run.plan);
        (backend == "cpu") != whole->device.target.empty())
      return fail("a plan is for ", backend, ", and the hardware '", base,
                  "' that the fit begins with is not");
  std::vector<Cluster> clusters;
  for (const MeasuredRun &run : runs) {
    uint32_t ranks = plan::RankGrid(run.plan).ranks();
    if (run.nodes == 0 || ranks % run.nodes != 0)
      return fail("a plan of ", ranks, " ranks cannot have run on ", run.nodes,
                  " nodes of equally many");
    Result<Cluster> cluster =
        parseCluster(base + ":" + std::to_string(run.nodes) + "x" +
                     std::to_string(ranks / run.nodes));
    if (!cluster.ok())
      return cluster.status();
    clusters.push_back(std::move(*cluster));
  }
  Fit fit(runs, std::move(clusters));
  if (fit.isEmpty())
    return Status::failure("the profiles hold no step that took any time");
  fit.run();
  Calibration calibration = fit.summarise(*whole);
  // The most threads that a node of any run had, since as many cores computed
  // at once.
  uint32_t cores = 1;
  for (const MeasuredRun &run : runs)
    cores = std::max(cores, run.profile.threads / run.nodes);
  calibration.json = writeJson(calibration, *whole, base, name, cores);
  return calibration;
}
