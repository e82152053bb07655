//===- EpilogueFallback.cpp - Epilogues after their GEMMs -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EpilogueFallback.h"

#include "EpilogueKernels.h"

using namespace plait;
using namespace plait::runtime;

/// One kernel a type of C, from PTX that is a part of this program; which
/// epilogue it computes is a parameter.
Result<std::unique_ptr<EpilogueFallback>>
EpilogueFallback::load(CudaStream &stream) {
  auto module = CudaModule::load(stream.context, epilogueKernelsPtx);
  if (!module.ok())
    return module.status();
  std::unique_ptr<EpilogueFallback> result(new EpilogueFallback(stream));
  result->module = std::move(*module);
  for (auto [symbol, target] :
       {std::pair(PLAIT_EPILOGUE, &result->floats),
        std::pair(PLAIT_EPILOGUE_BF16, &result->halves)}) {
    auto function = result->module->find(symbol);
    if (!function.ok())
      return function.status();
    *target = *function;
  }
  return result;
}

/// Over C in place. Reads C once more than a fused epilogue would: slower, and
/// rounded once more where C is bf16.
Status EpilogueFallback::run(const GemmLayout &layout,
                             const GemmOperands &operands) {
  // The rows of the step's C are the columns of cuBLASLt's.
  const GemmMatrix &c = layout.c;
  EpilogueParams params = {
      operands.c, operands.bias, operands.geluInput,      c.columns,
      c.rows,     c.leading,     int32_t(layout.epilogue)};
  uint64_t blocks =
      stream.context->blocksFor(c.rows * c.columns, epilogueThreads);
  void *arguments[] = {&params};
  return stream.launch(c.type == fb::DType::BF16 ? halves : floats, blocks,
                       epilogueThreads, arguments);
}
