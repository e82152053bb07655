//===- RepeatTest.cpp - Ops that repeat what others have done -------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever is repeated has to be what the rule says, and is here held against
// it; what a rule could tell apart is not repeated.
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "plait/Dialect/NN/IR/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

namespace {
struct RepeatTest : ::testing::Test {
  RepeatTest() {
    context.loadDialect<func::FuncDialect, nn::NNDialect>();
    module = parseSourceString<ModuleOp>(R"(
      func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %n: tensor<2xf32>) {
        %0 = nn.mul %a, %b : tensor<4xf32>
        %1 = nn.mul %b, %a {nn.layer = 1 : i64} : tensor<4xf32>
        %2 = nn.add %a, %b : tensor<4xf32>
        %3 = nn.scale %a by 2.0 : tensor<4xf32>
        %4 = nn.scale %a by 3.0 : tensor<4xf32>
        %5 = nn.mul %n, %n : tensor<2xf32>
        return
      }
    )",
                                         &context);
    for (Operation &op : module->lookupSymbol<func::FuncOp>("f").front())
      ops.push_back(&op);
  }

  Content leaf(StringRef name, int64_t size = 4) {
    auto type = RankedTensorType::get(size, Float32Type::get(&context));
    return rules.makeLeaf(name, type, {{}});
  }
  Content times(const Content &content, double factor) {
    Content made = content;
    Argument argument = content.form.asArgument();
    argument.factor = factor;
    made.form.setTerm(terms.sum(argument));
    return made;
  }

  /// Whether `op` is repeated; if not, its rule is asked. In both cases the
  /// result has to be the rule's.
  bool isRepeated(Operation *op, const Contents &operands) {
    SmallVector<Known> own;
    for (const Content &operand : operands)
      own.push_back({&operand, operand.form.term});
    auto known = llvm::map_to_vector<4>(own, [](Known &one) { return &one; });
    SmallVector<Known> results;
    bool repeated = rules.repeats.repeat(op, known, results);
    Contents said;
    rules.repeats.begin();
    EXPECT_TRUE(succeeded(rules.evaluate(op, pointTo(operands), said)));
    rules.repeats.end(op, known, said, /*isPlain=*/!repeated);
    if (repeated) {
      EXPECT_EQ(results[0].term, said[0].form.term);
      Content made = *results[0].content;
      made.form.term = results[0].term;
      EXPECT_EQ(print(made), print(said[0]));
      EXPECT_EQ(made.form.dims[0].uniform, said[0].form.dims[0].uniform);
    }
    return repeated;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  SmallVector<Operation *> ops;
  Terms terms;
  MeshSizes one{dist::MeshOp()};
  Report report;
  Rules rules{terms, one, report};
};
} // namespace

// Also where it stands in another layer, and what it takes are results.
TEST_F(RepeatTest, TheSameOpOfOtherTerms) {
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), leaf("b")}));
  EXPECT_TRUE(isRepeated(ops[1], {leaf("c"), leaf("d")}));
  EXPECT_TRUE(isRepeated(ops[1], {times(leaf("c"), 3), leaf("a")}));
}

TEST_F(RepeatTest, AnotherOpIsAskedFor) {
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), leaf("b")}));
  EXPECT_FALSE(isRepeated(ops[2], {leaf("a"), leaf("b")}));
  EXPECT_FALSE(isRepeated(ops[3], {leaf("a")}));
  EXPECT_FALSE(isRepeated(ops[4], {leaf("a")}));
  EXPECT_FALSE(isRepeated(ops[5], {leaf("m", 2), leaf("n", 2)}));
}

TEST_F(RepeatTest, OtherOperandsAreAskedFor) {
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), leaf("b")}));
  // One term twice.
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), leaf("a")}));
  // A number.
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), times(leaf("b"), 0)}));
  // A part of a sum.
  Content partial = leaf("b");
  partial.form.partial.push_back(StringAttr::get(&context, "tp"));
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), partial}));
  // What lies in padding.
  Content padded = leaf("b");
  padded.form.dims[0].padding = NumberRange::exactly(1);
  EXPECT_FALSE(isRepeated(ops[0], {leaf("a"), padded}));
}

// That operands cancel shows only once their sum is made.
TEST_F(RepeatTest, OtherResultsAreAskedFor) {
  EXPECT_FALSE(isRepeated(ops[2], {leaf("a"), leaf("b")}));
  EXPECT_TRUE(isRepeated(ops[2], {leaf("a"), times(leaf("b"), -1)}));
  EXPECT_FALSE(isRepeated(ops[2], {leaf("a"), times(leaf("a"), -1)}));
}
