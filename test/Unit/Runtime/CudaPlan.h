//===- CudaPlan.h - CUDA plans for fake GPUs --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns CPU plans into CUDA plans whose kernels are the same code.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_TEST_UNIT_RUNTIME_CUDAPLAN_H
#define PLAIT_TEST_UNIT_RUNTIME_CUDAPLAN_H

#include "TestPlan.h"
#include "plait/Plan/Attention.h"
#include "plait/Plan/Container.h"
#include "plait/Plan/GroupedGemm.h"

#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <map>
#include <tuple>

namespace plait::test {

/// The same plan for CUDA. A kernel of the CPU takes any range; each kernel of
/// the result has one extent.
inline fb::PlanT toCuda(fb::PlanT plan, const std::string &directory) {
  std::string object = directory + "/kernels.so";
  if (!plan.code.empty())
    writeFile(object, plan.code.front()->data);
  std::string text = "plait-fake " + object + "\n";
  std::map<std::tuple<uint32_t, int64_t>, uint32_t> numbers;
  std::vector<std::unique_ptr<fb::KernelT>> kernels;
  for (auto &program : plan.programs) {
    program->library_workspace = (program->arena_bytes + 255) / 256 * 256;
    program->library_workspace_bytes = 1024;
    for (auto &function : program->functions)
      for (auto &step : function->steps) {
        if (const fb::AttentionStepT *attention = step->step.AsAttentionStep())
          program->library_workspace_bytes =
              std::max(program->library_workspace_bytes,
                       plan::gpuAttentionWorkspace(*attention, 90));
        if (const fb::GroupedGemmStepT *grouped =
                step->step.AsGroupedGemmStep())
          program->library_workspace_bytes = std::max(
              program->library_workspace_bytes,
              plan::gpuGroupedWorkspace(grouped->rows, grouped->experts));
        fb::KernelStepT *kernel = step->step.AsKernelStep();
        if (!kernel)
          continue;
        auto [known, isNew] = numbers.try_emplace(
            {kernel->kernel, kernel->extent}, kernels.size());
        if (isNew) {
          fb::KernelT &made = append(kernels);
          made.symbol = "kernel" + std::to_string(known->second);
          made.block_threads = 128;
          made.indices_per_block = 7;
          text += made.symbol + " " + plan.kernels[kernel->kernel]->symbol +
                  " " + std::to_string(kernel->args.size()) + " " +
                  std::to_string(kernel->scalars.size()) + " " +
                  std::to_string(kernel->extent) + " 7\n";
        }
        kernel->kernel = known->second;
      }
    program->arena_bytes =
        program->library_workspace + program->library_workspace_bytes;
  }
  plan.kernels = std::move(kernels);
  plan.code.clear();
  fb::CodeObjectT &code = append(plan.code);
  code.target = "ptx";
  code.cpu = "sm_80";
  code.data.assign(text.begin(), text.end());
  plan.backend = "cuda";
  plan.reference.clear();
  return plan;
}

/// Returns a function of the stand-in that no driver has: it counts what was
/// asked of it.
template <typename Function> Function *findFake(const char *name) {
  return reinterpret_cast<Function *>(
      dlsym(dlopen(PLAIT_FAKE_CUDA, RTLD_NOW), name));
}

#ifdef PLAIT_PLAITC
/// What plaitc makes of a model with the options `given`, without a reference;
/// the file is at `path`.
inline fb::PlanT compilePlan(const std::string &model, const std::string &given,
                             const std::string &path) {
  std::string command =
      PLAIT_PLAITC " " + model + " --no-plan " + given + " -o " + path;
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  fb::PlanT plan;
  if (auto file = plan::PlanFile::open(path); file.ok())
    file->plan().UnPackTo(&plan);
  plan.reference.clear();
  return plan;
}
#endif

} // namespace plait::test

#endif // PLAIT_TEST_UNIT_RUNTIME_CUDAPLAN_H
