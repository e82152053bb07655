//===- Optimizers.h - Table of optimizers -----------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The facts of each optimizer that planner, compiler, plan and help ask for.
// What it does to a parameter is written in a file of its own in
// lib/Transforms/Gradients/Optimizers: a new one is a row of Optimizers.def and
// a file there. What a run may set, and within which bounds, is copied into the
// plan: the runtime reads it there and knows no optimizer by name.
//
// A training has one optimizer, and groups of its parameters may have others.
// What one of these reads are numbers of its own, so that each is set apart.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_CONFIGURATION_OPTIMIZERS_H
#define PLAIT_CONFIGURATION_OPTIMIZERS_H

#include "plait/Support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// A number that a run may set. The strings are literals and live for ever.
struct OptimizerOption {
  std::string_view name;   // as plait-run has it, without the dashes
  std::string_view scalar; // as `nn.step_scalar` has it
  double value;            // where the run does not set it
  double least, most;
  std::string_view help;
  /// The scalar that is 1 - value^t in the t-th update; empty: none.
  std::string_view correction = {};
};

/// How much of a parameter an update needs: an element at a time, so that ranks
/// may divide a parameter anywhere, or a whole matrix.
enum class Granularity { Element, Matrix };

/// One optimizer. The strings are literals and live for ever.
struct Optimizer {
  std::string_view name; // as --optimizer has it
  std::string_view rule; // what numbers begin with that are its own
  /// The tensors that it keeps of a parameter, by the names of their slots in
  /// IR, plan and checkpoint: fp32, of the parameter's shape, zero at the start
  /// of a run, divided among ranks as the reduced gradient is.
  std::span<const std::string_view> states;
  std::span<const OptimizerOption> options;
  Granularity granularity = Granularity::Element;
  /// The optimizer of what is no matrix, in a training by this one, which
  /// updates matrices alone; its options are then the training's, too.
  std::string_view rest = {};

  bool updatesMatrices() const { return granularity == Granularity::Matrix; }
  /// Returns the row of `rest`; null where there is none.
  const Optimizer *getRest() const;
  /// Returns the bytes of the states for each element of a parameter.
  uint64_t getStateBytes() const { return states.size() * sizeof(float); }
};

/// All of them, in the order in which help texts list them.
std::span<const Optimizer> getOptimizers();

/// The row called `name`, or a failure that lists the names there are.
Result<const Optimizer *> findOptimizer(std::string_view name);

/// A number that a run may set of a training.
struct TrainingOption {
  std::string name; // as plait-run has it, without the dashes
  /// The option's name for all optimizers of the training, which sets this one
  /// where a run does not; empty: `name`, or there is none.
  std::string_view shared;
  const OptimizerOption *option;
  std::string scalar, correction; // as `nn.step_scalar` has them
};

/// Returns what a run may set of a training by `main`, of whose parameters
/// `others` update some: the options of `main` by their names, and those of
/// each other one behind its name, as "lion-beta1", with a factor of its
/// learning rate.
std::vector<TrainingOption>
getTrainingOptions(const Optimizer &main,
                   std::span<const Optimizer *const> others);

/// Returns the name of the number that `own` reads as `scalar` in a training by
/// `main`; `scalar` of one that is neither `main` nor its rest begins with its
/// own `rule`.
std::string getScalarName(const Optimizer &own, const Optimizer &main,
                          std::string_view scalar);

/// Returns the name of what the learning rate is multiplied by where `own` is
/// not the training's optimizer.
std::string getRateScalar(const Optimizer &own);

/// An option of one name, and what it is to each optimizer that reads it.
struct SharedOption {
  struct Reader {
    const Optimizer *optimizer;
    const OptimizerOption *option;
    bool isOfGroup = false; // not the training's
  };
  std::string name;
  std::vector<Reader> readers; // at least one
  /// Names what sets this one, as TrainingOption does.
  std::string_view shared = {};
};

/// The options of all optimizers, in the order in which help texts list them:
/// those of a training's, then those of groups.
const std::vector<SharedOption> &getOptimizerOptions();

/// Whether some optimizer keeps a tensor called `name`, or a replica does
/// (plait/Configuration/Compressors.h).
bool isState(std::string_view name);

/// The names of all numbers that a step is given, in the order in which they
/// lie in memory. The first ones are those of enum Scalar in Plan.fbs.
const std::vector<std::string> &getStepScalars();

/// The index of a name among them, or -1.
int findStepScalar(std::string_view name);

} // namespace plait

#endif // PLAIT_CONFIGURATION_OPTIMIZERS_H
