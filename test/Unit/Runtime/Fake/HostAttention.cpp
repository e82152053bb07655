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

class HostEngine : public AttentionEngine {
public:
  explicit HostEngine(CudaStream &stream) : stream(stream) {}

  Result<std::unique_ptr<AttentionCall>> create(const fb::AttentionStepT &shape,
                                                uint64_t workspace) override {
    uint64_t needed = plan::gpuAttentionWorkspace(shape, 90);
    if (needed > workspace)
      return fail("attention needs ", needed, " bytes of workspace, the plan ",
                  "has ", workspace);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::AttentionStep::Pack(builder, &shape));
    uint32_t number = library.prepare(
        *flatbuffers::GetRoot<fb::AttentionStep>(builder.GetBufferPointer()),
        {shape.keys - shape.queries});
    return std::unique_ptr<AttentionCall>(
        std::make_unique<HostCall>(*this, number, workspace));
  }

private:
  struct Work {
    HostEngine *engine;
    uint32_t number;
    AttentionOperands operands;
    std::span<std::byte> workspace;
  };

  class HostCall : public AttentionCall {
  public:
    HostCall(HostEngine &engine, uint32_t number, uint64_t workspace)
        : engine(engine), number(number), bytes(workspace) {}

    Status run(const AttentionOperands &operands,
               std::byte *workspace) override {
      Work &work = engine.works.emplace_back(&engine, number, operands,
                                             std::span(workspace, bytes));
      CudaStream &stream = engine.stream;
      return stream.driver.check(engine.launch(stream.handle(), compute, &work),
                                 "cuLaunchHostFunc");
    }

  private:
    HostEngine &engine;
    uint32_t number;
    uint64_t bytes;
  };

  /// Runs whenever the stream comes to it, again for every replay.
  static void compute(void *data) {
    Work &work = *static_cast<Work *>(data);
    setTeamSize(1); // of whatever thread this is
    std::ranges::fill(work.workspace, std::byte(0xff));
    if (!work.engine->library.run(work.number, work.operands).ok())
      std::abort();
    // Nor may the caller have kept anything there.
    std::ranges::fill(work.workspace, std::byte(0xff));
  }

  using Launch = decltype(&cuLaunchHostFunc);
  static Launch findLaunch() {
    void *library = dlopen(PLAIT_FAKE_CUDA, RTLD_NOW);
    return reinterpret_cast<Launch>(dlsym(library, "cuLaunchHostFunc"));
  }

  CudaStream &stream;
  Launch launch = findLaunch();
  AttentionLibrary library{1};
  std::deque<Work> works; // which streams have the addresses of
};

/// Before the first device is made.
const bool replaced = [] {
  createAttentionEngine = [](CudaStream &stream) {
    return Result(
        std::unique_ptr<AttentionEngine>(std::make_unique<HostEngine>(stream)));
  };
  return true;
}();

} // namespace
