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
      : plan(plan), program(program), rule(*plan.outer()), mesh(plan),
        corrects(outerOf(plan).corrects()),
        keepsBefore(outerOf(plan).keepsBefore()) {
    while (action < actions() && get(action).list() != list)
      ++action;
    for (end = action; end < actions() && get(end).list() == list;)
      ++end;
  }

  Result<std::vector<Done>> run() {
    while (action < end) {
      Status status = isMixing() ? readMixing() : readCall();
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
  /// Whether the list is of an agreement of neighbours, and the next action is
  /// none that copies are rounded by.
  bool isMixing() const;
  Status readMixing();
  Status readTracking();
  Result<ElementRange> readExchanges(uint64_t &received, uint64_t &sum);
  Result<Done> readLearning(const fb::Function &function, uint32_t first) const;
  uint64_t valueOf(uint32_t call) const;
  Status expectTransfer(fb::ActionKind kind, uint32_t exchange, uint64_t buffer,
                        uint64_t bytes);
  Status expectStep(fb::OuterKind kind, uint32_t exchange,
                    const ElementRange &value, const fb::OuterStep *&step);
  Status checkScratch(uint64_t place, uint64_t bytes, uint32_t at) const;
  Status checkScratch(uint64_t one, uint64_t other, uint64_t bytes,
                      uint32_t from, uint32_t to) const;

  const fb::Plan &plan;
  const fb::Program &program;
  const fb::OuterRule &rule;
  RankGrid mesh;
  bool corrects, keepsBefore;   // the scheme
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
    bool learns = step.step_as_CopyStep() && corrects;
    bool isMessage = outer && outer->kind() == fb::OuterKind::Encode;
    uint32_t together = learns                    ? 4
                        : step.step_as_CopyStep() ? 5
                        : isMessage               ? 3
                                                  : 1;
    Result<Done> one = together > count - i ? fail("is no step of sites")
                       : sum                ? readSum(*sum)
                       : isMessage          ? readMessage(function, i)
                       : outer              ? readOuter(*outer)
                       : learns             ? readLearning(function, i)
                       : together == 5      ? readMiddle(function, i)
                                            : fail("is no step of sites");
    if (!one.ok())
      return fail("step ", i, " ", one.status().message());
    done.push_back(*one);
    i += together;
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
  case fb::OuterKind::Correct:
    return Deed::Correct;
  case fb::OuterKind::Learn:
  case fb::OuterKind::Join:
  case fb::OuterKind::Keep:
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
  one.correction = offset(step.correction());
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

/// A place that nothing else has during this action.
Status DeedReader::checkScratch(uint64_t place, uint64_t bytes,
                                uint32_t at) const {
  return isIn(program, fb::Category::Workspace, place, bytes, at)
             ? Status::success()
             : fail("works at ", place, ", which is not its own");
}

/// Two places that nothing else has during these actions.
Status DeedReader::checkScratch(uint64_t one, uint64_t other, uint64_t bytes,
                                uint32_t from, uint32_t to) const {
  bool areApart = one + bytes <= other || other + bytes <= one;
  if (!areApart)
    return fail("works at ", one, ", which is not its own");
  for (uint64_t place : {one, other})
    for (uint32_t at : {from, to})
      PLAIT_RETURN_IF_ERROR(checkScratch(place, bytes, at));
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
// Means that corrections learn from
//===----------------------------------------------------------------------===//

/// 1. The value is copied.
/// 2. It becomes the mean.
/// 3. What that differs by from the copy is learned.
Result<Done> DeedReader::readLearning(const fb::Function &function,
                                      uint32_t first) const {
  auto step = [&](uint32_t i) { return function.steps()->Get(first + i); };
  const fb::CopyStep &copy = *step(0)->step_as_CopyStep();
  const auto *sum = step(1)->step_as_CollectiveStep();
  const auto *mean = step(2)->step_as_OuterStep();
  const auto *learn = step(3)->step_as_OuterStep();
  if (!sum || !mean || mean->kind() != fb::OuterKind::Mean || !learn ||
      learn->kind() != fb::OuterKind::Learn)
    return fail("is a copy without a mean behind it that is learned from");
  Result<Done> summed = readSum(*sum);
  if (!summed.ok())
    return summed.status();
  ElementRange value = summed->value;
  uint64_t bytes = value.elements * sizeof(float);
  bool isPlain = copy.kind() == fb::CopyKind::Within &&
                 isAt(copy.source(), value.offset) && copy.bytes() == bytes &&
                 copy.target()->slot() < 0;
  bool isOfValue =
      isAt(mean->value(), value.offset) && isAt(learn->value(), value.offset) &&
      mean->elements() == value.elements && learn->elements() == value.elements;
  if (!isPlain || !isOfValue || !isAt(learn->mixed(), copy.target()->offset()))
    return fail("is a copy that does not fit the mean behind it");
  PLAIT_RETURN_IF_ERROR(checkScratch(copy.target()->offset(), bytes, action));
  Done one = {Deed::Learn, value};
  one.correction = learn->correction()->offset();
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

/// The offset of what a call changes, or 0.
uint64_t DeedReader::valueOf(uint32_t call) const {
  const fb::Function &function = functionOf(get(call));
  const fb::OuterStep *step =
      length(function.steps()) ? function.steps()->Get(0)->step_as_OuterStep()
                               : nullptr;
  return step && step->value() ? step->value()->offset() : 0;
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
Result<ElementRange> DeedReader::readExchanges(uint64_t &received,
                                               uint64_t &sum) {
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
  received = action < end ? get(action).buffer() : 0;
  const fb::OuterStep *step;
  for (uint32_t i = 1; i <= exchanges; ++i) {
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::Recv, i, received, bytes));
    PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Mix, i, value, step));
    if (i == 1)
      sum = step->mixed()->offset();
    if (!isAt(step->others(), received) || !isAt(step->mixed(), sum) ||
        bytes % sizeof(float))
      return fail("action ", action - 1, " does not add what was received");
  }
  // 3. Free.
  for (uint32_t i = 1; i <= exchanges; ++i)
    PLAIT_RETURN_IF_ERROR(
        expectTransfer(fb::ActionKind::WaitSend, i, begin, bytes));
  PLAIT_RETURN_IF_ERROR(checkScratch(received, sum, bytes, first, action));
  ++mixed;
  return value;
}

bool DeedReader::isMixing() const {
  if (isTransfer(get(action)))
    return true;
  const fb::Function &function = functionOf(get(action));
  const fb::OuterStep *step =
      length(function.steps()) == 1
          ? function.steps()->Get(0)->step_as_OuterStep()
          : nullptr;
  return corrects && step && step->kind() == fb::OuterKind::Part;
}

/// 1. What is tracked, if anything is, is learned.
/// 2. The exchanges, and what becomes of the value by them.
/// 3. It is written down where the next steps begin.
Status DeedReader::readMixing() {
  // 1. Tracking.
  if (!isTransfer(get(action)))
    PLAIT_RETURN_IF_ERROR(readTracking());
  if (action == end || !isTransfer(get(action)))
    return fail("action ", action - 1, " has no exchange of it behind it");
  // 2. Mixing.
  uint64_t received = 0, sum = 0;
  Result<ElementRange> sent = readExchanges(received, sum);
  if (!sent.ok())
    return sent.status();
  ElementRange value = *sent;
  bool joins = keepsBefore && !corrects;
  const fb::OuterStep *step;
  if (joins && action < end && !isTransfer(get(action)))
    value.offset = valueOf(action);
  PLAIT_RETURN_IF_ERROR(expectStep(
      joins ? fb::OuterKind::Join : fb::OuterKind::Take, 0, value, step));
  if (!isAt(step->mixed(), sum))
    return fail("action ", action - 1, " does not take what was added up");
  Done own = {joins ? Deed::Joining : Deed::Mixing, value};
  if (joins) {
    if (!isAt(step->anchor(), sent->offset))
      return fail("action ", action - 1, " joins other weights than are sent");
    own.before = sent->offset;
  }
  PLAIT_RETURN_IF_ERROR(
      checkScratch(sum, sent->elements * sizeof(float), action - 1));
  done.push_back(own);
  // 3. What was.
  if (!keepsBefore)
    return Status::success();
  PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Keep, 0, value, step));
  done.push_back({.deed = Deed::Keep, .value = value});
  done.back().before = step->anchor()->offset();
  return Status::success();
}

/// 1. What the weights have moved by is written down.
/// 2. It is mixed.
/// 3. What it differs by from the mean is learned.
Status DeedReader::readTracking() {
  // 1. Moved.
  uint32_t first = action;
  const fb::OuterStep &part =
      *functionOf(get(action)).steps()->Get(0)->step_as_OuterStep();
  ElementRange value = {part.value()->offset(), part.elements()};
  uint64_t moved = part.mixed()->offset(), bytes = value.end() - value.offset;
  ++action;
  // 2. Mixed.
  if (action == end || !isTransfer(get(action)) ||
      get(action).buffer() != moved || get(action).bytes() != bytes)
    return fail("action ", first, " has no exchange of it behind it");
  uint64_t received = 0, sum = 0;
  Result<ElementRange> sent = readExchanges(received, sum);
  if (!sent.ok())
    return sent.status();
  // 3. Learned.
  const fb::OuterStep *learn;
  PLAIT_RETURN_IF_ERROR(expectStep(fb::OuterKind::Learn, 0, *sent, learn));
  if (!isAt(learn->mixed(), sum))
    return fail("action ", action - 1, " does not take what was added up");
  for (uint64_t other : {received, sum})
    PLAIT_RETURN_IF_ERROR(checkScratch(moved, other, bytes, first, action - 1));
  Done own = {Deed::Tracking, value};
  own.before = part.anchor()->offset();
  own.correction = learn->correction()->offset();
  done.push_back(own);
  return Status::success();
}

Result<std::vector<Done>> plan::readDeeds(const fb::Plan &plan,
                                          const fb::Program &program,
                                          uint32_t list) {
  return DeedReader(plan, program, list).run();
}
