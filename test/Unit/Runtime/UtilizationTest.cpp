//===- UtilizationTest.cpp - Model FLOPs of a run -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Utilization.h"

#include "TestPlan.h"

#include <gtest/gtest.h>

using namespace plait;
using namespace plait::runtime;

namespace {

namespace fb = plan::fb;

class UtilizationTest : public testing::Test {
protected:
  /// Of the plan as it is now.
  Utilization get() {
    builder.Clear();
    builder.Finish(fb::Plan::Pack(builder, &plan));
    return Utilization(
        *flatbuffers::GetRoot<fb::Plan>(builder.GetBufferPointer()));
  }

  fb::PlanT plan = test::makePlan(); // of four ranks
  flatbuffers::FlatBufferBuilder builder;
};

/// The worked example of Chowdhery et al. 2022, appendix B: PaLM 540B at 238.3
/// thousand tokens/s on 6,144 TPU v4 of 275 TFLOP/s has an MFU of 46.2 %,
/// "45.7 %" without attention.
TEST_F(UtilizationTest, Palm) {
  constexpr double parameters = 540.35e9, tokens = 4e6, rate = 238.3e3;
  plan.cluster = std::make_unique<fb::ClusterT>();
  plan.cluster->peak_flops = 6144 * 275e12 / 4; // on the plan's ranks
  plan.model_flops = 6 * parameters * tokens;
  EXPECT_NEAR(get().mfu(tokens / rate), 0.457, 0.001);
  // Of 118 layers, 48 heads of 256, sequences of 2048.
  plan.model_flops += 12 * 118.0 * 48 * 256 * 2048 * tokens;
  EXPECT_NEAR(get().mfu(tokens / rate), 0.462, 0.001);
}

TEST_F(UtilizationTest, TellsWhatIsKnown) {
  EXPECT_EQ(get().print(1), "");
  EXPECT_EQ(get().printFields(1), "");
  plan.model_flops = 2e12;
  EXPECT_EQ(get().print(4), ", 500.0 GFLOP/s");
  EXPECT_EQ(get().print(0.001), ", 2.0 PFLOP/s");
  EXPECT_EQ(get().printFields(4), ", \"model_flops_per_second\": 5e+11");
  EXPECT_EQ(get().mfu(4), 0);
  plan.cluster = std::make_unique<fb::ClusterT>();
  plan.cluster->peak_flops = 5e11;
  EXPECT_EQ(get().print(4), ", 500.0 GFLOP/s, MFU 25.0 %");
  EXPECT_EQ(get().printFields(4),
            ", \"model_flops_per_second\": 5e+11, \"mfu\": 0.25");
}

} // namespace
