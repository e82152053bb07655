//===- ReduceKernels.h - Sums and maxima on one GPU -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernels of CollectiveKernels.cu, which are in one module of PTX that is a
// part of this program.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_REDUCEKERNELS_H
#define PLAIT_LIB_RUNTIME_CUDA_REDUCEKERNELS_H

#include "CollectiveKernels.h"
#include "CudaKernels.h"

#include <map>
#include <memory>

namespace plait::runtime {

class ReduceKernels {
public:
  /// Once a GPU: a module belongs to a context.
  static Result<std::shared_ptr<const ReduceKernels>>
  load(std::shared_ptr<CudaContext> context);

  /// Enqueues a reduction, unless there is nothing to reduce.
  Status launch(CudaStream &stream, ReduceParams params,
                plan::fb::Reduction reduction, plan::fb::DType type) const;

private:
  struct Name {
    plan::fb::Reduction reduction;
    plan::fb::DType type;
    auto operator<=>(const Name &) const = default;
  };
  std::unique_ptr<CudaModule> module;
  std::map<Name, CUfunction> functions;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_REDUCEKERNELS_H
