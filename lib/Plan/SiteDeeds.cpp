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

#include "SiteDeedReader.h"

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

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Failures have the number of the step.
Status DeedReader::readCall() {
  const fb::Function &function = functionOf(get(action));
  uint32_t count = length(function.steps());
  for (uint32_t i = 0; i < count;) {
    const fb::Step &step = *function.steps()->Get(i);
    if (clips && step.step_as_FillStep()) {
      PLAIT_RETURN_IF_ERROR(readNorm(function, i));
      continue;
    }
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
  case fb::OuterKind::Clip:
    return Deed::Clip;
  case fb::OuterKind::Squares:
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
  if (one.deed == Deed::Clip && !(norm && isAt(step.others(), *norm)))
    return fail("scales by what is not the norm of all that a site moves by");
  return one;
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// Whether one number is added up over the ranks along an axis.
bool DeedReader::addsUp(const fb::Step &step, uint32_t axis,
                        uint64_t place) const {
  const auto *sum = step.step_as_CollectiveStep();
  return sum && kindOf(*sum) == CollectiveKind::AllReduce &&
         sum->reduction() == fb::Reduction::Sum && sum->axis() == axis &&
         !length(sum->members()) && sum->outer() == 1 && sum->middle() == 1 &&
         sum->chunk() == 1 && sum->dtype() == fb::DType::F32 &&
         isAt(sum->input(), place) && isAt(sum->output(), place);
}

/// 1. A number is cleared.
/// 2. Squares are added to it.
/// 3. It is added up over all ranks of the site, an axis at a time.
Status DeedReader::readNorm(const fb::Function &function, uint32_t &step) {
  auto get = [&] { return function.steps()->Get(step); };
  uint32_t count = length(function.steps());
  // 1. Cleared.
  const fb::FillStep &fill = *get()->step_as_FillStep();
  uint64_t place = fill.target()->offset();
  if (norm || fill.target()->slot() >= 0 || fill.bytes() != sizeof(float) ||
      fill.first_microbatch_only())
    return fail("step ", step, " is not the beginning of a norm, which is one");
  PLAIT_RETURN_IF_ERROR(checkScratch(place, sizeof(float), action));
  // 2. Squares.
  for (++step; step < count; ++step) {
    const auto *squares = get()->step_as_OuterStep();
    if (!squares || squares->kind() != fb::OuterKind::Squares)
      break;
    if (!isAt(squares->mixed(), place))
      return fail("step ", step, " adds squares to another number");
    done.push_back(
        {Deed::Squares, {squares->value()->offset(), squares->elements()}});
    done.back().copies = squares->copies();
  }
  // 3. Added up.
  for (uint32_t axis = 0; axis < mesh.axes(); ++axis) {
    if (axis == mesh.sitesAxis() || mesh.size(axis) == 1)
      continue;
    if (step == count || !addsUp(*get(), axis, place))
      return fail("step ", step, " does not add the norm up over axis '",
                  plan.mesh()->Get(axis)->name()->str(), "'");
    ++step;
  }
  norm = place;
  return Status::success();
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

Result<std::vector<Done>> plan::readDeeds(const fb::Plan &plan,
                                          const fb::Program &program,
                                          uint32_t list) {
  return DeedReader(plan, program, list).run();
}
