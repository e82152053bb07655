//===- HalvesTest.cpp - Kernels on bf16 -----------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every kernel is written in bf16, and compiled a second time with f32 in its
// place. On the same inputs, rounded, the results must be those of f32, which
// other tests hold against formulas, but for one rounding each.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <regex>

using namespace plait;
using namespace plait::test;

namespace {

using Buffers = std::vector<std::unique_ptr<Buffer>>;

int64_t countOf(const std::string &type) {
  int64_t count = 1;
  static const std::regex extent("(\\d+)x");
  for (std::sregex_iterator it(type.begin(), type.end(), extent), end;
       it != end; ++it)
    count *= std::stoll((*it)[1]);
  return count;
}

bool isHalf(const std::string &type) {
  return type.find("bf16") != std::string::npos;
}

float valueAt(Buffer &buffer, size_t index) {
  return buffer.isHalf() ? float(buffer.halves()[index]) : buffer[index];
}

/// The distance of the bf16 numbers around `value`: they have 8 bits.
double ulpOf(double value) {
  return value == 0 ? 0 : std::ldexp(1, std::ilogb(value) - 7);
}

/// What the tests of a cluster vary.
struct Options {
  float low = -2, high = 2;     // of the inputs
  int64_t ids = 1;              // integers are in [-1, ids)
  std::vector<int64_t> scalars; // the values of the rank's scalars
  double ulps = 0.5;            // of bf16, by which a result may be off
  double sumTolerance = 2e-6;   // relative to 1 and more, of the f32 result
};

/// A cluster in bf16 and in f32 on the same inputs.
class Twins {
public:
  explicit Twins(const Cluster &cluster) : half(cluster), full(widen(cluster)) {
    for (const auto *types : {&cluster.inputs, &cluster.results})
      for (const std::string &type : *types)
        this->types.push_back(type);
    inputs = cluster.inputs.size();
  }

  void compare(const Options &options) {
    ASSERT_TRUE(half.valid()) << half.errors;
    ASSERT_TRUE(full.valid()) << full.errors;
    for (size_t index = 0; index < types.size(); ++index)
      fill(index, options);
    half(pointers(narrow), options.scalars);
    full(pointers(wide), options.scalars);
    for (size_t index = inputs; index < types.size(); ++index)
      expectAlike(index, options);
  }

  /// After compare(): that any split of the work gives the same bits.
  void expectSplit() { half.expectSplit(pointers(narrow), inputs); }

  Kernel half, full;
  std::vector<std::string> types;
  Buffers narrow, wide;

private:
  static Cluster widen(Cluster cluster) {
    auto replace = [](std::string &text) {
      text = std::regex_replace(text, std::regex("bf16"), "f32");
    };
    for (auto *types : {&cluster.inputs, &cluster.results})
      for (std::string &type : *types)
        replace(type);
    replace(cluster.body);
    return cluster;
  }

  static std::vector<Buffer *> pointers(Buffers &buffers) {
    std::vector<Buffer *> result;
    for (auto &buffer : buffers)
      result.push_back(buffer.get());
    return result;
  }

  void fill(size_t index, const Options &options) {
    size_t count = countOf(types[index]);
    Buffer &a = *narrow.emplace_back(
        std::make_unique<Buffer>(count, isHalf(types[index])));
    Buffer &b = *wide.emplace_back(std::make_unique<Buffer>(count));
    b.randomize(index, options.low, options.high);
    for (size_t i = 0; i < count; ++i) {
      if (types[index].find("i32") != std::string::npos)
        a.ints()[i] = b.ints()[i] = int(i * 5 % (options.ids + 1)) - 1;
      else if (a.isHalf())
        b[i] = a.halves()[i] = BFloat16(b[i]);
      else
        a[i] = b[i];
    }
  }

  void expectAlike(size_t index, const Options &options) {
    Buffer &a = *narrow[index], &b = *wide[index];
    double ulps = a.isHalf() ? options.ulps : 0;
    for (size_t i = 0; i < a.size(); ++i) {
      double want = b[i], got = valueAt(a, i);
      if (std::isinf(want))
        ASSERT_EQ(got, want) << "result " << index - inputs << " at " << i;
      else
        ASSERT_NEAR(got, want,
                    ulps * ulpOf(want) +
                        options.sumTolerance * (1 + std::abs(want)))
            << "result " << index - inputs << " at " << i;
    }
  }

  size_t inputs = 0;
};

/// Extents with and without tails, and, on GPUs, vectors of 1, 2, 4 and 8.
class Halves : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {
protected:
  int64_t rows = std::get<0>(GetParam()), columns = std::get<1>(GetParam());
  std::string sized(std::string text) {
    return test::sized(std::move(text), rows, columns);
  }
  std::string full = sized("tensor<RxCxbf16>"),
              column = sized("tensor<Cxbf16>");
};

} // namespace

using Size = std::tuple<int64_t, int64_t>;
INSTANTIATE_TEST_SUITE_P(Sizes, Halves,
                         testing::Values(Size(1, 7), Size(1, 64), Size(5, 1),
                                         Size(5, 12), Size(5, 33), Size(5, 64),
                                         Size(5, 98), Size(3, 1000)));

TEST_P(Halves, Elementwise) {
  Twins twins({{full, column},
               {full, full},
               sized(R"(
    %b = nn.broadcast %1 dims [1] : tensor<Cxbf16> -> tensor<RxCxbf16>
    %x = nn.add %0, %b : tensor<RxCxbf16>
    %s = nn.sigmoid %x : tensor<RxCxbf16>
    %y = nn.mul %x, %s : tensor<RxCxbf16>
    plan.yield %s, %y : tensor<RxCxbf16>, tensor<RxCxbf16>)"),
               "0, 1"});
  // The factor that is a result is read as rounded, and the sum does not
  // cancel.
  Options options;
  options.low = 0.5, options.ulps = 1;
  twins.compare(options);
  if (onGPU() && columns % 8 == 0) {
    EXPECT_NE(twins.half.ptx.find("ld.global.v4.b32"), std::string::npos);
    EXPECT_NE(twins.half.ptx.find("st.global.v4.b32"), std::string::npos);
    EXPECT_EQ(twins.half.info.extent, rows * columns / 8);
  }
}

/// As models have it: statistics in f32, from what was added in one go.
TEST_P(Halves, LayerNorm) {
  std::string body = sized(R"(
    %t = nn.add %0, %3 : tensor<RxCxbf16>
    %x = nn.cast %t : tensor<RxCxbf16> -> tensor<RxCxf32>
    %sum = nn.reduce sum %x dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %mean = nn.scale %sum by SCALE : tensor<Rxf32>
    %m = nn.broadcast %mean dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %c = nn.sub %x, %m : tensor<RxCxf32>
    %q = nn.mul %c, %c : tensor<RxCxf32>
    %qs = nn.reduce sum %q dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %var = nn.scale %qs by SCALE : tensor<Rxf32>
    %e = nn.shift %var by 1.0e-01 : tensor<Rxf32>
    %rstd = nn.rsqrt %e : tensor<Rxf32>
    %r = nn.broadcast %rstd dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %n = nn.mul %c, %r : tensor<RxCxf32>
    %h = nn.cast %n : tensor<RxCxf32> -> tensor<RxCxbf16>
    %w = nn.broadcast %1 dims [1] : tensor<Cxbf16> -> tensor<RxCxbf16>
    %b = nn.broadcast %2 dims [1] : tensor<Cxbf16> -> tensor<RxCxbf16>
    %p = nn.mul %h, %w : tensor<RxCxbf16>
    %y = nn.add %p, %b : tensor<RxCxbf16>
    plan.yield %y, %mean, %rstd : tensor<RxCxbf16>, tensor<Rxf32>, tensor<Rxf32>)");
  for (size_t at; (at = body.find("SCALE")) != std::string::npos;)
    body.replace(at, 5, std::to_string(1.0 / columns));
  std::string row = sized("tensor<Rxf32>");
  Options options;
  options.sumTolerance = 1e-5;
  Twins twins({{full, column, column, full}, {full, row, row}, body});
  twins.compare(options);
  twins.expectSplit();
}

/// What a kernel goes on with is what others will read, to the bit: gradients
/// that cancel, as of a norm over few elements, are made of nothing else.
TEST_P(Halves, ResultsAreReadAsStored) {
  std::string row = sized("tensor<Rxf32>"), wide = sized("tensor<RxCxf32>");
  Twins twins({{full, full}, {full, wide, row}, sized(R"(
    %x = nn.add %0, %1 : tensor<RxCxbf16>
    %f = nn.cast %x : tensor<RxCxbf16> -> tensor<RxCxf32>
    %top = nn.reduce max %f dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    plan.yield %x, %f, %top : tensor<RxCxbf16>, tensor<RxCxf32>, tensor<Rxf32>)")});
  Options options;
  options.sumTolerance = 0x1p-8; // half an ulp of the sum
  twins.compare(options);
  for (int64_t i = 0; i < rows; ++i) {
    float top = -INFINITY;
    for (int64_t j = i * columns; j < (i + 1) * columns; ++j) {
      float stored = float(twins.narrow[2]->halves()[j]);
      EXPECT_EQ((*twins.narrow[3])[j], stored) << "at " << j;
      top = std::max(top, stored);
    }
    EXPECT_EQ((*twins.narrow[4])[i], top) << "in row " << i;
  }
}

/// A sum that is a result and is normalised too: later sweeps read it as it was
/// stored, and half of the sum's ulp may be a whole one of the quotient's.
TEST_P(Halves, ResultsThatLaterSweepsRead) {
  Options options;
  options.low = 1, options.ulps = 1.5;
  Twins({{full, full}, {full, full}, sized(R"(
    %x = nn.add %0, %1 : tensor<RxCxbf16>
    %f = nn.cast %x : tensor<RxCxbf16> -> tensor<RxCxf32>
    %s = nn.reduce sum %f dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %t = nn.broadcast %s dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %d = nn.div %f, %t : tensor<RxCxf32>
    %y = nn.cast %d : tensor<RxCxf32> -> tensor<RxCxbf16>
    plan.yield %x, %y : tensor<RxCxbf16>, tensor<RxCxbf16>)")})
      .compare(options);
}

TEST_P(Halves, CausalSoftmax) {
  Options options;
  options.low = -20, options.high = 20;
  Twins({{sized("tensor<2xRxCxbf16>")},
         {sized("tensor<2xRxCxbf16>"), sized("tensor<2xRxf32>")},
         sized(R"(
    %f = nn.cast %0 : tensor<2xRxCxbf16> -> tensor<2xRxCxf32>
    %x = nn.causal_mask %f : tensor<2xRxCxf32>
    %top = nn.reduce max %x dims [2] : tensor<2xRxCxf32> -> tensor<2xRxf32>
    %t = nn.broadcast %top dims [0, 1] : tensor<2xRxf32> -> tensor<2xRxCxf32>
    %d = nn.sub %x, %t : tensor<2xRxCxf32>
    %w = nn.exp %d : tensor<2xRxCxf32>
    %sum = nn.reduce sum %w dims [2] : tensor<2xRxCxf32> -> tensor<2xRxf32>
    %u = nn.broadcast %sum dims [0, 1] : tensor<2xRxf32> -> tensor<2xRxCxf32>
    %q = nn.div %w, %u : tensor<2xRxCxf32>
    %y = nn.cast %q : tensor<2xRxCxf32> -> tensor<2xRxCxbf16>
    %l = nn.log %sum : tensor<2xRxf32>
    %lse = nn.add %top, %l : tensor<2xRxf32>
    plan.yield %y, %lse : tensor<2xRxCxbf16>, tensor<2xRxf32>)")})
      .compare(options);
}

TEST_P(Halves, Embedding) {
  Options options;
  options.ids = 27, options.scalars = {9};
  Twins({{sized("tensor<9xCxbf16>"), sized("tensor<2xRxi32>")},
         {sized("tensor<2xRxCxbf16>")},
         sized(R"(
    %y = nn.embedding %0, %1 {begin = #nn.begin<"tp" * 9>}
      : (tensor<9xCxbf16>, tensor<2xRxi32>) -> tensor<2xRxCxbf16>
    plan.yield %y : tensor<2xRxCxbf16>)")})
      .compare(options);
}

/// Gradients of halves are added up in a table of floats, or of halves.
TEST_P(Halves, EmbeddingGradient) {
  for (const char *type : {"f32", "bf16"})
    for (int mode : {0, 1, 2}) {
      std::string table = sized("tensor<6xCx") + type + ">";
      std::string ids = sized("tensor<2xRxi32>");
      std::string gradient = sized("tensor<2xRxCxbf16>");
      Options options;
      options.ids = 6, options.low = 0.5;
      // A table of halves is rounded after every addition.
      options.ulps = 1 + 2 * rows, options.sumTolerance = 1e-6 * 2 * rows;
      options.scalars.assign(mode == 2, 0);
      Twins({{gradient, ids},
             {table},
             "%g = nn.embedding_grad %0, %1 : (" + gradient + ", " + ids +
                 ") -> " + table + "\nplan.yield %g : " + table,
             std::to_string(mode)})
          .compare(options);
    }
}

TEST_P(Halves, RotaryEmbedding) {
  int64_t size = 2 * columns;
  auto sized = [&](std::string text) { return test::sized(text, rows, size); };
  std::string type = sized("tensor<2xRxCxbf16>");
  std::string table = sized("tensor<RxCxf32>");
  Twins({{type, table, table}, {type}, sized(R"(
    %f = nn.cast %0 : tensor<2xRxCxbf16> -> tensor<2xRxCxf32>
    %c = nn.broadcast %1 dims [1, 2] : tensor<RxCxf32> -> tensor<2xRxCxf32>
    %s = nn.broadcast %2 dims [1, 2] : tensor<RxCxf32> -> tensor<2xRxCxf32>
    %k = nn.mul %f, %c : tensor<2xRxCxf32>
    %h = nn.rotate_half %0 : tensor<2xRxCxbf16>
    %g = nn.cast %h : tensor<2xRxCxbf16> -> tensor<2xRxCxf32>
    %t = nn.mul %g, %s : tensor<2xRxCxf32>
    %y = nn.add %k, %t : tensor<2xRxCxf32>
    %r = nn.cast %y : tensor<2xRxCxf32> -> tensor<2xRxCxbf16>
    plan.yield %r : tensor<2xRxCxbf16>)")})
      .compare({});
}

TEST_P(Halves, Slice) {
  int64_t whole = 2 * columns - columns / 2, local = (whole + 1) / 2;
  std::string type = test::sized("tensor<RxCxbf16>", rows, whole);
  std::string part = test::sized("tensor<RxCxbf16>", rows, local);
  Options options;
  for (int64_t rank : {0, 1}) {
    options.scalars = {rank * local};
    Twins({{type},
           {part},
           "%s = dist.slice %0 on @mesh[\"tp\"] dim 1 : " + type + " -> " +
               part + "\nplan.yield %s : " + part})
        .compare(options);
  }
}

/// The gradients of a norm's weight and bias: sums over rows of halves, which
/// are added to floats.
TEST_P(Halves, SumsOfColumns) {
  std::string sums = sized("tensor<Cxf32>");
  Options options;
  options.sumTolerance = 1e-5;
  options.scalars = {0};
  Twins({{full, full, sized("tensor<Rxf32>")},
         {sums, sums, full},
         sized(R"(
    %x = nn.cast %1 : tensor<RxCxbf16> -> tensor<RxCxf32>
    %g = nn.cast %0 : tensor<RxCxbf16> -> tensor<RxCxf32>
    %r = nn.broadcast %2 dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %n = nn.mul %x, %r : tensor<RxCxf32>
    %p = nn.mul %g, %n : tensor<RxCxf32>
    %w = nn.reduce sum %p dims [0] : tensor<RxCxf32> -> tensor<Cxf32>
    %b = nn.reduce sum %g dims [0] : tensor<RxCxf32> -> tensor<Cxf32>
    %h = nn.cast %p : tensor<RxCxf32> -> tensor<RxCxbf16>
    plan.yield %w, %b, %h : tensor<Cxf32>, tensor<Cxf32>, tensor<RxCxbf16>)"),
         "1, 2, 0"})
      .compare(options);
}

/// An optimizer's step: floats, and a copy in halves of what they become.
TEST_P(Halves, MasterAndCopy) {
  std::string type = sized("tensor<RxCxf32>");
  Twins twins({{type, type}, {type, full}, sized(R"(
    %d = nn.scale %1 by 0.01 : tensor<RxCxf32>
    %w = nn.sub %0, %d : tensor<RxCxf32>
    %c = nn.cast %w : tensor<RxCxf32> -> tensor<RxCxbf16>
    plan.yield %w, %c : tensor<RxCxf32>, tensor<RxCxbf16>)")});
  twins.compare({});
  twins.expectSplit();
  // The copy is what rounding the master gives, to the bit.
  for (int64_t i = 0; i < rows * columns; ++i)
    EXPECT_EQ(twins.narrow[3]->halves()[i].bits,
              BFloat16((*twins.narrow[2])[i]).bits);
}

TEST(HalvesTest, SumOverAllRows) {
  Options options;
  options.sumTolerance = 1e-5;
  Twins({{"tensor<11x13x97xbf16>"},
         {"tensor<f32>", "tensor<bf16>"},
         R"(
    %f = nn.cast %0 : tensor<11x13x97xbf16> -> tensor<11x13x97xf32>
    %q = nn.mul %f, %f : tensor<11x13x97xf32>
    %s = nn.reduce sum %q dims [0, 1, 2] : tensor<11x13x97xf32> -> tensor<f32>
    %c = nn.cast %s : tensor<f32> -> tensor<bf16>
    plan.yield %s, %c : tensor<f32>, tensor<bf16>)"})
      .compare(options);
}

/// Numbers between two halves, at the ends, and none at all.
TEST(HalvesTest, Rounding) {
  const std::vector<float> values = {1.0f,
                                     0x1.01p0f,
                                     0x1.03p0f,
                                     0x1.010002p0f,
                                     0x1.00fffep0f,
                                     -0x1.01p0f,
                                     0x1.fep127f,
                                     0x1.fefffep127f,
                                     0x1.ffp127f,
                                     INFINITY,
                                     -INFINITY,
                                     0.0f,
                                     -0.0f,
                                     0x1p-133f,
                                     0x1.8p-134f,
                                     0x1p-149f,
                                     0x1.fffffep-127f,
                                     NAN,
                                     -NAN,
                                     3.0f};
  const std::vector<uint16_t> bits = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x3f80,
                                      0xbf80, 0x7f7f, 0x7f7f, 0x7f80, 0x7f80,
                                      0xff80, 0x0000, 0x8000, 0x0001, 0x0001,
                                      0x0000, 0x0080, 0x7fc0, 0xffc0, 0x4040};
  // Alone, so that a GPU rounds single numbers, and in vectors with a tail.
  for (size_t count : {1, 20, 64, 203}) {
    std::string wide = "tensor<" + std::to_string(count) + "xf32>";
    std::string narrow = "tensor<" + std::to_string(count) + "xbf16>";
    Kernel kernel({{wide},
                   {narrow},
                   "%y = nn.cast %0 : " + wide + " -> " + narrow +
                       "\nplan.yield %y : " + narrow});
    for (size_t first = 0; first < values.size(); ++first) {
      Buffer x(count), y(count, /*half=*/true);
      for (size_t i = 0; i < count; ++i)
        x[i] = values[(first + i) % values.size()];
      kernel({&x, &y});
      for (size_t i = 0; i < count; ++i) {
        uint16_t want = bits[(first + i) % values.size()];
        if (std::isnan(x[i]))
          EXPECT_TRUE(std::isnan(float(y.halves()[i])));
        else
          EXPECT_EQ(y.halves()[i].bits, want) << x[i];
      }
    }
  }
}

/// Of bf16 rows GPUs take a short exponential, whose error grows with the
/// number. Sums of 8 equal ones show it without rounding; f32 rows keep the
/// long one.
TEST(HalvesTest, Exponentials) {
  auto body = [](const std::string &type) {
    return "%f = nn.cast %0 : tensor<256x8x" + type +
           "> -> tensor<256x8xf32>\n%e = nn.exp %f : tensor<256x8xf32>\n"
           "%s = nn.reduce sum %e dims [1] : tensor<256x8xf32> -> "
           "tensor<256xf32>\nplan.yield %s : tensor<256xf32>";
  };
  Kernel kernel({{"tensor<256x8xbf16>"}, {"tensor<256xf32>"}, body("bf16")});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  if (onGPU()) {
    Kernel wide({{"tensor<256x8xf32>"}, {"tensor<256xf32>"}, body("f32")});
    EXPECT_NE(wide.ptx.find("max.f32"), std::string::npos);
    EXPECT_EQ(kernel.ptx.find("max.f32"), std::string::npos);
  }
  Buffer x(256 * 8, /*half=*/true), y(256);
  for (int row = 0; row < 256; ++row) {
    float number = row < 252 ? (float(row) - 200) / 2 : 80;
    number = row == 253 ? INFINITY : row == 254 ? -INFINITY : number;
    number = row == 255 ? NAN : number;
    for (int column = 0; column < 8; ++column)
      x.halves()[row * 8 + column] = BFloat16(number);
  }
  kernel({&x, &y});
  for (int row = 0; row < 253; ++row) {
    double number = double(float(x.halves()[row * 8]));
    double want = 8 * std::exp(number);
    EXPECT_NEAR(y[row], want,
                want * (2.5e-7 + 1e-7 * std::abs(number)) + 0x1p-123)
        << number;
  }
  EXPECT_EQ(y[253], INFINITY);
  EXPECT_EQ(y[254], 0);
  EXPECT_TRUE(std::isnan(y[255]));
}

/// Processors give the same bits, with AVX-512 and without.
TEST(HalvesTest, EveryLevelRoundsAlike) {
  Cluster cluster{{"tensor<3x97xbf16>", "tensor<97xf32>"},
                  {"tensor<3x97xbf16>"},
                  R"(
    %f = nn.cast %0 : tensor<3x97xbf16> -> tensor<3x97xf32>
    %b = nn.broadcast %1 dims [1] : tensor<97xf32> -> tensor<3x97xf32>
    %p = nn.mul %f, %b : tensor<3x97xf32>
    %y = nn.cast %p : tensor<3x97xf32> -> tensor<3x97xbf16>
    plan.yield %y : tensor<3x97xbf16>)"};
  Buffer x(291, /*half=*/true), w(97), y(291, /*half=*/true);
  w.randomize(1);
  for (int index = 0; index < 291; ++index)
    x.halves()[index] = BFloat16(index / 7.0f - 20);
  std::string host = codegen::TargetCPU::getHost().name;
  for (const char *level : {"x86-64-v3", "x86-64-v4"}) {
    if (level > host)
      break;
    Kernel kernel(cluster, codegen::TargetCPU{level, ""});
    kernel({&x, &w, &y});
    for (int index = 0; index < 291; ++index)
      EXPECT_EQ(y.halves()[index].bits,
                BFloat16(x.halves()[index] * w[index % 97]).bits)
          << level;
  }
}
