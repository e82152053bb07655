//===- FakeCublasLt.cpp - libcublasLt, on the CPU -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PLAIT_FAKE_GEMMS="5 3r 1f" names algorithms, the first choice first: how many
// milliseconds each takes, and what is special about it. Without it there is
// one. Behind "|" are those of the next GPU, if it has others; the last ones
// are those of all further GPUs.
//
//   r  adds in the reverse order    f  fails when it is called
//   n  writes nothing               s  has another state than success
//   h  adds the first half          w  needs more workspace than is allowed
//
// PLAIT_FAKE_CUBLASLT is the version, if it is not that of the header. As the
// library has it, an algorithm may be stored, and used by the same version.
//
//===----------------------------------------------------------------------===//

#include "FakeContexts.h"
#include "FakeStreams.h"
#include "RealCublasLt.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace plait::fake;

namespace {

struct Operation {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *aux = nullptr;
  int64_t auxLeading = 0;
  int32_t multiprocessors = 0; // 0: all

  bool has(uint32_t bits) const { return (epilogue & bits) == bits; }
  bool isGradient() const { return has(CUBLASLT_EPILOGUE_DGELU); }
  bool usesAux() const { return epilogue & 128; }
};
struct Matrix {
  bool narrow; // bf16
  int64_t rows, columns, leading;
  int32_t batch;
  int64_t stride;

  /// Element (row, column) of matrix `index` of the batch.
  float get(const void *data, int64_t index, int64_t row,
            int64_t column) const {
    int64_t place = index * stride + column * leading + row;
    return narrow ? float(static_cast<const plait::BFloat16 *>(data)[place])
                  : static_cast<const float *>(data)[place];
  }
  void set(void *data, int64_t index, int64_t row, int64_t column,
           float value) const {
    int64_t place = index * stride + column * leading + row;
    if (narrow)
      static_cast<plait::BFloat16 *>(data)[place] = plait::BFloat16(value);
    else
      static_cast<float *>(data)[place] = value;
  }
  size_t bytes() const {
    int64_t last = (batch - 1) * stride + (columns - 1) * leading + rows;
    return size_t(last) * (narrow ? 2 : 4);
  }
};
struct Algorithm {
  double milliseconds = 0;
  char special = 0;
};

std::vector<Algorithm> algorithms(int gpu) {
  const char *text = std::getenv(gemmsVariable);
  std::istringstream all(text ? text : "0");
  std::string own;
  for (int i = 0; i <= gpu && all; ++i)
    std::getline(all, own, '|');
  std::istringstream words(own);
  std::vector<Algorithm> result;
  for (std::string word; words >> word;) {
    char *end = nullptr;
    double milliseconds = std::strtod(word.c_str(), &end);
    result.push_back({milliseconds, *end});
  }
  return result;
}

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment = 256;
};

/// What a handle of the library is to us: our descriptor and the real one.
template <typename T> struct Described;
template <> struct Described<Operation> {
  Operation ours;
  RealOperation real;
};
template <> struct Described<Matrix> {
  Matrix ours;
  RealLayout real;
};
template <> struct Described<Preference> {
  Preference ours;
  RealPreference real;
};

/// As the library's documentation has them: GELU in its tanh form.
double gelu(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double geluSlope(double x) {
  constexpr double step = 1e-5;
  return (gelu(x + step) - gelu(x - step)) / (2 * step);
}

/// Whether an epilogue is one that the library has, with what it needs.
bool isKnown(const Operation &operation, int64_t rows) {
  switch (operation.epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT:
    return true;
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
    return operation.bias;
  case CUBLASLT_EPILOGUE_GELU:
    return true;
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    if (!operation.bias)
      return false;
    [[fallthrough]];
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_DGELU:
    return operation.aux && uintptr_t(operation.aux) % 16 == 0 &&
           operation.auxLeading % 8 == 0 && operation.auxLeading >= rows;
  default:
    return false;
  }
}

template <typename T, typename Handle> T &as(Handle handle) {
  return reinterpret_cast<Described<T> *>(handle)->ours;
}
template <typename T, typename Handle> auto &realOf(Handle handle) {
  return reinterpret_cast<Described<T> *>(handle)->real;
}

/// Element (row, column) of op(matrix).
float element(const Matrix &matrix, const void *data, int64_t index,
              cublasOperation_t op, int64_t row, int64_t column) {
  return op == CUBLAS_OP_T ? matrix.get(data, index, column, row)
                           : matrix.get(data, index, row, column);
}

/// How often each algorithm has been executed, by its place in its GPU's list.
uint64_t calls[8] = {};

/// How many GEMMs were computed on so many multiprocessors.
std::map<int32_t, uint64_t> callsOn;

struct Gemm {
  Operation operation;
  Matrix a, b, c;
  const void *dataA, *dataB;
  void *dataC;
  float alpha, beta;
  size_t number; // of the algorithm
  Algorithm algorithm;

  /// `value`, element (row, column) of D, after the epilogue.
  double finish(double value, int64_t row, int64_t column) const {
    Matrix aux = c;
    aux.leading = operation.auxLeading;
    if (operation.isGradient())
      return value * geluSlope(aux.get(operation.aux, 0, row, column));
    if (operation.has(CUBLASLT_EPILOGUE_BIAS))
      value += c.get(operation.bias, 0, row, 0);
    if (operation.usesAux())
      aux.set(operation.aux, 0, row, column, float(value));
    return operation.has(CUBLASLT_EPILOGUE_GELU) ? gelu(value) : value;
  }

  void run() const {
    std::lock_guard guard(lock());
    gemmTime() += algorithm.milliseconds;
    ++calls[number];
    ++callsOn[operation.multiprocessors];
    if (algorithm.special == 'n')
      return;
    int64_t inner = operation.a == CUBLAS_OP_T ? a.rows : a.columns;
    int64_t last = algorithm.special == 'h' ? inner / 2 : inner;
    auto order = [&](int64_t at) {
      return algorithm.special == 'r' ? inner - 1 - at : at;
    };
    // Rows side by side are added up together, each in its order.
    std::vector<float> factors(last * c.rows), sums(c.rows);
    for (int64_t i = 0; i < c.batch; ++i) {
      for (int64_t at = 0; at < last; ++at)
        for (int64_t row = 0; row < c.rows; ++row)
          factors[at * c.rows + row] =
              element(a, dataA, i, operation.a, row, order(at));
      for (int64_t column = 0; column < c.columns; ++column) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t at = 0; at < last; ++at) {
          float factor = element(b, dataB, i, operation.b, order(at), column);
          for (int64_t row = 0; row < c.rows; ++row)
            sums[row] += factors[at * c.rows + row] * factor;
        }
        for (int64_t row = 0; row < c.rows; ++row) {
          // Without beta the target may hold anything.
          float old = beta == 0 ? 0 : beta * c.get(dataC, i, row, column);
          double value = alpha * sums[row] + old;
          c.set(dataC, i, row, column, float(finish(value, row, column)));
        }
      }
    }
  }
  bool inMemory() const {
    return allocated(dataA, a.bytes()) && allocated(dataB, b.bytes()) &&
           allocated(dataC, c.bytes()) &&
           (!operation.has(CUBLASLT_EPILOGUE_BIAS) ||
            allocated(operation.bias, c.rows * (c.narrow ? 2 : 4))) &&
           (!operation.usesAux() || allocated(operation.aux, auxBytes()));
  }
  size_t auxBytes() const {
    return size_t((c.columns - 1) * operation.auxLeading + c.rows) *
           (c.narrow ? 2 : 4);
  }
};

/// Kernels are loaded in their first call, for which the GPU has to be idle:
/// where one of NCCL's waits for another rank, it never is.
void loadKernel(const Gemm &gemm, int gpu) {
  static std::set<std::vector<int64_t>> loaded;
  const auto &[operation, a, b, c, dataA, dataB, dataC, alpha, beta, number,
               algorithm] = gemm;
  std::vector<int64_t> kernel = {
      gpu,         contextOf(gpu),     operation.a,
      operation.b, operation.epilogue, int64_t(number)};
  for (const Matrix *matrix : {&a, &b, &c})
    kernel.insert(kernel.end(), {matrix->rows, matrix->columns, matrix->leading,
                                 matrix->batch});
  std::lock_guard guard(lock());
  if (loaded.insert(kernel).second && inFlight(gpu) > 0)
    refuse("a kernel of cuBLASLt is loaded while one of NCCL's may wait");
}

} // namespace

double &plait::fake::gemmTime() {
  static double milliseconds = 0;
  return milliseconds;
}

extern "C" {

/// What attention has taken, which is not of this library.
void plaitFakeAddTime(double milliseconds) {
  std::lock_guard guard(lock());
  gemmTime() += milliseconds;
}

/// For tests.
uint64_t plaitFakeGemmCalls(int algorithm) {
  std::lock_guard guard(lock());
  return calls[algorithm];
}
uint64_t plaitFakeGemmsOn(int multiprocessors) {
  std::lock_guard guard(lock());
  return callsOn[multiprocessors];
}

size_t cublasLtGetVersion() {
  const char *text = std::getenv("PLAIT_FAKE_CUBLASLT");
  return text ? std::strtoul(text, nullptr, 10) : CUBLAS_VER_MAJOR * 10000;
}
const char *cublasLtGetStatusString(cublasStatus_t) {
  return "the fake cuBLASLt objects";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  if (currentGpu() < 0)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(currentGpu()));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int *>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *object,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *object = reinterpret_cast<cublasLtMatmulDesc_t>(
      new Described<Operation>{{}, makeRealOperation(compute, scale)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t object) {
  delete reinterpret_cast<Described<Operation> *>(object);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t object,
                               cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
  auto &operation = as<Operation>(object);
  if (auto status = realOf<Operation>(object).set(attribute, value, bytes))
    return status;
  auto read = [&](auto &target) {
    if (bytes != sizeof(target))
      return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&target, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return read(operation.a);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return read(operation.b);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return read(operation.epilogue);
  case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
    return read(operation.multiprocessors);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return read(operation.bias);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    return read(operation.aux);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    return read(operation.auxLeading);
  default:
    return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *object,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  if ((type != CUDA_R_32F && type != CUDA_R_16BF) || leading < int64_t(rows))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *object = reinterpret_cast<cublasLtMatrixLayout_t>(new Described<Matrix>{
      {type == CUDA_R_16BF, int64_t(rows), int64_t(columns), leading, 1, 0},
      makeRealLayout(type, rows, columns, leading)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t object) {
  delete reinterpret_cast<Described<Matrix> *>(object);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t object,
                                 cublasLtMatrixLayoutAttribute_t attribute,
                                 const void *value, size_t bytes) {
  if (auto status = realOf<Matrix>(object).set(attribute, value, bytes))
    return status;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    as<Matrix>(object).batch = *static_cast<const int32_t *>(value);
  else
    as<Matrix>(object).stride = *static_cast<const int64_t *>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *object) {
  *object = reinterpret_cast<cublasLtMatmulPreference_t>(
      new Described<Preference>{{}, makeRealPreference()});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t object) {
  delete reinterpret_cast<Described<Preference> *>(object);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t object,
    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t bytes) {
  if (auto status = realOf<Preference>(object).set(attribute, value, bytes))
    return status;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    as<Preference>(object).workspace = *static_cast<const uint64_t *>(value);
  else
    as<Preference>(object).alignment = *static_cast<const uint32_t *>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t object,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t layout, cublasLtMatmulPreference_t preference,
    int most, cublasLtMatmulHeuristicResult_t results[], int *count) {
  *count = 0;
  if (*reinterpret_cast<int *>(handle) != currentGpu())
    return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto &operation = as<Operation>(object);
  if (!isKnown(operation, as<Matrix>(layout).rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (std::getenv("PLAIT_FAKE_NO_EPILOGUES") &&
      operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Algorithm &algorithm : algorithms(currentGpu())) {
    if (*count == most)
      break;
    cublasLtMatmulHeuristicResult_t &result = results[*count];
    uint64_t workspace = as<Preference>(preference).workspace;
    result.state = algorithm.special == 's' ? CUBLAS_STATUS_NOT_SUPPORTED
                                            : CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = workspace + (algorithm.special == 'w');
    result.algo.data[0] = as<Preference>(preference).alignment;
    result.algo.data[1] = result.workspaceSize;
    result.algo.data[2] = (*count)++;
    result.algo.data[3] = cublasLtGetVersion();
    result.algo.data[4] = uint64_t(algorithm.special);
    std::memcpy(&result.algo.data[5], &algorithm.milliseconds, sizeof(double));
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
  if (*reinterpret_cast<int *>(handle) != currentGpu())
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (algo->data[3] != cublasLtGetVersion() || algo->data[2] > 7)
    return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = algo->data[1];
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
               const void *alpha, const void *a, cublasLtMatrixLayout_t layoutA,
               const void *b, cublasLtMatrixLayout_t layoutB, const void *beta,
               const void *c, cublasLtMatrixLayout_t layoutC, void *d,
               cublasLtMatrixLayout_t layoutD, const cublasLtMatmulAlgo_t *algo,
               void *workspace, size_t bytes, cudaStream_t stream) {
  Gemm gemm = {as<Operation>(operation),
               as<Matrix>(layoutA),
               as<Matrix>(layoutB),
               as<Matrix>(layoutC),
               a,
               b,
               d,
               *static_cast<const float *>(alpha),
               *static_cast<const float *>(beta),
               algo->data[2],
               {0, char(algo->data[4])}};
  std::memcpy(&gemm.algorithm.milliseconds, &algo->data[5], sizeof(double));
  if (*reinterpret_cast<int *>(handle) != currentGpu() ||
      stream->gpu != currentGpu())
    return CUBLAS_STATUS_ARCH_MISMATCH;
  uintptr_t addresses = uintptr_t(a) | uintptr_t(b) | uintptr_t(d);
  if (c != d || layoutC != layoutD || addresses % algo->data[0] ||
      bytes < algo->data[1] || !allocated(workspace, bytes) ||
      uintptr_t(workspace) % 256 || gemm.a.narrow != gemm.b.narrow ||
      !isKnown(gemm.operation, gemm.c.rows) || !gemm.inMemory())
    return CUBLAS_STATUS_INVALID_VALUE;
  if (gemm.algorithm.special == 'f')
    return CUBLAS_STATUS_EXECUTION_FAILED;
  loadKernel(gemm, stream->gpu);
  enqueue(stream, [gemm] {
    gemm.run();
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
