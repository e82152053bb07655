//===- Abilities.h - What training programs can run -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A Framework says how fast a program is, Abilities which layouts it runs at
// all. They are read off the program's own documents, of one version, and are
// rows of one table: a search for a program is a search of its row, what is
// pinned outside of it is an error, and docs/Abilities.md has the same rows.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_PLANNER_ABILITIES_H
#define PLAIT_PLANNER_ABILITIES_H

#include "plait/Planner/Search.h"

namespace plait::planner {

/// A row. The strings are literals and live for ever.
struct Abilities {
  /// The version that the row is of, as messages name it.
  std::string version;
  /// The values of each field, and the sizes of cp. Its name is that of the
  /// framework.
  SearchSpace space = SearchSpace::all();
  bool hasPipelines = true;
  bool hasTensor = true; // tensor parallelism
  /// Whether ranks of tp may be ranks of cp as well.
  bool combinesContext = true;
  /// Whether stages may have different numbers of layers.
  bool cutsUnevenly = true;
  /// Whether several chunks a rank need a multiple of as many microbatches as
  /// there are stages.
  bool fillsGroups = false;
  /// Whether the first layers of each stage may be computed again, and not the
  /// others; the same number in all stages.
  bool recomputesBlocks = true;
  /// Whether each layer may have its own kind of recomputation.
  bool mixesRecompute = true;
  /// Whether state on hosts needs ZeRO, where there are several replicas.
  bool offloadsShards = false;
  bool hasFlash = true;   // attention that writes no scores
  bool sumsInBf16 = true; // gradients over ranks
  bool compresses = true; // what replicas send of them

  /// Success where the program can run such a mesh.
  Status checkMesh(const Mesh &mesh) const;
  /// Success where it can run `configuration`, layers included if they are
  /// known; of what is no value of a field of `space`.
  Status check(const Configuration &configuration,
               const Training &training) const;
  /// Whether it can run `configuration` and `space` has all of its values.
  bool runs(const Configuration &configuration, const Training &training) const;
  /// Success where it can do what is pinned, as far as a search of `space` does
  /// not say.
  Status check(const Pins &pins) const;

private:
  Status checkStages(const std::vector<int> &layers,
                     const Recomputation &recompute) const;
};

/// The row of a program; plait's own has everything.
const Abilities &getAbilities(const Framework &framework);

} // namespace plait::planner

#endif // PLAIT_PLANNER_ABILITIES_H
