//===- CublasGemms.cpp - GEMMs by cuBLASLt --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GEMMs by cuBLASLt. What is to be computed is a GemmLayout; prepare() turns it
// into the library's descriptors and asks its heuristic for algorithms, once,
// when the plan is loaded; run() only passes addresses. The library is told the
// workspace that the plan has reserved, and allocates none by itself. The first
// choice of the heuristic is taken, unless another one is pinned (GemmTimer.h),
// or taken from another rank or an earlier start (LibraryChoices.h).
//
// Epilogues (bias, GELU, its gradient) are the library's where it has an
// algorithm for them, else a kernel of the runtime afterwards; see
// EpilogueFallback.h.
//
//===----------------------------------------------------------------------===//

#include "CublasGemms.h"

#include "plait/Plan/Check.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sstream>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// Plans compute GEMMs in these two types only.
static cudaDataType_t dataType(fb::DType type) {
  return type == fb::DType::BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// The descriptors are opaque pointers with a function each to destroy them; a
/// failure of that has no one to tell.
void CublasGemms::Destroy::operator()(cublasLtMatmulDesc_t object) const {
  library->cublasLtMatmulDescDestroy(object);
}
void CublasGemms::Destroy::operator()(cublasLtMatrixLayout_t object) const {
  library->cublasLtMatrixLayoutDestroy(object);
}
void CublasGemms::Destroy::operator()(cublasLtMatmulPreference_t object) const {
  library->cublasLtMatmulPreferenceDestroy(object);
}

Result<std::unique_ptr<CublasGemms>>
CublasGemms::create(CudaStream &stream, std::span<std::byte> workspace,
                    bool tf32, int mostAlgorithms) {
  Result<const CublasLt *> library = CublasLt::load();
  if (!library.ok())
    return library.status();
  std::unique_ptr<CublasGemms> result(
      new CublasGemms(**library, stream, workspace, tf32, mostAlgorithms));
  PLAIT_RETURN_IF_ERROR((*library)->check(
      (*library)->cublasLtCreate(&result->handle), "cublasLtCreate"));
  return result;
}

CublasGemms::~CublasGemms() {
  if (handle)
    library.cublasLtDestroy(handle);
}

/// Takes time in the number of different GEMMs for the search, which are few,
/// however deep the model. A refusal names the sizes of the step, not of
/// cuBLASLt's view of it.
Result<uint32_t> CublasGemms::prepare(const fb::GemmStep &step,
                                      int32_t multiprocessors) {
  std::vector<uint32_t> parts;
  for (const GemmLayout &layout : layoutGemm(step)) {
    auto part = prepare(layout, multiprocessors);
    if (!part.ok())
      return fail("cuBLASLt cannot multiply ", step.m(), " x ", step.k(),
                  " by ", step.k(), " x ", step.n(), ": ",
                  part.status().message());
    parts.push_back(*part);
  }
  auto found = std::find(steps.begin(), steps.end(), parts);
  if (found == steps.end())
    found = steps.insert(found, std::move(parts));
  return static_cast<uint32_t>(found - steps.begin());
}

/// 1. look for an equal one;
/// 2. describe the three matrices;
/// 3. find algorithms, with the epilogue or without.
Result<uint32_t> CublasGemms::prepare(const GemmLayout &layout,
                                      int32_t multiprocessors) {
  Gemm gemm;
  gemm.layout = layout;
  gemm.multiprocessors = multiprocessors;
  // 1. Layers share their layouts, each of which asks the heuristic once.
  auto found = std::find_if(gemms.begin(), gemms.end(), [&](const Gemm &known) {
    return known.layout == gemm.layout &&
           known.multiprocessors == multiprocessors;
  });
  if (found != gemms.end())
    return static_cast<uint32_t>(found - gemms.begin());

  // 2.
  for (auto [matrix, target] :
       {std::pair(&gemm.layout.a, &gemm.a), std::pair(&gemm.layout.b, &gemm.b),
        std::pair(&gemm.layout.c, &gemm.c)}) {
    auto described = describe(*matrix, gemm.layout);
    if (!described.ok())
      return described.status();
    *target = std::move(*described);
  }
  // 3.
  PLAIT_RETURN_IF_ERROR(chooseOperation(gemm));
  gemms.push_back(std::move(gemm));
  return static_cast<uint32_t>(gemms.size() - 1);
}

/// The operation: types of computation and scale, and which operand is
/// transposed. TF32 only for f32, and only if it is asked for: it has 10 bits
/// of mantissa. A kernel whose blocks go on to further tiles has one for each
/// multiprocessor: where some are taken, the last blocks would come after all
/// others.
Result<CublasGemms::Owned<cublasLtMatmulDesc_t>>
CublasGemms::describe(const Gemm &gemm, bool withEpilogue) {
  const GemmLayout &layout = gemm.layout;
  bool fast = tf32 && layout.a.type == fb::DType::F32;
  cublasLtMatmulDesc_t made = nullptr;
  PLAIT_RETURN_IF_ERROR(library.check(
      library.cublasLtMatmulDescCreate(
          &made, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
          CUDA_R_32F),
      "cublasLtMatmulDescCreate"));
  Owned<cublasLtMatmulDesc_t> result(made, Destroy{&library});
  const std::pair<cublasLtMatmulDescAttributes_t, const GemmMatrix *>
      operands[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &layout.a},
                    {CUBLASLT_MATMUL_DESC_TRANSB, &layout.b}};
  for (auto [attribute, matrix] : operands) {
    cublasOperation_t operation =
        matrix->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    PLAIT_RETURN_IF_ERROR(set(made, attribute, operation));
  }
  if (gemm.multiprocessors)
    PLAIT_RETURN_IF_ERROR(
        set(made, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, gemm.multiprocessors));
  if (withEpilogue)
    PLAIT_RETURN_IF_ERROR(setEpilogue(made, layout));
  return result;
}

/// The library copies the value.
template <typename T>
Status CublasGemms::set(cublasLtMatmulDesc_t operation,
                        cublasLtMatmulDescAttributes_t attribute, T value) {
  return library.check(library.cublasLtMatmulDescSetAttribute(
                           operation, attribute, &value, sizeof(value)),
                       "cublasLtMatmulDescSetAttribute");
}

/// Those that store GELU's input for the backward pass are the AUX ones. DGELU
/// reads it, from the same attribute.
static cublasLtEpilogue_t epilogueOf(const GemmLayout &layout) {
  bool stores = layout.hasGeluInput;
  switch (layout.epilogue) {
  case fb::Epilogue::Bias:
    return CUBLASLT_EPILOGUE_BIAS;
  case fb::Epilogue::Gelu:
    return stores ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  case fb::Epilogue::BiasGelu:
    return stores ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                  : CUBLASLT_EPILOGUE_GELU_BIAS;
  case fb::Epilogue::GeluGradient:
    return CUBLASLT_EPILOGUE_DGELU;
  case fb::Epilogue::None:
    return CUBLASLT_EPILOGUE_DEFAULT;
  }
  __builtin_unreachable();
}

/// The bias runs along the rows of cuBLASLt's C, which are the columns of the
/// step's. Its type and that of GELU's input are C's, which is the default.
Status CublasGemms::setEpilogue(cublasLtMatmulDesc_t operation,
                                const GemmLayout &layout) {
  PLAIT_RETURN_IF_ERROR(set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                            uint32_t(epilogueOf(layout))));
  if (layout.hasGeluInput)
    PLAIT_RETURN_IF_ERROR(
        set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, layout.c.leading));
  // Of the addresses, the heuristic wants to know how they are aligned.
  const std::byte *aligned = workspace.data() + layout.epilogueAlignment;
  // They are not dereferenced before run() sets the true ones.
  return setPointers(operation, layout, aligned, aligned);
}

/// Sets those that the epilogue has. The library keeps the address, not what is
/// there.
Status CublasGemms::setPointers(cublasLtMatmulDesc_t operation,
                                const GemmLayout &layout, const std::byte *bias,
                                const std::byte *geluInput) {
  if (layout.epilogue == fb::Epilogue::Bias ||
      layout.epilogue == fb::Epilogue::BiasGelu)
    PLAIT_RETURN_IF_ERROR(
        set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  if (!layout.hasGeluInput)
    return Status::success();
  return set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, geluInput);
}

/// The GEMM with its epilogue or, where there is no algorithm for that,
/// whatever the reason, without.
Status CublasGemms::chooseOperation(Gemm &gemm) {
  if (gemm.layout.epilogue == fb::Epilogue::None)
    return chooseOperation(gemm, /*withEpilogue=*/false);
  if (chooseOperation(gemm, /*withEpilogue=*/true).ok())
    return Status::success();
  if (!fallback) {
    auto loaded = EpilogueFallback::load(stream);
    if (!loaded.ok())
      return loaded.status();
    fallback = std::move(*loaded);
  }
  gemm.isApart = true;
  return chooseOperation(gemm, /*withEpilogue=*/false);
}

/// Describes the operation anew: an epilogue that was refused is gone with its
/// descriptor.
Status CublasGemms::chooseOperation(Gemm &gemm, bool withEpilogue) {
  auto operation = describe(gemm, withEpilogue);
  if (!operation.ok())
    return operation.status();
  gemm.operation = std::move(*operation);
  return findAlgorithms(gemm);
}

/// Batch attributes are set for a single GEMM, too: a count of 1, whose stride
/// is not read.
Result<CublasGemms::Owned<cublasLtMatrixLayout_t>>
CublasGemms::describe(const GemmMatrix &matrix, const GemmLayout &layout) {
  cublasLtMatrixLayout_t made = nullptr;
  PLAIT_RETURN_IF_ERROR(library.check(
      library.cublasLtMatrixLayoutCreate(&made, dataType(matrix.type),
                                         matrix.rows, matrix.columns,
                                         matrix.leading),
      "cublasLtMatrixLayoutCreate"));
  Owned<cublasLtMatrixLayout_t> result(made, Destroy{&library});
  int32_t batch = static_cast<int32_t>(layout.batch);
  PLAIT_RETURN_IF_ERROR(library.check(
      library.cublasLtMatrixLayoutSetAttribute(
          made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)),
      "cublasLtMatrixLayoutSetAttribute"));
  PLAIT_RETURN_IF_ERROR(
      library.check(library.cublasLtMatrixLayoutSetAttribute(
                        made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                        &matrix.batchStride, sizeof(matrix.batchStride)),
                    "cublasLtMatrixLayoutSetAttribute"));
  return result;
}

/// Asks the heuristic for its choices within the workspace, for operands
/// aligned as the layout promises; run() checks that they are. Fails where no
/// algorithm fits.
Status CublasGemms::findAlgorithms(Gemm &gemm) {
  cublasLtMatmulPreference_t made = nullptr;
  PLAIT_RETURN_IF_ERROR(
      library.check(library.cublasLtMatmulPreferenceCreate(&made),
                    "cublasLtMatmulPreferenceCreate"));
  Owned<cublasLtMatmulPreference_t> preference(made, Destroy{&library});
  uint64_t bytes = workspace.size();
  PLAIT_RETURN_IF_ERROR(
      library.check(library.cublasLtMatmulPreferenceSetAttribute(
                        made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                        sizeof(bytes)),
                    "cublasLtMatmulPreferenceSetAttribute"));
  for (cublasLtMatmulPreferenceAttributes_t attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    PLAIT_RETURN_IF_ERROR(
        library.check(library.cublasLtMatmulPreferenceSetAttribute(
                          made, attribute, &gemm.layout.alignment,
                          sizeof(gemm.layout.alignment)),
                      "cublasLtMatmulPreferenceSetAttribute"));
  std::vector<cublasLtMatmulHeuristicResult_t> found(mostAlgorithms);
  int count = 0;
  PLAIT_RETURN_IF_ERROR(
      library.check(library.cublasLtMatmulAlgoGetHeuristic(
                        handle, gemm.operation.get(), gemm.a.get(),
                        gemm.b.get(), gemm.c.get(), gemm.c.get(), made,
                        mostAlgorithms, found.data(), &count),
                    "cublasLtMatmulAlgoGetHeuristic"));
  gemm.algorithms.clear();
  for (const auto &result : std::span(found).first(count))
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= bytes)
      gemm.algorithms.push_back(result.algo);
  return gemm.algorithms.empty()
             ? fail("no algorithm needs at most ", bytes, " bytes of workspace")
             : Status::success();
}

/// Places of a batch's parts are left out: calls of one layout take one
/// algorithm wherever they are.
std::string CublasGemms::describe(uint32_t part) const {
  const GemmLayout &layout = gemms[part].layout;
  std::ostringstream text;
  text << "gemm";
  for (const GemmMatrix *matrix : {&layout.a, &layout.b, &layout.c})
    text << " " << fb::EnumNameDType(matrix->type) << " " << matrix->rows << "x"
         << matrix->columns << (matrix->transposed ? " transposed" : "")
         << " by " << matrix->leading << " and " << matrix->batchStride << ",";
  text << " batch " << layout.batch << ", alignment " << layout.alignment
       << ", epilogue " << fb::EnumNameEpilogue(layout.epilogue)
       << (layout.hasGeluInput ? " with input" : "") << ", workspace "
       << workspace.size() << (tf32 ? ", tf32" : "");
  if (gemms[part].multiprocessors)
    text << ", on " << gemms[part].multiprocessors;
  return text.str();
}

/// The library says of its structure that it may be stored and restored as it
/// is, with the same version.
std::string CublasGemms::writePinned(uint32_t part) const {
  const Gemm &gemm = gemms[part];
  std::string digits;
  for (uint64_t word : gemm.algorithms[gemm.pinned].data) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, word);
    digits += text;
  }
  return digits;
}

/// 1. Read the digits.
/// 2. One that the heuristic has named here is known to work.
/// 3. Of any other the library says whether it does.
Status CublasGemms::take(uint32_t part, const std::string &digits) {
  Gemm &gemm = gemms[part];
  // 1.
  constexpr size_t wordDigits = 16;
  cublasLtMatmulAlgo_t algorithm = {};
  constexpr size_t words = std::size(decltype(algorithm.data){});
  if (digits.size() != words * wordDigits ||
      digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    return fail("an algorithm of cuBLASLt has ", words * wordDigits,
                " digits, not '", digits, "'");
  for (size_t i = 0; i < words; ++i)
    algorithm.data[i] = std::stoull(digits.substr(i * wordDigits, wordDigits),
                                    nullptr, /*base=*/16);
  // 2.
  auto known = std::ranges::find_if(gemm.algorithms, [&](const auto &one) {
    return std::ranges::equal(one.data, algorithm.data);
  });
  if (known != gemm.algorithms.end())
    return pin(part, known - gemm.algorithms.begin()), Status::success();
  // 3.
  cublasLtMatmulHeuristicResult_t result = {};
  PLAIT_RETURN_IF_ERROR(library.check(
      library.cublasLtMatmulAlgoCheck(handle, gemm.operation.get(),
                                      gemm.a.get(), gemm.b.get(), gemm.c.get(),
                                      gemm.c.get(), &algorithm, &result),
      "cublasLtMatmulAlgoCheck"));
  if (result.workspaceSize > workspace.size())
    return fail("the algorithm needs ", result.workspaceSize,
                " bytes of workspace, the plan has ", workspace.size());
  gemm.algorithms.push_back(algorithm);
  return pin(part, gemm.algorithms.size() - 1), Status::success();
}

Status CublasGemms::run(uint32_t prepared, const GemmOperands &operands,
                        bool add) {
  for (uint32_t part : steps[prepared])
    PLAIT_RETURN_IF_ERROR(runPart(part, operands, add));
  return Status::success();
}

/// Enqueues one call for each of the layout's places, all under the stream's
/// lock. A descriptor belongs to one rank, so that changing its pointers is
/// safe; the library reads them before it returns.
/// 1. The heuristic was told an alignment. Addresses that the plan binds are
///    multiples of it; others would be undefined behaviour, hence the check.
/// 2. Set the addresses of the epilogue.
/// 3. Multiply. `add` is beta, not a property of the descriptor: a GEMM that
///    accumulates over microbatches shares the algorithm of the first one.
/// 4. Apply what the library has no epilogue for.
Status CublasGemms::runPart(uint32_t part, const GemmOperands &operands,
                            bool add) {
  Gemm &gemm = gemms[part];
  const auto [a, b, c, bias, geluInput] = operands;
  // 1.
  uintptr_t addresses = reinterpret_cast<uintptr_t>(a) |
                        reinterpret_cast<uintptr_t>(b) |
                        reinterpret_cast<uintptr_t>(c);
  if (addresses % gemm.layout.alignment)
    return fail("the operands of a GEMM must be aligned to ",
                gemm.layout.alignment, " bytes");
  // 2.
  if (!gemm.isApart)
    PLAIT_RETURN_IF_ERROR(
        setPointers(gemm.operation.get(), gemm.layout, bias, geluInput));
  // 3. cuBLAS has columns first: what it sees is the transposed result, of the
  // operands exchanged.
  const float alpha = 1, beta = add || gemm.layout.adds ? 1 : 0;
  uint64_t unit = plan::elementBytes(gemm.layout.a.type);
  uint64_t unitC = plan::elementBytes(gemm.layout.c.type);
  PLAIT_RETURN_IF_ERROR(stream.add([&] {
    for (const GemmLayout::Place &place : gemm.layout.places)
      PLAIT_RETURN_IF_ERROR(library.check(
          library.cublasLtMatmul(
              handle, gemm.operation.get(), &alpha, b + place.a * unit,
              gemm.a.get(), a + place.b * unit, gemm.b.get(), &beta,
              c + place.c * unitC, gemm.c.get(), c + place.c * unitC,
              gemm.c.get(), &gemm.algorithms[gemm.pinned], workspace.data(),
              workspace.size(), stream.handle()),
          "cublasLtMatmul"));
    return Status::success();
  }));
  // 4.
  return gemm.isApart ? fallback->run(gemm.layout, operands)
                      : Status::success();
}
