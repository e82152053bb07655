//===- Harness.h - Compiling and calling a cluster --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_HARNESS_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_HARNESS_H

#include "plait/Codegen/Kernel.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"

namespace plait::test {

/// Memory that ends at a page no one may touch: a load or store beyond the
/// tensor's last cache line faults.
class Buffer {
public:
  explicit Buffer(size_t count);
  ~Buffer();
  Buffer(const Buffer &) = delete;

  size_t size() const { return count; }
  float *floats() { return static_cast<float *>(start); }
  int32_t *ints() { return static_cast<int32_t *>(start); }
  float &operator[](size_t index) { return floats()[index]; }
  void *start;
  /// Numbers in [low, high), the same for one seed.
  void randomize(unsigned seed, float low = -2.0f, float high = 2.0f);
  void fill(float value);

private:
  size_t count, bytes;
  void *map;
};

/// One cluster: types as text, the body with %0, %1, … as its arguments.
struct Cluster {
  std::vector<std::string> inputs, results;
  std::string body;
  std::string accumulate = "";
};

/// Replaces every `R` and `C` that stands for an extent ("<R", "Rx", …).
std::string sized(std::string text, int64_t rows, int64_t columns);

/// A compiled cluster.
class Kernel {
public:
  explicit Kernel(const Cluster &cluster,
                  codegen::TargetCPU target = codegen::TargetCPU::getHost());
  ~Kernel();
  Kernel(const Kernel &) = delete;

  /// False if compiling failed; `errors` then says why.
  bool valid() const { return function; }
  /// Computes everything, in one call.
  void operator()(std::vector<Buffer *> args,
                  std::vector<int64_t> scalars = {});
  /// Computes [begin, end) only.
  void call(std::vector<Buffer *> args, std::vector<int64_t> scalars,
            int64_t begin, int64_t end);
  /// Computes everything again one index at a time, last index first, and
  /// expects the same bits in the buffers from `firstResult` on.
  void expectSplit(std::vector<Buffer *> args, size_t firstResult,
                   std::vector<int64_t> scalars = {});

  codegen::KernelInfo info;
  std::string errors;

private:
  using Function = void (*)(void *const *, const int64_t *, int64_t, int64_t);
  mlir::MLIRContext context;
  Function function = nullptr;
  void *handle = nullptr;
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_HARNESS_H
