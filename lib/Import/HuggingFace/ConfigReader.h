//===- ConfigReader.h - The fields of a config.json ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads fields one by one and remembers the first thing that is wrong: the
// caller reads all that it wants and asks once at the end. Every field that is
// read counts as understood; finish() refuses what nobody read. A field that is
// null says nothing.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_IMPORT_HUGGINGFACE_CONFIGREADER_H
#define PLAIT_LIB_IMPORT_HUGGINGFACE_CONFIGREADER_H

#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"

#include <map>
#include <optional>

namespace plait::hf {

/// A field that is null counts as absent, as Hugging Face has it. Without a
/// fallback, an absent field is an error. After an error every read returns its
/// fallback, or a harmless value.
class ConfigReader {
public:
  /// The largest size that a field may give: products of three stay far from
  /// what 64 bits hold.
  static constexpr int64_t kLargestSize = int64_t(1) << 24;

  /// Parses `text`; a failure is remembered like any other.
  explicit ConfigReader(llvm::StringRef text);

  /// An integer from 1 to `most`.
  int64_t getSize(llvm::StringRef field,
                  std::optional<int64_t> fallback = std::nullopt,
                  int64_t most = kLargestSize);
  /// The same from 0 on.
  int64_t getCount(llvm::StringRef field, int64_t fallback);
  /// A number above 0, in the range of fp32, in which plans compute.
  double getPositive(llvm::StringRef field,
                     std::optional<double> fallback = std::nullopt);
  /// A number of at least 0, in that range.
  double getNonNegative(llvm::StringRef field, double fallback);
  bool getFlag(llvm::StringRef field, bool fallback);
  /// One of `choices`.
  std::string getChoice(llvm::StringRef field,
                        llvm::ArrayRef<llvm::StringRef> choices,
                        std::optional<llvm::StringRef> fallback = std::nullopt);
  /// A list of `count` of the choices; empty if the field is absent.
  llvm::SmallVector<std::string>
  getChoices(llvm::StringRef field, llvm::ArrayRef<llvm::StringRef> choices,
             int64_t count);
  /// The first `count` numbers of a list of 0 and 1; empty if the field is
  /// absent.
  llvm::SmallVector<bool> getBits(llvm::StringRef field, int64_t count);
  /// Returns a list of `count` numbers above 0; empty after an error.
  llvm::SmallVector<double> getPositives(llvm::StringRef field, int64_t count);
  bool has(llvm::StringRef field) const;
  /// Whether the field is there, and null; counts as reading it.
  bool isNull(llvm::StringRef field);

  /// Calls `read` with a reader of the object in `field`, if there is one.
  void readObject(llvm::StringRef field,
                  llvm::function_ref<void(ConfigReader &)> read);

  /// Fails unless the field is absent or has the value that the JSON text
  /// `supported` says.
  void require(llvm::StringRef field, llvm::StringRef supported);
  /// Fails unless the field is absent.
  void requireAbsent(llvm::StringRef field);
  /// A probability below 1.
  double getDropout(llvm::StringRef field, double fallback);

  /// Fields that do not change the arithmetic; a trailing `*` is any suffix.
  void ignore(llvm::ArrayRef<llvm::StringRef> fields);

  /// Remembers `message` if nothing has failed before.
  void fail(const llvm::Twine &message);
  bool failed() const { return !message.empty(); }

  /// Fails on the fields that were neither read nor ignored, but for those that
  /// `accepted` names as messages do, "rope_scaling.note" for example: a name
  /// there that is no such field's fails, too. Returns the message of the first
  /// failure; empty if there was none.
  std::string finish(llvm::ArrayRef<std::string> accepted);

private:
  ConfigReader(const llvm::json::Object &object, llvm::StringRef prefix);

  /// The field's value, or null if it is absent; counts as read.
  const llvm::json::Value *find(llvm::StringRef field);
  /// The same, with an error if it is absent and there is no fallback.
  const llvm::json::Value *find(llvm::StringRef field, bool hasFallback);
  int64_t toInteger(llvm::StringRef field, const llvm::json::Value &value,
                    int64_t least, int64_t most);
  void failOn(llvm::StringRef field, const llvm::json::Value &value,
              const llvm::Twine &expected);
  /// Adds the fields that nobody knows to `unknown`.
  void findUnknown();

  llvm::json::Object object;
  std::string prefix; // of names in messages: "rope_scaling."
  llvm::StringSet<> known;
  /// Fields of this object and of those inside, by their whole names, with
  /// whether they say anything. Complete behind findUnknown().
  std::map<std::string, bool> unknown;
  std::string message;
};

} // namespace plait::hf

#endif // PLAIT_LIB_IMPORT_HUGGINGFACE_CONFIGREADER_H
