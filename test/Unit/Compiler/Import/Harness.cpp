//===- Harness.cpp - Imports with their diagnostics ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <filesystem>
#include <fstream>

using namespace mlir;
using namespace plait;
using namespace plait::test;

const char *const test::kGPT2 =
    R"({"model_type": "gpt2", "vocab_size": 11, "n_positions": 32,
        "n_embd": 12, "n_layer": 2, "n_head": 3)";
const char *const test::kLlama =
    R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 16,
        "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2)";

std::string test::likeLlama(const std::string &family) {
  std::string text = kLlama, name = "llama";
  return text.replace(text.find(name), name.size(), family);
}

using Import = FailureOr<OwningOpRef<ModuleOp>>;

static Imported run(MLIRContext &context, llvm::function_ref<Import()> import) {
  Imported result;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    bool isError = diagnostic.getSeverity() == DiagnosticSeverity::Error;
    (isError ? result.errors : result.warnings).push_back(diagnostic.str());
  });
  Import module = import();
  if (succeeded(module))
    result.module = std::move(*module);
  EXPECT_EQ(bool(result.module), result.errors.empty());
  return result;
}

/// Writes a file of its own for the running test, and removes it at the end.
struct TestFile {
  TestFile(const std::string &name, const std::string &text) {
    auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(::testing::TempDir()) /
             (std::string("plait-import-") + test->name());
    std::filesystem::create_directories(folder);
    path = (folder / name).string();
    std::ofstream(path) << text;
  }
  ~TestFile() { std::filesystem::remove_all(folder); }
  std::filesystem::path folder;
  std::string path;
};

Imported ImportHarness::importPath(const std::string &path, int64_t batch,
                                   int64_t sequence) {
  return run(context, [&] {
    return importHuggingFace(context, path, {batch, sequence});
  });
}

Imported ImportHarness::importText(const std::string &text, int64_t batch,
                                   int64_t sequence) {
  TestFile file("config.json", text);
  return importPath(file.folder.string(), batch, sequence);
}

Imported ImportHarness::importIgnoring(const std::string &text,
                                       const std::vector<std::string> &fields) {
  TestFile file("config.json", text);
  return run(context, [&] {
    return importHuggingFace(context, file.folder.string(), {2, 16, fields});
  });
}

Imported ImportHarness::importIR(const std::string &text) {
  TestFile file("model.mlir", text);
  return run(context, [&] { return importMLIR(context, file.path); });
}
