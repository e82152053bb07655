//===- PartMarks.h - When a block needs its parameters ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLANNER_SIMULATOR_PARTMARKS_H
#define PLAIT_LIB_PLANNER_SIMULATOR_PARTMARKS_H

#include "plait/Planner/Work.h"

#include <vector>

namespace plait::planner {

/// A moment of one pass over a block.
struct PartMark {
  enum class What : uint8_t {
    Read,     // the parameter is needed
    Used,     // its memory is not any more
    Made,     // its gradient may be computed, and then is whole
    Exchange, // ranks of tp begin to exchange what the pass needs behind it
    Gather,   // ranks of cp may begin to gather what attention reads
    Attention // begins
  };
  double seconds = 0; // of work before it, but for gradients; may be endless
  What what = What::Read;
  uint32_t parameter = 0; // of Block::parameters
  double takes = 0; // seconds of the matmul that makes it, or of exchanging
};

/// The moments of each pass in their order. A backward pass that is whole is
/// `input`; `weight` then has none.
struct PartMarks {
  std::vector<PartMark> forward, input, weight;
};

/// Tells from a block's operations, in their order, which of them read which
/// parameters, or make their gradients: those matmuls that have matrices of as
/// many elements. What no matmul reads, as biases and norms, is read with the
/// one before it in the pass. So is a vector's gradient made, which where the
/// backward pass is split is in its first half; those of the block's ends, and
/// of matrices that are not known one by one, at the end of the pass.
class PartMarker {
public:
  PartMarker(const Block &block, bool split);

  /// Notes that `op` takes from `begin` to `end`, in seconds of its pass's
  /// work: of the backward pass those of gradients of weights are left out.
  void add(const Operation &op, double begin, double end);
  /// Notes that a backward pass waits from `begin` to `end` for ranks of tp.
  void addExchange(double begin, double end) {
    exchanges.push_back({begin, PartMark::What::Exchange, 0, end - begin});
  }
  /// Notes that ranks of cp gather for so many `seconds` for the attention of a
  /// backward pass, beside the last `work` seconds before it.
  void addGather(double seconds, double work) {
    gather = {work, PartMark::What::Gather, 0, seconds};
  }
  PartMarks take();

private:
  struct Times {
    double read = -1, used = -1, made = -1; // below 0: not known
    double gradient = 0;                    // the seconds of its matmul
  };
  using All = std::vector<Times>; // by parameter
  void addReader(double elements, bool isForward, double begin, double end);
  void addGradient(double elements, double made, double seconds);
  void fillMade();
  void insertExchanges(std::vector<PartMark> &marks) const;
  /// Whether a matmul for gradients of weights makes the gradient.
  bool isOfWeights(size_t part) const;

  const Block &block;
  bool split;
  All forward, backward;
  double attention[2] = {-1, -1}; // of the forward and the backward pass
  std::vector<PartMark> exchanges;
  PartMark gather; // with the seconds of work beside it, if any
};

} // namespace plait::planner

#endif // PLAIT_LIB_PLANNER_SIMULATOR_PARTMARKS_H
