//===- SiteDeeds.cpp - What a list of sites does --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What takes several steps has one form here: a plan that does the same in
// another order is refused, as nothing else makes plans.
//
//===----------------------------------------------------------------------===//

#include "SiteDeeds.h"

#include "plait/Plan/Defaults.h"
#include "plait/Plan/Messages.h"
#include "plait/Plan/Ranks.h"
#include "plait/Plan/Uses.h"

#include <algorithm>

using namespace plait;
using namespace plait::plan;

bool plan::isIn(const fb::Program &program, fb::Category category,
                uint64_t begin, uint64_t bytes,
                std::optional<uint32_t> action) {
  for (uint32_t i = 0; i < length(program.regions()); ++i) {
    const fb::Region &region = *program.regions()->Get(i);
    bool lives = !action || (region.first_action() <= *action &&
                             *action <= region.last_action());
    if (lives && region.category() == category && region.offset() <= begin &&
        begin + bytes <= region.offset() + region.bytes())
      return true;
  }
  return false;
}

namespace {

bool isAt(const fb::Ref *ref, uint64_t offset) {
  return ref && ref->slot() < 0 && ref->offset() == offset;
}

class DeedReader {
public:
  DeedReader(const fb::Plan &plan, const fb::Program &program, uint32_t list)
      : plan(plan), program(program), rule(*plan.outer()), mesh(plan) {
    while (action < actions() && get(action).list() != list)
      ++action;
    for (end = action; end < actions() && get(end).list() == list;)
      ++end;
  }

  Result<std::vector<Done>> run() {
    while (action < end) {
      Status status = isTransfer(get(action)) ? readMixing() : readCall();
      if (!status.ok())
        return status;
    }
    return std::move(done);
  }

private:
  uint32_t actions() const { return length(program.actions()); }
  const fb::Action &get(uint32_t index) const {
    return *program.actions()->Get(index);
  }
  const fb::Function &functionOf(const fb::Action &call) const {
    return *program.functions()->Get(call.function());
  }

  Status readCall();
  Result<Done> readSum(const fb::CollectiveStep &step) const;
  Result<Done> readOuter(const fb::OuterStep &step) const;
  Result<Done> readMiddle(const fb::Function &function, uint32_t first) const;
  Result<Done> readMessage(const fb::Function &function, uint32_t first) const;
  bool isBlocks(const fb::Step &step, CollectiveKind kind, uint64_t chunk,
                uint64_t input, uint64_t output,
                fb::DType dtype = fb::DType::F32) const;
  Status readMixing();
  Status expectTransfer(fb::ActionKind kind, uint32_t exchange, uint64_t buffer,
                        uint64_t bytes);
  Status expectStep(fb::OuterKind kind, uint32_t exchange,
                    const ElementRange &value, const fb::OuterStep *&step);
  Status checkScratch(uint64_t one, uint64_t other, uint64_t bytes,
                      uint32_t from, uint32_t to) const;

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::OuterRule &rule;
  RankGrid mesh;
  uint32_t action = 0, end = 0; // what is read next, and where the list ends
  uint32_t mixed = 0;           // ranges so far
  std::vector<Done> done;
};

} // namespace

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Failures have the number of the step.
Status DeedReader::readCall() {
  const fb::Function &function = functionOf(get(action));
  uint32_t count = length(function.steps());
  for (uint32_t i = 0; i < count;) {
    const fb::Step &step = *function.steps()->Get(i);
    const auto *sum = step.step_as_CollectiveStep();
    const auto *outer = step.step_as_OuterStep();
    bool isMiddle = step.step_as_CopyStep() && i + 5 <= count;
    bool isMessage =
        outer && outer->kind() == fb::OuterKind::Encode && i + 3 <= count;
    Result<Done> one = sum         ? readSum(*sum)
                       : isMessage ? readMessage(function, i)
                       : outer     ? readOuter(*outer)
                       : isMiddle  ? readMiddle(function, i)
                                   : fail("is no step of sites");
    if (!one.ok())
      return fail("step ", i, " ", one.status().message());
    done.push_back(*one);
    i += isMiddle ? 5 : isMessage ? 3 : 1;
  }
  ++action;
  return Status::success();
}

/// Over all sites, in place, and of numbers side by side.
Result<Done> DeedReader::readSum(const fb::CollectiveStep &step) const {
  if (step.axis() != mesh.sitesAxis())
    return fail("goes over axis '",
                plan.mesh()->Get(step.axis())->name()->str(), "', expected '",
                kSitesAxis, "'");
  bool inPlace = step.input()->slot() < 0 && step.output()->slot() < 0 &&
                 step.input()->offset() == step.output()->offset();
  if (kindOf(step) != CollectiveKind::AllReduce || !inPlace ||
      length(step.members()) || step.reduction() != fb::Reduction::Sum ||
      step.outer() != 1 || step.dtype() != fb::DType::F32)
    return fail("is no sum in f32 and in place");
  return Done{Deed::Sum, {step.input()->offset(), uint64_t(step.chunk())}};
}

/// None where the kind is no deed by itself.
static std::optional<Deed> getDeed(fb::OuterKind kind) {
  switch (kind) {
  case fb::OuterKind::Mean:
    return Deed::Mean;
  case fb::OuterKind::Difference:
    return Deed::Difference;
  case fb::OuterKind::Update:
    return Deed::Update;
  case fb::OuterKind::Round:
    return Deed::Round;
  case fb::OuterKind::Part:
    return Deed::Part;
  case fb::OuterKind::Blend:
    return Deed::Blend;
  case fb::OuterKind::Mix:
  case fb::OuterKind::Take:
  case fb::OuterKind::Middle:
  case fb::OuterKind::Encode:
  case fb::OuterKind::Decode:
    return std::nullopt;
  }
  __builtin_unreachable();
}

/// Kind and operands have been checked with the step itself.
Result<Done> DeedReader::readOuter(const fb::OuterStep &step) const {
  std::optional<Deed> deed = getDeed(step.kind());
  if (!deed)
    return fail("is a ", fb::EnumNameOuterKind(step.kind()),
                " without what belongs to it");
  Done one = {*deed, {step.value()->offset(), step.elements()}};
  auto offset = [](const fb::Ref *ref) {
    return ref ? std::optional(ref->offset()) : std::nullopt;
  };
  one.anchor = offset(step.anchor());
  one.momentum = offset(step.momentum());
  one.copy = offset(step.copy());
  one.difference = offset(step.mixed());
  bool updates = one.deed == Deed::Update || one.deed == Deed::Blend;
  if (updates && one.momentum.has_value() != (rule.momentum() > 0))
    return fail("is ", kDeeds[size_t(one.deed)],
                one.momentum ? " with" : " without", " momentum, which is ",
                rule.momentum());
  return one;
}

//===----------------------------------------------------------------------===//
// Means of the middle
//===----------------------------------------------------------------------===//

/// Whether blocks of `chunk` elements go between all sites.
bool DeedReader::isBlocks(const fb::Step &step, CollectiveKind kind,
                          uint64_t chunk, uint64_t input, uint64_t output,
                          fb::DType dtype) const {
  const auto *own = step.step_as_CollectiveStep();
  return own && kindOf(*own) == kind && own->axis() == mesh.sitesAxis() &&
         !length(own->members()) && own->outer() == 1 && own->middle() == 1 &&
         uint64_t(own->chunk()) == chunk && own->dtype() == dtype &&
         isAt(own->input(), input) && isAt(own->output(), output);
}

/// Two places that nothing else has during these actions.
Status DeedReader::checkScratch(uint64_t one, uint64_t other, uint64_t bytes,
                                uint32_t from, uint32_t to) const {
  bool areApart = one + bytes <= other || other + bytes <= one;
  for (uint64_t place : {one, other})
    for (uint32_t at : {from, to})
      if (!areApart ||
          !isIn(program, fb::Category::Workspace, place, bytes, at))
        return fail("works at ", place, ", which is not its own");
  return Status::success();
}

/// 1. The value is copied to where blocks of equal size are.
/// 2. Block j of all sites comes to site j.
/// 3. Its own block of the result.
/// 4. All blocks of that, at each site.
/// 5. Back to the value.
Result<Done> DeedReader::readMiddle(const fb::Function &function,
                                    uint32_t first) const {
  auto step = [&](uint32_t i) { return function.steps()->Get(first + i); };
  const auto *into = step(0)->step_as_CopyStep();
  const auto *back = step(4)->step_as_CopyStep();
  const auto *middle = step(2)->step_as_OuterStep();
  auto isPlain = [](const fb::CopyStep *copy) {
    return copy && copy->kind() == fb::CopyKind::Within &&
           copy->source()->slot() < 0 && copy->target()->slot() < 0;
  };
  if (!isPlain(into) || !isPlain(back) || !middle ||
      middle->kind() != fb::OuterKind::Middle)
    return fail("is a copy without a middle behind it");
  uint64_t blocks = into->target()->offset(), others = back->source()->offset();
  uint64_t value = into->source()->offset(), bytes = into->bytes();
  uint64_t sites = mesh.sites(), chunk = middle->elements();
  bool areBlocks =
      isBlocks(*step(1), CollectiveKind::AllToAll, chunk, blocks, others) &&
      isBlocks(*step(3), CollectiveKind::AllGather, chunk, blocks, others);
  if (!areBlocks || !isAt(middle->others(), others) ||
      !isAt(middle->mixed(), blocks) || back->target()->offset() != value ||
      back->bytes() != bytes || bytes % sizeof(float) ||
      bytes > sites * chunk * sizeof(float))
    return fail("is a copy that does not fit the middle behind it");
  PLAIT_RETURN_IF_ERROR(checkScratch(
      blocks, others, sites * chunk * sizeof(float), action, action));
  return Done{Deed::Middle, {value, bytes / sizeof(float)}};
}

//===----------------------------------------------------------------------===//
// Compressed sums
//===----------------------------------------------------------------------===//

static bool arePieces(const fb::OuterStep &one, const fb::OuterStep &other) {
  return one.elements() == other.elements() && one.words() == other.words() &&
         std::ranges::equal(*one.pieces(), *other.pieces());
}

/// 1. The value, and the error of the last message, become one.
/// 2. All sites get the messages of all.
/// 3. The sum of them is the value.
Result<Done> DeedReader::readMessage(const fb::Function &function,
                                     uint32_t first) const {
  auto step = [&](uint32_t i) { return function.steps()->Get(first + i); };
  const fb::OuterStep &encode = *step(0)->step_as_OuterStep();
  const auto *decode = step(2)->step_as_OuterStep();
  if (!decode || decode->kind() != fb::OuterKind::Decode)
    return fail("is an Encode without a Decode behind it");
  uint64_t own = encode.mixed()->offset(), all = decode->others()->offset();
  uint64_t value = encode.value()->offset(), words = encode.words();
  if (!isBlocks(*step(1), CollectiveKind::AllGather, words, own, all,
                fb::DType::I32) ||
      !isAt(decode->value(), value) || !arePieces(encode, *decode))
    return fail("is an Encode that does not fit the Decode behind it");
  SiteCompression compress = outerOf(plan).getCompression();
  if (!encode.error() != !compress.keepsError())
    return fail("is an Encode ", encode.error() ? "with" : "without",
                " an error, and decay is ", compress.decay);
  uint64_t bytes = words * sizeof(uint32_t);
  for (auto [place, size] :
       {std::pair(own, bytes), std::pair(all, bytes * mesh.sites())})
    if (!isIn(program, fb::Category::Workspace, place, size, action))
      return fail("works at ", place, ", which is not its own");
  if (own < all + bytes * mesh.sites() && all < own + bytes)
    return fail("works at ", own, ", where other messages are");
  Done one = {Deed::Message, {value, encode.elements()}};
  if (encode.error())
    one.error = encode.error()->offset();
  one.encode = &encode;
  return one;
}

//===----------------------------------------------------------------------===//
// Means over neighbours
//===----------------------------------------------------------------------===//

/// Takes the action that has to be next. Ranges are numbered, so that what is
/// received is the same range of another site.
Status DeedReader::expectTransfer(fb::ActionKind kind, uint32_t exchange,
                                  uint64_t buffer, uint64_t bytes) {
  if (action == end || get(action).kind() != kind ||
      get(action).exchange() != exchange)
    return fail("action ", action, " is not the ", fb::EnumNameActionKind(kind),
                " of exchange ", exchange, " that has to follow");
  const fb::Action &own = get(action);
  if (own.buffer() != buffer || own.bytes() != bytes || own.tensor() != mixed ||
      own.stage() || own.microbatch() ||
      own.direction() != fb::Direction::Forward)
    return fail("action ", action, " is of another range than those around it");
  ++action;
  return Status::success();
}

/// Takes a call of one step.
Status DeedReader::expectStep(fb::OuterKind kind, uint32_t exchange,
                              const ElementRange &value,
                              const fb::OuterStep *&step) {
  step = nullptr;
  if (action < end && !isTransfer(get(action)) &&
      length(functionOf(get(action)).steps()) == 1)
    step = functionOf(get(action)).steps()->Get(0)->step_as_OuterStep();
  if (!step || step->kind() != kind || step->exchange() != exchange)
    return fail("action ", action, " is not the ", fb::EnumNameOuterKind(kind),
                exchange ? " of exchange " + std::to_string(exchange) : "",
                " that has to follow");
  if (!isAt(step->value(), value.offset) || step->elements() != value.elements)
    return fail("action ", action, " is of another range than those around it");
  ++action;
  return Status::success();
}

/// 1. The range is sent to all neighbours.
/// 2. What they have sent is received and added, one by one.
/// 3. When all have received it, it may change.
Status DeedReader::readMixing() {
  uint32_t first = action,
           mixing = plan.lists()->Get(get(first).list())->mixing();
  uint32_t exchanges =
      length(plan.outer()->mixings()->Get(mixing - 1)->exchanges());
  uint64_t begin = get(first).buffer(), bytes = get(first).bytes();
  ElementRange value = {begin, bytes / sizeof(float)};
  // 1. Sent.
  for (uint32_t i = 1; i <= exchanges; ++i)
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::Send, i, begin, bytes));
  // 2. Received.
  uint64_t received = action < end ? get(action).buffer() : 0, sum = 0;
  const fb::OuterStep *step;
  for (uint32_t i = 1; i <= exchanges; ++i) {
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::Recv, i, received, bytes));
    PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Mix, i, value, step));
    if (i == 1)
      sum = step->mixed()->offset();
    if (!isAt(step->others(), received) || !isAt(step->mixed(), sum))
      return fail("action ", action - 1, " does not add what was received");
  }
  // 3. Changed.
  for (uint32_t i = 1; i <= exchanges; ++i)
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::WaitSend, i, begin, bytes));
  PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Take, 0, value, step));
  if (!isAt(step->mixed(), sum) || bytes % sizeof(float))
    return fail("action ", action - 1, " does not take what was added up");
  PLAIT_RETURN_IF_ERROR(checkScratch(received, sum, bytes, first, action - 1));
  ++mixed;
  done.push_back({Deed::Mixing, value});
  return Status::success();
}

Result<std::vector<Done>> plan::readDeeds(const fb::Plan &plan,
                                          const fb::Program &program,
                                          uint32_t list) {
  return DeedReader(plan, program, list).run();
}
