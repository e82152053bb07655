//===- SiteDeeds.h - What a list of sites does ------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The actions and steps of a list, read as deeds: what they do together to the
// bytes of a value. A mean over neighbours takes several actions and a median
// several steps, and each of both is one deed. A norm is squares of each value:
// what is done with their sum is part of them.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PLAN_SITEDEEDS_H
#define PLAIT_LIB_PLAN_SITEDEEDS_H

#include "plait/Plan/Plan_generated.h"
#include "plait/Plan/Sites.h"
#include "plait/Support/Status.h"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace plait::plan {

/// The kinds of what a list does to the bytes of a value.
enum class Deed : uint8_t {
  Sum,
  Mean,
  Difference,
  Update,
  Round,
  Mixing,   // a weighted mean of the neighbours'
  Middle,   // the mean of those in the middle
  Part,     // what a site has moved by is written down
  Blend,    // the update by the sum of that, of which a part is taken
  Correct,  // a step is corrected
  Learn,    // a mean, and what weights differ from it by goes to corrections
  Tracking, // what a site has moved by goes there, less its neighbours' mean
  Joining,  // what mixing changes of the weights before is added
  Keep,     // weights are written down
  Message,  // the sum of what compressed messages say
  Squares,  // added to the norm of a site
  Clip      // what a site has moved by is scaled down, by that norm
};
inline constexpr std::string_view kDeeds[] = {
    "a sum over sites", "a mean",       "a difference",     "an update",
    "a rounding",       "a mixing",     "a middle",         "a part",
    "a blend",          "a correction", "a learning mean",  "a tracking",
    "a joining",        "a keeping",    "a compressed sum", "squares",
    "a clipping"};

/// A deed of one step of a list, or of several together. Offsets are there
/// where its kind has such an operand.
struct Done {
  Deed deed;
  ElementRange value;
  std::optional<uint64_t> anchor = {}, momentum = {}, copy = {};
  std::optional<uint64_t> difference = {}, correction = {}, before = {},
                          error = {};
  const fb::OuterStep *encode = nullptr; // of a compressed sum
  uint32_t copies = 0;                   // of squares, see Plan.fbs
  bool isWanted = false;                 // by some value
};

/// Whether a region of `category` that lives in action `action`, or, if that is
/// none, a region of any lifetime, has these bytes.
bool isIn(const fb::Program &program, fb::Category category, uint64_t begin,
          uint64_t bytes, std::optional<uint32_t> action = {});

/// Reads list `list` of a program. Fails where it has what is no part of any
/// deed. All structure, sizes and messages have been checked.
Result<std::vector<Done>> readDeeds(const fb::Plan &plan,
                                    const fb::Program &program, uint32_t list);

/// A parameter's part in a message: where its numbers and its error are.
struct SentShard {
  const fb::Shard *shard;
  uint64_t begin, error;
};

/// Fails unless the pieces of a compressed sum are these shards, in whole
/// chunks, each with its own error, and the message is as long as they are.
Status checkMessage(const fb::Plan &plan, const Outer &outer, const Done &one,
                    std::vector<SentShard> shards);

/// The offset of a shard's state; none: it has no such state.
std::optional<uint64_t> stateOf(const fb::Shard &shard, std::string_view name);

/// Fails unless each list of a program that adds up does so with all that the
/// weights have moved by which are placed in its message, and nothing else.
Status checkFragments(const fb::Plan &plan, const fb::Program &program,
                      const Outer &outer, std::span<const ListFacts> lists);

} // namespace plait::plan

#endif // PLAIT_LIB_PLAN_SITEDEEDS_H
