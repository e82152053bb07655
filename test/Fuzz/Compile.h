//===- Compile.h - Compiling what a fuzz target is given --------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_FUZZ_COMPILE_H
#define PLAIT_TEST_FUZZ_COMPILE_H

#include "plait/Driver/Driver.h"

#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <unistd.h>

namespace plait::fuzz {

/// Compiles `bytes` as the model `name` with `options`, as plaitc does. What
/// fails leaves no output, and what does not fail leaves one.
inline void compile(std::span<const uint8_t> bytes, const std::string &name,
                    CompileOptions options) {
  static const std::filesystem::path folder =
      std::filesystem::path("/dev/shm") /
      ("plait-fuzz-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::path model = folder / name, output = folder / "output";
  std::ofstream(model, std::ios::binary)
      .write(reinterpret_cast<const char *>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  std::filesystem::remove(output);
  llvm::raw_null_ostream text;
  options.model = model;
  options.output = output;
  options.text = &text;
  options.reference = false;
  bool succeeded = plait::compile(options);
  bool isWritten = std::filesystem::exists(output);
  std::filesystem::remove_all(folder);
  if (succeeded != isWritten)
    std::abort();
}

} // namespace plait::fuzz

#endif // PLAIT_TEST_FUZZ_COMPILE_H
