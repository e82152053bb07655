//===- Uses.cpp - Memory accesses of steps --------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a step reads and writes, for each kind. Everything that asks about
// memory asks here: the checker whether it is inside, streams whether they may
// overlap, the guard what to look at. Uses may be larger than what is touched,
// never smaller.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Uses.h"

#include "CheckSteps.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"

#include <algorithm>
#include <initializer_list>

using namespace plait;
using namespace plait::plan;

namespace {

/// The index of the last element of a strided box plus one, or nothing on
/// overflow, a size below 1 or a negative stride. `last` is the index of the
/// last element. Overflow and the bound are tested at each dimension; once
/// invalid, it stays so.
class Extent {
public:
  /// A stride of 0 repeats elements and adds nothing.
  Extent &add(int64_t size, int64_t stride) {
    int64_t step = 0;
    valid = valid && size >= 1 && stride >= 0 &&
            !__builtin_mul_overflow(size - 1, stride, &step) &&
            !__builtin_add_overflow(last, step, &last) &&
            last < static_cast<int64_t>(maxElements);
    return *this;
  }
  Extent &add(const flatbuffers::Vector<int64_t> *sizes,
              const flatbuffers::Vector<int64_t> *strides) {
    for (uint32_t i = 0; i < length(strides); ++i)
      add(sizes->Get(i), strides->Get(i));
    return *this;
  }
  std::optional<uint64_t> elements() const {
    return valid ? std::optional<uint64_t>(last + 1) : std::nullopt;
  }

private:
  int64_t last = 0;
  bool valid = true;
};

/// Outputs come last. A plan without sizes says nothing of them: then every
/// argument may be written, to the end of its memory. Types are not known, so
/// that the unit is a byte.
std::vector<Use> usesOf(const fb::KernelStep &step) {
  std::vector<Use> uses;
  uint32_t count = length(step.args());
  bool known = length(step.arg_bytes()) != 0;
  for (uint32_t i = 0; i < count; ++i) {
    Use use = {"argument", step.args()->Get(i), 0};
    use.toEnd = !known;
    use.writes = !known || i + step.outputs() >= count;
    if (known)
      use.count = step.arg_bytes()->Get(i);
    uses.push_back(use);
  }
  for (uint32_t i = 0; i < length(step.integers()); ++i)
    if (uint32_t index = step.integers()->Get(i); index < count)
      uses[index].isInteger = true;
  return uses;
}

/// Uses come in the order A, B, C, then what the epilogue has: the checker
/// relies on it.
std::vector<Use> usesOf(const fb::GemmStep &step) {
  uint64_t in = elementBytes(step.dtype()), out = elementBytes(step.c_dtype());
  // From the first to the last element of each matrix: what lies between its
  // rows counts as used, which can only find an overlap too many.
  auto a = Extent()
               .add(step.m(), step.a_row())
               .add(step.k(), step.a_col())
               .add(step.batch(), step.a_batch());
  auto b = Extent()
               .add(step.k(), step.b_row())
               .add(step.n(), step.b_col())
               .add(step.batch(), step.b_batch());
  auto c = Extent()
               .add(step.m(), step.c_row())
               .add(step.n(), 1)
               .add(step.batch(), step.c_batch());
  std::vector<Use> uses = {{"A", step.a(), a.elements(), in},
                           {"B", step.b(), b.elements(), in},
                           {"C", step.c(), c.elements(), out, true}};
  if (step.bias())
    uses.push_back({"bias", step.bias(), elementCount({step.n()}), out});
  bool reads = step.epilogue() == fb::Epilogue::GeluGradient;
  if (step.gelu_input() || reads)
    uses.push_back(
        {"GELU's input", step.gelu_input(), c.elements(), out, !reads});
  return uses;
}

/// Which rows are of which expert is not known: all of each tensor may be used.
std::vector<Use> usesOf(const fb::GroupedGemmStep &step) {
  uint64_t in = elementBytes(step.dtype()), out = elementBytes(step.c_dtype());
  // A size below 1 is checkGroupedGemm()'s to refuse.
  int64_t repeat = std::max<int64_t>(1, step.repeat());
  auto a = elementCount({step.rows() / repeat, step.k()});
  auto rows = elementCount({step.rows(), step.n()});
  auto matrices = elementCount({step.experts(), step.k(), step.n()});
  bool makes = step.kind() == fb::GroupedKind::Matrices;
  return {{"A", step.a(), a, in},
          {"B", step.b(), makes ? rows : matrices, in},
          {"ids", step.ids(), elementCount({step.rows()}), sizeof(int32_t)},
          {"C", step.c(), makes ? matrices : rows, out, true}};
}

/// One block or all of them, as the table of collectives says for each side.
std::vector<Use> usesOf(const RankGrid &mesh, const fb::CollectiveStep &step) {
  int64_t ranks =
      length(step.members()) ? length(step.members()) : mesh.size(step.axis());
  auto one = elementCount({step.outer(), step.middle(), step.chunk()});
  auto all = elementCount({step.outer(), ranks, step.middle(), step.chunk()});
  // An all-gather writes all blocks and reads one; a reduce-scatter the
  // reverse.
  const CollectiveFacts &facts = getFacts(kindOf(step));
  uint64_t unit = elementBytes(step.dtype());
  std::vector<Use> uses = {
      {"input", step.input(), facts.readsAll ? all : one, unit},
      {"output", step.output(), facts.writesAll ? all : one, unit, true}};
  if (const fb::RowSelection *rows = step.rows())
    uses.push_back(
        {"ids", rows->ids(),
         elementCount({ranks, step.chunk() / rows->width(), rows->choices()}),
         sizeof(int32_t)});
  return uses;
}

/// Gradients have the strides of their primals. Statistics are f32 whatever the
/// type.
std::vector<Use> usesOf(const fb::AttentionStep &step) {
  // [sequence, position, head] by their strides; elements of a head are
  // contiguous. What is too short is checkAttention()'s to refuse.
  auto rows = [&](int64_t positions, int64_t heads,
                  const flatbuffers::Vector<int64_t> *strides) {
    Extent extent;
    const int64_t sizes[] = {step.batch(), positions, heads};
    for (uint32_t i = 0; i < std::min(length(strides), 3u); ++i)
      extent.add(sizes[i], strides->Get(i));
    return extent.add(step.head_size(), 1).elements();
  };
  auto query = rows(step.queries(), step.heads(), step.q_strides());
  auto key = rows(step.keys(), step.kv_heads(), step.k_strides());
  auto value = rows(step.keys(), step.kv_heads(), step.v_strides());
  auto output = rows(step.queries(), step.heads(), step.out_strides());
  auto stats = elementCount({step.batch(), step.heads(), step.queries()});
  uint64_t unit = elementBytes(step.dtype()), wide = sizeof(float);
  // Backward reads the forward pass's result and statistics.
  bool forward = step.kind() == fb::AttentionKind::Forward;
  std::vector<Use> uses = {{"q", step.q(), query, unit},
                           {"k", step.k(), key, unit},
                           {"v", step.v(), value, unit},
                           {"o", step.out(), output, unit, forward},
                           {"stats", step.stats(), stats, wide, forward}};
  if (step.starts())
    uses.push_back({"starts", step.starts(),
                    elementCount({step.batch(), step.queries()}),
                    sizeof(int32_t)});
  if (step.sinks())
    uses.push_back({"sinks", step.sinks(), elementCount({step.heads()}), wide});
  if (const fb::AttentionDropout *dropout = step.dropout())
    uses.push_back({"dropout's keys", dropout->keys(),
                    elementCount({step.batch()}), sizeof(int32_t)});
  if (forward)
    return uses;
  uses.push_back({"d_out", step.d_out(), output, unit});
  uses.push_back({"d_q", step.d_q(), query, unit, true});
  uses.push_back({"d_k", step.d_k(), key, unit, true});
  uses.push_back({"d_v", step.d_v(), value, unit, true});
  return uses;
}

/// A message of the site, or those of all sites.
void addMessages(const RankGrid &mesh, const fb::OuterStep &step,
                 std::vector<Use> &uses) {
  auto words = int64_t(std::min(step.words(), uint64_t(INT64_MAX)));
  if (step.error())
    uses.push_back({"error", step.error(),
                    elementCount({int64_t(step.elements())}), sizeof(float),
                    true});
  if (step.mixed())
    uses.push_back(
        {"mixed", step.mixed(), elementCount({words}), sizeof(uint32_t), true});
  if (step.others())
    uses.push_back({"others", step.others(),
                    elementCount({mesh.sites(), words}), sizeof(uint32_t)});
}

/// A step reads what it changes, too, but for the copy. What a mix adds to is
/// both, the first one included. A norm is one number.
std::vector<Use> usesOf(const RankGrid &mesh, const fb::OuterStep &step) {
  auto count = elementCount({int64_t(step.elements())});
  auto one = elementCount({1});
  uint64_t unit = sizeof(float);
  using enum fb::OuterKind;
  auto isOf = [&](std::initializer_list<fb::OuterKind> kinds) {
    return std::ranges::count(kinds, step.kind()) > 0;
  };
  bool reads = isOf({Round, Mix, Part, Learn, Keep, Encode, Squares});
  bool writesAnchor = isOf({Update, Blend, Keep});
  bool readsMixed = isOf({Take, Blend, Learn, Join});
  std::vector<Use> uses;
  if (step.value() || step.kind() != Middle)
    uses.push_back({"value", step.value(), count, unit, !reads});
  if (step.anchor())
    uses.push_back({"anchor", step.anchor(), count, unit, writesAnchor});
  if (step.momentum())
    uses.push_back({"momentum", step.momentum(), count, unit, true});
  if (step.copy())
    uses.push_back({"copy", step.copy(), count, unit / 2, true});
  if (step.pieces()) {
    addMessages(mesh, step, uses);
    return uses;
  }
  if (step.others())
    uses.push_back({"others", step.others(),
                    step.kind() == Middle
                        ? elementCount({mesh.sites(), int64_t(step.elements())})
                    : step.kind() == Clip ? one
                                          : count,
                    unit});
  if (step.mixed())
    uses.push_back({"mixed", step.mixed(), step.kind() == Squares ? one : count,
                    unit, !readsMixed});
  if (step.correction())
    uses.push_back(
        {"correction", step.correction(), count, unit, step.kind() == Learn});
  return uses;
}

} // namespace

/// An unknown kind has no uses; the checker refuses it before.
std::vector<Use> plan::usesOf(const RankGrid &mesh, const fb::Step &step) {
  switch (step.step_type()) {
  case fb::StepKind::KernelStep:
    return ::usesOf(*step.step_as_KernelStep());
  case fb::StepKind::GemmStep:
    return ::usesOf(*step.step_as_GemmStep());
  case fb::StepKind::GroupedGemmStep:
    return ::usesOf(*step.step_as_GroupedGemmStep());
  case fb::StepKind::CollectiveStep:
    return ::usesOf(mesh, *step.step_as_CollectiveStep());
  case fb::StepKind::AttentionStep:
    return ::usesOf(*step.step_as_AttentionStep());
  case fb::StepKind::OuterStep:
    return ::usesOf(mesh, *step.step_as_OuterStep());
  // Copies and fills are in bytes.
  case fb::StepKind::CopyStep: {
    const fb::CopyStep &copy = *step.step_as_CopyStep();
    return {{"source", copy.source(), copy.bytes()},
            {"target", copy.target(), copy.bytes(), 1, true}};
  }
  case fb::StepKind::FillStep: {
    const fb::FillStep &fill = *step.step_as_FillStep();
    return {{"target", fill.target(), fill.bytes(), 1, true}};
  }
  default:
    return {};
  }
}

MemoryPlace plan::getPlaceOf(const fb::Step &step, const Use &use) {
  const fb::CopyStep *copy = asPlaceCopy(step);
  return copy && use.writes == leavesArena(copy->kind())
             ? getOtherPlace(copy->kind())
             : MemoryPlace::Arena;
}

bool plan::isInside(const fb::Program &program,
                    std::optional<MemoryPlace> place, uint64_t offset,
                    uint64_t bytes) {
  MemoryPlace found = getMemoryPlace(offset);
  if (found != place.value_or(found) || size_t(found) >= memoryPlaceCount)
    return false;
  uint64_t limit = getPlaceBytes(program, found);
  uint64_t begin = offset - getBegin(found);
  return begin <= limit && bytes <= limit - begin;
}

std::string plan::describe(const fb::Program &program,
                           std::optional<MemoryPlace> place) {
  std::string text;
  for (const MemoryPlaceFacts &facts : memoryPlaces) {
    uint64_t bytes = getPlaceBytes(program, facts.place);
    if (place ? facts.place == *place : bytes || text.empty())
      text += (text.empty() ? "the " : " or the ") + std::to_string(bytes) +
              " bytes of " + std::string(facts.words);
  }
  return text;
}

/// Slots become addresses by the action's bindings.
ByteRange plan::rangeOf(const fb::Program &program, const fb::Action &action,
                        const Use &use) {
  int32_t slot = use.ref->slot();
  if (slot < 0)
    return {use.ref->offset(), use.end(program.arena_bytes()), use.writes};
  const fb::Function &function = *program.functions()->Get(action.function());
  uint64_t base = action.bindings()->Get(slot);
  return {base + use.ref->offset(),
          base + use.end(function.slot_bytes()->Get(slot)), use.writes};
}
