//===- TransformerBuilder.h - Work of a GPT or Llama, op by op --*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// TransformerWork.cpp has what all transformers have, ExpertsWork.cpp what
// those with experts have in the place of feed-forward networks.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_PLANNER_TRANSFORMERBUILDER_H
#define PLAIT_TEST_UNIT_PLANNER_TRANSFORMERBUILDER_H

#include "TransformerWork.h"

namespace plait::planner {

inline int64_t divideUp(int64_t value, int64_t parts) {
  return (value + parts - 1) / parts;
}

class TransformerBuilder {
public:
  TransformerBuilder(const TransformerShape &shape, int tensor,
                     bool sequenceParallel, int expertRanks);
  Work run();

private:
  // Appending one operation to the current block.
  void matmul(Pass pass, const char *name, int64_t m, int64_t n, int64_t k,
              Operation::Scaled scaled);
  void kernel(Pass pass, const char *name, double elements, double fourByte = 0,
              double fixed = 0);
  void collective(Pass pass, const char *name, CollectiveKind kind);

  // y = x W: `outer` is what grows with the batch, the weight is in x out.
  void linearForward(const char *name, int64_t in, int64_t out);
  void linearBackward(const char *name, int64_t in, int64_t out,
                      bool columnParallel);

  // What several linears make of the layer's input, by their widths.
  void linearsForward(const char *name, const std::vector<int64_t> &widths);
  void linearsBackward(const char *name, const std::vector<int64_t> &widths);
  std::vector<int64_t> getQkv() const;
  std::vector<int64_t> getFfnIn() const;

  // Queries, keys and values of the layer's input.
  void attentionInputsForward();
  void attentionInputsBackward();
  void attentionInputParameters();

  // The same of experts, whose rows are what grows with the batch.
  void groupedForward(const char *name, int64_t in, int64_t out);
  void groupedBackward(const char *name, int64_t in, int64_t out);
  void exchange(Pass pass, const char *name);

  // What the recipe adds (RecipeWork.cpp).
  void cast(Pass pass, double elements, int64_t parts = 1);
  void issue(Pass pass, const char *name, double count);
  void routeKernels();
  void expertBiasesForward(double moved);
  void expertBiasesBackward(double moved);
  void issueAgain(int kernels);
  void latentAgain();
  void denseAgain();
  Block furtherLayer();
  void expertsForward();
  void expertsBackward();
  void feedForward();
  void feedBackward();

  // Where activations enter (column parallel) and leave (row parallel) the
  // part of a layer that tp splits.
  void enterForward();
  void leaveForward();
  void leaveBackward();

  void normForward();
  void normBackward();
  void headNormsForward();
  void headNormsBackward();
  void residualForward();
  void residualBackward();
  void activationForward();
  void activationBackward();
  Operation attention(Pass pass) const;

  // Of the dimensions, the one that all have.
  void group(double elements, bool replicated = false, bool tied = false) {
    block.parameters.push_back({.elements = elements,
                                .replicated = replicated,
                                .tied = tied,
                                .sizes = {shape.hidden}});
  }

  Block embedding();
  Block layer(bool ofExperts, bool inWindow = false);
  Block head();
  void countTotals(Work &work) const;
  void layerForward();
  void layerBackward();
  void layerParameters();
  void layerSaved();
  /// The rows of a rank's experts, of a sequence.
  double countRows() const {
    return double(tokens) * double(shape.experts.choices) *
           shape.experts.imbalance;
  }
  void lossKernels();

  TransformerShape shape;
  int tp, ep;
  bool sp;
  bool hasExperts = false, inWindow = false; // the layer that is being built
  int64_t tokens;                            // of a sequence
  double whole, local; // tokens x hidden: of the layer's input, of this rank
  int64_t heads, keyValueHeads, attentionWidth, qkvWidth, ffn, ffnIn, vocab;
  Block block;
};

} // namespace plait::planner

#endif // PLAIT_TEST_UNIT_PLANNER_TRANSFORMERBUILDER_H
