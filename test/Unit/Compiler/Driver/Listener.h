//===- Listener.h - A reporter that keeps what it hears ---------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_DRIVER_LISTENER_H
#define PLAIT_TEST_UNIT_COMPILER_DRIVER_LISTENER_H

#include "plait/Support/Reporter.h"

#include <string>
#include <vector>

namespace plait {

struct Listener : Reporter {
  void message(const Message &message) override { heard.push_back(message); }
  void progress(const Progress &progress) override {
    if (!progress.ofReference)
      phases += std::string(progress.what) + "\n";
  }

  /// Returns the messages in lines, each with its severity.
  std::string getText() const {
    std::string text;
    for (const Message &message : heard)
      text += std::to_string(int(message.severity)) + ": " + message.getLine() +
              "\n";
    return text;
  }

  std::vector<Message> heard;
  std::string phases;
};

} // namespace plait

#endif // PLAIT_TEST_UNIT_COMPILER_DRIVER_LISTENER_H
