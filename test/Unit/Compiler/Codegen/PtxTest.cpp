//===- PtxTest.cpp - What only GPU kernels have ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace plait;
using namespace plait::test;

/// Sums of `count` numbers below 2 in another order: each addition rounds.
static double sumTolerance(int64_t count) {
  return 2.0 * count * std::sqrt(double(count)) * 6e-8 + 1e-6;
}

static size_t countOf(const std::string &text, const std::string &word) {
  size_t count = 0;
  for (size_t place = text.find(word); place != std::string::npos;
       place = text.find(word, place + 1))
    ++count;
  return count;
}

//===----------------------------------------------------------------------===//
// Teams of every size
//===----------------------------------------------------------------------===//

/// Rows that a part of a warp, a warp or a block shares.
class LongRows : public testing::TestWithParam<std::tuple<int, int>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, LongRows,
                         testing::Combine(testing::Values(1, 9),
                                          testing::Values(2, 12, 64, 250, 768,
                                                          1021, 1100, 4096,
                                                          5002)));

TEST_P(LongRows, Softmax) {
  auto [rows, columns] = GetParam();
  Kernel kernel({{sized("tensor<RxCxf32>", rows, columns)},
                 {sized("tensor<RxCxf32>", rows, columns),
                  sized("tensor<Rxf32>", rows, columns)},
                 sized(R"(
    %m = nn.reduce max %0 dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %b = nn.broadcast %m dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %d = nn.sub %0, %b : tensor<RxCxf32>
    %e = nn.exp %d : tensor<RxCxf32>
    %s = nn.reduce sum %e dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %t = nn.broadcast %s dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %y = nn.div %e, %t : tensor<RxCxf32>
    plan.yield %y, %m : tensor<RxCxf32>, tensor<Rxf32>)",
                       rows, columns)});
  Buffer x(rows * columns), y(rows * columns), m(rows);
  x.randomize(1);
  kernel({&x, &y, &m});
  for (int row = 0; row < rows; ++row) {
    const float *line = &x[row * columns];
    float top = *std::max_element(line, line + columns);
    EXPECT_EQ(m[row], top);
    double sum = 0;
    for (int j = 0; j < columns; ++j)
      sum += std::exp(double(line[j]) - top);
    for (int j = 0; j < columns; ++j) {
      double want = std::exp(double(line[j]) - top) / sum;
      // The exponential to 3e-7, the sum's roundings, the reciprocal's.
      EXPECT_NEAR(y[row * columns + j], want, 2e-6 * want) << row << "," << j;
    }
  }
  kernel.expectSplit({&x, &y, &m}, 1);
  EXPECT_EQ(kernel.info.blockThreads % 32, 0);
  EXPECT_EQ(countOf(kernel.ptx, "ld.global.v4") > 0, columns % 4 == 0);
}

/// Sums over rows, from a few rows a thread to one, with threads to spare.
class ManyRows : public testing::TestWithParam<std::tuple<int, int>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ManyRows,
                         testing::Combine(testing::Values(1, 40, 515),
                                          testing::Values(1, 6, 52, 129, 768)));

TEST_P(ManyRows, SumsOfColumns) {
  auto [rows, columns] = GetParam();
  Kernel kernel({{sized("tensor<2xRxCxf32>", rows, columns)},
                 {sized("tensor<2xCxf32>", rows, columns),
                  sized("tensor<2xCxf32>", rows, columns)},
                 sized(R"(
    %s = nn.reduce sum %0 dims [1] : tensor<2xRxCxf32> -> tensor<2xCxf32>
    %m = nn.reduce max %0 dims [1] : tensor<2xRxCxf32> -> tensor<2xCxf32>
    plan.yield %s, %m : tensor<2xCxf32>, tensor<2xCxf32>)",
                       rows, columns),
                 "1, 0"});
  Buffer x(2 * rows * columns), s(2 * columns), m(2 * columns);
  x.randomize(1), s.fill(1);
  kernel({&x, &s, &m});
  for (int index = 0; index < 2 * columns; ++index) {
    double sum = 1;
    float top = -INFINITY;
    for (int row = 0; row < rows; ++row) {
      float one = x[(index / columns * rows + row) * columns + index % columns];
      sum += one, top = std::max(top, one);
    }
    EXPECT_NEAR(s[index], sum, sumTolerance(rows)) << index;
    EXPECT_EQ(m[index], top) << index;
  }
}

/// More sums than one thread has registers for are split over the grid.
TEST(PtxTest, ManySums) {
  const int rows = 33, columns = 40, count = 11;
  Cluster cluster;
  std::string yields, types;
  for (int index = 0; index < count; ++index) {
    std::string number = std::to_string(index);
    cluster.inputs.push_back("tensor<33x40xf32>");
    cluster.results.push_back("tensor<40xf32>");
    cluster.body += "%s" + number + " = nn.reduce sum %" + number +
                    " dims [0] : tensor<33x40xf32> -> tensor<40xf32>\n";
    yields += (index ? ", %s" : "%s") + number;
    types += index ? ", tensor<40xf32>" : "tensor<40xf32>";
  }
  // The last result needs the first and the last sum, which share a loop.
  cluster.results.push_back("tensor<40xf32>");
  cluster.body += "%t = nn.add %s0, %s10 : tensor<40xf32>\n";
  cluster.body +=
      "plan.yield " + yields + ", %t : " + types + ", tensor<40xf32>";
  Kernel kernel(cluster);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Buffer *> args;
  for (int index = 0; index < 2 * count + 1; ++index) {
    bool input = index < count;
    buffers.push_back(
        std::make_unique<Buffer>(input ? rows * columns : columns));
    if (input)
      buffers.back()->randomize(index);
    args.push_back(buffers.back().get());
  }
  kernel(args);
  auto sumOf = [&](int index, int j) {
    double sum = 0;
    for (int row = 0; row < rows; ++row)
      sum += (*args[index])[row * columns + j];
    return sum;
  };
  for (int j = 0; j < columns; ++j) {
    for (int index = 0; index < count; ++index)
      EXPECT_NEAR((*args[count + index])[j], sumOf(index, j),
                  sumTolerance(rows));
    EXPECT_NEAR((*args[2 * count])[j], sumOf(0, j) + sumOf(10, j),
                2 * sumTolerance(rows));
  }
  kernel.expectSplit(args, count);
}

/// One block adds up many rows, each by a part of a warp.
TEST(PtxTest, SumOverAllRows) {
  for (int columns : {3, 20, 64, 300}) {
    const int rows = 77;
    Kernel kernel({{sized("tensor<RxCxf32>", rows, columns),
                    sized("tensor<Cxf32>", rows, columns)},
                   {"tensor<f32>", "tensor<f32>"},
                   sized(R"(
    %w = nn.broadcast %1 dims [1] : tensor<Cxf32> -> tensor<RxCxf32>
    %p = nn.mul %0, %w : tensor<RxCxf32>
    %r = nn.reduce sum %p dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %q = nn.mul %r, %r : tensor<Rxf32>
    %s = nn.reduce sum %q dims [0] : tensor<Rxf32> -> tensor<f32>
    %m = nn.reduce max %r dims [0] : tensor<Rxf32> -> tensor<f32>
    plan.yield %s, %m : tensor<f32>, tensor<f32>)",
                         rows, columns),
                   "2, 0"});
    EXPECT_EQ(kernel.info.extent, 1);
    Buffer x(rows * columns), w(columns), s(1), m(1);
    x.randomize(1), w.randomize(2), s[0] = 5;
    kernel({&x, &w, &s, &m}, {0});
    double want = 5, top = -INFINITY;
    for (int row = 0; row < rows; ++row) {
      double sum = 0;
      for (int j = 0; j < columns; ++j)
        sum += double(x[row * columns + j]) * w[j];
      want += sum * sum, top = std::max(top, sum);
    }
    EXPECT_NEAR(s[0], want, 2e-6 * want);
    EXPECT_NEAR(m[0], top, 2e-6 * std::abs(top) + sumTolerance(columns));
  }
}

/// Blocks of several rows of a table, ids that repeat, and a last, partial
/// group of positions.
TEST(PtxTest, ScatterIntoALongTable) {
  const int rows = 9000, positions = 75, columns = 8;
  for (int mode : {0, 2}) {
    Kernel kernel({{"tensor<75x8xf32>", "tensor<75xi32>"},
                   {"tensor<9000x8xf32>"},
                   R"(
    %g = nn.embedding_grad %0, %1 : (tensor<75x8xf32>, tensor<75xi32>) -> tensor<9000x8xf32>
    plan.yield %g : tensor<9000x8xf32>)",
                   std::to_string(mode)});
    Buffer x(positions * columns), ids(positions), y(rows * columns);
    x.randomize(1), y.fill(3);
    for (int index = 0; index < positions; ++index)
      ids.ints()[index] = index % 3 ? 7 + index % 5 : index * 119;
    kernel({&x, &ids, &y},
           mode ? std::vector<int64_t>{0} : std::vector<int64_t>());
    std::vector<float> want(rows * columns, mode ? 3.0f : 0.0f);
    for (int index = 0; index < positions; ++index)
      for (int j = 0; j < columns; ++j)
        want[ids.ints()[index] * columns + j] += x[index * columns + j];
    for (size_t index = 0; index < want.size(); ++index)
      ASSERT_EQ(y[index], want[index]) << index;
  }
}

/// A result may lie where an operand does: weights are updated in place.
TEST(PtxTest, InPlace) {
  Kernel kernel({{"tensor<1000xf32>", "tensor<1000xf32>"},
                 {"tensor<1000xf32>"},
                 R"(
    %y = nn.sub %0, %1 : tensor<1000xf32>
    plan.yield %y : tensor<1000xf32>)"});
  Buffer x(1000), d(1000);
  x.randomize(1), d.randomize(2);
  std::vector<float> before(x.floats(), x.floats() + 1000);
  kernel({&x, &d, &x});
  for (int index = 0; index < 1000; ++index)
    EXPECT_EQ(x[index], before[index] - d[index]);
}

/// The body of a loss over rows of bf16 and its gradient, as models have it.
static const char *const kLoss = R"(
    %x = nn.cast %0 : tensor<RxCxbf16> -> tensor<RxCxf32>
    %m = nn.reduce max %x dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %h = nn.stop_gradient %m : tensor<Rxf32>
    %b = nn.broadcast %h dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %d = nn.sub %x, %b : tensor<RxCxf32>
    %e = nn.exp %d : tensor<RxCxf32>
    %s = nn.reduce sum %e dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %p = nn.pick %d, %1 {begin = #nn.begin<"tp" * 10>} : tensor<RxCxf32>, tensor<Rxi32> -> tensor<RxCxf32>
    %t = nn.reduce sum %p dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %l = nn.log %s : tensor<Rxf32>
    %y = nn.sub %l, %t : tensor<Rxf32>
    %i = nn.broadcast %s dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %g = nn.div %e, %i : tensor<RxCxf32>
    %c = nn.cast %g : tensor<RxCxf32> -> tensor<RxCxbf16>
    plan.yield %y, %c : tensor<Rxf32>, tensor<RxCxbf16>)";

/// Long rows are read twice, not three times: the sum goes with the maximum,
/// and the target is loaded by itself, before its place is written.
class Losses : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Losses,
                         testing::Values(4088, 4096, 4097, 5002));

TEST_P(Losses, InPlace) {
  const int64_t rows = 7, columns = GetParam();
  std::string wide = sized("tensor<RxCxbf16>", rows, columns),
              row = sized("tensor<Rxf32>", rows, columns);
  Kernel kernel({{wide, sized("tensor<Rxi32>", rows, columns)},
                 {row, wide},
                 sized(kLoss, rows, columns)});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(rows * columns, /*half=*/true), ids(rows), loss(rows);
  Buffer numbers(rows * columns);
  numbers.randomize(1, -9, 9);
  auto at = [&](int64_t row, int64_t j) -> float & {
    return numbers[row * columns + j];
  };
  // What grows all the way, what falls, what is masked but for one number, and
  // what is far below its maximum.
  for (int64_t j = 0; j < columns; ++j) {
    at(0, j) = float(j) / 100, at(1, j) = -at(0, j);
    at(2, j) = j == 77 ? 3.0f : -INFINITY;
    at(3, j) = j == 5 ? 90.0f : -300.0f;
  }
  // No number among them is none of the loss.
  at(6, 11) = NAN;
  for (int64_t i = 0; i < rows * columns; ++i)
    x.halves()[i] = BFloat16(numbers[i]), numbers[i] = float(x.halves()[i]);
  // The rank's row begins at 10: the fifth id is before it, the sixth behind.
  const int64_t places[] = {10, columns + 9, 87, 15, 9, columns + 10, 30};
  for (int64_t i = 0; i < rows; ++i)
    ids.ints()[i] = static_cast<int32_t>(places[i]);
  kernel({&x, &ids, &loss, &x}, {10});
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    float top = *std::max_element(&at(i, 0), &at(i, 0) + columns);
    if (i == rows - 1) {
      EXPECT_TRUE(std::isnan(loss[i]));
      continue;
    }
    for (int64_t j = 0; j < columns; ++j)
      sum += std::exp(double(at(i, j)) - top);
    int64_t place = places[i] - 10;
    bool isHere = place >= 0 && place < columns;
    double want = std::log(sum) - (isHere ? double(at(i, place)) - top : 0);
    EXPECT_NEAR(loss[i], want, 2e-6 * std::max(1.0, std::abs(want))) << i;
    for (int64_t j = 0; j < columns; ++j) {
      double share = std::exp(double(at(i, j)) - top) / sum;
      // A half of the last of 8 bits, and a little.
      EXPECT_NEAR(float(x.halves()[i * columns + j]), share,
                  share / 255 + 1e-37)
          << i << "," << j;
    }
  }
}

/// The barriers of a loss in place are needed, and there is one exponential for
/// each of its elements in each of the two sweeps.
TEST(PtxTest, LossesHaveTwoSweeps) {
  Kernel kernel({{"tensor<3x4096xbf16>", "tensor<3xi32>"},
                 {"tensor<3xf32>", "tensor<3x4096xbf16>"},
                 sized(kLoss, 3, 4096)});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  // 8 lanes a sweep, and 8 for what each has added up.
  EXPECT_EQ(countOf(kernel.ptx, "ex2.approx"), 24u);
  std::string text = kernel.ptx;
  size_t place = text.rfind("bar.sync");
  ASSERT_NE(place, std::string::npos);
  text.erase(place, text.find(';', place) + 1 - place);
  PtxModule broken;
  ASSERT_EQ(broken.parse(text), "");
  Buffer x(3 * 4096, /*half=*/true), ids(3), loss(3);
  for (int row = 0; row < 3; ++row)
    ids.ints()[row] = 4000;
  EXPECT_NE(broken
                .launch(kernel.info.symbol, 3,
                        {{x.start, x.bytes(), true},
                         {ids.start, 12},
                         {loss.start, 12, true},
                         {x.start, x.bytes(), true}},
                        {0}, false)
                .find("the word"),
            std::string::npos);
}

//===----------------------------------------------------------------------===//
// More elements than 32 bits count
//===----------------------------------------------------------------------===//

// The logits of GPT-2 with 64 sequences of 1024 tokens. Only some blocks are
// run, so that only some pages of the buffers come to be.
static constexpr int64_t kTokens = 65536, kWords = 50257;

static float numberAt(int64_t element) { return float(1 + element % 251); }

/// Runs the first block, the one with element 2^31 and the last one of a kernel
/// that reads numberAt() of each element and writes `want` of it.
static void expectLarge(Kernel &kernel, std::vector<Buffer *> between,
                        float (*want)(float)) {
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  int64_t count = kTokens * kWords;
  Buffer x(count, /*half=*/true), y(count, /*half=*/true);
  int64_t share = count / kernel.info.extent * kernel.info.indicesPerBlock;
  std::vector<int64_t> blocks = {0, (int64_t(1) << 31) / share,
                                 kernel.countBlocks() - 1};
  auto forElements = [&](auto visit) {
    for (int64_t block : blocks)
      for (int64_t at = block * share;
           at < std::min(count, (block + 1) * share); ++at)
        visit(at);
  };
  forElements([&](int64_t at) { x.halves()[at] = BFloat16(numberAt(at)); });
  std::vector<Buffer *> args = {&x};
  args.insert(args.end(), between.begin(), between.end());
  args.push_back(&y);
  ASSERT_EQ(kernel.runBlocks(blocks, args), "");
  forElements([&](int64_t at) {
    ASSERT_EQ(float(y.halves()[at]), want(numberAt(at))) << at;
  });
}

TEST(PtxTest, ElementsBeyond2To31) {
  Kernel flat({{sized("tensor<RxCxbf16>", kTokens, kWords)},
               {sized("tensor<RxCxbf16>", kTokens, kWords)},
               sized(R"(
    %y = nn.add %0, %0 : tensor<RxCxbf16>
    plan.yield %y : tensor<RxCxbf16>)",
                     kTokens, kWords)});
  expectLarge(flat, {}, [](float x) { return 2 * x; });
  // Odd rows that differ in what is added have an index an element.
  Kernel odd({{sized("tensor<RxCxbf16>", kTokens, kWords),
               sized("tensor<Cxbf16>", kTokens, kWords)},
              {sized("tensor<RxCxbf16>", kTokens, kWords)},
              sized(R"(
    %b = nn.broadcast %1 dims [1] : tensor<Cxbf16> -> tensor<RxCxbf16>
    %y = nn.add %0, %b : tensor<RxCxbf16>
    plan.yield %y : tensor<RxCxbf16>)",
                    kTokens, kWords)});
  EXPECT_GT(odd.info.extent, int64_t(1) << 31);
  Buffer ones(kWords, /*half=*/true);
  for (int64_t word = 0; word < kWords; ++word)
    ones.halves()[word] = BFloat16(1);
  expectLarge(odd, {&ones}, [](float x) { return x + 1; });
}

TEST(PtxTest, RowsBeyond2To31) {
  Kernel kernel({{sized("tensor<RxCxf32>", kTokens, kWords)},
                 {sized("tensor<Rxf32>", kTokens, kWords)},
                 sized(R"(
    %m = nn.reduce max %0 dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    plan.yield %m : tensor<Rxf32>)",
                       kTokens, kWords)});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(kTokens * kWords), m(kTokens);
  int64_t blocks = kernel.countBlocks(), rows = kTokens / blocks;
  for (int64_t row = kTokens - rows; row < kTokens; ++row)
    x[row * kWords + row % kWords] = float(row);
  ASSERT_EQ(kernel.runBlocks({blocks - 1}, {&x, &m}), "");
  for (int64_t row = kTokens - rows; row < kTokens; ++row)
    EXPECT_EQ(m[row], float(row));
}

//===----------------------------------------------------------------------===//
// Targets
//===----------------------------------------------------------------------===//

TEST(PtxTest, Architectures) {
  for (llvm::StringRef name : codegen::TargetGPU::getNames()) {
    auto target = codegen::TargetGPU::get(name);
    ASSERT_TRUE(target);
    Kernel kernel({{"tensor<8xf32>"},
                   {"tensor<8xf32>"},
                   "%y = nn.neg %0 : tensor<8xf32>\n"
                   "plan.yield %y : tensor<8xf32>"},
                  *target);
    EXPECT_NE(kernel.ptx.find(".target " + name.str() + "\n"),
              std::string::npos);
  }
  EXPECT_FALSE(codegen::TargetGPU::get("sm_70"));
}

/// Partial sums of warps meet in shared memory, after a barrier.
TEST(PtxTest, BarriersAreNeeded) {
  Kernel kernel({{"tensor<2048xf32>"},
                 {"tensor<f32>"},
                 R"(
    %s = nn.reduce sum %0 dims [0] : tensor<2048xf32> -> tensor<f32>
    plan.yield %s : tensor<f32>)"});
  Buffer x(2048), s(1);
  x.fill(1);
  kernel({&x, &s});
  EXPECT_EQ(s[0], 2048);
  EXPECT_GT(kernel.info.sharedBytes, 0);
  std::string text = kernel.ptx;
  size_t place = text.find("bar.sync");
  ASSERT_NE(place, std::string::npos);
  text.erase(place, text.find(';', place) + 1 - place);
  PtxModule broken;
  ASSERT_EQ(broken.parse(text), "");
  EXPECT_NE(broken.launch(kernel.info.symbol, 1,
                          {{x.start, 8192}, {s.start, 4}}, {}, false),
            "");
}

//===----------------------------------------------------------------------===//
// The interpreter finds what it is for
//===----------------------------------------------------------------------===//

/// Runs `body` with 64 threads on 64 words; %rd1 is their address, %rd2 the
/// address of the thread's own, %r1 the thread.
static std::string interpret(const std::string &body, bool isResult = true,
                             int64_t blocks = 1) {
  PtxModule module;
  std::string error = module.parse(R"(
.visible .entry test(
	.param .u64 .ptr .align 1 test_param_0
)
.reqntid 64
{
	.reg .pred 	%p<9>;
	.shared .align 16 .b8 memory[256];
	ld.param.b64 	%rd1, [test_param_0];
	mov.u32 	%r1, %tid.x;
	shl.b32 	%r2, %r1, 2;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd2, %rd1, %rd3;
	mov.b32 	%r3, memory;
	setp.eq.b32 	%p1, %r1, 5;
)" + body + R"(
$exit:
	ret;

}
)");
  if (!error.empty())
    return error;
  Buffer words(64);
  words.fill(0);
  return module.launch("test", blocks, {{words.start, 256, isResult}}, {},
                       false);
}

static void expectError(const std::string &body, const std::string &reason,
                        int64_t blocks = 1) {
  std::string error = interpret(body, /*isResult=*/true, blocks);
  EXPECT_NE(error.find(reason), std::string::npos) << error;
}

TEST(Interpreter, FindsErrors) {
  EXPECT_EQ(interpret("st.global.b32 [%rd2], %r1;"), "");
  EXPECT_EQ(interpret("st.shared.b32 [%r2], %r1;\nbar.sync 0;\n"
                      "xor.b32 %r4, %r2, 128;\nld.shared.b32 %r5, [%r4];"),
            "");
  EXPECT_EQ(interpret("shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;\n"
                      "st.global.b32 [%rd2], %r4;"),
            "");
  // Two threads may write the halves of a word, but not one of them.
  const std::string halves = "mul.wide.u32 %rd4, %r1, 2;\n"
                             "add.s64 %rd5, %rd1, %rd4;\n";
  EXPECT_EQ(interpret(halves + "st.global.b16 [%rd5], %r1;"), "");
  expectError(halves + "st.global.b32 [%rd5], %r1;", "not aligned to 4");
  expectError("st.global.b16 [%rd1+2], %r1;", "writes the same word");
  expectError("ld.global.b32 %r4, [%rd2+256];", "outside of all buffers");
  expectError("ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2];",
              "not aligned to 16");
  expectError("st.global.b32 [%rd1], %r1;", "writes the same word");
  // A barrier is between threads of one block, and no other's.
  const std::string before = "ld.global.b32 %r4, [%rd1];\n",
                    after = "st.global.b32 [%rd2], %r4;";
  expectError(before + after, "writes the same word");
  EXPECT_EQ(interpret(before + "bar.sync 0;\n" + after), "");
  expectError(before + "bar.sync 0;\n" + after, "writes the same word",
              /*blocks=*/2);
  expectError("bar.sync 0;\n" + after, "writes the same word", /*blocks=*/2);
  expectError("st.shared.b32 [%r2], %r1;\n"
              "@%p1 ld.shared.b32 %r5, [memory+16];",
              "writes the same word");
  expectError("ld.shared.b32 %r5, [%r2];", "nobody has written");
  expectError("@%p1 bra $exit;\nbar.sync 0;", "never come");
  expectError("@%p1 bra $exit;\nshfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;",
              "never come");
  expectError("tanh.approx.f32 %r4, %r1;", "does not know");
  EXPECT_NE(interpret("st.global.b32 [%rd2], %r1;", /*isResult=*/false)
                .find("is no result of the step"),
            std::string::npos);
}
