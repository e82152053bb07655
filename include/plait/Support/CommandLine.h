//===- CommandLine.h - Command lines of the tools ---------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_COMMANDLINE_H
#define PLAIT_SUPPORT_COMMANDLINE_H

#include "plait/Support/Fields.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace plait::tool {

/// `message` without what moves a terminal's cursor or changes its colours:
/// names in it may come from a damaged file.
inline std::string makePrintable(const std::string &message) {
  std::string text;
  for (char letter : message) {
    auto code = static_cast<unsigned char>(letter);
    bool isControl =
        (code < 0x20 && code != '\n' && code != '\t') || code == 0x7f;
    char escaped[] = "\\x00";
    std::snprintf(escaped, sizeof(escaped), "\\x%02x", code);
    text += isControl ? std::string(escaped) : std::string(1, letter);
  }
  return text;
}

/// Help in 100 columns. What an option may have is said by the error that
/// refuses another value: here are its type or its choices, and its default,
/// without ranges and without the options that it needs or excludes.
class HelpFormatter : public CLI::Formatter {
public:
  std::string make_option_opts(const CLI::Option *option) const override {
    if (option->get_type_size() == 0)
      return "";
    std::string type = option->get_type_name();
    if (size_t colon = type.find(':'); colon != type.npos) {
      bool hasChoices = type.compare(colon + 1, 1, "{") == 0;
      type = colon == 0 || hasChoices ? type.substr(colon + 1)
                                      : type.substr(0, colon);
    }
    std::string usual = option->get_default_str();
    return " " + type + (usual.empty() ? "" : "=" + usual) +
           (option->get_expected_max() == CLI::detail::expected_max_vector_size
                ? " ..."
                : "");
  }

  std::string make_option_desc(const CLI::Option *option) const override {
    std::istringstream words(option->get_description());
    std::string text;
    size_t width = columns - get_column_width(), used = 0;
    for (std::string word; words >> word; used += word.size()) {
      bool fits = used + 1 + word.size() <= width;
      if (!text.empty())
        text += fits ? ' ' : '\n';
      used = fits && !text.empty() ? used + 1 : 0;
      text += word;
    }
    return text;
  }

private:
  static constexpr size_t columns = 100;
};

/// Prints "TOOL: KIND: MESSAGE" on standard error, where options that `message`
/// names are spelt as on a command line.
inline void printMessage(const CLI::App &app, const char *kind,
                         const std::string &message) {
  std::fprintf(stderr, "%s: %s: %s\n", app.get_name().c_str(), kind,
               makePrintable(spellFields(message)).c_str());
}

inline void printError(const CLI::App &app, const std::string &message) {
  printMessage(app, "error", message);
}

/// The same for what is no error of its own.
inline void printNote(const CLI::App &app, const std::string &message) {
  printMessage(app, "note", message);
}

/// Says what CLI11 does in our words: the first letter small, one line.
inline std::string describe(const CLI::ParseError &error) {
  std::string message = error.what();
  message = message.substr(0, message.find('\n'));
  bool isWord = message.size() > 1 &&
                (message[1] == ' ' ||
                 std::islower(static_cast<unsigned char>(message[1])));
  if (isWord)
    message[0] = std::tolower(static_cast<unsigned char>(message[0]));
  return message;
}

/// The first of `arguments` that nothing takes, options before others: in front
/// of an unknown option's value that option is to blame. CLI11 names them in
/// another order, and a missing command rather than one that does not exist.
inline std::optional<std::string>
findUnknown(const CLI::App &app, const std::vector<std::string> &arguments) {
  std::vector<std::string> left = app.remaining(/*recurse=*/true);
  auto isLeft = [&](const std::string &argument) {
    return std::find(left.begin(), left.end(), argument) != left.end();
  };
  for (const std::string &argument : arguments)
    if (argument.size() > 1 && argument[0] == '-' && isLeft(argument))
      return "unknown option '" + argument.substr(0, argument.find('=')) + "'";
  auto found = std::find_if(arguments.begin(), arguments.end(), isLeft);
  if (found == arguments.end())
    return std::nullopt;
  auto commands = app.get_subcommands([](const CLI::App *) { return true; });
  if (commands.empty() || !app.get_subcommands().empty())
    return "unexpected argument '" + *found + "'";
  std::string names;
  for (const CLI::App *command : commands)
    names += (names.empty() ? "" : ", ") + command->get_name();
  return "unknown command '" + *found + "', expected one of " + names;
}

/// Whether CLI11 reads `text` as what it says: it takes leading zeros for octal
/// and what has more than 64 bits for the largest number.
inline bool isDecimal(const std::string &text) {
  size_t sign = text.starts_with('-') ? 1 : 0;
  uint64_t magnitude = 0;
  const char *end = text.data() + text.size();
  auto [next, error] = std::from_chars(text.data() + sign, end, magnitude);
  bool hasZeros = text.size() > sign + 1 && text[sign] == '0';
  return error == std::errc() && next == end && !hasZeros;
}

/// Refuses values that no option means: an empty one, of a variable of the
/// shell that is not set, say, would be no option at all.
inline void checkValues(const CLI::App &app) {
  for (const CLI::Option *option : app.get_options()) {
    std::string name = option->get_name();
    std::string type = option->get_type_name();
    bool isInteger = type.starts_with("INT") || type.starts_with("UINT");
    for (const std::string &value : option->results()) {
      if (value.empty())
        throw CLI::ParseError(name + " is empty", CLI::ExitCodes::InvalidError);
      if (isInteger && !isDecimal(value))
        throw CLI::ParseError(name + " is '" + value +
                                  "', expected a decimal number of 64 bits",
                              CLI::ExitCodes::InvalidError);
    }
  }
  for (const CLI::App *command : app.get_subcommands())
    checkValues(*command);
}

inline const std::string lostText = "cannot write standard output: ";

/// Returns what a program exits with that would with `code`: `failure` after a
/// message where what it has printed is lost, on a full disk say.
inline int finish(const CLI::App &app, int code, int failure = 1) {
  bool isWhole = bool(std::cout.flush());
  isWhole &= std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (isWhole)
    return code;
  printError(app, lostText + std::strerror(errno));
  return failure;
}

/// Lets the last value of an option that is given twice count, as scripts
/// around a tool rely on. Options that are lists say so, and keep all.
inline void letLastCount(CLI::App &app) {
  for (CLI::Option *option :
       app.get_options([](CLI::Option *) { return true; }))
    if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw &&
        option->get_items_expected_max() <= 1)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (CLI::App *command : app.get_subcommands([](CLI::App *) { return true; }))
    letLastCount(*command);
}

/// Adds an option whose value is a list with commas. Given again, it adds to
/// the list.
inline CLI::Option *addList(CLI::App &app, const std::string &name,
                            std::string &list, const std::string &help) {
  auto join = [&list](const std::vector<std::string> &values) {
    list = CLI::detail::join(values, ",");
  };
  return app.add_option_function<std::vector<std::string>>(name, join, help)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("TEXT");
}

/// Returns what `option` was given: all of a list, else the last.
inline std::string getValue(const CLI::Option &option) {
  bool isList =
      option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return isList ? CLI::detail::join(option.results(), ",")
                : option.results().back();
}

/// Parses the arguments, --version among them. What the program has to exit
/// with at once, if it has: 0 after --help, 1 after an error, which has been
/// printed unless `isQuiet`.
inline std::optional<int> parse(CLI::App &app, int argc, char **argv,
                                bool isQuiet = false) {
  if (!app.get_version_ptr())
    app.set_version_flag("--version", app.get_name() + " " PLAIT_VERSION,
                         "Print the version and exit");
  letLastCount(app);
  try {
    app.parse(argc, argv);
    checkValues(app);
    return std::nullopt;
  } catch (const CLI::Success &request) {
    return isQuiet ? 0 : finish(app, app.exit(request));
  } catch (const CLI::ParseError &error) {
    if (isQuiet)
      return 1;
    printError(
        app,
        findUnknown(app, {argv + 1, argv + argc}).value_or(describe(error)));
    return 1;
  }
}

} // namespace plait::tool

#endif // PLAIT_SUPPORT_COMMANDLINE_H
