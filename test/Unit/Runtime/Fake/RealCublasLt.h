//===- RealCublasLt.h - Descriptors of the real library ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The real cuBLASLt makes descriptors and checks what is written into them
// without a GPU or a driver. Each descriptor of the stand-in has one of the
// real library beside it, where the environment's PLAIT_REAL_CUBLASLT names
// that library, and takes what that takes.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_FAKE_REALCUBLASLT_H
#define PLAIT_TEST_UNIT_RUNTIME_FAKE_REALCUBLASLT_H

#include <cublasLt.h>

namespace plait::fake {

/// The functions of the library that make, fill and end a kind of descriptor.
template <typename Handle, typename Attribute> struct RealFunctions {
  cublasStatus_t (*set)(Handle, Attribute, const void *, size_t) = nullptr;
  cublasStatus_t (*destroy)(Handle) = nullptr;
};

/// The real descriptor beside one of ours; null where there is none.
template <typename Handle, typename Attribute> class Real {
public:
  Real() = default;
  Real(Handle handle, RealFunctions<Handle, Attribute> functions)
      : handle(handle), functions(functions) {}
  Real(Real &&other) : handle(other.handle), functions(other.functions) {
    other.handle = nullptr;
  }
  ~Real() {
    if (handle)
      functions.destroy(handle);
  }
  /// What the real library says; success where it is not there.
  cublasStatus_t set(Attribute attribute, const void *value, size_t bytes) {
    return handle ? functions.set(handle, attribute, value, bytes)
                  : CUBLAS_STATUS_SUCCESS;
  }

private:
  Handle handle = nullptr;
  RealFunctions<Handle, Attribute> functions;
};

using RealOperation =
    Real<cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t>;
using RealLayout =
    Real<cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t>;
using RealPreference =
    Real<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t>;

RealOperation makeRealOperation(cublasComputeType_t compute,
                                cudaDataType_t scale);
RealLayout makeRealLayout(cudaDataType_t type, uint64_t rows, uint64_t columns,
                          int64_t leading);
RealPreference makeRealPreference();

} // namespace plait::fake

#endif // PLAIT_TEST_UNIT_RUNTIME_FAKE_REALCUBLASLT_H
