//===- Gemm.h - GEMMs by oneDNN ---------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One way for each case, by measurement. f32 (AVX-512, GPT-2's shapes, one and
// two threads): dnnl_sgemm for single GEMMs, the matmul primitive for
// batches. On single GEMMs both are near the machine's peak with B
// transposed, but with A transposed or nothing transposed the primitive reads
// strided operands in place and falls to 30–80 % of dnnl_sgemm. On batches of
// small GEMMs the primitive is up to twice as fast as a loop over
// dnnl_sgemm, and it takes any strides. On AVX2 it is a loop over dnnl_sgemm
// itself, with a GEMM for each thread, and FloatGemm.h, which copies what lies
// badly, is faster.
//
// bf16: the primitive where the processor has fast instructions for it.
// Elsewhere oneDNN emulates them, if at all, at a quarter of the speed of
// WidenedGemm.h, which reaches 70-90 % of what dnnl_sgemm does. Intel's
// processors take four times as long for VDPBF16PS as for an FMA of f32, which
// does half as much (0.77 and 0.19 ns, Xeon of family 6, model 207): without
// AMX their GEMMs of bf16 are faster widened, but for batches of small ones.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_GEMM_H
#define PLAIT_LIB_RUNTIME_CPU_GEMM_H

#include "FloatGemm.h"
#include "WidenedGemm.h"
#include "plait/Plan/Plan_generated.h"
#include "plait/Runtime/Device.h"
#include "plait/Support/Status.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <dnnl.hpp>
#include <optional>
#include <vector>

namespace plait::runtime {

/// Names the GEMMs of bf16 that go through primitives; others are widened.
enum class HalfPrimitives { All, Batches, None };

/// Chooses for a processor for which oneDNN uses `isa` (dnnl_cpu_isa_t).
HalfPrimitives chooseHalfPrimitives(unsigned isa, bool isIntel);
/// Chooses for this processor.
HalfPrimitives chooseHalfPrimitives();

/// The GEMMs of one rank. Used by the rank's thread only, which must
/// have its team (see Team.h) before the first prepare().
class GemmLibrary {
public:
  explicit GemmLibrary(unsigned threads,
                       HalfPrimitives halves = chooseHalfPrimitives())
      : threads(threads), halves(halves), floats(threads) {}

  /// Creates the primitives for `step`; the number is for run(). Equal steps
  /// share one.
  Result<uint32_t> prepare(const plan::fb::GemmStep &step);

  Status run(uint32_t prepared, const GemmOperands &operands, bool add);

private:
  /// A GEMM that either overwrites or adds.
  struct Primitive {
    dnnl::matmul code;
    dnnl::memory a, b, c;
  };

  struct Gemm {
    plan::fb::GemmStepT shape;
    std::vector<Primitive> primitives; // overwrite, add; or none
  };

  Status multiply(Gemm &gemm, const std::byte *a, const std::byte *b,
                  std::byte *c, bool add);
  bool needsPrimitive(const plan::fb::GemmStepT &shape) const;
  Result<Primitive> createPrimitive(const plan::fb::GemmStepT &shape, bool add);

  unsigned threads;
  HalfPrimitives halves;
  FloatGemm floats;
  std::optional<WidenedGemm> widened; // made for the first GEMM it does
  dnnl::engine engine = dnnl::engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream = dnnl::stream(engine);
  std::deque<Gemm> gemms;
  dnnl::memory scratch; // the largest any primitive needs
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_GEMM_H
