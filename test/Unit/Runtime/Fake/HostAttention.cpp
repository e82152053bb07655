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
// PLAIT_FAKE_ATTENTION="5 3r 1f" names configurations as PLAIT_FAKE_GEMMS names
// algorithms, the first choice first, each GPU's behind "|": how many
// milliseconds each takes, and what is special about it. Without it there is
// one.
//
//   r  rounds in another way    f  fails when it is called
//   n  writes nothing           c  cannot be made
//   h  leaves out half of the rows of o, or of dQ
//
// They are named "engine 0", "engine 1" and so on. PLAIT_FAKE_CUDNN is the
// version, if it is not 1.
//
//===----------------------------------------------------------------------===//

#include "CPU/Attention.h"
#include "CPU/Team.h"
#include "CUDA/CudaAttention.h"
#include "plait/Plan/Attention.h"
#include "plait/Plan/Check.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <sstream>

using namespace plait;
using namespace plait::runtime;

namespace {

struct Configuration {
  double milliseconds = 0;
  char special = 0;
};

std::vector<Configuration> configurationsOf(int gpu) {
  const char *text = std::getenv("PLAIT_FAKE_ATTENTION");
  std::istringstream all(text ? text : "0");
  std::string own;
  for (int i = 0; i <= gpu && all; ++i)
    std::getline(all, own, '|');
  std::istringstream words(own);
  std::vector<Configuration> result;
  for (std::string word; words >> word;) {
    char *end = nullptr;
    double milliseconds = std::strtod(word.c_str(), &end);
    result.push_back({milliseconds, *end});
  }
  return result;
}

template <typename Function> Function *findInFake(const char *name) {
  void *library = dlopen(PLAIT_FAKE_CUDA, RTLD_NOW);
  return reinterpret_cast<Function *>(dlsym(library, name));
}

class HostEngine : public AttentionEngine {
public:
  explicit HostEngine(CudaStream &stream) : stream(stream) {}

  std::string describe() const override {
    const char *text = std::getenv("PLAIT_FAKE_CUDNN");
    return std::string("fake cuDNN ") + (text ? text : "1");
  }
  Result<std::vector<std::string>>
  configurations(const fb::AttentionStepT &) override {
    std::vector<std::string> names;
    size_t count = configurationsOf(stream.context->ordinal).size();
    for (size_t i = 0; i < count; ++i)
      names.push_back("engine " + std::to_string(i));
    return names;
  }

  Result<std::unique_ptr<AttentionCall>>
  create(const fb::AttentionStepT &shape, uint64_t workspace,
         const std::string &configuration) override {
    auto all = configurationsOf(stream.context->ordinal);
    size_t chosen = 0;
    while (chosen < all.size() &&
           (configuration.empty()
                ? all[chosen].special == 'c'
                : configuration != "engine " + std::to_string(chosen)))
      ++chosen;
    if (chosen == all.size() || all[chosen].special == 'c')
      return fail("the fake cuDNN has no engine '", configuration, "'");
    uint64_t needed = plan::gpuAttentionWorkspace(shape, 90);
    if (needed > workspace)
      return fail("attention needs ", needed, " bytes of workspace, the plan ",
                  "has ", workspace);
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(fb::AttentionStep::Pack(builder, &shape));
    uint32_t number = library.prepare(
        *flatbuffers::GetRoot<fb::AttentionStep>(builder.GetBufferPointer()),
        {shape.keys - shape.queries});
    return std::unique_ptr<AttentionCall>(std::make_unique<HostCall>(
        *this, number, workspace, shape, chosen, all[chosen]));
  }

private:
  struct Work {
    HostEngine *engine;
    uint32_t number;
    AttentionOperands operands;
    std::span<std::byte> workspace;
    fb::AttentionStepT shape;
    Configuration configuration;
  };

  class HostCall : public AttentionCall {
  public:
    HostCall(HostEngine &engine, uint32_t number, uint64_t workspace,
             const fb::AttentionStepT &shape, size_t index,
             const Configuration &configuration)
        : engine(engine), number(number), bytes(workspace), shape(shape),
          index(index), own(configuration) {}

    Status run(const AttentionOperands &operands,
               std::byte *workspace) override {
      if (own.special == 'f')
        return fail("the fake cuDNN objects");
      Work &work = engine.works.emplace_back(
          &engine, number, operands, std::span(workspace, bytes), shape, own);
      CudaStream &stream = engine.stream;
      return stream.driver.check(engine.launch(stream.handle(), compute, &work),
                                 "cuLaunchHostFunc");
    }
    Result<std::string> configuration() const override {
      return "engine " + std::to_string(index);
    }

  private:
    HostEngine &engine;
    uint32_t number;
    uint64_t bytes;
    fb::AttentionStepT shape;
    size_t index;
    Configuration own;
  };

  /// Changes the last bit of the first number of each row, or half of the rows.
  static void change(const Work &work) {
    const fb::AttentionStepT &shape = work.shape;
    bool forward = shape.kind == fb::AttentionKind::Forward;
    const auto &strides = forward ? shape.out_strides : shape.q_strides;
    int64_t unit = plan::elementBytes(shape.dtype);
    for (int64_t i = 0; i < shape.batch; ++i)
      for (int64_t row = 0; row < shape.queries; ++row) {
        std::byte *at = (forward ? work.operands.o : work.operands.dq) +
                        (i * strides[0] + row * strides[1]) * unit;
        if (work.configuration.special == 'r')
          *at ^= std::byte(1);
        else if (work.configuration.special == 'h' && row % 2)
          std::fill_n(at, shape.head_size * unit, std::byte(0));
      }
  }

  /// Runs whenever the stream comes to it, again for every replay.
  static void compute(void *data) {
    Work &work = *static_cast<Work *>(data);
    setTeamSize(1); // of whatever thread this is
    work.engine->addTime(work.configuration.milliseconds);
    if (work.configuration.special == 'n')
      return;
    std::ranges::fill(work.workspace, std::byte(0xff));
    if (!work.engine->library.run(work.number, work.operands).ok())
      std::abort();
    change(work);
    // Nor may the caller have kept anything there.
    std::ranges::fill(work.workspace, std::byte(0xff));
  }

  CudaStream &stream;
  decltype(cuLaunchHostFunc) *launch =
      findInFake<decltype(cuLaunchHostFunc)>("cuLaunchHostFunc");
  void (*addTime)(double) = findInFake<void(double)>("plaitFakeAddTime");
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
