//===- CublasLt.h - The functions of libcublasLt ----------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CUDA_CUBLASLT_H
#define PLAIT_LIB_RUNTIME_CUDA_CUBLASLT_H

#include "plait/Support/Status.h"

#include <cublasLt.h>

#define PLAIT_CUBLASLT_FUNCTIONS(X)                                            \
  X(cublasLtGetVersion)                                                        \
  X(cublasLtGetStatusString)                                                   \
  X(cublasLtCreate)                                                            \
  X(cublasLtDestroy)                                                           \
  X(cublasLtMatmul)                                                            \
  X(cublasLtMatmulDescCreate)                                                  \
  X(cublasLtMatmulDescDestroy)                                                 \
  X(cublasLtMatmulDescSetAttribute)                                            \
  X(cublasLtMatrixLayoutCreate)                                                \
  X(cublasLtMatrixLayoutDestroy)                                               \
  X(cublasLtMatrixLayoutSetAttribute)                                          \
  X(cublasLtMatmulPreferenceCreate)                                            \
  X(cublasLtMatmulPreferenceDestroy)                                           \
  X(cublasLtMatmulPreferenceSetAttribute)                                      \
  X(cublasLtMatmulAlgoGetHeuristic)                                            \
  X(cublasLtMatmulAlgoCheck)

namespace plait::runtime {

/// Callable from any thread.
struct CublasLt {
#define PLAIT_DECLARE(function) decltype(&::function) function;
  PLAIT_CUBLASLT_FUNCTIONS(PLAIT_DECLARE)
#undef PLAIT_DECLARE

  /// Loads the library of the toolkit's major version in the first call.
  static Result<const CublasLt *> load();

  /// Success, or "what: the library's reason".
  Status check(cublasStatus_t status, const char *what) const;

private:
  static Result<CublasLt> open();
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CUDA_CUBLASLT_H
