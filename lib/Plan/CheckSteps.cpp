//===- CheckSteps.cpp - Everything in a function is in range --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckSteps.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Ranks.h"

using namespace plait;
using namespace plait::plan;

namespace {

/// No arena is larger; sums of a few products of this size fit 64 bits.
constexpr uint64_t maxElements = uint64_t(1) << 46;

/// The index of the last element of a strided box plus one, or nothing on
/// overflow, a size below 1 or a negative stride.
class Extent {
public:
  void add(int64_t size, int64_t stride) {
    int64_t step = 0;
    valid = valid && size >= 1 && stride >= 0 &&
            !__builtin_mul_overflow(size - 1, stride, &step) &&
            !__builtin_add_overflow(last, step, &last) &&
            last < static_cast<int64_t>(maxElements);
  }
  std::optional<uint64_t> elements() const {
    return valid ? std::optional<uint64_t>(last + 1) : std::nullopt;
  }

private:
  int64_t last = 0;
  bool valid = true;
};

class FunctionChecker {
public:
  FunctionChecker(const fb::Plan &plan, const fb::Program &program,
                  const fb::Function &function)
      : plan(plan), program(program), function(function), mesh(plan) {}

  Status check(const fb::Step &step) {
    if (step.location() && step.location() >= length(plan.locations()))
      return fail("location ", step.location(), ", there are ",
                  length(plan.locations()));
    switch (step.step_type()) {
    case fb::StepKind::KernelStep:
      return checkKernel(*step.step_as_KernelStep());
    case fb::StepKind::GemmStep:
      return checkGemm(*step.step_as_GemmStep());
    case fb::StepKind::CollectiveStep:
      return checkCollective(*step.step_as_CollectiveStep());
    case fb::StepKind::CopyStep:
      return checkCopy(*step.step_as_CopyStep());
    case fb::StepKind::FillStep:
      return checkRange("target", step.step_as_FillStep()->target(),
                        step.step_as_FillStep()->bytes(), 1);
    default:
      return fail("unknown kind ", int(step.step_type()));
    }
  }

private:
  /// `count` units of `unit` bytes at `ref` are inside the arena or the slot.
  Status checkRange(const char *what, const fb::Ref *ref,
                    std::optional<uint64_t> count, uint64_t unit) {
    if (!ref)
      return fail(what, " is missing");
    if (ref->slot() < -1 ||
        ref->slot() >= int64_t(length(function.slot_bytes())))
      return fail(what, " is in slot ", ref->slot(), " of ",
                  length(function.slot_bytes()));
    if (!count)
      return fail(what, " has an impossible size");
    bool inArena = ref->slot() == -1;
    uint64_t limit = inArena ? program.arena_bytes()
                             : function.slot_bytes()->Get(ref->slot());
    if (ref->offset() % unit)
      return fail(what, " at byte ", ref->offset(), " is not aligned to ",
                  unit);
    if (ref->offset() > limit || *count > (limit - ref->offset()) / unit)
      return fail(what, " of ", *count * unit, " bytes at ", ref->offset(),
                  " ends beyond the ", limit, " bytes of ",
                  inArena ? "the arena" : slotName(function, ref->slot()));
    return Status::success();
  }

  Status checkKernel(const fb::KernelStep &step) {
    if (step.kernel() >= length(plan.kernels()))
      return fail("kernel ", step.kernel(), ", there are ",
                  length(plan.kernels()));
    if (step.extent() < 0 || step.grain() < 0)
      return fail("extent ", step.extent(), " and grain ", step.grain(),
                  " must not be negative");
    for (uint32_t i = 0; i < length(step.args()); ++i)
      PLAIT_RETURN_IF_ERROR(checkRange("argument", step.args()->Get(i), 0, 1));
    for (uint32_t i = 0; i < length(step.scalars()); ++i) {
      int32_t axis = step.scalars()->Get(i)->axis();
      if (axis < -1 || axis >= int64_t(mesh.axes()))
        return fail("scalar ", i, " names axis ", axis, ", there are ",
                    mesh.axes());
    }
    return Status::success();
  }

  /// One matrix of a product: `rows` x `columns` with a batch in front.
  Status checkMatrix(const char *what, const fb::GemmStep &step,
                     const fb::Ref *ref, int64_t rows, int64_t rowStride,
                     int64_t columns, int64_t columnStride,
                     const flatbuffers::Vector<int64_t> *batchStrides) {
    bool rowMajor = columnStride == 1 && (rowStride >= columns || rows == 1);
    bool columnMajor = rowStride == 1 && (columnStride >= rows || columns == 1);
    if (!rowMajor && !columnMajor)
      return fail("matrix ", what, " of ", rows, " x ", columns,
                  " has strides ", rowStride, " and ", columnStride);
    if (length(batchStrides) != length(step.batch()))
      return fail("matrix ", what, " has ", length(batchStrides),
                  " batch strides for ", length(step.batch()),
                  " batch dimensions");
    Extent extent;
    extent.add(rows, rowStride);
    extent.add(columns, columnStride);
    for (uint32_t i = 0; i < length(batchStrides); ++i)
      extent.add(step.batch()->Get(i), batchStrides->Get(i));
    return checkRange(what, ref, extent.elements(), elementBytes(step.dtype()));
  }

  Status checkGemm(const fb::GemmStep &step) {
    if (step.accumulate() > fb::Accumulate::MAX ||
        step.dtype() != fb::DType::F32)
      return fail("has accumulate ", int(step.accumulate()), " and dtype ",
                  int(step.dtype()), ", only f32 is supported");
    constexpr uint32_t maxBatchDims = 4;
    if (length(step.batch()) > maxBatchDims)
      return fail("has ", length(step.batch()), " batch dimensions, allowed ",
                  maxBatchDims);
    if (!elementCount({step.m(), step.n(), step.k()}))
      return fail("has sizes ", step.m(), ", ", step.n(), ", ", step.k());
    PLAIT_RETURN_IF_ERROR(checkMatrix("A", step, step.a(), step.m(),
                                      step.a_row(), step.k(), step.a_col(),
                                      step.a_batch()));
    PLAIT_RETURN_IF_ERROR(checkMatrix("B", step, step.b(), step.k(),
                                      step.b_row(), step.n(), step.b_col(),
                                      step.b_batch()));
    PLAIT_RETURN_IF_ERROR(checkMatrix("C", step, step.c(), step.m(),
                                      step.c_row(), step.n(), 1,
                                      step.c_batch()));
    for (uint32_t i = 0; i < length(step.batch()); ++i)
      if (step.batch()->Get(i) > 1 && step.c_batch()->Get(i) == 0)
        return fail("writes all of batch dimension ", i, " to one place");
    if (step.m() > 1 && step.c_row() < step.n())
      return fail("has a row stride of C of ", step.c_row(),
                  " below n = ", step.n());
    return Status::success();
  }

  /// The number of ranks that take part.
  Result<int64_t> checkMembers(const fb::CollectiveStep &step) {
    if (step.axis() >= mesh.axes())
      return fail("is over axis ", int(step.axis()), ", there are ",
                  mesh.axes());
    uint32_t count = length(step.members());
    uint32_t size = mesh.size(step.axis());
    for (uint32_t i = 0; i < count; ++i)
      if (step.members()->Get(i) >= size ||
          (i && step.members()->Get(i) <= step.members()->Get(i - 1)))
        return fail("has member ", step.members()->Get(i), " at position ", i,
                    ", members must increase and stay below ", size);
    // Peers along the other axes all run this step, so none may be left out.
    if (step.axis() != 0 && count && count != size)
      return fail("has ", count, " members of an axis of size ", size,
                  ", only the pipeline axis has subgroups");
    return count ? count : size;
  }

  Status checkCollective(const fb::CollectiveStep &step) {
    if (step.kind() > fb::CollectiveKind::MAX ||
        step.reduction() > fb::Reduction::MAX)
      return fail("unknown collective ", int(step.kind()), " or reduction ",
                  int(step.reduction()));
    if (step.dtype() > fb::DType::MAX)
      return fail("unknown dtype ", int(step.dtype()));
    bool reduces = step.kind() == fb::CollectiveKind::AllReduce ||
                   step.kind() == fb::CollectiveKind::ReduceScatter;
    if (reduces && step.dtype() != fb::DType::F32)
      return fail("reduces ", fb::EnumNameDType(step.dtype()),
                  ", only f32 is supported");
    Result<int64_t> ranks = checkMembers(step);
    if (!ranks.ok())
      return ranks.status();
    bool gathers = step.kind() == fb::CollectiveKind::AllGather;
    bool exchanges = step.kind() == fb::CollectiveKind::AllToAll;
    bool scatters = step.kind() == fb::CollectiveKind::ReduceScatter;
    auto one = elementCount({step.outer(), step.chunk()});
    auto all = elementCount({step.outer(), *ranks, step.chunk()});
    uint64_t unit = elementBytes(step.dtype());
    PLAIT_RETURN_IF_ERROR(checkRange("input", step.input(),
                                     scatters || exchanges ? all : one, unit));
    PLAIT_RETURN_IF_ERROR(checkRange("output", step.output(),
                                     gathers || exchanges ? all : one, unit));
    bool same = step.input()->slot() == step.output()->slot() &&
                step.input()->offset() == step.output()->offset();
    if (same && step.kind() != fb::CollectiveKind::AllReduce)
      return fail(fb::EnumNameCollectiveKind(step.kind()),
                  " reads and writes the same place");
    return Status::success();
  }

  Status checkCopy(const fb::CopyStep &step) {
    PLAIT_RETURN_IF_ERROR(checkRange("source", step.source(), step.bytes(), 1));
    return checkRange("target", step.target(), step.bytes(), 1);
  }

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::Function &function;
  Mesh mesh;
};

} // namespace

std::optional<uint64_t> plan::elementCount(std::span<const int64_t> sizes) {
  uint64_t product = 1;
  for (int64_t size : sizes)
    if (size < 1 || __builtin_mul_overflow(product, size, &product) ||
        product > maxElements)
      return std::nullopt;
  return product;
}

std::optional<uint64_t>
plan::elementCount(std::initializer_list<int64_t> sizes) {
  return elementCount(std::span<const int64_t>(sizes.begin(), sizes.size()));
}

std::string plan::slotName(const fb::Function &function, uint32_t slot) {
  if (slot < length(function.slots()))
    return "slot '" + function.slots()->Get(slot)->str() + "'";
  return "slot " + std::to_string(slot);
}

Status plan::checkFunction(const fb::Plan &plan, const fb::Program &program,
                           const fb::Function &function) {
  FunctionChecker checker(plan, program, function);
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    if (Status status = checker.check(step); !status.ok())
      return fail("function '", function.name()->str(), "', step ", i, " (",
                  fb::EnumNameStepKind(step.step_type()),
                  "): ", status.message());
  }
  return Status::success();
}
