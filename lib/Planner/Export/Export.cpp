//===- Export.cpp - Layouts in the words of other programs ----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of programs, and what several of their texts have in common.
//
//===----------------------------------------------------------------------===//

#include "Export/Text.h"
#include "plait/Planner/Abilities.h"
#include "plait/Support/Suggest.h"

#include <algorithm>
#include <charconv>

using namespace plait;
using namespace plait::planner;

static constexpr Program programs[] = {
    {"megatron", "megatron-core", emitMegatron, readMegatron},
    {"torchtitan", "torchtitan", emitTorchtitan, nullptr},
    {"deepspeed", "deepspeed", emitDeepSpeed, nullptr},
};

std::span<const Program> planner::getPrograms() { return programs; }

Result<const Program *> planner::findProgram(std::string_view name) {
  return findNamed("program", name, getPrograms());
}

Result<Emitted> planner::emitJob(std::string_view name, const Job &job) {
  Result<const Program *> program = findProgram(name);
  if (!program.ok())
    return program.status();
  return (*program)->emit(job);
}

//===----------------------------------------------------------------------===//
// Parts of texts
//===----------------------------------------------------------------------===//

Result<Launch> planner::getLaunch(const Job &job) {
  int64_t ranks = job.configuration.ranks(), node = job.cluster.devicesPerNode;
  if (ranks <= node)
    return Launch{1, ranks};
  if (ranks % node == 0)
    return Launch{ranks / node, node};
  return fail("the choice has ", ranks, " ranks, which are no whole nodes of ",
              node, " devices: pin another mesh, or give a smaller `cluster`");
}

std::string planner::printHead(const Job &job,
                               const std::vector<std::string> &notes) {
  const Framework &framework = job.training.framework;
  std::string text = "# " + std::to_string(job.configuration.ranks()) +
                     " devices of " + job.cluster.name + ": " +
                     print(job.configuration) + "\n# Written by plait for " +
                     getAbilities(framework).version + ".\n";
  for (const std::string &note : notes)
    text += "# " + note + "\n";
  return text;
}

std::string planner::printTorchrun(const Launch &launch) {
  return "torchrun --nnodes " + std::to_string(launch.nodes) +
         " --nproc-per-node " + std::to_string(launch.processes) +
         " $TORCHRUN_ARGS";
}

bool planner::isEven(const std::vector<int> &layers) {
  return std::ranges::adjacent_find(layers, std::not_equal_to()) ==
         layers.end();
}

std::string planner::printExact(double value) {
  char digits[64];
  return std::string(digits,
                     std::to_chars(digits, std::end(digits), value).ptr);
}

//===----------------------------------------------------------------------===//
// Shell
//===----------------------------------------------------------------------===//

namespace {

/// Cuts a text into words, one call.
class ShellCutter {
public:
  explicit ShellCutter(std::string_view text) : text(text) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < text.size(); ++i)
      take(text[i], i);
    finish();
    return std::move(words);
  }

private:
  /// A backslash in front of a line end joins lines; elsewhere it takes the
  /// next letter as it is. Brackets are those of an array.
  void take(char letter, size_t &i) {
    bool isBlank =
        letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r';
    if (quote) {
      letter == quote ? void(quote = 0) : word.push_back(letter);
    } else if (letter == '\'' || letter == '"') {
      quote = letter;
      isOpen = true;
    } else if (letter == '#' && !isOpen && word.empty()) {
      i = std::min(text.find('\n', i), text.size());
    } else if (letter == '\\') {
      if (++i < text.size() && text[i] != '\n' && text[i] != '\r')
        word.push_back(text[i]);
    } else if (isBlank || letter == '(' || letter == ')') {
      finish();
    } else {
      word.push_back(letter);
    }
  }

  void finish() {
    if (isOpen || !word.empty())
      words.push_back(std::exchange(word, ""));
    isOpen = false;
  }

  std::string_view text;
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  bool isOpen = false; // has had quotes, and is a word even if it is empty
};

} // namespace

/// The value of an option of torchrun, whichever way it is spelled; `usual`
/// where it is not there, 0 where it is no count, as a variable of the shell.
static int64_t findCount(std::span<const std::string> words,
                         std::string_view name, int64_t usual) {
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    std::ranges::replace(word, '_', '-');
    std::string_view rest = word;
    if (!rest.starts_with(name))
      continue;
    rest.remove_prefix(name.size());
    if (rest.empty() && i + 1 < words.size())
      rest = words[i + 1];
    else if (rest.starts_with('='))
      rest.remove_prefix(1);
    int64_t count = 0;
    auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), count);
    bool isCount = error == std::errc() && end == rest.data() + rest.size() &&
                   count > 0 && count <= Mesh::kMostRanks;
    return isCount ? count : 0;
  }
  return usual;
}

/// Words between torchrun and the name of a Python file are the launcher's.
/// Flags in arrays come before that, and are kept.
ShellWords planner::splitShell(std::string_view text) {
  ShellWords result;
  result.words = ShellCutter(text).run();
  auto isLauncher = [](const std::string &word) {
    return word == "torchrun" || word.ends_with("/torchrun");
  };
  auto begin = std::ranges::find_if(result.words, isLauncher);
  auto end = std::find_if(begin, result.words.end(), [](const auto &word) {
    return word.ends_with(".py");
  });
  if (end == result.words.end())
    return result;
  std::span<const std::string> launcher(begin, end);
  result.processes = findCount(launcher, "--nproc-per-node", /*usual=*/0) *
                     findCount(launcher, "--nnodes", /*usual=*/1);
  result.words.erase(begin, end + 1);
  return result;
}
