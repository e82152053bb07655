//===- PublishedTest.cpp - Configs that others have written ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// test/golden/published_configs.jsonl has configs as they are published, by
// many programs and of many years: `source` says where, and `refused` names the
// field by which the model computes what plait does not.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include "llvm/Support/JSON.h"

#include <fstream>

using namespace plait;
using namespace plait::test;

namespace {
class PublishedConfigs : public ImportHarness {};
} // namespace

static std::string print(const llvm::json::Value &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

TEST_F(PublishedConfigs, AreReadOrRefusedForWhatTheyCompute) {
  std::ifstream file(PLAIT_GOLDEN "/published_configs.jsonl");
  int accepted = 0, refused = 0;
  for (std::string line; std::getline(file, line);) {
    llvm::json::Value entry = llvm::cantFail(llvm::json::parse(line));
    const llvm::json::Object &fields = *entry.getAsObject();
    std::string source = fields.getString("source")->str();
    Imported result = importText(print(*fields.get("config")));
    if (auto reason = fields.getString("refused")) {
      ASSERT_EQ(result.errors.size(), 1u) << source;
      EXPECT_NE(result.errors[0].find(reason->str()), std::string::npos)
          << source << ": " << result.errors[0];
      ++refused;
      continue;
    }
    EXPECT_TRUE(result.module)
        << source << ": "
        << (result.errors.empty() ? "no error" : result.errors[0]);
    ++accepted;
  }
  EXPECT_EQ(accepted, 83);
  EXPECT_EQ(refused, 3);
}
