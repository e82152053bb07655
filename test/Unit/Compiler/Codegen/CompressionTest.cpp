//===- CompressionTest.cpp - Kernels that compress gradients --------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "plait/Support/DropoutMask.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

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

/// The kept elements of each row, by sorting.
static std::vector<bool> keepTop(const float *row, int64_t columns,
                                 int64_t keep) {
  std::vector<int64_t> order(columns);
  std::iota(order.begin(), order.end(), 0);
  auto size = [&](int64_t at) {
    return std::isnan(row[at]) ? HUGE_VALF : std::abs(row[at]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return size(a) > size(b); });
  std::vector<bool> kept(columns);
  for (int64_t index = 0; index < keep; ++index)
    kept[order[index]] = true;
  return kept;
}

static Kernel makeKeepTop(std::string type, int64_t keep, int64_t columns) {
  return Kernel({{type},
                 {type},
                 "%m = nn.keep_top %0 keep " + std::to_string(keep) +
                     " block " + std::to_string(columns) + " : " + type +
                     "\nplan.yield %m : " + type});
}

TEST_P(CompressedSizes, KeepsTheLargest) {
  for (int64_t keep : {int64_t(1), int64_t(2), columns / 3, columns}) {
    Kernel kernel = makeKeepTop(sized("tensor<RxCxf32>"), keep, columns);
    ASSERT_TRUE(kernel.valid()) << kernel.errors;
    Buffer x(size()), m(size());
    x.randomize(4);
    // Ties: of equal magnitudes those that come first.
    for (int64_t c = 0; c < columns; c += 2)
      x[c] = c % 4 ? -0.25f : 0.25f;
    m.fill(NAN);
    kernel({&x, &m});
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<bool> kept = keepTop(x.floats() + r * columns, columns, keep);
      for (int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(m[r * columns + c], kept[c] ? 1 : 0)
            << keep << ": " << r << ", " << c;
    }
    kernel.expectSplit({&x, &m}, 1);
  }
}

/// Zeros, what is no number, and what is next to nothing.
TEST(CompressionKernels, KeepsWhatIsNotFinite) {
  Kernel kernel = makeKeepTop("tensor<3x32xf32>", 3, 32);
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(96), m(96);
  x.fill(0);
  x[40] = NAN, x[50] = -INFINITY, x[60] = 1e38f, x[63] = 2;
  x[64 + 5] = 1e-42f, x[64 + 9] = -2e-42f;
  kernel({&x, &m});
  for (int64_t at : {0, 1, 2, 40, 50, 60, 64, 64 + 5, 64 + 9})
    EXPECT_EQ(m[at], 1) << at;
  EXPECT_EQ(std::count(m.floats(), m.floats() + 96, 1.0f), 9);
}

/// What is compacted and listed comes back where it was; where there is less
/// than there is room for, zeros and -1 follow.
TEST_P(CompressedSizes, MovesWhatIsKept) {
  int64_t kept = columns / 4 + 1;
  std::string all = sized("tensor<RxCxf32>"),
              some = sized("tensor<Rx" + std::to_string(kept) + "xf32>");
  auto make = [&](std::vector<std::string> operands, std::string result,
                  std::string op) {
    return Kernel(
        {std::move(operands),
         {result},
         "%y = " + op + " -> " + result + "\nplan.yield %y : " + result});
  };
  Kernel compact = make({all, all}, some, "nn.compact %0 where %1 : " + all),
         expand = make({some, all}, all, "nn.expand %0 where %1 : " + some),
         find = make({all}, some, "nn.find %0 : " + all),
         mark = make({some}, all, "nn.mark %0 : " + some);
  for (Kernel *kernel : {&compact, &expand, &find, &mark})
    ASSERT_TRUE(kernel->valid()) << kernel->errors;
  Buffer x(size()), m(size()), v(rows * kept), i(rows * kept), n(size()),
      y(size());
  x.randomize(5);
  for (size_t at = 0; at < size(); ++at)
    m[at] = at * 7 % 5 == 0;
  for (Buffer *buffer : {&v, &i, &n, &y})
    buffer->fill(NAN);
  compact({&x, &m, &v}), find({&m, &i}), mark({&i, &n}), expand({&v, &n, &y});
  for (int64_t r = 0; r < rows; ++r) {
    int64_t next = 0;
    for (int64_t c = 0; c < columns; ++c) {
      int64_t at = r * columns + c;
      ASSERT_EQ(n[at], m[at]) << at;
      ASSERT_EQ(y[at], m[at] ? x[at] : 0) << at;
      if (m[at] == 0)
        continue;
      ASSERT_EQ(v[r * kept + next], x[at]) << at;
      ASSERT_EQ(i[r * kept + next++], float(c)) << at;
    }
    for (; next < kept; ++next) {
      ASSERT_EQ(v[r * kept + next], 0) << r;
      ASSERT_EQ(i[r * kept + next], -1) << r;
    }
  }
  compact.expectSplit({&x, &m, &v}, 2);
}

/// Columns that there are not are left out, wherever they would lie.
TEST(CompressionKernels, MarksNothingBeyondTheRow) {
  Kernel kernel({{"tensor<2x4xf32>"},
                 {"tensor<2x32xf32>"},
                 "%m = nn.mark %0 : tensor<2x4xf32> -> tensor<2x32xf32>\n"
                 "plan.yield %m : tensor<2x32xf32>"});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer i(8), m(64);
  const float given[] = {32, -1, -32768, 32767, 31, 0, 0, -2};
  std::copy(std::begin(given), std::end(given), i.floats());
  kernel({&i, &m});
  for (int64_t at = 0; at < 64; ++at)
    EXPECT_EQ(m[at], at == 32 || at == 63 ? 1 : 0) << at;
}

/// Three tensors, of which two end within a row, and rows of none.
TEST(CompressionKernels, CountsElements) {
  Kernel kernel({{"tensor<7x32xf32>"},
                 {"tensor<7x32xf32>"},
                 "%o = nn.occupied %0 elements [70, 32, 5] : tensor<7x32xf32>\n"
                 "plan.yield %o : tensor<7x32xf32>"});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(224), o(224);
  x.fill(NAN), o.fill(NAN);
  kernel({&x, &o});
  for (int64_t at = 0; at < 224; ++at)
    EXPECT_EQ(o[at], at < 70 || (96 <= at && at < 133) ? 1 : 0) << at;
}

/// The random number of an element: seed, step, key, replica, chunk, column.
static float draw(std::initializer_list<uint32_t> numbers) {
  uint32_t hash = *numbers.begin();
  for (uint32_t number :
       std::vector<uint32_t>(numbers.begin() + 1, numbers.end()))
    hash = extendMaskHash(MaskWords(), hash, number);
  return float(hash >> 8) * 0x1p-24f;
}

/// Of three tensors in rows of 32 the second is split: rank 1 of two has chunks
/// 3 to 5 of each 6.
static Kernel makeDraw(std::string more) {
  return Kernel({{"tensor<12x32xf32>", "tensor<f32>"},
                 {"tensor<12x32xf32>"},
                 "%s = nn.broadcast %1 dims [] : tensor<f32> -> "
                 "tensor<12x32xf32>\n"
                 "%u = nn.draw %0 at %s block 32 seed 9 elements [70, 192, 5] "
                 "keys [17, 4294967295, 3] runs [3, 3, 1] begins "
                 "[unit, #nn.begin<\"tp\" * 3 of 6>, unit] " +
                     more +
                     " : tensor<12x32xf32>\nplan.yield %u : "
                     "tensor<12x32xf32>"});
}

TEST(CompressionKernels, DrawWhatIsTheSameOnEveryMesh) {
  Kernel kernel = makeDraw("replica <\"dp\" * 1>"), same = makeDraw("shared");
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  ASSERT_TRUE(same.valid()) << same.errors;
  Buffer x(384), step(1), u(384), v(384);
  x.fill(NAN), step[0] = 16777215, u.fill(NAN), v.fill(NAN);
  ASSERT_EQ(kernel.info.scalars.size(), 2u);
  std::vector<int64_t> scalars;
  for (const auto &scalar : kernel.info.scalars)
    scalars.push_back(scalar.axis == "tp" ? 3 : 2);
  kernel({&x, &step, &u}, scalars);
  same({&x, &step, &v}, {3});
  const uint32_t chunks[] = {0, 1, 2, 3, 4, 5, 9, 10, 11, 0};
  for (uint32_t row = 0; row < 10; ++row)
    for (uint32_t column = 0; column < 32; ++column) {
      uint32_t key = row < 3 ? 17 : row < 9 ? 4294967295u : 3;
      ASSERT_EQ(u[row * 32 + column],
                draw({9, 16777215, key, 2, chunks[row], column}))
          << row << ", " << column;
      ASSERT_EQ(v[row * 32 + column],
                draw({9, 16777215, key, 0, chunks[row], column}))
          << row << ", " << column;
    }
  kernel.expectSplit({&x, &step, &u}, 2, scalars);
}

/// The mean magnitude and a bit, and what is not sent.
TEST_P(CompressedSizes, EncodesSigns) {
  int64_t elements = size() - columns / 2;
  Kernel kernel({{sized("tensor<RxCxf32>")},
                 {sized("tensor<RxCxf32>"), sized("tensor<RxCxf32>")},
                 sized(R"(
    %z = nn.fill 0.0 : tensor<RxCxf32>
    %n = nn.neg %0 : tensor<RxCxf32>
    %l = nn.min %0, %n : tensor<RxCxf32>
    %a = nn.neg %l : tensor<RxCxf32>
    %o = nn.occupied %0 elements [)") +
                     std::to_string(elements) + sized(R"(] : tensor<RxCxf32>
    %c = nn.reduce sum %o dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %u = nn.fill 1.0 : tensor<Rxf32>
    %i = nn.div %u, %c : tensor<Rxf32>
    %I = nn.broadcast %i dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %A = nn.mul %a, %I : tensor<RxCxf32>
    %m = nn.reduce sum %A dims [1] : tensor<RxCxf32> -> tensor<Rxf32>
    %M = nn.broadcast %m dims [0] : tensor<Rxf32> -> tensor<RxCxf32>
    %q = nn.greater %z, %0 : tensor<RxCxf32> -> tensor<RxCxf32>
    %k = nn.scale %q by -2.0 : tensor<RxCxf32>
    %g = nn.shift %k by 1.0 : tensor<RxCxf32>
    %y = nn.mul %g, %o : tensor<RxCxf32>
    %d = nn.mul %y, %M : tensor<RxCxf32>
    plan.yield %q, %d : tensor<RxCxf32>, tensor<RxCxf32>)")});
  ASSERT_TRUE(kernel.valid()) << kernel.errors;
  Buffer x(size()), q(size()), d(size());
  x.randomize(6);
  for (size_t at = elements; at < size(); ++at)
    x[at] = 0;
  q.fill(NAN), d.fill(NAN);
  kernel({&x, &q, &d});
  for (int64_t r = 0; r < rows; ++r) {
    int64_t count = std::min(columns, elements - r * columns);
    double sum = 0;
    for (int64_t c = 0; c < count; ++c)
      sum += std::abs(x[r * columns + c]);
    for (int64_t c = 0; c < columns; ++c) {
      int64_t at = r * columns + c;
      ASSERT_EQ(q[at], x[at] < 0 ? 1 : 0) << at;
      double mean = c < count ? (x[at] < 0 ? -1 : 1) * sum / count : 0;
      ASSERT_NEAR(d[at], mean, 1e-6) << at;
    }
  }
}
