//===- GroupedGemm.h - GEMMs of rows with matrices of their own -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows are sorted by expert, and those of one expert are gathered block by
// block, multiplied by dnnl_sgemm, and scattered; sums of matrices in f32 are
// made where they belong. How many rows an expert has is known when a step
// runs; how many there are at all, when a plan is loaded: memory is for that,
// and for one block a thread, whatever the routing.
//
// Rows of an expert are in the order of their numbers, and blocks do not depend
// on threads, so that sums have the same bits in every run.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_GROUPEDGEMM_H
#define PLAIT_LIB_RUNTIME_CPU_GROUPEDGEMM_H

#include "FloatGemm.h"
#include "GemmShape.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Runtime/Device.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <deque>
#include <dnnl.h>
#include <vector>

namespace plait::runtime {

/// The grouped GEMMs of one rank. Used by the rank's thread only, which must
/// have its team of `threads` (see Team.h).
class GroupedGemmLibrary {
public:
  /// Copies no matrices of f32 unless `readsInPlace` (FloatGemm.h).
  explicit GroupedGemmLibrary(
      unsigned threads, bool readsInPlace = FloatGemm::machineReadsInPlace())
      : threads(threads), readsInPlace(readsInPlace) {}

  /// Makes room for `step` on a rank whose first expert is `first`; the number
  /// is for run().
  uint32_t prepare(const plan::fb::GroupedGemmStep &step, int64_t first);

  /// Writes C, or with `add` adds to it.
  Status run(uint32_t prepared, const GroupedGemmOperands &operands, bool add);

private:
  struct Step {
    plan::fb::GroupedGemmStepT shape;
    int64_t first;
  };
  /// Rows of one expert, by their place in `order`.
  struct Block {
    int64_t expert, begin, end;
  };
  /// A part of a matrix, as it lies.
  struct Part {
    const float *data;
    int64_t stride;
    bool transposed;
  };
  /// The place of a part in its matrix, and its depth and width.
  struct Extent {
    int64_t k, depth, n, width;
  };
  /// Memory of a thread: copies of blocks.
  struct Room {
    std::vector<float> a, b, c;
  };

  void sort(const Step &step, const int32_t *ids);
  void cutBlocks(const Step &step);
  template <typename Work> Status forEachTask(int64_t tasks, Work work);
  template <typename In, typename Out>
  Status runTyped(const Step &step, const GroupedGemmOperands &operands,
                  bool add);
  template <typename In>
  static Part takePart(const plan::fb::GroupedGemmStepT &shape,
                       const In *matrix, const Extent &part, bool copied,
                       std::vector<float> &room);
  int64_t padRows(int64_t rows) const;
  dnnl_status_t multiplyBlock(int64_t rows, int64_t depth, int64_t width,
                              Part part, bool add, Room &room) const;
  template <typename In, typename Out>
  dnnl_status_t multiplyRows(const Step &step, const In *a, const In *b, Out *c,
                             bool add, int64_t task, Room &room);
  template <typename In>
  dnnl_status_t sumRows(const Step &step, const In *a, const In *b,
                        int64_t expert, const Extent &part, bool begun,
                        float *sums, int64_t stride, Room &room);
  template <typename In, typename Out>
  dnnl_status_t multiplyMatrix(const Step &step, const In *a, const In *b,
                               Out *c, bool add, int64_t task, Room &room);

  unsigned threads;
  bool readsInPlace;
  std::deque<Step> steps;
  std::vector<Room> rooms;
  /// The numbers of the rows by expert, those of none last; where each expert
  /// begins there, and those of none; and the blocks.
  std::vector<int32_t> order;
  std::vector<int64_t> begins;
  std::vector<Block> blocks;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_GROUPEDGEMM_H
