//===- GpuAttentionTest.cpp - A GPU's attention against the formulas ------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a GPU what is tested is cuDNN, too; on the fake of Fake/, what comes
// between it and a step: pieces, sums, keys that no query sees.
//
//===----------------------------------------------------------------------===//

#include "AttentionReference.h"
#include "CUDA/CudaAttention.h"
#include "plait/Plan/Attention.h"
#include "plait/Support/BFloat16.h"

#include <mutex>

using namespace plait;
using namespace plait::runtime;
using namespace plait::test;

namespace {

/// Numbers on the GPU, as bf16 or f32.
class Memory {
public:
  Memory(CudaStream &stream, const Numbers &numbers, bool narrow)
      : stream(stream), count(numbers.size()), narrow(narrow) {
    std::vector<BFloat16> shortened(count);
    std::vector<float> wide(numbers.begin(), numbers.end());
    for (size_t i = 0; i < count; ++i)
      shortened[i] = BFloat16(wide[i]);
    const void *source = wide.data();
    if (narrow)
      source = shortened.data();
    stream.driver.cuMemAlloc(&address, std::max<size_t>(bytes(), 1));
    stream.driver.cuMemcpyHtoDAsync(address, source, bytes(), stream.handle());
    EXPECT_TRUE(stream.synchronize().ok());
  }
  ~Memory() { stream.driver.cuMemFree(address); }

  std::byte *data() const { return reinterpret_cast<std::byte *>(address); }
  Numbers numbers() const {
    std::vector<BFloat16> shortened(count);
    std::vector<float> wide(count);
    void *target = wide.data();
    if (narrow)
      target = shortened.data();
    stream.driver.cuMemcpyDtoHAsync(target, address, bytes(), stream.handle());
    EXPECT_TRUE(stream.synchronize().ok());
    return narrow ? Numbers(shortened.begin(), shortened.end())
                  : Numbers(wide.begin(), wide.end());
  }

private:
  size_t bytes() const { return count * (narrow ? 2 : 4); }

  CudaStream &stream;
  size_t count;
  bool narrow;
  CUdeviceptr address = 0;
};

class GpuAttentionTest : public ::testing::TestWithParam<Shape> {
protected:
  void SetUp() override {
    Result<const Driver *> driver = Driver::load();
    int count = 0;
    if (!driver.ok() || (*driver)->cuDeviceGetCount(&count) || count == 0)
      GTEST_SKIP() << "there is no GPU";
    auto context = CudaContext::create(**driver, 0);
    ASSERT_TRUE(context.ok()) << context.status().message();
    ASSERT_TRUE((*context)->use().ok());
    auto made = CudaStream::create(*context, std::make_shared<std::mutex>());
    ASSERT_TRUE(made.ok()) << made.status().message();
    stream = std::move(*made);
  }

  /// Both passes on the numbers in `t`, which come back as bf16 has them. Where
  /// results go is something else before.
  Tensors run(const Shape &shape, const Tensors &t, bool deterministic) {
    Numbers rows(shape.batch * shape.heads * shape.queries, 7);
    Memory q(*stream, t.q, true), k(*stream, t.k, true), v(*stream, t.v, true),
        o(*stream, Numbers(t.q.size(), 7), true), stats(*stream, rows, false),
        gradient(*stream, t.gradient, true),
        dq(*stream, Numbers(t.q.size(), 7), true),
        dk(*stream, Numbers(t.k.size(), 7), true),
        dv(*stream, Numbers(t.v.size(), 7), true);
    AttentionOperands operands = {q.data(),  k.data(),     v.data(),
                                  o.data(),  stats.data(), gradient.data(),
                                  dq.data(), dk.data(),    dv.data()};
    int gpu = stream->context->major * 10 + stream->context->minor;
    for (auto kind :
         {fb::AttentionKind::Forward, fb::AttentionKind::Backward}) {
      fb::AttentionStepT step = makeStep(shape, fb::DType::BF16, kind);
      step.deterministic = deterministic;
      uint64_t bytes = plan::gpuAttentionWorkspace(step, gpu);
      Memory workspace(*stream, Numbers(bytes / 4, -1), false);
      auto library = CudaAttention::create(*stream, {workspace.data(), bytes});
      EXPECT_TRUE(library.ok()) << library.status().message();
      if (!library.ok())
        return t;
      flatbuffers::FlatBufferBuilder builder;
      builder.Finish(fb::AttentionStep::Pack(builder, &step));
      auto prepared = (*library)->prepare(
          *flatbuffers::GetRoot<fb::AttentionStep>(builder.GetBufferPointer()),
          shape.firstQuery);
      EXPECT_TRUE(prepared.ok()) << prepared.status().message();
      if (!prepared.ok())
        return t;
      Status status = (*library)->run(*prepared, operands);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(stream->synchronize().ok());
    }
    return {q.numbers(),  k.numbers(),     v.numbers(),
            o.numbers(),  stats.numbers(), gradient.numbers(),
            dq.numbers(), dk.numbers(),    dv.numbers()};
  }

  std::unique_ptr<CudaStream> stream;
};

TEST_P(GpuAttentionTest, AgreesWithTheFormulas) {
  const Shape &shape = GetParam();
  for (bool deterministic : {false, true}) {
    Tensors found = run(shape, makeTensors(shape), deterministic);
    Tensors expected = found;
    Reference reference(shape);
    reference.forward(expected);
    // Statistics are f32; weights and their gradients are rounded to bf16, to
    // 1/256 of themselves, before they are multiplied, and the results again.
    expectNear(found.stats, expected.stats, 1e-3, "stats");
    expectNear(found.o, expected.o, 1.0 / 64, "o");
    expected.o = found.o;
    reference.backward(expected);
    expectNear(found.dq, expected.dq, 1.0 / 64, "dq");
    expectNear(found.dk, expected.dk, 1.0 / 64, "dk");
    expectNear(found.dv, expected.dv, 1.0 / 64, "dv");
  }
}

TEST_P(GpuAttentionTest, RepeatsItself) {
  const Shape &shape = GetParam();
  Tensors t = makeTensors(shape);
  Tensors one = run(shape, t, true), two = run(shape, t, true);
  EXPECT_EQ(one.dq, two.dq);
  EXPECT_EQ(one.dk, two.dk);
  EXPECT_EQ(one.dv, two.dv);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuAttentionTest,
                         ::testing::Values(Shape{2, 4, 4, 256, 256, 64},
                                           Shape{1, 4, 1, 77, 77, 40},
                                           Shape{1, 4, 2, 300, 300, 128},
                                           Shape{1, 2, 2, 256, 256, 64, 50},
                                           Shape{2, 4, 2, 128, 512, 64, 0, true,
                                                 /*firstQuery=*/256},
                                           Shape{1, 4, 2, 128, 512, 64, 200,
                                                 true, /*firstQuery=*/256}));

/// Of so many ranks the given one, in zig-zag order, with 128 queries.
static Shape inOrder(int64_t ranks, int64_t rank, int64_t window = 0) {
  Shape shape = {2, 4, 2, 128, 128 * ranks, 64, window};
  shape.firstQuery = 128 * rank;
  shape.chunks = 2 * ranks;
  return shape;
}

// A window within a chunk, over several, and over more than a piece sees.
INSTANTIATE_TEST_SUITE_P(Zigzag, GpuAttentionTest,
                         ::testing::Values(inOrder(4, 0), inOrder(4, 1),
                                           inOrder(4, 3), inOrder(1, 0),
                                           inOrder(4, 1, 50),
                                           inOrder(4, 2, 150),
                                           inOrder(2, 1, 200)));

} // namespace
