//===- OptionFile.cpp - Options out of a file -----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two forms of a table of options, both as TOML has values: a file of plait-run
// and the JSON object of a program.
//
//===----------------------------------------------------------------------===//

#include "OptionFile.h"

#include "plait/Plan/Json.h"

#include <cctype>
#include <cmath>
#include <set>
#include <sstream>
#include <toml++/toml.h>

namespace {

/// A table whose keys are the long names of options. CLI11 asks it for items,
/// and checks their values as it does those of the command line. Errors name
/// where the table is from; keys that are no options are errors, so that a
/// typing mistake does not go unseen.
class OptionTable : public CLI::Config {
public:
  explicit OptionTable(const CLI::App &app) : app(app) {}

  /// Nothing is ever written.
  std::string to_config(const CLI::App *, bool, bool,
                        std::string) const override {
    return "";
  }

protected:
  /// Keys are all at the top level: tables would be values that fit no option.
  /// They come in the order of their names, each once.
  std::vector<CLI::ConfigItem> makeItems(toml::table table) const {
    std::vector<CLI::ConfigItem> items;
    for (auto &&[key, value] : table) {
      CLI::ConfigItem item = makeItem(std::string(key.str()), value);
      // CLI11 would take a flag that is false for given, with all that it needs
      // and excludes.
      if (value.value_exact<bool>() != false && !isReplaced(item.name))
        items.push_back(std::move(item));
    }
    return items;
  }

  /// Exceptions are how CLI11 reports errors.
  [[noreturn]] void refuse(const std::string &what) const {
    throw CLI::ConfigError(nameSource() + " " + what,
                           CLI::ExitCodes::ConfigError);
  }

  virtual std::string nameSource() const = 0;
  /// The name of an option, as people find it in the source.
  virtual std::string quote(const std::string &name) const {
    return "'" + name + "'";
  }
  /// Whether the table may set an option that there is.
  virtual bool takes(const std::string &name) const = 0;

private:
  /// The command line has been parsed before the file is asked for.
  bool isReplaced(const std::string &name) const {
    for (auto [one, other] : plait::alternativeOptions)
      if (("--" + name == one && app.count(other)) ||
          ("--" + name == other && app.count(one)))
        return true;
    return false;
  }

  /// 1. The key must be an option that a file may set.
  /// 2. Lists are for a few options only.
  /// 3. Any other value must have the option's type: flags are truth values,
  ///    texts strings or whole numbers ("30m", 100), others numbers, whole ones
  ///    where they count something (100, 1e4, "10k").
  /// 4. As text, which CLI11 parses.
  CLI::ConfigItem makeItem(const std::string &name, toml::node &value) const {
    // 1. The plan alone is no option with dashes.
    const CLI::Option *option =
        app.get_option_no_throw(name == "plan" ? name : "--" + name);
    // What ends the program or reads files has no place in a table.
    if (!option || name == "config" || name == "version" ||
        name.starts_with("help") || !takes(option->get_single_name()))
      refuse("sets " + quote(name) + ", which is no option");
    // CLI11 knows an option's type by the name that it shows.
    bool isFlag = option->get_expected_max() == 0;
    std::string type = option->get_type_name();
    bool isText = type.starts_with("TEXT");
    bool isWhole = type.starts_with("UINT") || type.starts_with("INT");
    // 2. Lists.
    if (auto *list = value.as_array(); list && takesList(name))
      return {{}, name, {joinList(name, *list)}};
    // 3. Types.
    bool fits = isFlag    ? value.is_boolean()
                : isText  ? value.is_string() || value.is_integer()
                : isWhole ? value.is_integer() || isCount(value)
                          : value.is_number();
    if (!fits)
      refuse("sets " + quote(name) + " to what is no " +
             (isFlag    ? "truth value"
              : isText  ? "string"
              : isWhole ? "whole number"
                        : "number"));
    // 4. Text.
    CLI::ConfigItem item;
    item.name = name;
    // As it is: printed as TOML it would have quotes.
    if (auto text = value.value_exact<std::string>()) {
      item.inputs = {*text};
      return item;
    }
    if (auto number = value.value_exact<double>(); number && isWhole) {
      item.inputs = {std::to_string(int64_t(*number))};
      return item;
    }
    std::ostringstream printed;
    // Numbers as TOML prints them, which CLI11 reads.
    value.visit([&](auto &one) { printed << one; });
    item.inputs = {printed.str()};
    return item;
  }

  /// Whether it is a whole number that has another type: one with an exponent
  /// is a floating-point number, "10k" is text, as is what has 64 bits.
  static bool isCount(const toml::node &value) {
    if (auto number = value.value_exact<double>())
      return *number == std::trunc(*number) && std::abs(*number) < 0x1p53;
    auto text = value.value_exact<std::string>();
    return text && !text->empty() && std::isdigit((unsigned char)text->front());
  }

  static bool takesList(const std::string &name) {
    return std::set<std::string>{"tokens", "text", "eval-tokens", "eval-text"}
        .count(name);
  }

  /// Joins it as the command line does.
  std::string joinList(const std::string &name, toml::array &list) const {
    std::string joined;
    for (toml::node &one : list) {
      auto text = one.value_exact<std::string>();
      if (!text)
        refuse("sets " + quote(name) + " to a list of what are no strings");
      joined += (joined.empty() ? "" : ",") + *text;
    }
    return joined;
  }

protected:
  const CLI::App &app;
};

class TomlFile : public OptionTable {
public:
  using OptionTable::OptionTable;

  std::vector<CLI::ConfigItem> from_config(std::istream &input) const override {
    try {
      return makeItems(toml::parse(input));
    } catch (const toml::parse_error &error) {
      refuse(describe(error));
    }
  }

private:
  std::string nameSource() const override {
    return "'" + app.get_option("--config")->as<std::string>() + "'";
  }
  bool takes(const std::string &name) const override { return true; }

  /// One line, with line and column.
  static std::string describe(const toml::parse_error &error) {
    // Line and column are where the parser gave up.
    std::ostringstream text;
    text << "is not TOML: " << error.source().begin.line << ":"
         << error.source().begin.column << ": " << error.description();
    return text.str();
  }
};

/// A JSON object, whose values become those of TOML.
class JsonObject : public OptionTable {
public:
  JsonObject(const CLI::App &app, std::string plan)
      : OptionTable(app), plan(std::move(plan)) {}

  std::vector<CLI::ConfigItem> from_config(std::istream &input) const override {
    std::string text(std::istreambuf_iterator<char>(input), {});
    plait::Result<Json> object = plait::parseJson<Json>(
        {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
    if (!object.ok())
      refuse("is no JSON object: the text " + object.status().message());
    if (!object->is_object())
      refuse("is no JSON object");
    toml::table table;
    for (const auto &[name, value] : object->items())
      insert(table, name, value);
    auto items = makeItems(std::move(table));
    items.push_back({{}, "plan", {plan}});
    return items;
  }

private:
  using Json = nlohmann::json;

  /// Marks the option that is to blame (plait/Support/Status.h).
  std::string quote(const std::string &name) const override {
    return "`" + name + "`";
  }
  std::string nameSource() const override { return "what is given as options"; }

  /// Leaves out what a run that is stepped from outside does by calls, or not
  /// at all.
  bool takes(const std::string &name) const override {
    static const std::set<std::string> others = {
        "plan",       "check",         "save",      "profile",  "trace",
        "hosts",      "trace-steps",   "supervise", "launcher", "max-restarts",
        "coordinate", "round-timeout", "meet",      "site"};
    return !others.count(name);
  }

  /// Values that fit no option become tables, which fit none either.
  void insert(toml::table &table, const std::string &name,
              const Json &value) const {
    if (value.is_boolean()) {
      table.insert_or_assign(name, value.get<bool>());
    } else if (value.is_number_integer() &&
               (!value.is_number_unsigned() ||
                value.get<uint64_t>() <= uint64_t(INT64_MAX))) {
      table.insert_or_assign(name, value.get<int64_t>());
    } else if (value.is_number_unsigned()) {
      table.insert_or_assign(name, value.dump());
    } else if (value.is_number()) {
      table.insert_or_assign(name, value.get<double>());
    } else if (value.is_string()) {
      table.insert_or_assign(name, value.get<std::string>());
    } else if (value.is_array()) {
      toml::array list;
      for (const Json &one : value)
        if (one.is_string())
          list.push_back(one.get<std::string>());
        else
          list.push_back(toml::table());
      table.insert_or_assign(name, std::move(list));
    } else {
      table.insert_or_assign(name, toml::table());
    }
  }

  std::string plan;
};

} // namespace

std::shared_ptr<CLI::Config> plait::makeTomlReader(const CLI::App &app) {
  return std::make_shared<TomlFile>(app);
}

std::shared_ptr<CLI::Config> plait::makeJsonReader(const CLI::App &app,
                                                   const std::string &plan) {
  return std::make_shared<JsonObject>(app, plan);
}
