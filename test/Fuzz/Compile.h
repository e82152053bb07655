//===- Compile.h - Compiling what a fuzz target is given --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_FUZZ_COMPILE_H
#define PLAIT_TEST_FUZZ_COMPILE_H

#include "plait/Driver/Session.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <unistd.h>

namespace plait::fuzz {

/// Compiles `bytes` as the model `name` with `options` up to `phase`, as plaitc
/// does. What fails has told an error, and what does not fail has told none.
inline void compile(std::span<const uint8_t> bytes, const std::string &name,
                    CompileOptions options, const std::string &phase) {
  static const std::filesystem::path folder =
      std::filesystem::path("/dev/shm") /
      ("plait-fuzz-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::path path = folder / name;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char *>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  struct : Reporter {
    void message(const Message &message) override {
      hasFailed |= message.severity == Severity::Error;
    }
    bool hasFailed = false;
  } reporter;
  options.reference = false;
  Session session(reporter);
  auto model = session.import({.model = path});
  bool succeeded = model.ok() && session.lower(*model, options, phase).ok();
  std::filesystem::remove_all(folder);
  if (succeeded == reporter.hasFailed)
    std::abort();
}

} // namespace plait::fuzz

#endif // PLAIT_TEST_FUZZ_COMPILE_H
