//===- Harness.h - Imports with their diagnostics ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_COMPILER_IMPORT_HARNESS_H
#define PLAIT_TEST_UNIT_COMPILER_IMPORT_HARNESS_H

#include "plait/Import/HuggingFace.h"

#include <gtest/gtest.h>

namespace plait::test {

/// A module, or errors; warnings either way.
struct Imported {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<std::string> errors, warnings;
};

class ImportHarness : public ::testing::Test {
protected:
  Imported importPath(const std::string &path, int64_t batch = 2,
                      int64_t sequence = 16);
  /// Imports a config.json with this text.
  Imported importText(const std::string &text, int64_t batch = 2,
                      int64_t sequence = 16);
  /// The same, with fields that the user vouches for.
  Imported importIgnoring(const std::string &text,
                          const std::vector<std::string> &fields);
  Imported importIR(const std::string &text);

  mlir::MLIRContext context;
};

/// Small configs of GPT-2 and Llama, without the closing brace.
extern const char *const kGPT2, *const kLlama;
/// The latter as one of another family: fields that all have in common.
std::string likeLlama(const std::string &family);

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_COMPILER_IMPORT_HARNESS_H
