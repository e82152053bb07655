//===- Text.cpp - The text form of schedules ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text form of Schedule.h, in both directions, from one table of spellings,
// so that whatever is printed is read again as the same action. Then actions
// are placed: checked for what a single one can be wrong about (an index out of
// range, a message that leaves the pipeline), and given the peer, which the
// text does not repeat. Whether they are together a schedule that ends,
// Verify.cpp says.
//
//===----------------------------------------------------------------------===//

#include "Messages.h"
#include "plait/Support/ActionKinds.h"

#include <cctype>
#include <charconv>
#include <limits>
#include <optional>

using namespace plait;
using namespace plait::schedule;

namespace {

/// A spelling of the text form, which ends with the microbatch. What happens
/// once a step is the name of its kind in capitals, without a number.
struct Spelling {
  std::string_view name;
  ActionKind kind;
  Direction direction;
};

// The names that torch.distributed.pipelining uses, as far as it has the
// action. Where a kind has no direction, the column holds the value that an
// Action has by default, so that parsed actions compare equal to generated
// ones.
constexpr Spelling spellings[] = {
    {"F", ActionKind::Forward, Direction::Forward},
    {"B", ActionKind::Backward, Direction::Forward},
    {"I", ActionKind::BackwardInput, Direction::Forward},
    {"W", ActionKind::BackwardWeight, Direction::Forward},
    {"SEND_F", ActionKind::Send, Direction::Forward},
    {"SEND_B", ActionKind::Send, Direction::Backward},
    {"RECV_F", ActionKind::Recv, Direction::Forward},
    {"RECV_B", ActionKind::Recv, Direction::Backward},
    {"WAIT_F", ActionKind::WaitSend, Direction::Forward},
    {"WAIT_B", ActionKind::WaitSend, Direction::Backward},
};

/// Linear in a table of a few rows. A table indexed by kind and direction
/// would have entries without a spelling, and a new kind could be forgotten
/// there unnoticed.
const Spelling &getSpelling(const Action &action) {
  for (const Spelling &spelling : spellings)
    if (spelling.kind == action.kind &&
        (!action.isTransfer() || spelling.direction == action.direction))
      return spelling;
  return spellings[0]; // not reached: the table lists all that have one
}

/// "REDUCE".
std::string capitalize(const ActionFacts &facts) {
  std::string text(facts.name);
  for (char &letter : text)
    letter = char(std::toupper(letter));
  return text;
}

/// Finds what happens once a step and is called `name`.
std::optional<ActionKind> findOnceAStep(std::string_view name) {
  for (size_t kind = 0; kind < std::size(actionKinds); ++kind)
    if (actionKinds[kind].isOnceAStep() &&
        capitalize(actionKinds[kind]) == name)
      return ActionKind(kind);
  return std::nullopt;
}

/// Reads digits into `value`; false when there are none or too many.
bool parseNumber(std::string_view digits, uint32_t &value) {
  const char *end = digits.data() + digits.size();
  auto [rest, error] = std::from_chars(digits.data(), end, value);
  return error == std::errc() && rest == end;
}

/// The chunk before, the name and the microbatch after it.
struct Word {
  std::string_view chunk, name, microbatch;
};

/// Digits at either end are numbers, whatever is between them the name; a word
/// of digits alone is a chunk without a name, which no spelling matches. Pieces
/// may be empty, and none is checked here.
Word splitWord(std::string_view word) {
  constexpr std::string_view digits = "0123456789";
  size_t begin = std::min(word.find_first_not_of(digits), word.size());
  size_t end = word.find_last_not_of(digits);
  end = end == std::string_view::npos ? begin : end + 1;
  return {word.substr(0, begin), word.substr(begin, end - begin),
          word.substr(end)};
}

} // namespace

/// Chunk 0 is left out, so that schedules of one chunk a rank read as in the
/// papers.
std::string schedule::print(const Action &action) {
  if (const ActionFacts &facts = getActionFacts(action.kind);
      facts.isOnceAStep())
    return capitalize(facts);
  std::string text = action.chunk ? std::to_string(action.chunk) : "";
  text += getSpelling(action).name;
  return text += std::to_string(action.microbatch);
}

std::string schedule::print(std::span<const Action> actions) {
  std::string text;
  for (const Action &action : actions) {
    if (!text.empty())
      text += ' ';
    text += print(action);
  }
  return text;
}

std::string schedule::print(const Schedule &schedule) {
  std::string text;
  for (const std::vector<Action> &actions : schedule.ranks)
    text += print(actions) + '\n';
  return text;
}

/// Whether there are numbers decides along with the name: `REDUCE0` and a bare
/// `F` are no actions, and neither is `1REDUCE`, since what happens once a step
/// belongs to no chunk.
Result<Action> schedule::parseAction(std::string_view word) {
  auto [chunk, name, microbatch] = splitWord(word);
  if (chunk.empty() && microbatch.empty())
    if (std::optional<ActionKind> once = findOnceAStep(name))
      return Action{*once};
  const Spelling *found = nullptr;
  for (const Spelling &spelling : spellings)
    if (spelling.name == name && !microbatch.empty())
      found = &spelling;
  if (!found)
    return fail("'", word, "' is not a schedule action");
  Action action;
  action.kind = found->kind;
  action.direction = found->direction;
  if ((!chunk.empty() && !parseNumber(chunk, action.chunk)) ||
      !parseNumber(microbatch, action.microbatch))
    return fail("'", word, "' has a number above ",
                std::numeric_limits<uint32_t>::max());
  return action;
}

/// One pass over the line. The failure counts actions and not columns, because
/// that is how verify and the simulator name them, too.
Result<std::vector<Action>> schedule::parseActions(std::string_view line) {
  constexpr std::string_view blanks = " \t\r";
  std::vector<Action> actions;
  size_t begin = line.find_first_not_of(blanks);
  while (begin != std::string_view::npos) {
    size_t end = std::min(line.find_first_of(blanks, begin), line.size());
    Result<Action> action = parseAction(line.substr(begin, end - begin));
    if (!action.ok())
      return fail("action ", actions.size(), ": ", action.status().message());
    actions.push_back(*action);
    begin = line.find_first_not_of(blanks, end);
  }
  return actions;
}

/// Checks what a single action can be wrong about on `rank`; sets its peer.
static Status place(const Problem &problem, uint32_t rank, Action &action) {
  if (action.chunk >= problem.chunks)
    return fail("'", print(action), "' names chunk ", action.chunk,
                ", the schedule has ", problem.chunks);
  if (action.microbatch >= problem.microbatches)
    return fail("'", print(action), "' names microbatch ", action.microbatch,
                ", the schedule has ", problem.microbatches);
  if (!action.isTransfer())
    return Status::success();
  // The peer follows from where the neighbouring stage is; none means that the
  // message leaves the pipeline or that both stages are on this rank.
  auto peer = peerOf(problem, rank, action.chunk, action.direction,
                     action.kind == ActionKind::Recv);
  if (!peer)
    return fail("'", print(action), "' on rank ", rank,
                " has no other rank to exchange a message with");
  action.peer = *peer;
  return Status::success();
}

Result<Schedule>
schedule::placeActions(const Problem &problem, std::string kind,
                       std::vector<std::vector<Action>> ranks) {
  PLAIT_RETURN_IF_ERROR(problem.check());
  if (ranks.size() != problem.stages)
    return fail("there are actions of ", ranks.size(), " ranks, expected ",
                problem.stages);
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    for (size_t i = 0; i < ranks[rank].size(); ++i)
      if (Status status = place(problem, rank, ranks[rank][i]); !status.ok())
        return fail("rank ", rank, ", action ", i, ": ", status.message());
  return Schedule{problem, std::move(kind), std::move(ranks)};
}

/// The last line may lack its newline; an empty line is a rank without actions,
/// which verify refuses.
Result<Schedule> schedule::parseSchedule(const Problem &problem,
                                         std::string kind,
                                         std::string_view text) {
  std::vector<std::vector<Action>> ranks;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    auto actions = parseActions(text.substr(0, end));
    if (!actions.ok())
      return fail("rank ", ranks.size(), ", ", actions.status().message());
    ranks.push_back(std::move(*actions));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return placeActions(problem, std::move(kind), std::move(ranks));
}
