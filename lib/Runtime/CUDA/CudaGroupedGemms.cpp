//===- CudaGroupedGemms.cpp - Grouped GEMMs on a GPU ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaGroupedGemms.h"

#include "GroupedKernels.h"
#include "plait/Plan/GroupedGemm.h"

#include <algorithm>
#include <utility>

using namespace plait;
using namespace plait::runtime;
namespace fb = plait::plan::fb;

/// Loads PTX that is a part of this program.
Result<std::unique_ptr<CudaGroupedGemms>>
CudaGroupedGemms::create(CudaStream &stream, std::span<std::byte> workspace) {
  auto module = CudaModule::load(stream.context, groupedKernelsPtx);
  if (!module.ok())
    return module.status();
  std::unique_ptr<CudaGroupedGemms> result(
      new CudaGroupedGemms(stream, workspace));
  result->module = std::move(*module);
  auto function = result->module->find(PLAIT_GROUP_ROWS);
  if (!function.ok())
    return function.status();
  result->groupRows = *function;
  return result;
}

static std::string kernelOf(const fb::GroupedGemmStep &step) {
  std::string name = PLAIT_GROUPED_MATRICES;
  if (step.kind() == fb::GroupedKind::Rows) {
    name = PLAIT_GROUPED_ROWS;
    if (step.transposed())
      name += PLAIT_GROUPED_TRANSPOSED;
  }
  if (step.dtype() == fb::DType::F32)
    return name + PLAIT_GROUPED_F32;
  return name + (step.c_dtype() == fb::DType::BF16 ? PLAIT_GROUPED_BF16
                                                   : PLAIT_GROUPED_WIDE);
}

/// Equal steps have one number.
Result<uint32_t> CudaGroupedGemms::prepare(const fb::GroupedGemmStep &step,
                                           int64_t first) {
  uint64_t needed = plan::gpuGroupedWorkspace(step.rows(), step.experts());
  if (needed > workspace.size())
    return fail("a grouped GEMM of ", step.rows(),
                " rows needs a workspace of ", needed, " bytes, the plan has ",
                workspace.size());
  auto kernel = module->find(kernelOf(step).c_str());
  if (!kernel.ok())
    return kernel.status();
  Step made = {*kernel,
               step.rows(),
               step.repeat(),
               step.experts(),
               step.k(),
               step.n(),
               first,
               step.limit(),
               step.kind() == fb::GroupedKind::Matrices,
               step.transposed()};
  auto known = std::find(steps.begin(), steps.end(), made);
  if (known == steps.end())
    known = steps.insert(known, made);
  return static_cast<uint32_t>(known - steps.begin());
}

Status CudaGroupedGemms::multiplyRows(Step &step,
                                      const GroupedGemmOperands &operands,
                                      int64_t add) {
  int32_t *order = orderOf(), *begins = order + step.rows;
  const std::byte *a = operands.a, *b = operands.b;
  std::byte *c = operands.c;
  void *arguments[] = {&c,      &a,         &b,           &order,
                       &begins, &step.rows, &step.repeat, &step.experts,
                       &step.k, &step.n,    &add};
  return stream.launch(step.kernel,
                       groupedRowBlocks(step.rows, step.experts, step.n),
                       groupedThreads, arguments);
}

/// Transposed matrices are what the operands make the other way around.
Status CudaGroupedGemms::makeMatrices(Step &step,
                                      const GroupedGemmOperands &operands,
                                      int64_t add) {
  int32_t *order = orderOf(), *begins = order + step.rows;
  const std::byte *left = operands.a, *right = operands.b;
  std::byte *c = operands.c;
  int64_t leftRepeat = step.repeat, rightRepeat = 1;
  int64_t leftColumns = step.k, rightColumns = step.n;
  if (step.isTransposed) {
    std::swap(left, right);
    std::swap(leftRepeat, rightRepeat);
    std::swap(leftColumns, rightColumns);
  }
  void *arguments[] = {&c,           &left,         &right,
                       &order,       &begins,       &step.rows,
                       &leftRepeat,  &rightRepeat,  &step.experts,
                       &leftColumns, &rightColumns, &add};
  return stream.launch(
      step.kernel, groupedMatrixBlocks(step.experts, leftColumns, rightColumns),
      groupedThreads, arguments);
}

/// Two kernels: rows are ordered for each step anew, which reads the ids once
/// for each expert and moves no row.
Status CudaGroupedGemms::run(uint32_t prepared,
                             const GroupedGemmOperands &operands, bool add) {
  Step &step = steps[prepared];
  int32_t *order = orderOf(), *begins = order + step.rows;
  const std::byte *ids = operands.ids;
  void *arguments[] = {&order,      &begins,     &ids,         &step.rows,
                       &step.first, &step.limit, &step.experts};
  PLAIT_RETURN_IF_ERROR(
      stream.launch(groupRows, step.experts + 1, groupThreads, arguments));
  return step.makesMatrices ? makeMatrices(step, operands, add)
                            : multiplyRows(step, operands, add);
}
