//===- ReduceKernels.cpp - Sums and maxima on one GPU ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReduceKernels.h"

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

Result<std::shared_ptr<const ReduceKernels>>
ReduceKernels::load(std::shared_ptr<CudaContext> context) {
  auto module = CudaModule::load(std::move(context), collectiveKernelsPtx);
  if (!module.ok())
    return module.status();
  constexpr std::pair<Name, const char *> names[] = {
      {{fb::Reduction::Sum, fb::DType::F32}, PLAIT_REDUCE_SUM},
      {{fb::Reduction::Max, fb::DType::F32}, PLAIT_REDUCE_MAX},
      {{fb::Reduction::Sum, fb::DType::BF16}, PLAIT_REDUCE_SUM_BF16},
      {{fb::Reduction::Max, fb::DType::BF16}, PLAIT_REDUCE_MAX_BF16}};
  auto result = std::make_shared<ReduceKernels>();
  for (auto [name, symbol] : names) {
    auto function = (*module)->find(symbol);
    if (!function.ok())
      return function.status();
    result->functions[name] = *function;
  }
  result->module = std::move(*module);
  return std::shared_ptr<const ReduceKernels>(std::move(result));
}

/// A grid has one block at least. `params` goes to the kernel by value, so that
/// it may end with this call.
Status ReduceKernels::launch(CudaStream &stream, ReduceParams params,
                             fb::Reduction reduction, fb::DType type) const {
  int64_t count = params.outer * params.chunk;
  if (count == 0)
    return Status::success();
  void *arguments[] = {&params};
  return stream.launch(functions.at({reduction, type}),
                       stream.context->blocksFor(count, reduceThreads),
                       reduceThreads, arguments);
}
