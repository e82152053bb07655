//===- KernelsTest.cpp - Kernels that do not do what their ops say --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A defect of code generation is seeded by compiling other ops than those that
// the code is held against, or by code written here.
//
//===----------------------------------------------------------------------===//

#include "plait/Proof/Kernels.h"
#include "KernelTrial.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <cmath>
#include <csignal>
#include <sstream>

using namespace plait;
using namespace plait::proof;

namespace {

/// One cluster in a module, and what is told of it.
class KernelsTest : public testing::Test {
protected:
  KernelsTest()
      : handler(&context,
                [&](mlir::Diagnostic &diag) { told += diag.str() + "\n"; }) {
    context.loadDialect<nn::NNDialect, dist::DistDialect, plan::PlanDialect,
                        mlir::func::FuncDialect>();
  }

  /// A cluster of `operands` and one result.
  plan::ClusterOp parse(const std::string &operands, const std::string &result,
                        const std::string &body,
                        const std::string &accumulate = "") {
    std::string names, arguments, types;
    std::stringstream list(operands);
    int count = 0;
    for (std::string type; std::getline(list, type, ' '); ++count) {
      std::string comma = count ? ", " : "", number = std::to_string(count);
      names += comma + "%a" + number;
      arguments += comma + "%a" + number + ": " + type;
      types += comma + type;
    }
    std::string text = "dist.mesh @mesh [\"tp\"] = [2]\nfunc.func @f(" +
                       arguments + ") {\n%r = plan.cluster(" + names + ") " +
                       accumulate + " : (" + types + ") -> " + result +
                       " {\n^bb0(" + replaceNames(arguments) + "):\n" + body +
                       "\nplan.yield %y : " + result + "\n}\nreturn\n}\n";
    modules.push_back(mlir::parseSourceString<mlir::ModuleOp>(text, &context));
    plan::ClusterOp found;
    if (modules.back())
      modules.back()->walk([&](plan::ClusterOp op) { found = op; });
    EXPECT_TRUE(found) << told << text;
    return found;
  }

  /// Whether the code of `compiled` is taken for that of `claimed`.
  bool check(plan::ClusterOp compiled, plan::ClusterOp claimed) {
    codegen::TargetCPU target = codegen::TargetCPU::getHost();
    auto library = codegen::KernelLibrary::create(&context, target);
    auto info = library->add(compiled);
    auto objects = library->finish();
    EXPECT_TRUE(mlir::succeeded(info) && mlir::succeeded(objects)) << told;
    const std::vector<char> &data = objects->front().data;
    auto known = checkKernels(
        {{claimed, *info}}, target,
        {reinterpret_cast<const uint8_t *>(data.data()), data.size()});
    if (mlir::succeeded(known))
      EXPECT_EQ(known->find("all 1 ran and gave what their ops define in "), 0u)
          << *known;
    return mlir::succeeded(known);
  }

  /// What is told of code written here, with `extent` parallel indices.
  std::string tell(plan::ClusterOp claimed, KernelTrial::Function function,
                   int64_t extent) {
    codegen::KernelInfo info;
    info.symbol = "own";
    info.extent = extent;
    DrawnPages pages;
    ResultPages results;
    KernelTrial trial({claimed, info}, 0, function);
    EXPECT_TRUE(trial.prepare(pages, results, {false, false}));
    pages.serve();
    trial.execute();
    auto known = trial.compare();
    EXPECT_TRUE(mlir::failed(known) || *known) << "nothing is known";
    return told;
  }

  std::string told;

private:
  static std::string replaceNames(std::string text) {
    for (size_t at = 0; (at = text.find("%a", at)) != std::string::npos;)
      text.replace(at, 2, "%x");
    return text;
  }

  mlir::MLIRContext context;
  mlir::ScopedDiagnosticHandler handler;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
};

const std::string kMatrix = "tensor<37x100xf32>";
const std::string kMatrices = kMatrix + " " + kMatrix;

const std::string kTable = "tensor<1000x16xf32>";
const std::string kScattered = "tensor<300x16xf32> tensor<300xi32> " + kTable;
const std::string kScatter = R"(
    %g = nn.embedding_grad %x0, %x1 : (tensor<300x16xf32>, tensor<300xi32>) -> tensor<1000x16xf32>)";

TEST_F(KernelsTest, RightOnesAreRight) {
  auto softmax = parse(kMatrix, kMatrix, R"(
    %m = nn.reduce max %x0 dims [1] : tensor<37x100xf32> -> tensor<37xf32>
    %b = nn.broadcast %m dims [0] : tensor<37xf32> -> tensor<37x100xf32>
    %d = nn.sub %x0, %b : tensor<37x100xf32>
    %e = nn.exp %d : tensor<37x100xf32>
    %s = nn.reduce sum %e dims [1] : tensor<37x100xf32> -> tensor<37xf32>
    %t = nn.broadcast %s dims [0] : tensor<37xf32> -> tensor<37x100xf32>
    %y = nn.div %e, %t : tensor<37x100xf32>)");
  EXPECT_TRUE(check(softmax, softmax)) << told;
  auto columns = parse("tensor<500x40xbf16>", "tensor<40xf32>", R"(
    %c = nn.cast %x0 : tensor<500x40xbf16> -> tensor<500x40xf32>
    %y = nn.reduce sum %c dims [0] : tensor<500x40xf32> -> tensor<40xf32>)",
                       "accumulate [2]");
  EXPECT_TRUE(check(columns, columns)) << told;
  auto scatter =
      parse("tensor<300x16xf32> tensor<300xi32>", "tensor<1000x16xf32>", R"(
    %y = nn.embedding_grad %x0, %x1 {begin = #nn.begin<"tp" * 1000>} : (tensor<300x16xf32>, tensor<300xi32>) -> tensor<1000x16xf32>)");
  EXPECT_TRUE(check(scatter, scatter)) << told;
  auto into = parse(kScattered, kTable, kScatter + R"(
    %y = nn.add %x2, %g : tensor<1000x16xf32>)");
  EXPECT_TRUE(check(into, into)) << told;
  auto root = parse(kMatrix, kMatrix, "%y = nn.sqrt %x0 : " + kMatrix);
  EXPECT_TRUE(check(root, root)) << told;
  // Of these some indices are run only.
  std::string large = "tensor<70000x1024xbf16>";
  auto many = parse(large, large, "%y = nn.tanh %x0 : " + large);
  EXPECT_TRUE(check(many, many)) << told;
}

TEST_F(KernelsTest, SwappedOperands) {
  auto right = parse(kMatrices, kMatrix, "%y = nn.sub %x0, %x1 : " + kMatrix);
  auto swapped = parse(kMatrices, kMatrix, "%y = nn.sub %x1, %x0 : " + kMatrix);
  EXPECT_FALSE(check(swapped, right));
  EXPECT_NE(told.find("is computed wrongly: kernel_0 gives"), std::string::npos)
      << told;
}

/// Rows are added to what is there, and all others stay.
TEST_F(KernelsTest, TableThatIsLost) {
  auto into = parse(kScattered, kTable, kScatter + R"(
    %y = nn.add %g, %x2 : tensor<1000x16xf32>)");
  EXPECT_TRUE(check(into, into)) << told;
  auto wrong = [](void *const *args, const int64_t *, int64_t begin,
                  int64_t end) {
    for (int64_t at = begin; at < end; ++at)
      static_cast<float *>(args[3])[at] = 0;
  };
  EXPECT_NE(tell(into, wrong, 16000).find("own gives 0.000000e+00 in element"),
            std::string::npos)
      << told;
}

TEST_F(KernelsTest, AnotherMicrobatch) {
  std::string body =
      "%y = nn.reduce sum %x0 dims [0] : tensor<64x40xf32> -> tensor<40xf32>";
  auto always =
      parse("tensor<64x40xf32>", "tensor<40xf32>", body, "accumulate [1]");
  auto never = parse("tensor<64x40xf32>", "tensor<40xf32>", body);
  auto unlessFirst =
      parse("tensor<64x40xf32>", "tensor<40xf32>", body, "accumulate [2]");
  EXPECT_FALSE(check(never, always));
  EXPECT_FALSE(check(unlessFirst, always));
  EXPECT_FALSE(check(always, unlessFirst));
  EXPECT_TRUE(check(unlessFirst, unlessFirst)) << told;
}

TEST_F(KernelsTest, RankThatCountsFromZero) {
  std::string from = "tensor<37x100xf32>";
  auto begins = parse(from, from,
                      R"(
    %y = nn.mask_padding %x0 dim 1 begin <"tp" * 100> limit 150 by 0.0 : )" +
                          from);
  auto misses = parse(from, from,
                      R"(
    %y = nn.mask_padding %x0 dim 1 begin <"tp" * 90> limit 150 by 0.0 : )" +
                          from);
  EXPECT_TRUE(check(begins, begins)) << told;
  EXPECT_FALSE(check(misses, begins));
}

/// A sum over rows of 100 whose last vector reaches 12 elements too far.
TEST_F(KernelsTest, WrongTailMask) {
  auto sum = parse(kMatrix, "tensor<37xf32>", R"(
    %y = nn.reduce sum %x0 dims [1] : tensor<37x100xf32> -> tensor<37xf32>)");
  auto wrong = [](void *const *args, const int64_t *, int64_t begin,
                  int64_t end) {
    auto *from = static_cast<const float *>(args[0]);
    auto *to = static_cast<float *>(args[1]);
    for (int64_t row = begin; row < end; ++row) {
      int64_t last = std::min<int64_t>(row * 100 + 112, 3700);
      to[row] = 0;
      for (int64_t at = row * 100; at < last; ++at)
        to[row] += from[at];
    }
  };
  EXPECT_NE(tell(sum, wrong, 37).find("own gives"), std::string::npos);
}

/// The elements behind the last whole vector.
TEST_F(KernelsTest, MissingTail) {
  auto twice = parse("tensor<1000xf32>", "tensor<1000xf32>",
                     "%y = nn.scale %x0 by 2.0 : tensor<1000xf32>");
  auto wrong = [](void *const *args, const int64_t *, int64_t begin,
                  int64_t end) {
    for (int64_t at = begin; at < std::min<int64_t>(end, 992); ++at)
      static_cast<float *>(args[1])[at] =
          2 * static_cast<const float *>(args[0])[at];
  };
  EXPECT_NE(tell(twice, wrong, 1000).find("own does not write element 999"),
            std::string::npos)
      << told;
}

/// f32 where the ops compute in it, bf16 in between: as far off as a rounding
/// that nobody asked for.
TEST_F(KernelsTest, TooFewDigits) {
  auto square = parse("tensor<1000xf32>", "tensor<1000xf32>",
                      "%e = nn.exp %x0 : tensor<1000xf32>\n"
                      "%y = nn.mul %e, %e : tensor<1000xf32>");
  auto wrong = [](void *const *args, const int64_t *, int64_t begin,
                  int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      float power = std::exp(static_cast<const float *>(args[0])[at]);
      static_cast<float *>(args[1])[at] = power * power * 1.00001f;
    }
  };
  EXPECT_NE(tell(square, wrong, 1000).find("own gives"), std::string::npos);
}

/// More windows than are mapped at a time, one after the other and then anew,
/// of two operands at once.
TEST(DrawnPagesTest, MemoryHasWhatWasDrawn) {
  constexpr size_t bytes = (size_t(1) << 30) + 64, stride = (1 << 20) + 4096;
  DrawnPages pages;
  auto first = pages.get(false, false, 0, bytes),
       second = pages.get(false, false, 1, bytes);
  ASSERT_TRUE(first.start && second.start);
  pages.serve();
  int different = 0, rounds = 0;
  for (int again = 0; again < 2; ++again)
    for (size_t at = 0; at < bytes; at += stride, ++rounds) {
      ASSERT_EQ(first.start[at + 2], *first.find(at + 2)) << at;
      ASSERT_EQ(second.start[at + 2], *second.find(at + 2)) << at;
      different += first.start[at + 2] != second.start[at + 2];
    }
  EXPECT_EQ(first.start[bytes - 1], *first.find(bytes - 1));
  EXPECT_GT(different, rounds / 2);
}

/// What is behind a tensor, or is written to an operand, ends the process.
TEST(DrawnPagesTest, NobodyPassesTheEnd) {
  DrawnPages pages;
  auto drawn = pages.get(true, false, 3, 100000 * 64);
  ASSERT_TRUE(drawn.start);
  volatile char *start = drawn.start;
  auto run = [&](auto access) {
    pages.serve();
    access();
    std::exit(0);
  };
  auto killed = testing::KilledBySignal(SIGSEGV);
  EXPECT_EXIT(run([&] { (void)start[100000 * 64]; }), killed, "");
  EXPECT_EXIT(run([&] { (void)start[-1]; }), killed, "");
  EXPECT_EXIT(run([&] { start[64] = 1; }), killed, "");
  EXPECT_EXIT(run([&] { (void)start[100000 * 64 - 1]; }),
              testing::ExitedWithCode(0), "");
}

/// The same of what kernels write, which is behind the end of larger and of
/// smaller results. What is shared is seen by the parent.
TEST(ResultPagesTest, NobodyPassesTheEnd) {
  ResultPages results;
  constexpr size_t small = 64, large = 1 << 20;
  volatile char *first = results.get(0, small), *second = results.get(0, large);
  uint32_t *shared = results.share(2);
  ASSERT_TRUE(first && second && shared);
  EXPECT_EQ(first + small, second + large);
  auto run = [](auto access) {
    access();
    std::exit(0);
  };
  auto killed = testing::KilledBySignal(SIGSEGV);
  EXPECT_EXIT(run([&] { first[small] = 1; }), killed, "");
  EXPECT_EXIT(run([&] { second[-4096] = 1; }), killed, "");
  EXPECT_EXIT(run([&] {
                second[0] = 1;
                second[large - 1] = 1;
                shared[1] = 7;
              }),
              testing::ExitedWithCode(0), "");
  EXPECT_EQ(shared[1], 7u);
  EXPECT_EQ(second[0], 0);
}

} // namespace
