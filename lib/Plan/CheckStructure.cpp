//===- CheckStructure.cpp - Everything is in range ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// After this check the runtime indexes, dereferences and multiplies without
// looking. Sizes are non-negative and every product of sizes used below was
// formed with overflow checks.
//
// The order matters: the head first (CheckHead.cpp), as everything else is
// compared with it; of a program the sizes of its arena before anything is
// placed in it; its functions before the actions that call them. What steps are
// is CheckSteps.cpp's. Messages name the program, the action and the offending
// number with its bound, since they are all that the writer of a broken plan
// gets to see. Linear in the plan.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Check.h"

#include "plait/Configuration/Compressors.h"
#include "plait/Configuration/Mesh.h"
#include "plait/Plan/FloatInputs.h"
#include "plait/Plan/InputWords.h"
#include "plait/Plan/Masters.h"
#include "plait/Plan/Options.h"

#include "CheckSteps.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Metrics.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Sites.h"

#include <algorithm>
#include <set>

using namespace plait;
using namespace plait::plan;

namespace {

/// Cache lines, and what vector loads of generated kernels may rely on.
constexpr uint64_t alignment = 64;
/// The parts of one program except its functions. Everything is placed by
/// place(): one function decides what "inside" means.
class ProgramChecker {
public:
  ProgramChecker(const fb::Plan &plan, const fb::Program &program)
      : plan(plan), program(program) {}

  /// Stops at the first thing that is wrong.
  Status check() {
    PLAIT_RETURN_IF_ERROR(checkPlacements());
    for (uint32_t i = 0; i < length(program.shards()); ++i)
      PLAIT_RETURN_IF_ERROR(checkShard(*program.shards()->Get(i)));
    for (uint32_t i = 0; i < length(program.regions()); ++i)
      PLAIT_RETURN_IF_ERROR(checkRegion(*program.regions()->Get(i)));
    for (uint32_t i = 0; i < length(program.functions()); ++i)
      PLAIT_RETURN_IF_ERROR(checkFunction(
          plan, program, *program.functions()->Get(i), slots.emplace_back()));
    for (uint32_t i = 0; i < length(program.actions()); ++i)
      if (Status status = checkAction(*program.actions()->Get(i)); !status.ok())
        return fail("action ", i, ": ", status.message());
    return Status::success();
  }

private:
  /// A range of a place, or of any, that begins at a multiple of `unit`.
  Status place(const char *what, uint64_t offset, uint64_t bytes,
               std::optional<MemoryPlace> in = MemoryPlace::Arena,
               uint64_t unit = alignment) {
    if (offset % unit)
      return fail(what, " at byte ", offset, " is not aligned to ", unit);
    if (!isInside(program, in, offset, bytes))
      return fail(what, " of ", bytes, " bytes at ", offset, " ends beyond ",
                  describe(program, in));
    return Status::success();
  }

  /// Checks what a program has one of.
  Status checkPlacements() {
    // Offsets and sizes add up without overflow below this.
    for (const MemoryPlaceFacts &facts : memoryPlaces)
      if (uint64_t bytes = getPlaceBytes(program, facts.place);
          bytes > placeLimit)
        return fail(facts.words, " of ", bytes, " bytes is too large");
    constexpr auto count = [](auto scalar) { return uint64_t(scalar) * 4; };
    PLAIT_RETURN_IF_ERROR(
        place("scalars", program.scalars(), count(countScalars(plan))));
    PLAIT_RETURN_IF_ERROR(
        place("metrics", program.metrics(), countMetrics(plan) * 4));
    // The libraries of GPUs want their memory aligned like this.
    constexpr uint64_t libraryAlignment = 256;
    PLAIT_RETURN_IF_ERROR(place("library workspace",
                                program.library_workspace(),
                                program.library_workspace_bytes(),
                                MemoryPlace::Arena, libraryAlignment));
    for (uint32_t i = 0; i < length(program.constants()); ++i)
      PLAIT_RETURN_IF_ERROR(checkConstant(*program.constants()->Get(i)));
    for (uint32_t i = 0; i < length(program.inputs()); ++i)
      PLAIT_RETURN_IF_ERROR(checkInput(*program.inputs()->Get(i)));
    return Status::success();
  }

  /// All of a table, or a part of `bytes` whose beginning depends on the rank:
  /// the part of the last rank ends inside as well.
  Status checkConstant(const fb::Constant &constant) {
    if (constant.data() >= length(plan.data()))
      return fail("constant is table ", constant.data(), " of ",
                  length(plan.data()));
    uint64_t all = plan.data()->Get(constant.data())->bytes()->size();
    // A part has both a size and a beginning, the whole table neither.
    if (constant.bytes() > all ||
        !constant.bytes() != !length(constant.begin()))
      return fail("constant has ", all, " bytes, of which a rank takes ",
                  constant.bytes(), " from the sum of ",
                  length(constant.begin()), " numbers on");
    PLAIT_RETURN_IF_ERROR(checkRange(RankGrid(plan), constant.begin(),
                                     int64_t(all - constant.bytes()),
                                     "begin of constant"));
    return place("constant", constant.offset(),
                 constant.bytes() ? constant.bytes() : all);
  }

  /// Shapes follow from the batch: an input is what the plan feeds, cut over
  /// cp.
  Status checkInput(const fb::Input &input) {
    // Enumerations of a file may have any value: FlatBuffers does not look.
    if (input.kind() > fb::InputKind::MAX)
      return fail("input has unknown kind ", int(input.kind()));
    // Ranks along cp share the positions of a sequence, unless they want all of
    // them, but not its key or its context.
    bool isOfSequences = input.kind() == fb::InputKind::Keys ||
                         input.kind() == fb::InputKind::Context;
    int64_t sharing =
        isOfSequences ? 1 : RankGrid::partsOf(plan, Splits::Sequence);
    auto columns = int64_t(countColumns(plan, input));
    if (columns == 0)
      return fail("input is of float input ", input.float_input(),
                  ", which the plan does not have so");
    if (input.microbatches() != plan.microbatches() ||
        input.rows() != plan.micro_batch() ||
        (int64_t(input.columns()) * sharing != columns &&
         int64_t(input.columns()) != columns))
      return fail("input is ", input.microbatches(), " x ", input.rows(), " x ",
                  input.columns(), " on each of ", sharing,
                  " ranks, the plan feeds ", plan.microbatches(), " x ",
                  plan.micro_batch(), " x ", columns);
    // Tokens are numbers of 32 bits.
    if (input.sorted() && (input.kind() != fb::InputKind::Tokens ||
                           input.sorted() >= uint32_t(INT32_MAX)))
      return fail("input of kind ", int(input.kind()), " is sorted by ",
                  input.sorted(),
                  " tokens, expected tokens and fewer than 2147483647");
    auto elements = elementCount(
        {int64_t(input.microbatches()), input.rows(), input.columns()});
    auto all = elementCount({int64_t(input.microbatches()),
                             elements ? int64_t(countWords(input)) : 0});
    return place("input", input.offset(),
                 elements && all ? *all * 4 : INT64_MAX / 2);
  }

  /// Sizes of what a shard places: the weight, the copy that is computed with,
  /// the gradient, each slot of the optimizer's state. Which of them are
  /// divided depends on precision and ZeRO stage.
  Status checkShard(const fb::Shard &shard) {
    if (shard.parameter() >= plan.parameters()->size())
      return fail("shard of parameter ", shard.parameter(), ", there are ",
                  plan.parameters()->size());
    const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
    std::string name = "shard of '" + parameter.name()->str() + "'";
    uint32_t rank = parameter.shape()->size();
    auto elements = elementCount(*shard.local_shape());
    if (shard.dims()->size() != rank || shard.local_shape()->size() != rank ||
        !elements)
      return fail(name, " does not have ", rank, " proper dimensions");
    // What follows computes blocks from the axes, which have to exist.
    PLAIT_RETURN_IF_ERROR(checkSharding(*shard.dims(), name));
    const fb::Division *division = shard.division();
    if (division && plan.zero() < 1)
      return fail(name, " is divided, but the plan's zero is ",
                  int(plan.zero()));
    if (division) {
      PLAIT_RETURN_IF_ERROR(checkDivision(shard, *division, *elements, name));
      PLAIT_RETURN_IF_ERROR(place(("reduced gradient of " + name).c_str(),
                                  division->reduced(),
                                  division->elements() * 4));
    }
    PLAIT_RETURN_IF_ERROR(checkState(shard, rank, name));
    // A value with a copy is part of the optimizer's state, divided as that is.
    bool isMaster = shard.compute_dtype() == fb::DType::BF16;
    uint64_t gradient = countElements(RankGrid(plan), *parameter.shape(),
                                      dimsOf(shard, /*isDivided=*/true));
    uint64_t state = division ? division->elements() : gradient;
    if (!isRounded(shard))
      PLAIT_RETURN_IF_ERROR(place(name.c_str(), shard.weight(),
                                  (isMaster ? state : *elements) * 4,
                                  std::nullopt));
    else if (!parameter.frozen())
      return fail(name, " is trained, but has no master of its bf16 copy");
    // Frozen parameters have copies as well, but nothing of what follows.
    PLAIT_RETURN_IF_ERROR(checkComputeCopy(shard, *elements, name));
    if (parameter.frozen())
      return shard.division() || shard.state_dims()
                 ? fail(name, " is frozen and divided")
                 : Status::success();
    PLAIT_RETURN_IF_ERROR(place(name.c_str(), shard.gradient(), gradient * 4));
    if (const auto *slots = shard.state())
      for (const fb::StateSlot *slot : *slots)
        PLAIT_RETURN_IF_ERROR(checkSlot(shard, *slot, *elements, state,
                                        slot->name()->str() + " of " + name));
    return Status::success();
  }

  bool addsUpRows() const {
    return std::ranges::any_of(*plan.mesh(), [](const fb::MeshAxis *axis) {
      return axis->name()->string_view() == getFacts(Axis::DP).name &&
             axis->size() > 1;
    });
  }

  /// A rank has `state` elements of a slot that is not whole, or as many as the
  /// slot says itself.
  Status checkSlot(const fb::Shard &shard, const fb::StateSlot &slot,
                   uint64_t elements, uint64_t state, const std::string &name) {
    if (slot.own_axis() >= length(plan.mesh()))
      return fail(name, " differs along axis ", int(slot.own_axis()),
                  ", there are ", length(plan.mesh()));
    const fb::Division *division = shard.division();
    if (const fb::Division *own = slot.division()) {
      if (division || shard.state_dims() || slot.own_axis() ||
          slot.like_weight())
        return fail(name, " is divided by itself, but ",
                    slot.own_axis()      ? "ranks each have another one"
                    : slot.like_weight() ? "is divided as the weight is"
                                         : "so is all of its shard's state");
      PLAIT_RETURN_IF_ERROR(checkDivision(shard, *own, elements, name));
      return place(name.c_str(), slot.offset(), own->elements() * 4,
                   std::nullopt);
    }
    if (slot.name()->string_view() == kSumErrorState && addsUpRows())
      return fail(name, " is whole, but replicas add up rows of sums");
    bool isMaster = shard.compute_dtype() == fb::DType::BF16;
    // State that each rank has of its own no rank divides with those.
    const fb::Parameter &parameter = *plan.parameters()->Get(shard.parameter());
    auto count = [&](bool isDivided) -> uint64_t {
      return countElements(RankGrid(plan), *parameter.shape(),
                           {dimsOf(shard, isDivided), slot.own_axis()});
    };
    if (!division) {
      elements = count(/*isDivided=*/false);
      state = count(/*isDivided=*/true);
    }
    bool isOwn = division && divides(*division, slot.own_axis());
    bool isWhole = isOwn || (slot.like_weight() && !isMaster);
    return place(name.c_str(), slot.offset(), (isWhole ? elements : state) * 4,
                 std::nullopt);
  }

  /// Blocks of the state lie inside of those of the parameter.
  Status checkState(const fb::Shard &shard, uint32_t rank,
                    const std::string &name) {
    if (!shard.state_dims())
      return Status::success();
    // ZeRO 2 divides by blocks, ZeRO 1 by ranges of a pack: a shard has one of
    // them.
    std::string state = "state of " + name;
    if (plan.zero() < 2)
      return fail(state, " is divided, but the plan's zero is ",
                  int(plan.zero()));
    if (shard.division())
      return fail(state, " is divided twice");
    if (shard.state_dims()->size() != rank)
      return fail(state, " has ", shard.state_dims()->size(),
                  " dimensions, expected ", rank);
    PLAIT_RETURN_IF_ERROR(checkSharding(*shard.state_dims(), state));
    // The state's axes begin with those of the parameter: each of its blocks is
    // cut further, by one rank of those that hold it.
    for (uint32_t dim = 0; dim < rank; ++dim) {
      const auto *outer = shard.dims()->Get(dim)->axes();
      const auto *all = shard.state_dims()->Get(dim)->axes();
      bool inside = length(outer) <= length(all);
      for (uint32_t i = 0; inside && i < length(outer); ++i)
        inside = outer->Get(i) == all->Get(i);
      if (!inside)
        return fail(state, " does not split the blocks of dimension ", dim);
    }
    return Status::success();
  }

  /// A pack is as many times the part of one rank as its axes have ranks; the
  /// parameter's elements lie inside of it. No axis may split the parameter as
  /// well: ranks would then divide what they do not share.
  Status checkDivision(const fb::Shard &shard, const fb::Division &division,
                       uint64_t elements, const std::string &name) {
    std::vector<int64_t> parts = {int64_t(division.elements())};
    std::set<uint32_t> seen;
    for (uint32_t axis : axesOf(division)) {
      PLAIT_RETURN_IF_ERROR(checkDividingAxis(shard, axis, name));
      if (!seen.insert(axis).second)
        return fail(name, " is divided over axis ", axis, " twice");
      parts.push_back(plan.mesh()->Get(axis)->size());
    }
    // Bounded by the arena before it is turned into bytes.
    if (division.elements() < 1 || division.elements() > program.arena_bytes())
      return fail("a rank's part of ", name, " has ", division.elements(),
                  " elements, allowed are 1 to ", program.arena_bytes());
    // None where no arena could hold the gradients of the pack.
    uint64_t pack = elementCount(parts).value_or(0);
    if (division.begin() > pack || elements > pack - division.begin())
      return fail(name, " has ", elements, " elements from element ",
                  division.begin(), " on of a pack of ", pack);
    return Status::success();
  }

  /// Axis 0 picks the program: its ranks share no parameter.
  Status checkDividingAxis(const fb::Shard &shard, uint32_t axis,
                           const std::string &name) {
    if (axis == 0 || axis >= plan.mesh()->size())
      return fail(name, " is divided over axis ", axis, ", allowed are 1 to ",
                  plan.mesh()->size() - 1);
    for (const fb::DimSharding *dim : *shard.dims())
      for (uint32_t i = 0; i < length(dim->axes()); ++i)
        if (dim->axes()->Get(i) == axis)
          return fail(name, " is split and divided over axis ", axis);
    return Status::success();
  }

  /// The copy is in bf16, so half as many bytes; whole on every rank.
  Status checkComputeCopy(const fb::Shard &shard, uint64_t elements,
                          const std::string &name) {
    if (shard.compute_dtype() == fb::DType::F32)
      return Status::success();
    if (shard.compute_dtype() != fb::DType::BF16)
      return fail(name, " computes in dtype ", int(shard.compute_dtype()),
                  ", allowed are f32 and bf16");
    if (!isMixed(plan))
      return fail(name, " has a bf16 copy, but the plan's precision is fp32");
    std::string copy = "compute copy of " + name;
    return place(copy.c_str(), shard.compute_weight(), elements * 2);
  }

  /// An axis used twice would leave blocks that no rank has.
  Status checkSharding(const DimShardings &dims, const std::string &name) {
    std::set<uint8_t> used;
    for (const fb::DimSharding *dim : dims)
      for (uint32_t i = 0; i < length(dim->axes()); ++i) {
        uint8_t axis = dim->axes()->Get(i);
        // Axis 0 picks the program; it cannot split what a program holds.
        if (axis == 0 || axis >= plan.mesh()->size())
          return fail(name, " is split over axis ", int(axis),
                      ", allowed are 1 to ", plan.mesh()->size() - 1);
        if (!used.insert(axis).second)
          return fail(name, " is split twice over axis ", int(axis));
      }
    return Status::success();
  }

  /// Lifetimes are inclusive ranges of actions.
  Status checkRegion(const fb::Region &region) {
    std::string name = "region '" + flatbuffers::GetString(region.name()) + "'";
    if (region.category() > fb::Category::MAX)
      return fail(name, " has unknown category ", int(region.category()));
    if (region.first_action() > region.last_action() ||
        region.last_action() >= length(program.actions()))
      return fail(name, " lives over actions ", region.first_action(), " to ",
                  region.last_action(), " of ", length(program.actions()));
    return place(name.c_str(), region.offset(), region.bytes(), std::nullopt);
  }

  /// Its kind decides which other fields mean anything.
  Status checkAction(const fb::Action &action) {
    if (action.kind() > fb::ActionKind::MAX)
      return fail("unknown kind ", int(action.kind()));
    // Of actions that belong to no microbatch it is 0.
    if (action.microbatch() >= plan.microbatches())
      return fail("microbatch ", action.microbatch(), ", there are ",
                  plan.microbatches());
    Status status =
        isTransfer(action) ? checkTransfer(action) : checkCall(action);
    return status.ok() ? status
                       : fail(fb::EnumNameActionKind(action.kind()), " ",
                              status.message());
  }

  /// Between different programs: within one nothing is sent. That both ends
  /// agree is matchMessages()'s to find.
  Status checkTransfer(const fb::Action &action) {
    if (action.direction() > fb::Direction::MAX)
      return fail("has unknown direction ", int(action.direction()));
    if (action.exchange())
      return checkSiteTransfer(action);
    // A program that sends to itself would wait for itself.
    if (action.peer() >= plan.programs()->size() ||
        plan.programs()->Get(action.peer()) == &program)
      return fail("has peer ", action.peer(), ", allowed are the other ",
                  plan.programs()->size() - 1, " programs");
    return place("buffer", action.buffer(), action.bytes());
  }

  /// Between ranks of one program, by an exchange that there is.
  Status checkSiteTransfer(const fb::Action &action) {
    PLAIT_RETURN_IF_ERROR(
        checkExchange(plan, action.list(), action.exchange()));
    if (action.peer() >= plan.programs()->size() ||
        plan.programs()->Get(action.peer()) != &program)
      return fail("has peer ", action.peer(),
                  ", and is between ranks of one program");
    return place("buffer", action.buffer(), action.bytes());
  }

  /// Slots are bound in order, one by one. Their memory begins at any element,
  /// for one of them may be a row of an input.
  Status checkCall(const fb::Action &action) {
    if (action.function() < 0 ||
        uint32_t(action.function()) >= length(program.functions()))
      return fail("calls function ", action.function(), ", there are ",
                  length(program.functions()));
    const fb::Function &function = *program.functions()->Get(action.function());
    if (length(action.bindings()) != length(function.slot_bytes()))
      return fail("binds ", length(action.bindings()), " slots of '",
                  function.name()->str(), "', which has ",
                  length(function.slot_bytes()));
    // The rows of one microbatch of an input begin at any element.
    for (uint32_t i = 0; i < length(action.bindings()); ++i)
      PLAIT_RETURN_IF_ERROR(
          place(slotName(function, i).c_str(), action.bindings()->Get(i),
                function.slot_bytes()->Get(i), slots[action.function()][i],
                elementBytes(fb::DType::I32)));
    return Status::success();
  }

  const fb::Plan &plan;
  const fb::Program &program;
  std::vector<std::vector<std::optional<MemoryPlace>>>
      slots; // by function, what they are bound to
};

} // namespace

/// Goes from the whole to the parts: programs are looked at when what they
/// refer to is known to be sound.
Status plan::checkStructure(const fb::Plan &plan) {
  PLAIT_RETURN_IF_ERROR(checkHead(plan));
  if (plan.programs()->size() != plan.mesh()->Get(0)->size())
    return fail("there are ", plan.programs()->size(),
                " programs for a pp axis of size ",
                plan.mesh()->Get(0)->size());
  for (uint32_t i = 0; i < plan.programs()->size(); ++i) {
    ProgramChecker checker(plan, *plan.programs()->Get(i));
    if (Status status = checker.check(); !status.ok())
      return fail("program ", i, ": ", status.message());
  }
  return Status::success();
}
