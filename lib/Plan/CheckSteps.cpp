//===- CheckSteps.cpp - Everything in a function is in range --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is checked in two parts. What is particular to its kind is looked at
// here by hand; that the bytes it touches are inside of the arena or their slot
// follows for all kinds from usesOf(), which the runtime derives its waits from
// as well. A use that the checker has seen is a use that the runtime knows of.
//
//===----------------------------------------------------------------------===//

#include "CheckSteps.h"

#include "plait/Plan/Attention.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Uses.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

using namespace plait;
using namespace plait::plan;

namespace {

/// Holds what steps refer to; a step's own numbers are all that changes.
class FunctionChecker {
public:
  FunctionChecker(const fb::Plan &plan, const fb::Program &program,
                  const fb::Function &function,
                  std::vector<std::optional<MemoryPlace>> &slots)
      : plan(plan), program(program), function(function), slots(slots),
        mesh(plan) {}

  /// checkKind() comes first: usesOf() relies on a known kind, and on lists of
  /// a GEMM of equal length.
  Status check(const fb::Step &step) {
    if (step.location() && step.location() >= length(plan.locations()))
      return fail("location ", step.location(), ", there are ",
                  length(plan.locations()));
    PLAIT_RETURN_IF_ERROR(checkKind(step));
    // From here on the step is looked at as bytes.
    std::vector<Use> uses = usesOf(mesh, step);
    for (const Use &use : uses)
      PLAIT_RETURN_IF_ERROR(checkUse(use, getPlaceOf(step, use)));
    if (step.step_as_GroupedGemmStep())
      return checkRead(uses);
    return step.step_as_GemmStep() ? checkApart(uses) : Status::success();
  }

private:
  /// All but where the operands are.
  Status checkKind(const fb::Step &step) {
    switch (step.step_type()) {
    case fb::StepKind::KernelStep:
      return checkKernel(*step.step_as_KernelStep());
    case fb::StepKind::GemmStep:
      return checkGemm(*step.step_as_GemmStep());
    case fb::StepKind::GroupedGemmStep:
      return checkGroupedGemm(*step.step_as_GroupedGemmStep());
    case fb::StepKind::CollectiveStep:
      return checkCollective(*step.step_as_CollectiveStep());
    case fb::StepKind::AttentionStep:
      return checkAttention(mesh, *step.step_as_AttentionStep());
    case fb::StepKind::CopyStep:
      if (auto kind = step.step_as_CopyStep()->kind(); kind > fb::CopyKind::MAX)
        return fail("unknown kind of copy ", int(kind));
      return Status::success();
    case fb::StepKind::FillStep:
      return Status::success();
    case fb::StepKind::OuterStep:
      return checkOuter(*step.step_as_OuterStep());
    default:
      return fail("unknown kind ", int(step.step_type()));
    }
  }

  /// Each kind has the operands that its formula names, which lie in the arena.
  Status checkOuter(const fb::OuterStep &step) {
    if (step.kind() > fb::OuterKind::MAX)
      return fail("unknown kind ", int(step.kind()));
    using enum fb::OuterKind;
    auto isOf = [&](std::initializer_list<fb::OuterKind> kinds) {
      return std::ranges::count(kinds, step.kind()) > 0;
    };
    bool updates = isOf({Update, Blend}), mixes = isOf({Mix});
    bool anchors = updates || isOf({Part, Difference, Join, Keep});
    bool hasMessages = isOf({Encode, Decode});
    bool hasMixed =
        isOf({Mix, Middle, Part, Blend, Take, Learn, Join, Encode, Squares});
    if (!step.value() != isOf({Middle}) || !step.anchor() == anchors ||
        !step.copy() == isOf({Round}) ||
        !step.others() == isOf({Mix, Middle, Decode, Clip}) ||
        !step.mixed() == hasMixed || !step.exchange() == mixes ||
        (step.momentum() && !updates) ||
        !step.correction() == isOf({Correct, Learn}) ||
        (step.error() && !isOf({Encode})) || !step.words() == hasMessages ||
        !step.pieces() == hasMessages || !step.copies() == isOf({Squares}))
      return fail("has other operands than ",
                  fb::EnumNameOuterKind(step.kind()), " names");
    for (const fb::Ref *ref :
         {step.value(), step.anchor(), step.momentum(), step.copy(),
          step.others(), step.mixed(), step.correction(), step.error()})
      if (ref && ref->slot() != -1)
        return fail("has an operand in a slot");
    return step.pieces() ? checkPieces(step) : Status::success();
  }

  /// One behind the other, inside of the step's elements.
  Status checkPieces(const fb::OuterStep &step) {
    const auto &pieces = *step.pieces();
    uint64_t last = 0;
    for (uint32_t i = 0; i + 1 < pieces.size(); i += 2) {
      uint64_t begin = pieces[i], elements = pieces[i + 1];
      if (begin < last || begin > step.elements() || !elements ||
          elements > step.elements() - begin)
        return fail("has a piece of ", elements, " elements at ", begin,
                    ", behind ", last, " of ", step.elements());
      last = begin + elements;
    }
    return pieces.size() && pieces.size() % 2 == 0
               ? Status::success()
               : fail("has ", pieces.size(), " numbers of pieces");
  }

  /// An epilogue works in C while others of its operands are still read. Uses 0
  /// to 2 are A, B and C, what follows is the epilogue's. Slots are taken to be
  /// apart: which bytes they are bound to is known at each call only.
  Status checkApart(const std::vector<Use> &uses) {
    for (size_t i = 3; i < uses.size(); ++i)
      PLAIT_RETURN_IF_ERROR(checkApart(uses[i], uses[2]));
    return Status::success();
  }
  Status checkApart(const Use &use, const Use &c) {
    bool apart = use.ref->slot() != c.ref->slot() ||
                 use.ref->offset() >= c.end(0) || c.ref->offset() >= use.end(0);
    return apart ? Status::success()
                 : fail(use.what, " at byte ", use.ref->offset(),
                        " overlaps C at byte ", c.ref->offset());
  }

  /// A grouped GEMM writes C while it reads all else.
  Status checkRead(const std::vector<Use> &uses) {
    const Use &c = uses.back();
    for (const Use &use : uses)
      if (&use != &c)
        PLAIT_RETURN_IF_ERROR(checkApart(use, c));
    return Status::success();
  }

  /// Checks that what is used is inside the place that it has to be in, or the
  /// slot, which has to be bound there.
  Status checkUse(const Use &use, MemoryPlace place) {
    const auto &[what, ref, count, unit, writes, toEnd, isInteger] = use;
    if (!ref)
      return fail(what, " is missing");
    if (ref->slot() < -1 ||
        ref->slot() >= int64_t(length(function.slot_bytes())))
      return fail(what, " is in slot ", ref->slot(), " of ",
                  length(function.slot_bytes()));
    if (!count)
      return fail(what, " has an impossible size");
    // Elements begin at multiples of their size, as the kernels' loads do.
    if (ref->offset() % unit)
      return fail(what, " at byte ", ref->offset(), " is not aligned to ",
                  unit);
    // Counts are bounded, so that their product with the unit is
    // (CheckSteps.h).
    uint64_t bytes = *count * unit;
    // -1 stands for no slot: parameters, constants, the library's workspace.
    if (ref->slot() == -1)
      return isInside(program, place, ref->offset(), bytes)
                 ? Status::success()
                 : fail(what, " of ", bytes, " bytes at ", ref->offset(),
                        " ends beyond ", describe(program, place));
    uint64_t limit = function.slot_bytes()->Get(ref->slot());
    if (ref->offset() > limit || bytes > limit - ref->offset())
      return fail(what, " of ", bytes, " bytes at ", ref->offset(),
                  " ends beyond the ", limit, " bytes of ",
                  slotName(function, ref->slot()));
    std::optional<MemoryPlace> &known = slots[ref->slot()];
    if (known && known != place)
      return fail(
          what, " is in ", slotName(function, ref->slot()),
          ", of which copies to or from another place use one end alone");
    known = place;
    return Status::success();
  }

  /// A kernel's code is not looked at: the proof does that (docs/Proof.md).
  /// Sizes of arguments may be left out, and are then taken to reach to the
  /// end.
  Status checkKernel(const fb::KernelStep &step) {
    if (step.kernel() >= length(plan.kernels()))
      return fail("kernel ", step.kernel(), ", there are ",
                  length(plan.kernels()));
    // The runtime cuts [0, extent) into ranges.
    if (step.extent() < 0 || step.grain() < 0)
      return fail("extent ", step.extent(), " and grain ", step.grain(),
                  " must not be negative");
    uint32_t args = length(step.args()), sizes = length(step.arg_bytes());
    if (sizes && sizes != args)
      return fail("has sizes of ", sizes, " of ", args, " arguments");
    if (step.outputs() > args)
      return fail("writes ", step.outputs(), " of ", args, " arguments");
    for (uint32_t i = 0; i < length(step.integers()); ++i)
      if (uint32_t index = step.integers()->Get(i); index >= args)
        return fail("has integers in argument ", index, " of ", args);
    for (uint32_t i = 0; i < length(step.scalars()); ++i)
      PLAIT_RETURN_IF_ERROR(checkAxis(mesh, *step.scalars()->Get(i),
                                      "scalar " + std::to_string(i)));
    return Status::success();
  }

  /// One matrix of a GEMM: `rows` x `columns` with a batch in front. One of the
  /// strides is 1, and rows (or columns) do not overlap, or the library could
  /// not take the matrix as it is. A matrix of one row may have any row stride.
  Status checkMatrix(const char *what, const fb::GemmStep &step, int64_t rows,
                     int64_t rowStride, int64_t columns, int64_t columnStride,
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
    return Status::success();
  }

  /// 1. Types: sums may be wider than what is multiplied, never narrower.
  /// 2. Sizes, whose product bounds the work.
  /// 3. The three matrices.
  /// 4. C is written once: no two elements of it share an address. Its columns
  ///    are next to each other, so that its rows are apart (3).
  /// 5. The epilogue.
  Status checkGemm(const fb::GemmStep &step) {
    if (step.accumulate() > fb::Accumulate::MAX)
      return fail("unknown accumulate ", int(step.accumulate()));
    // 1. Types.
    PLAIT_RETURN_IF_ERROR(checkTypes(step.dtype(), step.c_dtype()));
    // 2. Sizes.
    // oneDNN knows tensors of 12 dimensions, and two are the matrix.
    constexpr uint32_t maxBatchDims = 10;
    if (length(step.batch()) > maxBatchDims)
      return fail("has ", length(step.batch()), " batch dimensions, allowed ",
                  maxBatchDims);
    if (!elementCount({step.m(), step.n(), step.k()}))
      return fail("has sizes ", step.m(), ", ", step.n(), ", ", step.k());
    // 3. Matrices.
    PLAIT_RETURN_IF_ERROR(checkMatrix("A", step, step.m(), step.a_row(),
                                      step.k(), step.a_col(), step.a_batch()));
    PLAIT_RETURN_IF_ERROR(checkMatrix("B", step, step.k(), step.b_row(),
                                      step.n(), step.b_col(), step.b_batch()));
    PLAIT_RETURN_IF_ERROR(checkMatrix("C", step, step.m(), step.c_row(),
                                      step.n(), 1, step.c_batch()));
    // 4. C.
    for (uint32_t i = 0; i < length(step.batch()); ++i)
      // Operands may be repeated over a batch dimension; results would race.
      if (step.batch()->Get(i) > 1 && step.c_batch()->Get(i) == 0)
        return fail("writes all of batch dimension ", i, " to one place");
    // 5. The epilogue.
    return checkEpilogue(step);
  }

  Status checkTypes(fb::DType dtype, fb::DType sum) {
    bool floats = dtype == fb::DType::F32 || dtype == fb::DType::BF16;
    if (floats && (sum == fb::DType::F32 || sum == dtype))
      return Status::success();
    return fail("has dtype ", int(dtype), " and c_dtype ", int(sum),
                ", allowed are f32 or bf16, and C in f32 or the same");
  }

  /// Sizes whose products are too large are found with the uses.
  Status checkGroupedGemm(const fb::GroupedGemmStep &step) {
    if (step.kind() > fb::GroupedKind::MAX ||
        step.accumulate() > fb::Accumulate::MAX)
      return fail("unknown kind ", int(step.kind()), " or accumulate ",
                  int(step.accumulate()));
    PLAIT_RETURN_IF_ERROR(checkTypes(step.dtype(), step.c_dtype()));
    if (step.rows() < 1 || step.repeat() < 1 || step.rows() % step.repeat())
      return fail("has ", step.rows(), " rows, expected a multiple of ",
                  step.repeat());
    // What the library multiplies at once is counted in 32 bits (ids are, too).
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    if (step.rows() > most || step.experts() > most)
      return fail("has ", step.rows(), " rows and ", step.experts(),
                  " experts, allowed are ", most);
    if (step.limit() < 0)
      return fail("has a limit of ", step.limit());
    for (uint32_t i = 0; i < length(step.first_expert()); ++i)
      PLAIT_RETURN_IF_ERROR(
          checkAxis(mesh, *step.first_expert()->Get(i), "first expert"));
    return Status::success();
  }

  /// Operands are there exactly where the epilogue has them. C is overwritten,
  /// and the batch is one GEMM, as the libraries of GPUs have it.
  Status checkEpilogue(const fb::GemmStep &step) {
    fb::Epilogue kind = step.epilogue();
    if (kind > fb::Epilogue::MAX)
      return fail("unknown epilogue ", int(kind));
    std::string name = fb::EnumNameEpilogue(kind);
    bool biased = kind == fb::Epilogue::Bias || kind == fb::Epilogue::BiasGelu;
    if (biased != (step.bias() != nullptr))
      return fail("has epilogue ", name,
                  biased ? " and no bias" : " and a bias");
    bool plain = kind == fb::Epilogue::None || kind == fb::Epilogue::Bias;
    if (plain && step.gelu_input())
      return fail("has epilogue ", name, " and an input of GELU");
    if (kind == fb::Epilogue::None)
      return Status::success();
    if (length(step.batch()))
      return fail("has epilogue ", name, " and ", length(step.batch()),
                  " batch dimensions, allowed are none");
    if (step.accumulate() != fb::Accumulate::Overwrite)
      return fail("has epilogue ", name, " and adds to C");
    return Status::success();
  }

  /// Who takes part.
  Status checkMembers(const fb::CollectiveStep &step) {
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
    return Status::success();
  }

  /// The abilities of a kind are one row of a table (Support/Collectives.h);
  /// nothing here names a kind.
  Status checkCollective(const fb::CollectiveStep &step) {
    if (step.kind() >= std::size(collectives) ||
        step.reduction() > fb::Reduction::MAX)
      return fail("unknown collective ", int(step.kind()), " or reduction ",
                  int(step.reduction()));
    if (step.dtype() > fb::DType::MAX)
      return fail("unknown dtype ", int(step.dtype()));
    // Blocks in two dimensions are what all-to-alls alone exchange.
    const CollectiveFacts &facts = getFacts(kindOf(step));
    if (facts.reduces && step.dtype() == fb::DType::I32)
      return fail("reduces ", fb::EnumNameDType(step.dtype()),
                  ", only f32 and bf16 are supported");
    if (!facts.exchanges && (step.middle() != 1 || step.splits_inner()))
      return fail(facts.name, " has blocks with a middle of ", step.middle(),
                  ", only an all-to-all cuts two dimensions");
    PLAIT_RETURN_IF_ERROR(checkMembers(step));
    // The same memory is fine for some kinds; partial overlap is the compiler's
    // to avoid.
    bool same = step.input() && step.output() &&
                step.input()->slot() == step.output()->slot() &&
                step.input()->offset() == step.output()->offset();
    if (same && !facts.worksInPlace)
      return fail(facts.name, " reads and writes the same place");
    return step.rows() ? checkRows(step) : Status::success();
  }

  /// Blocks of whole rows, of all ranks along an axis whose ranks run one
  /// program; both ends of a message count its rows by the ids.
  Status checkRows(const fb::CollectiveStep &step) {
    const fb::RowSelection &rows = *step.rows();
    const CollectiveFacts &facts = getFacts(kindOf(step));
    if (facts.readsAll == facts.writesAll || step.axis() == 0 ||
        step.outer() != 1)
      return fail(facts.name, " over axis ", int(step.axis()), " with outer ",
                  step.outer(),
                  " has rows; expected an all-gather or a "
                  "reduce-scatter over another axis than 0 with outer 1");
    if (rows.width() < 1 || step.chunk() % rows.width())
      return fail("has rows of ", rows.width(), " elements in blocks of ",
                  step.chunk(), ", expected a divisor");
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    if (rows.choices() < 1 || (facts.reduces && rows.choices() > 1) ||
        rows.experts() < 1 || rows.experts() > most / mesh.size(step.axis()))
      return fail("has rows with ", rows.choices(), " choices and ",
                  rows.experts(), " experts a rank, expected 1",
                  facts.reduces ? "" : " or more", " and 1 to ",
                  most / mesh.size(step.axis()));
    if (!rows.ids())
      return fail("has rows without ids");
    if (step.chunk() / rows.width() > most)
      return fail("has blocks of ", step.chunk() / rows.width(),
                  " rows, at most ", most, " are supported");
    return Status::success();
  }

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::Function &function;
  std::vector<std::optional<MemoryPlace>> &slots;
  RankGrid mesh;
};

} // namespace

/// Overflow and the bound are tested at each factor.
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
std::optional<uint64_t>
plan::elementCount(const flatbuffers::Vector<int64_t> &sizes) {
  return elementCount(std::span<const int64_t>(sizes.data(), sizes.size()));
}

/// Names are optional in a plan.
std::string plan::slotName(const fb::Function &function, uint32_t slot) {
  if (slot < length(function.slots()))
    return "slot '" + function.slots()->Get(slot)->str() + "'";
  return "slot " + std::to_string(slot);
}

/// Once for each function, whatever the number of its calls.
Status plan::checkFunction(const fb::Plan &plan, const fb::Program &program,
                           const fb::Function &function,
                           std::vector<std::optional<MemoryPlace>> &slots) {
  slots.assign(length(function.slot_bytes()), std::nullopt);
  FunctionChecker checker(plan, program, function, slots);
  for (uint32_t i = 0; i < length(function.steps()); ++i) {
    const fb::Step &step = *function.steps()->Get(i);
    if (Status status = checker.check(step); !status.ok())
      return fail("function '", function.name()->str(), "', step ", i, " (",
                  fb::EnumNameStepKind(step.step_type()),
                  "): ", status.message());
  }
  return Status::success();
}
