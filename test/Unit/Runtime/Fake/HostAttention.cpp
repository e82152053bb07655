//===- HostAttention.cpp - Attention on fake GPUs -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Takes cuDNN's place: enqueues the processor's attention on the fake stream,
// so that what is tested is how the runtime hands attention over. Like cuDNN it
// wants all of its workspace, and uses it up.
//
//===----------------------------------------------------------------------===//

#include "CPU/Attention.h"
#include "CPU/Team.h"
#include "CUDA/CudaAttention.h"
#include "plait/Plan/Attention.h"

#include <algorithm>
#include <dlfcn.h>

using namespace plait;
using namespace plait::runtime;

namespace {

class HostAttention : public CudaAttention {
public:
  HostAttention(CudaStream &stream, std::span<std::byte> workspace)
      : stream(stream), workspace(workspace) {}

  Result<uint32_t> prepare(const fb::AttentionStep &step,
                           int64_t firstQuery) override {
    fb::AttentionStepT unpacked;
    step.UnPackTo(&unpacked);
    uint64_t needed = plan::gpuAttentionWorkspace(unpacked, 90);
    if (needed > workspace.size())
      return fail("attention needs ", needed, " bytes of workspace, the plan ",
                  "has ", workspace.size());
    return library.prepare(step, {firstQuery});
  }

  Status run(uint32_t prepared, const AttentionOperands &operands) override {
    calls.push_back({this, prepared, operands});
    return stream.add([&] {
      return stream.driver.check(
          launch(stream.handle(), compute, &calls.back()), "cuLaunchHostFunc");
    });
  }

private:
  struct Call {
    HostAttention *owner;
    uint32_t prepared;
    AttentionOperands operands;
  };

  /// Runs whenever the stream comes to it, again for every replay.
  static void compute(void *data) {
    Call &call = *static_cast<Call *>(data);
    setTeamSize(1); // of whatever thread this is
    std::ranges::fill(call.owner->workspace, std::byte(0xff));
    if (!call.owner->library.run(call.prepared, call.operands).ok())
      std::abort();
  }

  using Launch = decltype(&cuLaunchHostFunc);
  static Launch findLaunch() {
    void *library = dlopen(PLAIT_FAKE_CUDA, RTLD_NOW);
    return reinterpret_cast<Launch>(dlsym(library, "cuLaunchHostFunc"));
  }

  CudaStream &stream;
  std::span<std::byte> workspace;
  Launch launch = findLaunch();
  AttentionLibrary library{1};
  std::deque<Call> calls;
};

/// Before the first device is made.
const bool replaced = [] {
  createCudaAttention = [](CudaStream &stream, std::span<std::byte> workspace) {
    return Result(std::unique_ptr<CudaAttention>(
        std::make_unique<HostAttention>(stream, workspace)));
  };
  return true;
}();

} // namespace
