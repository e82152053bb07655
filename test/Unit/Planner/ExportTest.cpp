//===- ExportTest.cpp - Jobs for other programs that lack something -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program has no options for, and models whose flags nobody knows. What
// is written of known models is compared with the programs' own objects
// (test/Execute/emitted.py).
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Export.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::planner;

namespace {

/// Two GPUs that share a batch.
struct Choice {
  Configuration configuration;
  Cluster cluster = *parseCluster("h100:2");
  Training training;
  Job job = {configuration, cluster, training, "adamw", "", true};

  Choice() {
    configuration.mesh = *Mesh::parse("dp=2");
    configuration.schedule = "1f1b";
    configuration.layers = {2};
    configuration.microBatch = 1;
    training.globalBatch = 4;
    training.sequence = 64;
    training.precision = Precision::BF16;
  }

  /// All that is said, or the failure.
  std::string emit(const char *program) {
    Result<Emitted> emitted = emitJob(program, job);
    if (!emitted.ok())
      return emitted.status().message();
    std::string text = emitted->text;
    for (const std::string &note : emitted->notes)
      text += "\n" + note;
    return text;
  }
};

TEST(Export, LeavesTheModelToOthers) {
  struct {
    const char *model, *reason;
  } cases[] = {{"", "it is no config.json"},
               {R"({"model_type": "mixtral"})", "model_type is mixtral"},
               {R"({"model_type": "gpt2", "n_embd": "wide"})",
                "its config.json has a value of another type"}};
  for (const auto &one : cases) {
    Choice choice;
    choice.job.model = one.model;
    std::string text = choice.emit("megatron");
    EXPECT_NE(text.find(std::string("The flags of the model are yours to "
                                    "add: ") +
                        one.reason + "."),
              text.npos)
        << text;
  }
}

TEST(Export, NamesWhatAProgramHasNot) {
  Choice choice;
  choice.training.precision = Precision::FP16;
  EXPECT_EQ(choice.emit("torchtitan"),
            "precision is fp16, which torchtitan has not");
}

} // namespace
