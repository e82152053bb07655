//===- CublasGemms.h - GEMMs by cuBLASLt ------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUBLASGEMMS_H
#define PLAIT_LIB_RUNTIME_CUDA_CUBLASGEMMS_H

#include "CublasLt.h"
#include "CudaStream.h"
#include "EpilogueFallback.h"
#include "GemmLayout.h"

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace plait::runtime {

/// The GEMMs of one rank. f32 GEMMs are computed in f32 unless
/// `tf32`; bf16 ones accumulate in f32. The same plan on the same GPU model and
/// library version gives the same bits.
class CublasGemms {
public:
  /// `workspace` is device memory that only these GEMMs use. The heuristic is
  /// asked for `mostAlgorithms`.
  static Result<std::unique_ptr<CublasGemms>>
  create(CudaStream &stream, std::span<std::byte> workspace, bool tf32,
         int mostAlgorithms = 8);
  ~CublasGemms();

  /// Finds algorithms for `step`; the number is for run(). Equal steps share
  /// one. An epilogue that no algorithm has comes after the GEMM. It is
  /// computed on so many `multiprocessors`, 0: on all.
  Result<uint32_t> prepare(const plan::fb::GemmStep &step,
                           int32_t multiprocessors = 0);
  Status run(uint32_t prepared, const GemmOperands &operands, bool add);

  /// The library's GEMMs that compute a step, in order (GemmLayout.h).
  const std::vector<uint32_t> &partsOf(uint32_t prepared) const {
    return steps[prepared];
  }
  const GemmLayout &layoutOf(uint32_t part) const { return gemms[part].layout; }
  /// Those that fit the workspace, a few at most and one at least, the best
  /// first as far as the heuristic knows.
  size_t countAlgorithms(uint32_t part) const {
    return gemms[part].algorithms.size();
  }
  /// Has another algorithm than the first be taken.
  void pin(uint32_t part, size_t algorithm) { gemms[part].pinned = algorithm; }

  /// Tells in one line what an algorithm is chosen for: all that the library is
  /// told of the GEMM but addresses and the factor of what is in C.
  std::string describe(uint32_t part) const;
  /// The pinned algorithm, in digits that take() reads, where the library has
  /// the same version.
  std::string writePinned(uint32_t part) const;
  /// Pins the algorithm that `digits` describe, on whatever rank, or in
  /// whatever run, they were written. Fails where the library does not have it
  /// for this GEMM, or not within the workspace; then all stays as it is.
  Status take(uint32_t part, const std::string &digits);
  /// One of a step's parts, with the operands of the step.
  Status runPart(uint32_t part, const GemmOperands &operands, bool add);

private:
  struct Destroy {
    const CublasLt *library;
    void operator()(cublasLtMatmulDesc_t object) const;
    void operator()(cublasLtMatrixLayout_t object) const;
    void operator()(cublasLtMatmulPreference_t object) const;
  };
  template <typename Pointer>
  using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy>;

  struct Gemm {
    GemmLayout layout;
    int32_t multiprocessors = 0; // 0: all
    Owned<cublasLtMatmulDesc_t> operation;
    Owned<cublasLtMatrixLayout_t> a, b, c;
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    size_t pinned = 0;
    bool isApart = false; // the epilogue comes after the GEMM
  };

  CublasGemms(const CublasLt &library, CudaStream &stream,
              std::span<std::byte> workspace, bool tf32, int mostAlgorithms)
      : library(library), stream(stream), workspace(workspace), tf32(tf32),
        mostAlgorithms(mostAlgorithms) {}

  Result<uint32_t> prepare(const GemmLayout &layout, int32_t multiprocessors);
  Result<Owned<cublasLtMatmulDesc_t>> describe(const Gemm &gemm,
                                               bool withEpilogue);
  template <typename T>
  Status set(cublasLtMatmulDesc_t operation,
             cublasLtMatmulDescAttributes_t attribute, T value);
  Status setEpilogue(cublasLtMatmulDesc_t operation, const GemmLayout &layout);
  Status setPointers(cublasLtMatmulDesc_t operation, const GemmLayout &layout,
                     const std::byte *bias, const std::byte *geluInput);
  Status chooseOperation(Gemm &gemm);
  Status chooseOperation(Gemm &gemm, bool withEpilogue);
  Result<Owned<cublasLtMatrixLayout_t>> describe(const GemmMatrix &matrix,
                                                 const GemmLayout &layout);
  Status findAlgorithms(Gemm &gemm);

  const CublasLt &library;
  CudaStream &stream;
  std::span<std::byte> workspace;
  bool tf32;
  int mostAlgorithms;
  cublasLtHandle_t handle = nullptr;
  std::deque<Gemm> gemms;
  std::vector<std::vector<uint32_t>> steps;   // which of them, in order
  std::unique_ptr<EpilogueFallback> fallback; // made when first needed
};

/// A GEMM that a step calls.
struct GemmUse {
  uint32_t gemm; // of CublasGemms: a step or, to be timed, a part of one
  GemmOperands operands;
  bool adds = false;  // to what is in C
  uint64_t calls = 0; // in a step
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUBLASGEMMS_H
