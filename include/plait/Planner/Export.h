//===- Export.h - Layouts in the words of other programs --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A configuration as the options of another training program, and back. What is
// written trains what was planned: where a program would train something else,
// that is an error that says so, and what it merely does at another speed is a
// comment in the text. What is read is read in the same sense: an option that
// changes the arithmetic and that plait does not model is an error, one that
// nobody knows is named.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_EXPORT_H
#define PLAIT_PLANNER_EXPORT_H

#include "plait/Planner/Cluster.h"
#include "plait/Planner/Search.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::planner {

/// A choice that is to be written. Refers to what it is given.
struct Job {
  /// Complete: `layers` are known.
  const Configuration &configuration;
  const Cluster &cluster;
  const Training &training;
  std::string optimizer; // as plait/Configuration/Optimizers.h names it
  std::string model;     // the text of its config.json; empty: it has none
  bool dropout = true;   // whether the model's dropout stays in
};

/// The text of a choice.
struct Emitted {
  std::string text;
  /// One line each: what the text has no room to say.
  std::vector<std::string> notes = {};
};

/// The flags of a job that is to be read.
struct Given {
  std::vector<std::string> words; // flags and their values
  int64_t processes = 0;          // that are started; 0: all devices
  const Cluster &cluster;
  /// Flags of which the user says that they change neither arithmetic nor
  /// layout, without their hyphens.
  std::vector<std::string> ignored;
  /// Whether the model is given, and not to be read.
  bool hasModel = false;
};

/// A job that was read.
struct GivenJob {
  Pins pins; // with the mesh
  /// Batch, sequence, precision and attention; the strategy is in `pins`.
  ConfigurationPins training;
  /// The model as text of a config.json; empty: the flags do not say.
  std::string model;
  /// One line each: what was not read.
  std::vector<std::string> notes;
};

/// A program whose options are written, and of some read.
struct Program {
  const char *name;
  const char *framework; // that predicts it
  Result<Emitted> (*emit)(const Job &job);
  /// Null: its options are not read.
  Result<GivenJob> (*read)(const Given &given);
};

/// All of them, in the order of help texts.
std::span<const Program> getPrograms();
/// The one called `name`, or a failure that lists them.
Result<const Program *> findProgram(std::string_view name);

/// The text for the program called `name`.
Result<Emitted> emitJob(std::string_view name, const Job &job);

/// The words of a shell script: without comments, quotes and line ends. Of a
/// script that starts a program of Python only what is given to that program,
/// and the number of processes that torchrun starts, if it is said there.
struct ShellWords {
  std::vector<std::string> words;
  int64_t processes = 0; // 0: not said
};
ShellWords splitShell(std::string_view text);

} // namespace plait::planner

#endif // PLAIT_PLANNER_EXPORT_H
