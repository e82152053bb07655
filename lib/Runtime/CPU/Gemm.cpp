//===- Gemm.cpp - GEMMs by oneDNN -----------------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gemm.h says which of oneDNN's two interfaces is used when, and by what
// measurement. Primitives are created when a plan is loaded, for creating one
// generates code; a step only sets their addresses. Addition to C is part of a
// primitive, so that there are two of each GEMM. Row-major matrices are what
// oneDNN expects, and a transposed operand is one with its strides exchanged.
//
//===----------------------------------------------------------------------===//

#include "Gemm.h"

#include "Epilogue.h"

#include <algorithm>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

namespace {

/// Whether two GEMMs can share primitives: all but where the operands are.
/// Primitives do not depend on addresses.
bool sameShape(const fb::GemmStepT &x, const fb::GemmStepT &y) {
  return x.dtype == y.dtype && x.c_dtype == y.c_dtype &&
         x.epilogue == y.epilogue && x.m == y.m && x.n == y.n && x.k == y.k &&
         x.batch == y.batch && x.a_batch == y.a_batch &&
         x.b_batch == y.b_batch && x.c_batch == y.c_batch &&
         x.a_row == y.a_row && x.a_col == y.a_col && x.b_row == y.b_row &&
         x.b_col == y.b_col && x.c_row == y.c_row;
}

/// GEMMs of a plan are f32 or bf16 (the plan checker).
dnnl::memory::data_type dataType(fb::DType type) {
  return type == fb::DType::BF16 ? dnnl::memory::data_type::bf16
                                 : dnnl::memory::data_type::f32;
}

/// A matrix with its batch dimensions; a batch stride of 0 repeats the matrix,
/// which oneDNN expresses by a size of 1.
dnnl::memory::desc describe(const fb::GemmStepT &shape, fb::DType type,
                            const std::vector<int64_t> &batchStrides,
                            int64_t rows, int64_t columns, int64_t rowStride,
                            int64_t columnStride) {
  dnnl::memory::dims dims, strides;
  for (size_t i = 0; i < shape.batch.size(); ++i) {
    bool repeats = batchStrides[i] == 0;
    dims.push_back(repeats ? 1 : shape.batch[i]);
    strides.push_back(repeats ? rows * columns : batchStrides[i]);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {rowStride, columnStride});
  return dnnl::memory::desc(dims, dataType(type), strides);
}

} // namespace

/// 1. A GEMM of the same shape shares everything: layers have the same few.
/// 2. Both primitives, where this one goes through primitives at all.
/// 3. Room for widening and for copies, once for all GEMMs of the rank.
Result<uint32_t> GemmLibrary::prepare(const fb::GemmStep &step) {
  Gemm gemm;
  step.UnPackTo(&gemm.shape);
  // 1. Is it known?
  auto found = std::find_if(gemms.begin(), gemms.end(), [&](const Gemm &known) {
    return sameShape(known.shape, gemm.shape);
  });
  if (found != gemms.end())
    return static_cast<uint32_t>(found - gemms.begin());
  // 2. To overwrite and to add.
  for (bool add : {false, true}) {
    if (!needsPrimitive(gemm.shape))
      break;
    Result<Primitive> primitive = createPrimitive(gemm.shape, add);
    if (!primitive.ok())
      return primitive.status();
    gemm.primitives.push_back(std::move(*primitive));
  }
  // 3. For bf16 that is widened, and for operands that lie badly.
  if (gemm.shape.dtype == fb::DType::BF16 && gemm.primitives.empty() &&
      !widened)
    widened.emplace(threads);
  if (gemm.shape.dtype == fb::DType::F32)
    floats.prepare(gemm.shape);
  gemms.push_back(std::move(gemm));
  return static_cast<uint32_t>(gemms.size() - 1);
}

/// Names of instruction sets are sets of bits. AMX has an instruction of its
/// own for bf16, which is fast.
HalfPrimitives runtime::chooseHalfPrimitives(unsigned isa, bool isIntel) {
  auto has = [&](unsigned needed) { return (isa & needed) == needed; };
  if (!has(dnnl_cpu_isa_avx512_core_bf16))
    return HalfPrimitives::None;
  return isIntel && !has(dnnl_cpu_isa_avx512_core_amx) ? HalfPrimitives::Batches
                                                       : HalfPrimitives::All;
}

/// Asks for what oneDNN will use, which its environment variables can limit.
HalfPrimitives runtime::chooseHalfPrimitives() {
#if defined(__x86_64__)
  bool isIntel = __builtin_cpu_is("intel");
#else
  bool isIntel = false;
#endif
  return chooseHalfPrimitives(dnnl_get_effective_cpu_isa(), isIntel);
}

/// See Gemm.h: single GEMMs of f32, and batches whose operands are copied, go
/// to FloatGemm, bf16 without fast instructions to WidenedGemm.
bool GemmLibrary::needsPrimitive(const fb::GemmStepT &shape) const {
  if (shape.dtype == fb::DType::BF16)
    return halves == HalfPrimitives::All ||
           (halves == HalfPrimitives::Batches && !shape.batch.empty());
  return !shape.batch.empty() && !floats.copies(shape);
}

/// Scratch memory is the caller's, one buffer for all primitives, which run one
/// after the other: oneDNN would otherwise allocate in each. C's columns are
/// always contiguous.
Result<GemmLibrary::Primitive>
GemmLibrary::createPrimitive(const fb::GemmStepT &shape, bool add) try {
  auto a = describe(shape, shape.dtype, shape.a_batch, shape.m, shape.k,
                    shape.a_row, shape.a_col);
  auto b = describe(shape, shape.dtype, shape.b_batch, shape.k, shape.n,
                    shape.b_row, shape.b_col);
  auto c = describe(shape, shape.c_dtype, shape.c_batch, shape.m, shape.n,
                    shape.c_row, 1);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine);
  if (description.scratchpad_desc().get_size() >
      (scratch ? scratch.get_desc().get_size() : 0))
    scratch = dnnl::memory(description.scratchpad_desc(), engine);
  // Addresses are set before each call.
  auto operand = [&](const dnnl::memory::desc &desc) {
    return dnnl::memory(desc, engine, DNNL_MEMORY_NONE);
  };
  return Primitive{dnnl::matmul(description), operand(a), operand(b),
                   operand(c)};
} catch (const dnnl::error &error) {
  return fail("oneDNN cannot multiply ", shape.m, " x ", shape.k, " by ",
              shape.k, " x ", shape.n, ": ", error.what());
}

/// The epilogue runs over C behind the GEMM, not in it: of kernels that take
/// rows through several operations it is the slower form, but it computes what
/// a GPU's fused epilogue does.
Status GemmLibrary::run(uint32_t prepared, const GemmOperands &operands,
                        bool add) {
  Gemm &gemm = gemms[prepared];
  PLAIT_RETURN_IF_ERROR(
      multiply(gemm, operands.a, operands.b, operands.c, add));
  applyEpilogue(threads, gemm.shape, operands);
  return Status::success();
}

/// The C interface, since C++ wrappers allocate a map of arguments in each
/// call.
Status GemmLibrary::multiply(Gemm &gemm, const std::byte *a, const std::byte *b,
                             std::byte *c, bool add) {
  if (gemm.primitives.empty() && gemm.shape.dtype == fb::DType::BF16)
    return widened->run(gemm.shape, reinterpret_cast<const BFloat16 *>(a),
                        reinterpret_cast<const BFloat16 *>(b), c, add);
  if (gemm.primitives.empty())
    return floats.run(gemm.shape, reinterpret_cast<const float *>(a),
                      reinterpret_cast<const float *>(b),
                      reinterpret_cast<float *>(c), add);
  // Addresses are the primitive's own: one call at a time uses it.
  Primitive &primitive = gemm.primitives[add];
  auto place = [](dnnl::memory &memory, const std::byte *data) {
    return dnnl_memory_set_data_handle(memory.get(),
                                       const_cast<std::byte *>(data));
  };
  PLAIT_RETURN_IF_ERROR(checkDnnl(place(primitive.a, a)));
  PLAIT_RETURN_IF_ERROR(checkDnnl(place(primitive.b, b)));
  PLAIT_RETURN_IF_ERROR(checkDnnl(place(primitive.c, c)));
  const dnnl_exec_arg_t arguments[] = {
      {DNNL_ARG_SRC, primitive.a.get()},
      {DNNL_ARG_WEIGHTS, primitive.b.get()},
      {DNNL_ARG_DST, primitive.c.get()},
      {DNNL_ARG_SCRATCHPAD, scratch ? scratch.get() : nullptr}};
  return checkDnnl(dnnl_primitive_execute(primitive.code.get(), stream.get(),
                                          scratch ? 4 : 3, arguments));
}
