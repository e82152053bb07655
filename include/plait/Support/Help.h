//===- Help.h - Help of the tools -------------------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_HELP_H
#define PLAIT_SUPPORT_HELP_H

#include <CLI/CLI.hpp>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace plait::tool {

/// Help in 100 columns. What an option may have is said by the error that
/// refuses another value: here are its type or its choices, and its default,
/// without ranges and without the options that it needs or excludes.
class HelpFormatter : public CLI::Formatter {
public:
  HelpFormatter() = default;
  /// --help shows the options of `usual`, by their long names, and --help-all
  /// the others as well. A new option is one of those until it is listed.
  explicit HelpFormatter(std::set<std::string> usual)
      : usual(std::move(usual)) {}

  /// Knows which help is wanted, and make_group() which options: CLI11 calls
  /// the one within the other, on a const object.
  std::string make_help(const CLI::App *app, std::string name,
                        CLI::AppFormatMode mode) const override {
    showsAll = usual.empty() || mode == CLI::AppFormatMode::All;
    std::string help = Formatter::make_help(app, std::move(name), mode);
    // CLI11 ends a group that shows nothing with an empty line, too.
    for (size_t at = 0; (at = help.find("\n\n\n")) != std::string::npos;)
      help.erase(at, 1);
    return help;
  }

  std::string
  make_group(std::string group, bool isPositional,
             std::vector<const CLI::Option *> options) const override {
    std::erase_if(options, [&](const CLI::Option *option) {
      return !showsAll && !usual.count(option->get_single_name());
    });
    return options.empty()
               ? ""
               : Formatter::make_group(std::move(group), isPositional, options);
  }

  std::string make_description(const CLI::App *app) const override {
    return wrap(app->get_description(), columns) + "\n";
  }

  std::string make_option_opts(const CLI::Option *option) const override {
    if (option->get_type_size() == 0)
      return "";
    std::string type = option->get_type_name();
    if (size_t colon = type.find(':'); colon != type.npos) {
      bool hasChoices = type.compare(colon + 1, 1, "{") == 0;
      type = colon == 0 || hasChoices ? type.substr(colon + 1)
                                      : type.substr(0, colon);
    }
    std::string usualValue = option->get_default_str();
    return " " + type + (usualValue.empty() ? "" : "=" + usualValue) +
           (option->get_expected_max() == CLI::detail::expected_max_vector_size
                ? " ..."
                : "");
  }

  std::string make_option_desc(const CLI::Option *option) const override {
    return wrap(option->get_description(), columns - get_column_width());
  }

private:
  static constexpr size_t columns = 100;

  static std::string wrap(const std::string &words, size_t width) {
    std::istringstream all(words);
    std::string text;
    size_t used = 0;
    for (std::string word; all >> word; used += word.size()) {
      bool fits = used + 1 + word.size() <= width;
      if (!text.empty())
        text += fits ? ' ' : '\n';
      used = fits && !text.empty() ? used + 1 : 0;
      text += word;
    }
    return text;
  }

  std::set<std::string> usual; // empty: all
  mutable bool showsAll = true;
};

} // namespace plait::tool

#endif // PLAIT_SUPPORT_HELP_H
