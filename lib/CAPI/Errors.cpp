//===- Errors.cpp - Failures as callers of C see them ---------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An error is one allocation with its texts behind it, so that its caller frees
// one thing and nothing is left half made.
//
//===----------------------------------------------------------------------===//

#include "Errors.h"

#include "plait/Support/Fields.h"

#include <cstdlib>
#include <cstring>

using namespace plait;
using namespace plait::capi;

/// The only error that is not on the heap.
static plait_error noMemory = {int32_t(Code::Failed), "there is no memory left",
                               "", "", ""};

plait_error *capi::outOfMemory() { return &noMemory; }

/// `text` with options spelt as keys of JSON: neither in backquotes nor, where
/// a message is also that of a command line, with dashes.
static std::string spellKeys(const std::string &text) {
  std::string spelt;
  for (char letter : spellFields(text, "")) {
    bool isLetter = letter >= 'a' && letter <= 'z';
    bool isSpelt = spelt.ends_with(" --") || spelt == "--";
    if (isLetter && isSpelt)
      spelt.resize(spelt.size() - 2);
    spelt += letter;
  }
  return spelt;
}

/// The option that a message begins with as on a command line; empty: none.
static std::string findOption(const std::string &text) {
  constexpr char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
  return text.starts_with("--")
             ? text.substr(2, text.find_first_not_of(letters, 2) - 2)
             : "";
}

plait_error *capi::makeError(const Message &failure, const std::string &hint) {
  std::string option = findOption(failure.text);
  const std::string texts[] = {spellKeys(failure.text),
                               option.empty() ? failure.field : option,
                               failure.place, spellKeys(hint)};
  size_t bytes = sizeof(plait_error);
  for (const std::string &text : texts)
    bytes += text.size() + 1;
  auto *error = static_cast<plait_error *>(std::malloc(bytes));
  if (!error)
    return outOfMemory();
  char *at = reinterpret_cast<char *>(error + 1);
  auto keep = [&](const std::string &text) {
    char *kept = at;
    std::memcpy(kept, text.c_str(), text.size() + 1);
    at += text.size() + 1;
    return kept;
  };
  error->code = int32_t(option.empty() ? failure.code : Code::InvalidOption);
  error->message = keep(texts[0]);
  error->field = keep(texts[1]);
  error->place = keep(texts[2]);
  error->hint = keep(texts[3]);
  return error;
}

plait_error *capi::makeError(const Status &failure) {
  return makeError(Message{Severity::Error, failure.code(), failure.field(), "",
                           failure.message()});
}

void plait_error_free(plait_error *error) {
  if (error != &noMemory)
    std::free(error);
}

void plait_text_free(char *text) { std::free(text); }
