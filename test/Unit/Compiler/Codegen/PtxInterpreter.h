//===- PtxInterpreter.h - Runs PTX without a GPU ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Executes the kernels of a PTX module, as they are shipped, on buffers of this
// process. It knows the instructions that kernels consist of, after the PTX ISA
// (https://docs.nvidia.com/cuda/parallel-thread-execution), and no others.
//
// Threads run one after another, each up to the next point where it waits for
// others, which is an order that a GPU may choose. What no order may do is an
// error: an access outside of all buffers or at an address that is no multiple
// of its size; a write to what the step does not declare as written; a word
// that one thread writes and another reads or writes, with no barrier between
// if it is shared memory; shared memory that nobody wrote; an exchange or a
// barrier that some thread never comes to.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXINTERPRETER_H
#define PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXINTERPRETER_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace plait::test {

/// Memory that kernels may read and, if it is a result of the step, write; its
/// address on the device is that here.
struct PtxBuffer {
  void *start;
  size_t bytes;
  bool isResult = true;
};

class PtxModule {
public:
  /// An empty string, or what is wrong with `text`.
  std::string parse(const std::string &text);
  PtxModule();
  ~PtxModule();

  /// Runs `symbol` with a grid of `blocks`, in this order or from the last to
  /// the first. The arguments are the buffers' addresses, then `scalars`.
  /// Returns an empty string, or what went wrong where.
  std::string launch(const std::string &symbol, int64_t blocks,
                     const std::vector<PtxBuffer> &buffers,
                     const std::vector<int64_t> &scalars, bool reversed);
  /// Runs these blocks of a grid alone, in this order.
  std::string launchSome(const std::string &symbol,
                         const std::vector<int64_t> &blocks,
                         const std::vector<PtxBuffer> &buffers,
                         const std::vector<int64_t> &scalars);

  struct Kernel;

private:
  std::map<std::string, std::unique_ptr<Kernel>> kernels;
  std::map<std::string, uint64_t> globals; // shared memory, bytes by name
};

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_CODEGEN_PTXINTERPRETER_H
