//===- Csv.cpp - Schedules as PyTorch writes them -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads and writes the compute-only form of PyTorch's pipeline schedules.
// Writing is a walk over the lists. Reading goes from the text to a schedule in
// five steps, each of which may rely on the ones before:
//
// 1. Words: each cell becomes a stage, a microbatch and a kind of work.
// 2. Placement: how many ranks, stages and microbatches there are, and which
//    Placement has every stage on its line. The file says none of that.
// 3. Messages and sharding commands are checked for what they name, and
//    dropped.
// 4. Each action is there once and after what it depends on, on its own rank.
// 5. Run together, the ranks do not wait for each other for ever.
//
// Steps 4 and 5 check what Verify.cpp checks as well. They are done here first,
// because here the line and column are known that a user can look at.
//
//===----------------------------------------------------------------------===//

#include "plait/Schedule/Csv.h"
#include "Execute.h"
#include "plait/Plan/Files.h"
#include "plait/Schedule/Verify.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

using namespace plait;
using namespace plait::schedule;

namespace {

/// A kind of action and how PyTorch writes it (2.6 and later; B was called BW
/// before; those that wait are new in 2.15). Of what is not work only the stage
/// matters, and whether a microbatch follows.
struct Spelling {
  std::string_view name;
  std::optional<ActionKind> work;
  bool numbered;
};

// In the order of ActionKind as far as they are work: printWork takes them by
// index.
constexpr Spelling spellings[] = {
    {"F", ActionKind::Forward, true},
    {"B", ActionKind::Backward, true},
    {"I", ActionKind::BackwardInput, true},
    {"W", ActionKind::BackwardWeight, true},
    {"SEND_F", std::nullopt, true},
    {"SEND_B", std::nullopt, true},
    {"RECV_F", std::nullopt, true},
    {"RECV_B", std::nullopt, true},
    {"WAIT_SEND_F", std::nullopt, true},
    {"WAIT_SEND_B", std::nullopt, true},
    {"UNSHARD", std::nullopt, false},
    {"RESHARD", std::nullopt, false},
    {"REDUCE_GRAD", std::nullopt, false},
    {"WAIT_REDUCE_GRAD", std::nullopt, false},
};

// What follows the bracket around two actions that PyTorch runs side by side.
constexpr std::string_view overlap = "OVERLAP_F_B";

/// An action that knows where it was read.
struct Cell {
  std::optional<ActionKind> work;
  uint32_t stage = 0, microbatch = 0;
  uint32_t column = 0; // from 1
  std::string_view text;
};

/// Returns as much of a word as a message needs: what is no schedule may be one
/// line of any length. UTF-8 is cut between characters.
std::string shorten(std::string_view word) {
  size_t most = 60;
  if (word.size() <= most)
    return std::string(word);
  while (most > 0 && (word[most] & 0xc0) == 0x80)
    --most;
  return std::string(word.substr(0, most)) + " …";
}

/// Reads one text, once. Cells refer to the text, which has to outlive the
/// reader. `columns` is the table that makes each check of the order constant
/// in time: for each kind of work, stage and microbatch the column where it was
/// read.
class CsvReader {
public:
  explicit CsvReader(std::string_view text) : text(text) {}

  Result<Schedule> run();

private:
  Status parseLines();
  Status parseLine(std::string_view line);
  Status parseOverlap(std::string_view word, uint32_t column);
  Status parseCell(std::string_view word, uint32_t column);
  Status findPlacement();
  Status checkPlacement() const;
  Status checkMessages() const;
  Status addActions(uint32_t rank);
  Status checkComplete(uint32_t rank) const;
  Status checkOrder() const;
  Status checkBackward(uint32_t rank, const Cell &cell) const;

  /// The column in which an action was read; 0: nowhere yet.
  uint32_t &columnOf(ActionKind kind, uint32_t stage, uint32_t microbatch) {
    return columns[(size_t(kind) * problem.virtualStages() + stage) *
                       problem.microbatches +
                   microbatch];
  }
  uint32_t findColumn(ActionKind kind, uint32_t stage,
                      uint32_t microbatch) const {
    return const_cast<CsvReader *>(this)->columnOf(kind, stage, microbatch);
  }
  template <typename... Parts>
  Status failAt(size_t rank, uint32_t column, std::string_view word,
                const Parts &...parts) const {
    return fail("line ", rank + 1, ", column ", column, ": '", shorten(word),
                "' ", parts...);
  }

  std::string_view text;
  std::vector<std::vector<Cell>> ranks;
  Problem problem;
  std::vector<uint32_t> columns;
  Schedule schedule;
};

} // namespace

/// Numbers work as PyTorch does: by virtual stage, where Schedule.h's text has
/// the chunk.
static std::string printWork(ActionKind kind, uint32_t stage,
                             uint32_t microbatch) {
  return std::to_string(stage) + std::string(spellings[size_t(kind)].name) +
         std::to_string(microbatch);
}

/// Messages and what happens once a step are left out: a complete schedule is
/// written as the compute-only one that it was made from. No cell is empty: how
/// long a rank idles is a question of costs.
std::string schedule::printCsv(const Schedule &schedule) {
  std::string text;
  for (uint32_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    bool first = true;
    for (const Action &action : schedule.ranks[rank]) {
      if (!action.isCompute())
        continue;
      text += first ? "" : ",";
      first = false;
      text +=
          printWork(action.kind, schedule.problem.stageOf(rank, action.chunk),
                    action.microbatch);
    }
    text += '\n';
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Words
//===----------------------------------------------------------------------===//

/// The part of `list` before the first `separator`, which is taken off.
static std::string_view split(std::string_view &list, char separator) {
  size_t end = std::min(list.find(separator), list.size());
  std::string_view part = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return part;
}

/// A carriage return counts as a blank: files may come from anywhere.
static std::string_view trim(std::string_view word) {
  constexpr std::string_view blanks = " \t\r";
  size_t begin = std::min(word.find_first_not_of(blanks), word.size());
  return word.substr(begin, word.find_last_not_of(blanks) + 1 - begin);
}

/// Reads a number in front of `word`; numbers are at most those of a problem.
static bool takeNumber(std::string_view &word, uint32_t &value) {
  const char *end = word.data() + word.size();
  auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || value >= uint32_t(1) << 22)
    return false;
  word.remove_prefix(size_t(rest - word.data()));
  return true;
}

/// A cell is a number, a name and, for some names, a number. What is between
/// the two runs of digits is looked up as a whole, so that `0FOO1` is refused
/// and not read as an F. The failure quotes the whole word: which of its parts
/// is wrong, the reader cannot know.
Status CsvReader::parseCell(std::string_view word, uint32_t column) {
  Cell cell;
  cell.text = word;
  cell.column = column;
  std::string_view rest = word;
  if (takeNumber(rest, cell.stage)) {
    size_t end = std::min(rest.find_first_of("0123456789"), rest.size());
    std::string_view name = rest.substr(0, end);
    rest.remove_prefix(end);
    for (const Spelling &spelling : spellings) {
      // A spelling with a number does not match a word without one, nor the
      // other way round.
      if (spelling.name != name || rest.empty() == spelling.numbered)
        continue;
      if (spelling.numbered &&
          !(takeNumber(rest, cell.microbatch) && rest.empty()))
        break;
      cell.work = spelling.work;
      ranks.back().push_back(cell);
      return Status::success();
    }
  }
  return failAt(ranks.size() - 1, column, word,
                "is no action of a stage, expected for example 0F0, 1B2, 1I3 "
                "or 1W3: virtual stage, F, B, I or W, microbatch");
}

/// `(0F4;7B0)OVERLAP_F_B`: what is in brackets, here one after the other.
Status CsvReader::parseOverlap(std::string_view word, uint32_t column) {
  size_t close = word.find(')');
  if (close == word.npos || word.substr(close + 1) != overlap)
    return failAt(ranks.size() - 1, column, word,
                  "opens a bracket, expected for example (0F4;7B0)", overlap);
  for (std::string_view parts = word.substr(1, close - 1); !parts.empty();)
    PLAIT_RETURN_IF_ERROR(parseCell(trim(split(parts, ';')), column));
  return Status::success();
}

/// A cell without the quotes that spreadsheets put around it.
static std::string_view unquote(std::string_view word) {
  word = trim(word);
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"')
    word = trim(word.substr(1, word.size() - 2));
  return word;
}

/// A line is a rank. Empty cells count as columns, so that those in messages
/// are the ones that a spreadsheet shows.
Status CsvReader::parseLine(std::string_view line) {
  ranks.emplace_back();
  for (uint32_t column = 1; !line.empty(); ++column) {
    std::string_view word = unquote(split(line, ','));
    if (word.empty())
      continue; // idle
    PLAIT_RETURN_IF_ERROR(word.front() == '(' ? parseOverlap(word, column)
                                              : parseCell(word, column));
  }
  return Status::success();
}

/// A line without cells is a rank without work, which later checks refuse;
/// those at the end are how editors and spreadsheets end a file. What a file
/// begins with says how the text is encoded, and is none of it.
Status CsvReader::parseLines() {
  constexpr std::string_view byteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(byteOrderMark))
    text.remove_prefix(byteOrderMark.size());
  while (!text.empty())
    PLAIT_RETURN_IF_ERROR(parseLine(split(text, '\n')));
  while (!ranks.empty() && ranks.back().empty())
    ranks.pop_back();
  if (ranks.empty())
    return fail("is empty, expected one line for each rank");
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Placement
//===----------------------------------------------------------------------===//

/// Whether every cell is on the line that holds its stage, under the placement
/// that `problem` has at the moment. The message describes both placements,
/// since it is only shown where neither is right.
Status CsvReader::checkPlacement() const {
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    for (const Cell &cell : ranks[rank])
      if (cell.stage >= problem.virtualStages() ||
          problem.rankOf(cell.stage) != rank)
        return failAt(rank, cell.column, cell.text,
                      "is not on this rank: with ", problem.virtualStages(),
                      " virtual stages on ", problem.stages,
                      " ranks, stage s is on line s mod ", problem.stages,
                      " + 1 (looped), or so on every second turn and in "
                      "reverse on the others (V)");
  return Status::success();
}

/// Which of the placements there are has every stage on its line. Work says how
/// many stages and microbatches there are.
Status CsvReader::findPlacement() {
  uint32_t stages = 0;
  problem.microbatches = 0;
  for (const std::vector<Cell> &cells : ranks)
    for (const Cell &cell : cells)
      if (cell.work) {
        stages = std::max(stages, cell.stage + 1);
        problem.microbatches =
            std::max(problem.microbatches, cell.microbatch + 1);
      }
  problem.stages = uint32_t(ranks.size());
  if (stages == 0 || stages % problem.stages != 0)
    return fail("has work of ", stages, " virtual stages on ", problem.stages,
                " lines, expected a multiple: one line for each rank");
  problem.chunks = stages / problem.stages;
  PLAIT_RETURN_IF_ERROR(problem.check());
  // One chunk a rank fits both placements; round robin is then the name for it.
  Status looped = checkPlacement();
  if (looped.ok())
    return looped;
  problem.placement = Placement::VShape;
  return checkPlacement();
}

/// Messages are checked as far as they say something of the order, and not
/// kept: where they go follows from the work.
Status CsvReader::checkMessages() const {
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    for (const Cell &cell : ranks[rank])
      if (!cell.work && cell.microbatch >= problem.microbatches)
        return failAt(rank, cell.column, cell.text, "names microbatch ",
                      cell.microbatch, ", there is work of ",
                      problem.microbatches);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// Each once, and F before B, I and W of its own.
Status CsvReader::addActions(uint32_t rank) {
  std::vector<Action> &actions = schedule.ranks.emplace_back();
  for (const Cell &cell : ranks[rank]) {
    // Messages and sharding commands have been checked and have no effect.
    if (!cell.work)
      continue;
    uint32_t &seen = columnOf(*cell.work, cell.stage, cell.microbatch);
    if (seen)
      return failAt(rank, cell.column, cell.text,
                    "appears twice, first in column ", seen);
    seen = cell.column;
    PLAIT_RETURN_IF_ERROR(checkBackward(rank, cell));
    actions.push_back(
        {*cell.work, problem.chunkOf(cell.stage), cell.microbatch});
  }
  return Status::success();
}

/// A backward is whole or split, not both, and comes after what it reads: a W
/// after its I, the others after their F. Runs as the actions are entered, in
/// the order of the line, so an action without a column comes later or is
/// missing. Either is an error for what depends on it.
Status CsvReader::checkBackward(uint32_t rank, const Cell &cell) const {
  if (*cell.work == ActionKind::Forward)
    return Status::success();
  bool isWhole = *cell.work == ActionKind::Backward;
  for (ActionKind other : {ActionKind::Backward, ActionKind::BackwardInput,
                           ActionKind::BackwardWeight})
    if (uint32_t column = findColumn(other, cell.stage, cell.microbatch);
        column && isWhole != (other == ActionKind::Backward))
      return failAt(rank, cell.column, cell.text,
                    "is of a backward that column ", column, " has ",
                    isWhole ? "split: " : "whole: ",
                    printWork(other, cell.stage, cell.microbatch));
  ActionKind first = *cell.work == ActionKind::BackwardWeight
                         ? ActionKind::BackwardInput
                         : ActionKind::Forward;
  if (findColumn(first, cell.stage, cell.microbatch))
    return Status::success();
  return failAt(rank, cell.column, cell.text, "comes before ",
                printWork(first, cell.stage, cell.microbatch),
                ", which it depends on");
}

/// Runs after all of the line is entered, and tells of the first stage and
/// microbatch that lack something. Where no backward is there at all, a whole
/// one is asked for, since that is the plainest.
Status CsvReader::checkComplete(uint32_t rank) const {
  for (uint32_t chunk = 0; chunk < problem.chunks; ++chunk)
    for (uint32_t m = 0; m < problem.microbatches; ++m) {
      uint32_t stage = problem.stageOf(rank, chunk);
      auto has = [&](ActionKind kind) {
        return findColumn(kind, stage, m) > 0;
      };
      std::optional<ActionKind> missing;
      if (!has(ActionKind::Forward))
        missing = ActionKind::Forward;
      else if (has(ActionKind::BackwardInput) &&
               !has(ActionKind::BackwardWeight))
        missing = ActionKind::BackwardWeight;
      else if (!has(ActionKind::Backward) && !has(ActionKind::BackwardInput))
        missing = ActionKind::Backward;
      if (missing)
        return fail("line ", rank + 1, ": ", printWork(*missing, stage, m),
                    " is missing");
    }
  return Status::success();
}

/// Whether the lists end when they run together.
Status CsvReader::checkOrder() const {
  // The lists are complete and in order by themselves here, which findBlocked
  // expects. Where they end, verify has the last word, as for any schedule that
  // comes from outside.
  std::optional<Blocked> blocked = findBlocked(schedule);
  if (!blocked)
    return verify(schedule);
  const Action &action = schedule.ranks[blocked->rank][blocked->action];
  uint32_t stage = problem.stageOf(blocked->rank, action.chunk);
  bool isForward = action.kind == ActionKind::Forward;
  // Only an F or a backward that has a neighbouring stage in front of it can be
  // blocked: a W reads nothing from another rank.
  uint32_t source = isForward ? stage - 1 : stage + 1;
  ActionKind kind = ActionKind::Forward;
  if (!isForward)
    kind = findColumn(ActionKind::Backward, source, action.microbatch)
               ? ActionKind::Backward
               : ActionKind::BackwardInput;
  return failAt(
      blocked->rank, findColumn(action.kind, stage, action.microbatch),
      printWork(action.kind, stage, action.microbatch), "waits for ever for ",
      printWork(kind, source, action.microbatch), " in line ",
      problem.rankOf(source) + 1, ", column ",
      findColumn(kind, source, action.microbatch),
      ": what comes before that waits for this line");
}

/// The steps of the banner, in order; the first failure ends it.
Result<Schedule> CsvReader::run() {
  PLAIT_RETURN_IF_ERROR(parseLines());
  PLAIT_RETURN_IF_ERROR(findPlacement());
  PLAIT_RETURN_IF_ERROR(checkMessages());
  schedule.problem = problem;
  columns.assign(4 * size_t(problem.virtualStages()) * problem.microbatches, 0);
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    PLAIT_RETURN_IF_ERROR(addActions(rank));
  for (uint32_t rank = 0; rank < ranks.size(); ++rank)
    PLAIT_RETURN_IF_ERROR(checkComplete(rank));
  PLAIT_RETURN_IF_ERROR(checkOrder());
  return std::move(schedule);
}

Result<Schedule> schedule::parseCsv(std::string_view text) {
  return CsvReader(text).run();
}

Result<Schedule> schedule::readCsv(const std::string &path) {
  Result<std::string> text = readText(path, "schedule");
  if (!text.ok())
    return text.status();
  Result<Schedule> schedule = parseCsv(*text);
  if (!schedule.ok())
    return fail("schedule '", path, "': ", schedule.status().message());
  return schedule;
}
