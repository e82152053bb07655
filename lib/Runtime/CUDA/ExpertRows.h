//===- ExpertRows.h - Rows of experts on a GPU ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernels of RowKernels.cu, which are in one module of PTX that is a part
// of this program, and what they are told of a collective.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_EXPERTROWS_H
#define PLAIT_LIB_RUNTIME_CUDA_EXPERTROWS_H

#include "CudaKernels.h"
#include "CudaStream.h"
#include "plait/Runtime/Communicator.h"

#include <memory>

namespace plait::runtime {

/// The extents of RowKernels.h.
struct RowExtents {
  RowExtents(const CollectiveShape &shape, const RowChoice &choice,
             int64_t members, int64_t index);

  int64_t members, index, rows, choices, experts, scatters, bytes;
};

/// `most` rows of each pair of members, from number `first` on of those that
/// go.
struct RowRound {
  int64_t first, most;
};

/// All of it is memory of the GPU.
class ExpertRows {
public:
  /// Once a GPU: a module belongs to a context.
  static Result<std::shared_ptr<const ExpertRows>>
  load(std::shared_ptr<CudaContext> context);

  /// Enqueues the kernels, see RowKernels.h.
  Status clear(CudaStream &stream, const RowExtents &extents, std::byte *out,
               const int32_t *ids) const;
  Status take(CudaStream &stream, const RowExtents &extents, int64_t source,
              std::byte *out, const std::byte *in, const int32_t *ids) const;
  Status list(CudaStream &stream, const RowExtents &extents, int32_t *lists,
              int32_t *counts, const int32_t *ids) const;
  Status pack(CudaStream &stream, const RowExtents &extents, RowRound round,
              std::byte *packed, const std::byte *in, const int32_t *lists,
              const int32_t *counts) const;
  Status unpack(CudaStream &stream, const RowExtents &extents, RowRound round,
                std::byte *out, const std::byte *packed, const int32_t *lists,
                const int32_t *counts) const;

private:
  ExpertRows() = default;

  std::unique_ptr<CudaModule> module;
  CUfunction clears = nullptr, takes = nullptr, makesLists = nullptr,
             packs = nullptr, unpacks = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_EXPERTROWS_H
