//===- CudaGroupedGemms.h - Grouped GEMMs on a GPU --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// By kernels of the runtime's own, since NVIDIA's libraries ask for one of two
// things that plans cannot count on: cublasGemmGroupedBatchedEx (cuBLAS 12.5)
// for the sizes of all groups on the host, which only a GPU that is waited for
// can tell, and the grouped layouts of cuBLASLt for version 13.4.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUDAGROUPEDGEMMS_H
#define PLAIT_LIB_RUNTIME_CUDA_CUDAGROUPEDGEMMS_H

#include "CudaKernels.h"
#include "plait/Runtime/Device.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

/// The grouped GEMMs of one rank, in its stream that computes.
class CudaGroupedGemms {
public:
  /// `workspace` is memory of the GPU that other libraries use as well, before
  /// and after.
  static Result<std::unique_ptr<CudaGroupedGemms>>
  create(CudaStream &stream, std::span<std::byte> workspace);

  /// The number is for run(). `first` is the rank's first expert.
  Result<uint32_t> prepare(const plan::fb::GroupedGemmStep &step,
                           int64_t first);

  /// Writes C, or with `add` adds to it.
  Status run(uint32_t prepared, const GroupedGemmOperands &operands, bool add);

private:
  struct Step {
    CUfunction kernel;
    int64_t rows, repeat, experts, k, n, first, limit;
    bool makesMatrices, isTransposed;
    bool operator==(const Step &) const = default;
  };

  CudaGroupedGemms(CudaStream &stream, std::span<std::byte> workspace)
      : stream(stream), workspace(workspace) {}
  Status multiplyRows(Step &step, const GroupedGemmOperands &operands,
                      int64_t add);
  Status makeMatrices(Step &step, const GroupedGemmOperands &operands,
                      int64_t add);
  int32_t *orderOf() const {
    return reinterpret_cast<int32_t *>(workspace.data());
  }

  CudaStream &stream;
  std::span<std::byte> workspace;
  std::unique_ptr<CudaModule> module;
  CUfunction groupRows = nullptr;
  std::vector<Step> steps;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUDAGROUPEDGEMMS_H
