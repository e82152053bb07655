//===- KernelTrial.h - A kernel on drawn numbers ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_KERNELTRIAL_H
#define PLAIT_LIB_PROOF_KERNELTRIAL_H

#include "Elements.h"
#include "KernelMemory.h"
#include "plait/Codegen/Kernel.h"

#include <deque>

namespace plait::proof {

class KernelTrial {
public:
  using Function = void (*)(void *const *args, const int64_t *scalars,
                            int64_t begin, int64_t end);
  struct Draw {
    bool isPositive;
    bool isFirst;      ///< The first microbatch.
    unsigned number{}; ///< Another one draws other numbers.
    bool hasZeros{};   ///< What the kernel compares with zero is zero.
  };
  /// `number` is the kernel's among those of its plan.
  KernelTrial(const codegen::EmittedKernel &kernel, size_t number,
              Function function)
      : kernel(kernel), number(number), function(function) {}
  KernelTrial(KernelTrial &&) = default;
  KernelTrial(const KernelTrial &) = delete;

  /// Draws the operands and chooses which elements to look at. False: it takes
  /// too long, or too much memory.
  bool prepare(DrawnPages &pages, ResultPages &results, Draw draw);
  /// Runs the kernel and keeps the elements that are looked at. Calls nothing
  /// else, since the process has just forked.
  void execute() const;
  /// Holds the elements against the ops. Whether something could be told of
  /// each result; failure after an error.
  llvm::FailureOr<bool> compare();
  /// Whether the first microbatch takes another path than others.
  bool dependsOnMicrobatch() const;
  /// Whether it has so few numbers that one draw of them shows little.
  bool isSmall() const;
  /// Whether an operand is compared with zero, so that hasZeros is a draw of
  /// its own.
  bool comparesWithZero() const;

  /// The elements that were held against the ops.
  size_t countHeld() const { return held; }
  size_t countTensors() const { return memory.size(); }
  size_t getNumber() const { return number; }
  const std::string &getSymbol() const { return kernel.info.symbol; }
  plan::ClusterOp getCluster() const { return kernel.cluster; }

private:
  mlir::Value getYielded(unsigned result) const;
  plan::Accumulate getMode(unsigned result) const;
  const TensorMemory &getResult(unsigned result) const {
    return memory[kernel.cluster->getNumOperands() + result];
  }
  bool isShort() const;
  bool takeMemory(DrawnPages &pages, ResultPages &results);
  bool drawIntegers(unsigned argument, TensorMemory &own);
  llvm::SmallVector<int64_t> findNamed(mlir::Value value) const;
  void chooseElements(unsigned result);
  bool keepElements(ResultPages &results);
  bool chooseIndices();
  int64_t getIndex(mlir::StringAttr axis) const;
  int64_t countElements() const;
  Number expect(Elements &elements, unsigned result, size_t sample);
  mlir::LogicalResult tell(unsigned result, size_t sample, Number expected);

  codegen::EmittedKernel kernel;
  size_t number;
  Function function;
  Draw draw{};
  std::deque<TensorMemory> memory; // of operands, then of results
  std::vector<void *> args;
  std::vector<int64_t> scalars;
  std::vector<std::pair<int64_t, int64_t>> ranges; // of parallel indices
  bool isComplete = false;                         // all of them
  size_t held = 0;
  struct Samples {
    std::vector<int64_t> elements; // the most telling first
    std::vector<uint32_t> before;  // the bits that lie there
    uint32_t *after = nullptr;     // those that the kernel leaves; shared
  };
  std::vector<Samples> samples; // by result
};

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_KERNELTRIAL_H
