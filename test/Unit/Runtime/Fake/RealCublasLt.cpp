//===- RealCublasLt.cpp - Descriptors of the real library -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RealCublasLt.h"

#include "FakeContexts.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace plait;
using namespace plait::fake;

/// Looked for in each call until there is one: tests set the variable.
static void *library() {
  static void *opened = nullptr;
  const char *path = std::getenv("PLAIT_REAL_CUBLASLT");
  if (!opened && path && !(opened = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
    refuse(dlerror());
  return path ? opened : nullptr;
}

template <typename Function> static Function bind(const char *name) {
  void *found = dlsym(library(), name);
  if (!found)
    refuse(name);
  return reinterpret_cast<Function>(found);
}

/// A descriptor by the library's function `create`, and the others for it.
template <typename Result, typename Handle, typename Attribute,
          typename... Values>
static Result make(const char *create, const char *set, const char *destroy,
                   Values... values) {
  if (!library())
    return Result();
  Handle handle = nullptr;
  auto made =
      bind<cublasStatus_t (*)(Handle *, Values...)>(create)(&handle, values...);
  if (made != CUBLAS_STATUS_SUCCESS)
    refuse(create);
  return Result(
      handle,
      {bind<cublasStatus_t (*)(Handle, Attribute, const void *, size_t)>(set),
       bind<cublasStatus_t (*)(Handle)>(destroy)});
}

RealOperation fake::makeRealOperation(cublasComputeType_t compute,
                                      cudaDataType_t scale) {
  return make<RealOperation, cublasLtMatmulDesc_t,
              cublasLtMatmulDescAttributes_t>(
      "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute",
      "cublasLtMatmulDescDestroy", compute, scale);
}

RealLayout fake::makeRealLayout(cudaDataType_t type, uint64_t rows,
                                uint64_t columns, int64_t leading) {
  return make<RealLayout, cublasLtMatrixLayout_t,
              cublasLtMatrixLayoutAttribute_t>(
      "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutSetAttribute",
      "cublasLtMatrixLayoutDestroy", type, rows, columns, leading);
}

RealPreference fake::makeRealPreference() {
  return make<RealPreference, cublasLtMatmulPreference_t,
              cublasLtMatmulPreferenceAttributes_t>(
      "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
      "cublasLtMatmulPreferenceDestroy");
}
