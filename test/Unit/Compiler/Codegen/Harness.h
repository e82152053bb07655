//===- Harness.h - Compiling and calling a cluster --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_HARNESS_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_HARNESS_H

#include "PtxInterpreter.h"
#include "plait/Codegen/Kernel.h"
#include "plait/Support/BFloat16.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

namespace plait::test {

/// Memory that ends at a page no one may touch: a load or store beyond the
/// tensor's last cache line faults.
class Buffer {
public:
  /// `count` elements of 4 bytes or, if they are bf16, 2.
  explicit Buffer(size_t count, bool half = false);
  ~Buffer();
  Buffer(const Buffer &) = delete;

  size_t size() const { return count; }
  bool isHalf() const { return half; }
  size_t bytes() const { return count * (half ? 2 : 4); }
  float *floats() { return static_cast<float *>(start); }
  int32_t *ints() { return static_cast<int32_t *>(start); }
  BFloat16 *halves() { return static_cast<BFloat16 *>(start); }
  float &operator[](size_t index) { return floats()[index]; }
  void *start;
  /// Numbers in [low, high), the same for one seed.
  void randomize(unsigned seed, float low = -2.0f, float high = 2.0f);
  void fill(float value);

private:
  size_t count, mapped;
  bool half;
  void *map;
};

/// A shared object with kernels for this machine.
class HostCode {
public:
  HostCode() = default;
  ~HostCode();
  HostCode(const HostCode &) = delete;

  /// An empty string, or what is wrong.
  std::string load(const std::vector<char> &bytes);
  void call(const std::string &symbol, const std::vector<void *> &args,
            const std::vector<int64_t> &scalars, int64_t begin, int64_t end);

private:
  // The loader takes a path that it has seen for the object it has loaded, so
  // the descriptor that is part of it stays open.
  int file = -1;
  void *handle = nullptr;
};

/// One cluster: types as text, the body with %0, %1, … as its arguments.
struct Cluster {
  std::vector<std::string> inputs, results;
  std::string body;
  std::string accumulate = "";
  /// Behind input 1, tokens, lies their order, by so many (SortedTokens); 0:
  /// no.
  int64_t sorted = 0;
};

/// Replaces every `R` and `C` that stands for an extent ("<R", "Rx", …).
std::string sized(std::string text, int64_t rows, int64_t columns);

/// What the tests' kernels are compiled for where they do not say it: this
/// machine in PlaitCodegenTests, GPUs in PlaitCodegenPtxTests, which are the
/// same tests.
codegen::Target defaultTarget();
inline bool onGPU() {
  return std::holds_alternative<codegen::TargetGPU>(defaultTarget());
}

/// A compiled cluster. GPU kernels are interpreted, all their PTX.
class Kernel {
public:
  explicit Kernel(const Cluster &cluster,
                  codegen::Target target = defaultTarget());
  Kernel(const Kernel &) = delete;

  /// False if compiling failed; `errors` then says why.
  bool valid() const { return code || module; }
  /// Computes everything, in one call.
  void operator()(std::vector<Buffer *> args,
                  std::vector<int64_t> scalars = {});
  /// Computes everything again one index (on a GPU: one block) at a time, the
  /// last one first, and expects the same bits in the buffers from
  /// `firstResult` on.
  void expectSplit(std::vector<Buffer *> args, size_t firstResult,
                   std::vector<int64_t> scalars = {});

  /// The GPU's blocks of a call, and some of them alone: an empty string, or
  /// what went wrong.
  int64_t countBlocks() const;
  std::string runBlocks(const std::vector<int64_t> &blocks,
                        const std::vector<Buffer *> &args);

  codegen::KernelInfo info;
  std::string errors;
  std::string ptx; ///< For GPUs.

private:
  void call(std::vector<Buffer *> args, std::vector<int64_t> scalars,
            int64_t begin, int64_t end);
  void launch(std::vector<Buffer *> args, std::vector<int64_t> scalars,
              bool reversed);
  std::vector<PtxBuffer> describe(const std::vector<Buffer *> &args);

  size_t inputs; ///< The arguments that are not results.
  mlir::MLIRContext context;
  std::unique_ptr<HostCode> code;
  std::unique_ptr<PtxModule> module;
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_HARNESS_H
