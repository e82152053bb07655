//===- PublishedRuns.h - Measured runs from the literature ------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// data/*.json group runs by source: what all runs of a source share (cluster,
// program, precision, kind of attention and of loss) stands beside them, with
// where the figures were published. published_runs.json has the runs that were
// looked at while the model was made, held_out_runs.json others, added when it
// was done. mixture_runs.json and held_out_mixture_runs.json have mixtures of
// experts; runs name their model there, and the words of their recipes. What
// was held back was predicted twice (docs/Accuracy.md). eight_bit_runs.json has
// dense runs that say how fast matmuls in 8 bit are.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_PUBLISHEDRUNS_H
#define PLAIT_TEST_UNIT_PLANNER_PUBLISHEDRUNS_H

#include "TransformerWork.h"
#include "plait/Planner/Band.h"
#include "plait/Planner/Estimate.h"

namespace plait::planner {

struct PublishedRun {
  std::string id;
  TransformerShape shape;
  Training training;
  Configuration configuration;
  Cluster cluster;
  // 0 where nothing was published.
  double seconds = 0;                         // of a step
  double layerForward = 0, layerBackward = 0; // seconds of one layer alone
  double residentBytes = 0, peakBytes = 0;
  /// How many times faster matmuls are than in 16 bit.
  double matmulRate = 1;

  /// With `extraLayers` more than the model has, cut by cost.
  Result<Estimate> predict(int64_t extraLayers = 0) const;
};

/// Runs of one program on one cluster.
struct PublishedSource {
  std::string name;
  std::string publication;          // where: several sources may share it
  bool isRanking = false;           // many configurations of the same models
  bool comparesUtilization = false; // of several models and devices
  std::vector<PublishedRun> runs;
};

/// Fails on a file that cannot be read and on the first run that makes no
/// sense.
Result<std::vector<PublishedSource>> readPublishedRuns(const std::string &path);

/// What was predicted and what was published, in the same unit.
struct Comparison {
  std::string name, model;
  /// What a planner would choose among: runs of one model with as many layers,
  /// devices and sequences, which are as long.
  std::string task;
  double predicted = 0, published = 0;
  /// A step at the peak of all devices in 16 bit, in seconds, and the tokens of
  /// a rank.
  double ideal = 0, tokens = 0;
  double error() const { return predicted / published - 1; }
};

struct Comparisons {
  std::vector<Comparison> seconds, bytes;
  std::vector<std::string> failures;
};

Comparisons compare(const PublishedSource &source);

/// What a band knows of the source's runs; nothing where they have no seconds.
std::optional<BandFact> getBandFact(const PublishedSource &source);

double meanAbsoluteError(const std::vector<Comparison> &comparisons,
                         double scale = 1);
double meanSignedError(const std::vector<Comparison> &comparisons);
/// The scalar for all predictions that has the smallest mean absolute error.
double findBestScale(const std::vector<Comparison> &comparisons);

/// Mean absolute errors over all runs of a publication, as they come and with
/// one scalar for each of its sources.
struct PublicationError {
  std::string publication;
  size_t sources = 0, runs = 0;
  double mean = 0, scaled = 0;
};

/// Of every publication, in order of appearance.
std::vector<PublicationError>
comparePublications(const std::vector<PublishedSource> &sources);

/// How far the predicted ratio of two configurations is from the published one,
/// for those of one task: what all predictions have in common cancels out.
struct RatioError {
  size_t sources = 0, pairs = 0;
  /// Of half of a source's pairs, and of eight in ten: the median over sources,
  /// since a source has as many pairs as the square of its runs.
  double half = 0, most = 0;
};
RatioError compareRatios(const std::vector<PublishedSource> &sources);

/// How many runs are in the bands that the others give.
struct BandCoverage {
  size_t runs = 0, sources = 0;
  /// The part of all runs that is inside where a run is held out by itself, and
  /// where its whole source is; of the latter the mean over sources, which
  /// counts each once.
  double insideOfRuns = 0, insideOfSources = 0;
  /// Of the bands where a run is held out, and where a source is.
  double halfOfRuns = 0, halfOfSources = 0; // in the middle
  double widest = 0;
};
/// Holds out each run, and each source, of those in getBandFacts().
BandCoverage checkBands(const std::vector<PublishedSource> &sources);

/// How well predictions rank the configurations of one model.
struct Ranking {
  std::string model;
  size_t runs = 0;
  double kendallTau = 0;
  /// How much slower the run that is predicted best is than the best.
  double regret = 0;

  /// Runs that are slower than predicted by more than this beyond what is usual
  /// (the median) for the model.
  static constexpr double slowError = 0.05;
  size_t slowRuns = 0;
  /// Kendall's tau over all but those; and over all if the predictions of all
  /// but those were exact: no prediction that misses them can reach more.
  double tauOfOthers = 0, tauIfOthersExact = 0;
};
std::vector<Ranking> rankByModel(const std::vector<Comparison> &comparisons);

/// How well predictions rank runs of several models on several devices, by
/// Kendall's tau.
struct UtilizationRanking {
  size_t runs = 0;
  /// Of the part of the peak that is used, for which a constant gives 0 at
  /// best.
  double utilization = 0;
  /// Of tokens a second and device, as predicted and as they would be at a
  /// constant part of the peak.
  double speed = 0, trivialSpeed = 0;
};
UtilizationRanking rankUtilization(const std::vector<Comparison> &comparisons);

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_PUBLISHEDRUNS_H
