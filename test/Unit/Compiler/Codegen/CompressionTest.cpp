//===- CompressionTest.cpp - Kernels that compress gradients --------------===//
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

namespace {

/// Rows are chunks.
class CompressedSizes
    : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {
protected:
  int64_t rows = std::get<0>(GetParam()), columns = std::get<1>(GetParam());
  size_t size() const { return rows * columns; }
  std::string sized(std::string text) {
    return test::sized(std::move(text), rows, columns);
  }
};

} // namespace

INSTANTIATE_TEST_SUITE_P(Sizes, CompressedSizes,
                         testing::Combine(testing::Values(1, 3, 17),
                                          testing::Values(32, 64, 256, 4096)));

/// Absmax scaling to -127 … 127: codes, scales, and what is lost.
TEST_P(CompressedSizes, EncodesInt8) {
  Kernel kernel({{sized("tensor<RxCxf32>"), sized("tensor<RxCxf32>")},
                 {sized("tensor<RxCxf32>"), sized("tensor<Rxf32>"),
                  sized("tensor<RxCxf32>")},
                 sized(R"(
    %v = nn.add %0, %1 : tensor<RxCxf32>
    %p = nn.parts %v over "dp" : tensor<RxCxf32> -> tensor<RxCxf32>
    %n = nn.neg %p : tensor<RxCxf32>
    %l = nn.min %p, %n : tensor<RxCxf32>
    %a = nn.neg %l : tensor<RxCxf32>
    %m = nn.reduce max %a dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %b = nn.shift %m by 7.88860905e-31 : tensor<Rxf32>
    %c = nn.fill 127.0 : tensor<Rxf32>
    %f = nn.div %c, %b : tensor<Rxf32>
    %F = nn.broadcast %f dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %x = nn.mul %p, %F : tensor<RxCxf32>
    %q = nn.round %x : tensor<RxCxf32>
    %s = nn.scale %m by 0.00787401571 : tensor<Rxf32>
    %S = nn.broadcast %s dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %d = nn.mul %q, %S : tensor<RxCxf32>
    %u = nn.unite %d over "dp" : tensor<RxCxf32> -> tensor<RxCxf32>
    %e = nn.sub %v, %u : tensor<RxCxf32>
    plan.yield %q, %s, %e : tensor<RxCxf32>, tensor<Rxf32>, tensor<RxCxf32>)")});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer g(size()), e(size()), q(size()), s(rows), left(size());
  g.randomize(1), e.randomize(2);
  // A row of zeros stays one.
  for (int64_t c = 0; c < columns; ++c)
    g[c] = e[c] = 0;
  q.fill(NAN), s.fill(NAN), left.fill(NAN);
  kernel({&g, &e, &q, &s, &left});
  for (int64_t r = 0; r < rows; ++r) {
    float largest = 0;
    for (int64_t c = 0; c < columns; ++c)
      largest =
          std::max(largest, std::abs(g[r * columns + c] + e[r * columns + c]));
    float factor = 127 / (largest + 0x1p-100f), scale = largest * (1 / 127.0f);
    ASSERT_EQ(s[r], scale) << r;
    for (int64_t c = 0; c < columns; ++c) {
      int64_t at = r * columns + c;
      float v = g[at] + e[at], code = std::nearbyint(v * factor);
      ASSERT_EQ(q[at], code) << r << ", " << c;
      // One product that may keep its unrounded value.
      ASSERT_NEAR(left[at], v - code * scale, std::abs(v) * 0x1p-23f)
          << r << ", " << c;
      ASSERT_LE(std::abs(left[at]), largest / 254 * 1.0001f);
    }
  }
  kernel.expectSplit({&g, &e, &q, &s, &left}, 2);
}

/// What is no number makes its chunk none, and no other.
TEST(CompressionKernels, KeepWhatIsNotFinite) {
  Kernel kernel({{"tensor<2x32xf32>"},
                 {"tensor<2xf32>"},
                 R"(
    %n = nn.neg %0 : tensor<2x32xf32>
    %l = nn.min %0, %n : tensor<2x32xf32>
    %a = nn.neg %l : tensor<2x32xf32>
    %m = nn.reduce max %a dims [1] : tensor<2x32xf32> -> tensor<2xf32>
    plan.yield %m : tensor<2xf32>)"});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  for (float broken : {NAN, INFINITY, -INFINITY}) {
    Buffer x(64), m(2);
    x.fill(1), m.fill(0);
    x[40] = broken;
    kernel({&x, &m});
    EXPECT_EQ(m[0], 1);
    EXPECT_FALSE(std::isfinite(m[1])) << broken;
  }
}

/// To the nearest integer, of two the even one.
TEST(CompressionKernels, Round) {
  Kernel kernel({{"tensor<32xf32>"},
                 {"tensor<32xf32>"},
                 "%y = nn.round %0 : tensor<32xf32>\n"
                 "plan.yield %y : tensor<32xf32>"});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(32), y(32);
  const float given[] = {0,           -0.0f,      0.5f,   -0.5f,   1.5f,
                         -1.5f,       2.5f,       126.5f, -126.5f, 127,
                         0.49999997f, 4194303.5f, 1e9f,   -1e30f};
  x.fill(0.25f);
  std::copy(std::begin(given), std::end(given), x.floats());
  x[30] = INFINITY, x[31] = NAN;
  kernel({&x, &y});
  for (int64_t at = 0; at < 31; ++at)
    EXPECT_EQ(y[at], std::nearbyint(x[at])) << x[at];
  EXPECT_TRUE(std::isnan(y[31]));
}

/// Byte b of word w is of element b · words + w.
TEST_P(CompressedSizes, PacksBytes) {
  Kernel kernel({{sized("tensor<RxCxf32>")},
                 {sized("tensor<Rx" + std::to_string(columns / 4) + "xi32>")},
                 [&] {
                   std::string part =
                       sized("tensor<Rx" + std::to_string(columns / 4) + "x");
                   std::string body, names, types;
                   for (int index = 0; index < 4; ++index) {
                     std::string name = "%p" + std::to_string(index);
                     body += name + " = nn.slice %0 part " +
                             std::to_string(index) +
                             " of 4 : " + sized("tensor<RxCxf32>") + " -> " +
                             part + "f32>\n";
                     names += (index ? ", " : "") + name;
                     types += std::string(index ? ", " : "") + part + "f32>";
                   }
                   return body + "%w = nn.pack_bits " + names + " bits 8 : (" +
                          types + ") -> " + part +
                          "i32>\nplan.yield %w : " + part + "i32>";
                 }()});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  int64_t words = columns / 4;
  Buffer q(size()), w(rows * words);
  for (size_t at = 0; at < size(); ++at)
    q[at] = float(int64_t(at * 37 % 255) - 127);
  w.fill(NAN);
  kernel({&q, &w});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t at = 0; at < words; ++at)
      for (int64_t b = 0; b < 4; ++b) {
        auto byte = static_cast<int8_t>(
            static_cast<uint32_t>(w.ints()[r * words + at]) >> (8 * b));
        ASSERT_EQ(float(byte), q[r * columns + b * words + at])
            << r << ", " << at << ", " << b;
      }
  kernel.expectSplit({&q, &w}, 1);
}

/// What three replicas have sent, in their order.
TEST_P(CompressedSizes, AddsUpWhatIsUnpacked) {
  int64_t words = columns / 4;
  std::string packed = sized("tensor<3xRx" + std::to_string(words) + "xi32>");
  Kernel kernel({{packed, sized("tensor<3xRxf32>")},
                 {sized("tensor<RxCxf32>")},
                 "%q = nn.unpack_bits %0 bits 8 : " + packed +
                     sized(R"( -> tensor<3xRxCxf32>
    %s = nn.broadcast %1 dims [0, 1] : tensor<3xRxf32> -> tensor<3xRxCxf32>
    %d = nn.mul %q, %s : tensor<3xRxCxf32>
    %t = nn.reduce sum %d dims [0] : tensor<3xRxCxf32> -> tensor<RxCxf32>
    plan.yield %t : tensor<RxCxf32>)")});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer w(3 * rows * words), s(3 * rows), t(size());
  for (size_t at = 0; at < w.size(); ++at)
    w.ints()[at] = int32_t(at * 2654435761u);
  s.randomize(3), t.fill(NAN);
  kernel({&w, &s, &t});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0, most = 0;
      for (int64_t n = 0; n < 3; ++n) {
        int64_t row = n * rows + r;
        auto byte = static_cast<int8_t>(
            static_cast<uint32_t>(w.ints()[row * words + c % words]) >>
            (c / words * 8));
        sum += double(byte) * s[row];
        most += std::abs(double(byte) * s[row]);
      }
      // A product and a sum of each, rounded once or twice.
      ASSERT_NEAR(t[r * columns + c], sum, 6 * 0x1p-24 * most)
          << r << ", " << c;
    }
  kernel.expectSplit({&w, &s, &t}, 2);
}

/// Integers of all widths come back: one bit is 0 or 1.
TEST(CompressionKernels, UnpackEachWidth) {
  for (int bits : {1, 2, 4, 8, 16}) {
    int64_t parts = 32 / bits;
    std::string words = "tensor<2x8xi32>",
                all = "tensor<2x" + std::to_string(8 * parts) + "xf32>";
    Kernel kernel({{words},
                   {all},
                   "%q = nn.unpack_bits %0 bits " + std::to_string(bits) +
                       " : " + words + " -> " + all +
                       "\nplan.yield %q : " + all});
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer w(16), q(16 * parts);
    for (int64_t at = 0; at < 16; ++at)
      w.ints()[at] = int32_t((at + 1) * 2654435761u);
    q.fill(NAN);
    kernel({&w, &q});
    for (int64_t r = 0; r < 2; ++r)
      for (int64_t c = 0; c < 8 * parts; ++c) {
        uint32_t word = w.ints()[r * 8 + c % 8];
        int64_t code = word >> (c / 8 * bits) & ((int64_t(1) << bits) - 1);
        if (bits > 1 && code >> (bits - 1))
          code -= int64_t(1) << bits;
        ASSERT_EQ(q[r * 8 * parts + c], float(code))
            << bits << " bits: " << r << ", " << c;
      }
  }
}
