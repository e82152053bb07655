//===- SortedScatterTest.cpp - Gradients of tables by sorted tokens -------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "plait/Support/SortedTokens.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace plait;
using namespace plait::test;

/// Gradients of a table of 300 rows, of which a rank has `rows`, by sorted
/// tokens: some are often there, many never, two are in no table.
struct SortedScatter {
  static constexpr int columns = 24, positions = 150, entries = 300;

  explicit SortedScatter(int rows, const std::string &begin, bool isHalf,
                         const std::string &mode)
      : rows(rows),
        kernel({{isHalf ? "tensor<5x30x24xbf16>" : "tensor<5x30x24xf32>",
                 "tensor<5x30xi32>"},
                {type(isHalf)},
                "    %g = nn.embedding_grad %0, %1 " + begin +
                    " : (tensor<5x30x24x" + (isHalf ? "bf16" : "f32") +
                    ">, tensor<5x30xi32>) -> " + type(isHalf) +
                    "\n    plan.yield %g : " + type(isHalf),
                mode,
                entries}),
        x(positions * columns, isHalf), ids(sorted.getWords()),
        y(rows * columns, isHalf) {
    std::vector<float> drawn(positions * columns);
    Buffer numbers(drawn.size());
    numbers.randomize(1);
    for (size_t i = 0; i < drawn.size(); ++i) {
      if (isHalf)
        x.halves()[i] = BFloat16(numbers[i]);
      else
        x[i] = numbers[i];
    }
    for (int i = 0; i < positions; ++i)
      ids.ints()[i] = i % 3 ? 7 + i % 5 : i * 119 % entries;
    ids.ints()[40] = -1, ids.ints()[41] = entries;
    sorted.sort({ids.ints(), size_t(sorted.getWords())});
  }

  std::string type(bool isHalf) const {
    return "tensor<" + std::to_string(rows) + "x24x" +
           (isHalf ? "bf16>" : "f32>");
  }

  const SortedTokens sorted{positions, entries};
  int rows;
  Kernel kernel;
  Buffer x, ids, y;
};

/// The same bits as position after position added to the row that it names. In
/// later microbatches rows stay that no token names: what lies there is only
/// read where it is added to.
TEST(PtxTest, ScatterBySortedTokens) {
  for (auto [mode, first] :
       {std::pair("0", -1), {"1", -1}, {"2", 1}, {"2", 0}}) {
    SortedScatter own(SortedScatter::entries, "", false, mode);
    ASSERT_TRUE(own.kernel.valid()) << own.kernel.errors;
    bool adds = *mode == '1' || first == 0;
    own.y.fill(adds ? 3.0f : NAN);
    own.kernel({&own.x, &own.ids, &own.y}, first < 0
                                               ? std::vector<int64_t>()
                                               : std::vector<int64_t>{first});
    std::vector<float> want(own.y.size(), adds ? 3.0f : 0.0f);
    for (int i = 0; i < own.positions; ++i)
      if (int id = own.ids.ints()[i]; 0 <= id && id < own.entries)
        for (int j = 0; j < own.columns; ++j)
          want[id * own.columns + j] += own.x[i * own.columns + j];
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(own.y[i], want[i]) << mode << first << " " << i;
  }
}

/// A rank of two has the rows from 160 on, the last 20 of which are padding.
TEST(PtxTest, SortedTokensOfARank) {
  SortedScatter own(160, "{begin = #nn.begin<\"tp\" * 160>, limit = 300}",
                    false, "0");
  ASSERT_TRUE(own.kernel.valid()) << own.kernel.errors;
  own.y.fill(NAN);
  own.kernel({&own.x, &own.ids, &own.y}, {160});
  std::vector<float> want(own.y.size(), 0.0f);
  for (int i = 0; i < own.positions; ++i)
    if (int id = own.ids.ints()[i]; 160 <= id && id < own.entries)
      for (int j = 0; j < own.columns; ++j)
        want[(id - 160) * own.columns + j] += own.x[i * own.columns + j];
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(own.y[i], want[i]) << i;
}

/// A table in bf16 is rounded once, and not at each position.
TEST(PtxTest, SortedTokensRoundOnce) {
  SortedScatter own(SortedScatter::entries, "", true, "0");
  ASSERT_TRUE(own.kernel.valid()) << own.kernel.errors;
  own.kernel({&own.x, &own.ids, &own.y});
  std::vector<float> want(own.y.size());
  for (int i = 0; i < own.positions; ++i)
    if (int id = own.ids.ints()[i]; 0 <= id && id < own.entries)
      for (int j = 0; j < own.columns; ++j)
        want[id * own.columns + j] +=
            float(own.x.halves()[i * own.columns + j]);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(float(own.y.halves()[i]), float(BFloat16(want[i]))) << i;
}

/// The same bits where a table is added to: rows that no token names are not
/// touched, and the operand that stands for the table is not read.
TEST(PtxTest, SortedTokensIntoTable) {
  SortedScatter own(SortedScatter::entries, "", false, "1");
  const std::string table = own.type(false);
  Kernel into({{"tensor<5x30x24xf32>", "tensor<5x30xi32>", table},
               {table},
               "    %g = nn.embedding_grad %0, %1 : (tensor<5x30x24xf32>, "
               "tensor<5x30xi32>) -> " +
                   table + "\n    %s = nn.add %2, %g : " + table +
                   "\n    plan.yield %s : " + table,
               "",
               SortedScatter::entries});
  ASSERT_TRUE(own.kernel.valid() && into.valid()) << into.errors;
  Buffer unread(own.y.size()), y(own.y.size());
  unread.fill(NAN);
  for (size_t i = 0; i < y.size(); ++i)
    own.y[i] = y[i] = 0.25f * float(i % 13);
  own.kernel({&own.x, &own.ids, &own.y});
  into({&own.x, &own.ids, &unread, &y});
  for (size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(y[i], own.y[i]) << i;
}
