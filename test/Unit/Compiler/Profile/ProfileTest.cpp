//===- ProfileTest.cpp - The work that the passes leave -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The profile of a model against the same model written down by hand
// (TransformerWork.h): matmuls, attention, parameters and collectives
// have to be equal, because Megatron's form has to come out of the solver.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Profile.h"
#include "TransformerWork.h"
#include "plait/Import/HuggingFace.h"
#include "plait/InitAll.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <map>

using namespace mlir;
using namespace plait;
using namespace plait::planner;

namespace {

struct Totals {
  double matmul[3] = {};    // m n k of a whole model, by pass
  double attention[3] = {}; // heads x queries
  double parameters = 0, replicated = 0;
  std::map<CollectiveKind, double> collective; // elements
};

class ProfileTest : public ::testing::Test {
protected:
  ProfileTest() : context(makeRegistry()) {
    context.loadAllAvailableDialects();
    context.disableMultithreading();
  }

  void open(const std::string &model, int64_t sequence,
            Precision precision = Precision::FP32,
            std::optional<Cluster> cluster = std::nullopt,
            EpilogueKind epilogues = EpilogueKind::None,
            const char *framework = "plait") {
    profile = ModelProfile::create(
        context,
        [&, model, sequence](int64_t n) {
          return importHuggingFace(context, PLAIT_MODELS "/" + model,
                                   {n, sequence});
        },
        precision, std::move(cluster), {}, epilogues,
        *planner::findFramework(framework));
    ASSERT_TRUE(profile);
  }

  /// IR in which N stands for the sequences of a microbatch.
  void openText(const std::string &text) {
    auto makeModel = [&, text](int64_t n) -> FailureOr<OwningOpRef<ModuleOp>> {
      std::string sized = text;
      for (size_t at; (at = sized.find('N')) != sized.npos;)
        sized.replace(at, 1, std::to_string(n));
      return parseSourceString<ModuleOp>(sized, &context);
    };
    profile = ModelProfile::create(context, makeModel, Precision::FP32);
    ASSERT_TRUE(profile);
  }

  const Work &get(int tensor, bool sequenceParallel, double sequences = 2) {
    std::string reason;
    const Work *work =
        profile->get({tensor, 1, sequenceParallel}, sequences, reason);
    EXPECT_TRUE(work) << reason;
    return *work;
  }

  MLIRContext context;
  std::unique_ptr<ModelProfile> profile;

private:
  static DialectRegistry makeRegistry() {
    DialectRegistry registry;
    registerAllDialects(registry);
    return registry;
  }
};

} // namespace

static Totals sumUp(const Work &work) {
  Totals totals;
  for (int index : work.order) {
    const planner::Block &block = work.blocks[index];
    for (const ParameterGroup &group : block.parameters) {
      totals.parameters += group.elements;
      totals.replicated += group.replicated ? group.elements : 0;
    }
    for (const planner::Operation &op : block.operations) {
      int pass = int(op.pass);
      if (op.kind == OperationKind::Matmul)
        totals.matmul[pass] +=
            double(op.joined) * op.batch * op.m * op.n * op.k;
      if (op.kind == OperationKind::Attention)
        totals.attention[pass] += double(op.heads) * op.queries;
      if (op.kind == OperationKind::Collective)
        totals.collective[op.collective] += op.collectivePerSequence;
    }
  }
  return totals;
}

static void compare(const Work &profiled, const Work &expected) {
  Totals got = sumUp(profiled), want = sumUp(expected);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(got.matmul[pass], want.matmul[pass]) << "pass " << pass;
    EXPECT_EQ(got.attention[pass], want.attention[pass]) << "pass " << pass;
  }
  EXPECT_EQ(profiled.totalParameters, expected.totalParameters);
  EXPECT_EQ(profiled.modelFlopsPerSequence, expected.modelFlopsPerSequence);
  EXPECT_EQ(profiled.order.size(), expected.order.size());
  EXPECT_EQ(profiled.layers(), expected.layers());
}

static const TransformerShape gpt2 = {.layers = 12,
                                      .hidden = 768,
                                      .heads = 12,
                                      .vocabulary = 50257,
                                      .sequence = 1024};

static const TransformerShape llama8b = {.layers = 32,
                                         .hidden = 4096,
                                         .heads = 32,
                                         .keyValueHeads = 8,
                                         .ffn = 14336,
                                         .ffnMatrices = 3,
                                         .vocabulary = 128256,
                                         .sequence = 4096,
                                         .biases = false,
                                         .layerNorm = false,
                                         .learnedPositions = false,
                                         .rotary = true,
                                         .tied = false};

/// Norms, rotary embeddings and activations of a layer are cheap; its matmuls
/// and its attention are not.
TEST_F(ProfileTest, KnowsWhatIsCheapToComputeAgain) {
  open("llama-3-8b", 4096);
  Work work = get(2, false);
  ASSERT_EQ(work.cheapBlocks.size(), work.blocks.size());
  Work cheap = work;
  cheap.blocks = work.cheapBlocks;
  compare(cheap, work);
  const planner::Block &layer = work.blocks[work.order[work.before]];
  const planner::Block &again = cheap.blocks[work.order[work.before]];
  // Of each token: both norms' results and statistics, and the product of a
  // gate with the other; the gate's activation is not kept in either.
  EXPECT_NEAR(layer.kept.elements - again.kept.elements,
              4096.0 * (2 * 4096 + 2 + 7168), 1);
  EXPECT_EQ(again.input.elements, layer.input.elements);
}

/// On GPUs kernels behind attention compute sinks: each row's output is read
/// and written once more, and its statistics are read, and written with its
/// share, which is read again. Processors and other programs have none.
TEST_F(ProfileTest, CountsKernelsOfSinks) {
  auto sumBehind = [&](std::optional<Cluster> cluster, const char *framework) {
    open("gpt-oss-20b", 4096, Precision::BF16, std::move(cluster),
         EpilogueKind::None, framework);
    const Work &work = get(1, false);
    const auto &all = work.blocks[work.order[work.before]].operations;
    auto next = std::ranges::find(all, OperationKind::Attention,
                                  &planner::Operation::kind);
    EXPECT_NE(next, all.end());
    std::pair<double, double> sum;
    for (++next; next->kind == OperationKind::Kernel; ++next) {
      sum.first += next->elementsPerSequence;
      sum.second += next->fourBytePerSequence;
    }
    return sum;
  };
  auto [elements, fourByte] = sumBehind(*parseCluster("h100:1x8"), "plait");
  EXPECT_EQ(elements, 2 * 4096.0 * 64 * 64);
  EXPECT_EQ(fourByte, 4 * 4096.0 * 64);
  std::pair<double, double> none;
  EXPECT_EQ(sumBehind(std::nullopt, "plait"), none);
  EXPECT_EQ(sumBehind(*parseCluster("h100:1x8"), "megatron-core"), none);
}

/// Full recomputation leaves what a copy might compare otherwise.
TEST_F(ProfileTest, KnowsWhatIsKeptInAnyCase) {
  open("gpt-oss-20b", 4096, Precision::BF16);
  const Work &work = get(1, false);
  const planner::Block &layer = work.blocks[work.order[work.before]];
  // Of each token the layer's input, of its rows of four experts two
  // comparisons for each of three clamps, and which experts they are.
  EXPECT_EQ(layer.input.elements, 4096.0 * 2880 * (1 + 4 * 3 * 2));
  EXPECT_EQ(layer.input.fourByte, 4096.0 * 4);
}

/// A backward pass reads the more parameters the more it computes again; of a
/// whole layer of GPT-2 all but the last bias, which nothing in it depends on.
/// Looking up rows of a table needs none of them for its gradient, unlike the
/// logits, which are of the same table.
TEST_F(ProfileTest, KnowsWhatBackwardPassesRead) {
  open("gpt2", 1024, Precision::BF16);
  const Work &work = get(1, false);
  int layer = work.order[work.before];
  auto countRead = [](const planner::Block &block, auto isRead) {
    return std::ranges::count_if(block.parameters, isRead);
  };
  const planner::Block &plain = work.blocks[layer];
  auto none = countRead(plain, &planner::ParameterGroup::readBackward);
  auto cheap = countRead(work.cheapBlocks[layer],
                         &planner::ParameterGroup::readBackward);
  auto all = countRead(plain, &planner::ParameterGroup::readAgain);
  EXPECT_EQ(plain.parameters.size(), 16u);
  EXPECT_GE(none, 6); // weights of matmuls, scales of norms
  EXPECT_GT(cheap, none);
  EXPECT_GE(all, cheap);
  EXPECT_EQ(all, 15);
  for (const planner::ParameterGroup &group : plain.parameters)
    if (!group.readAgain)
      EXPECT_EQ(group.elements, 768);
  for (const planner::ParameterGroup &group : work.blocks.front().parameters)
    EXPECT_FALSE(group.readBackward || group.readAgain);
  for (const planner::ParameterGroup &group : work.blocks.back().parameters)
    if (group.tied)
      EXPECT_TRUE(group.readBackward);
}

TEST_F(ProfileTest, CountsWhatOneRankComputes) {
  open("gpt2", 1024);
  for (int tensor : {1, 2, 4})
    compare(get(tensor, false), buildTransformerWork(gpt2, tensor, false));
  open("llama-3-8b", 4096);
  for (int tensor : {1, 2, 4, 8})
    compare(get(tensor, false), buildTransformerWork(llama8b, tensor, false));
}

/// What is computed is the same, but some of what is stored stays f32: the mean
/// and the deviation of both norms, a number for each row of attention, and
/// gradients of parameters.
TEST_F(ProfileTest, MeasuresWhatBf16Stores) {
  open("gpt2", 1024, Precision::BF16);
  const Work &work = get(1, false);
  compare(work, buildTransformerWork(gpt2, 1, false));
  const planner::Block &layer = work.blocks[work.order[work.before]];
  EXPECT_EQ(layer.kept.fourByte, (2 * 2 + 12) * 1024);
  // Of the hidden size: the inputs of both norms and what they make, queries,
  // keys, values, the result of attention; four times it: GELU's input and
  // what it makes.
  EXPECT_EQ(layer.kept.elements, (8 + 2 * 4) * 768 * 1024);
  // The gradient of the token table: filled once, and then a row for each token
  // read and written.
  auto fills = [](const planner::Operation &op) {
    return op.elementsFixed >= 50257 * 768;
  };
  const auto &operations = work.blocks.front().operations;
  auto table = llvm::find_if(operations, fills);
  ASSERT_NE(table, operations.end());
  EXPECT_EQ(table->elementsFixed, 2 * 50257 * 768);
}

/// Two sums forward and two backward a layer (Shoeybi et al. 2019), beside
/// those of the embedding and of the loss.
TEST_F(ProfileTest, FindsMegatronsCollectives) {
  open("llama-3-8b", 4096);
  Totals totals = sumUp(get(8, false));
  double layer = 4096.0 * 4096;
  double sums = totals.collective[CollectiveKind::AllReduce];
  EXPECT_NEAR(sums, (32 * 4 + 1) * layer, 0.01 * layer);
}

/// Each sum becomes a reduce-scatter, and an all-gather in front of the
/// matmuls that need whole rows (Korthikanti et al. 2022), of which the
/// gradients of weights gather two again; no layer but the first, which reads
/// the embedding, keeps a sum.
TEST_F(ProfileTest, SplitsTheSequence) {
  open("llama-3-8b", 4096);
  const Work &work = get(8, true);
  ASSERT_EQ(work.blocks.size(), 4u);
  std::map<CollectiveKind, int> counts;
  for (const planner::Operation &op : work.blocks[2].operations)
    counts[op.collective] += op.kind == OperationKind::Collective;
  EXPECT_EQ(counts[CollectiveKind::AllReduce], 0);
  EXPECT_EQ(counts[CollectiveKind::ReduceScatter], 4);
  EXPECT_EQ(counts[CollectiveKind::AllGather], 6);
  EXPECT_EQ(work.blocks[2].input.elements, 4096.0 * 4096 / 8);
  EXPECT_LT(work.blocks[2].kept.elements,
            get(8, false).blocks[2].kept.elements);
}

TEST_F(ProfileTest, SplitsParameters) {
  open("llama-3-8b", 4096);
  Totals totals = sumUp(get(8, false));
  double norms = 65 * 4096; // two a layer and the last
  EXPECT_EQ(totals.replicated, norms);
  EXPECT_EQ(totals.parameters, (8030261248.0 - norms) / 8 + norms);
}

/// The embedding of GPT-2 is read by the first and by the last block.
TEST_F(ProfileTest, MarksTiedParameters) {
  open("gpt2", 64);
  const Work &work = get(1, false);
  double table = 50257 * 768;
  for (const planner::Block *block :
       {&work.blocks.front(), &work.blocks.back()}) {
    double tied = 0;
    for (const ParameterGroup &group : block->parameters)
      tied += group.tied ? group.elements : 0;
    EXPECT_EQ(tied, table) << block->name;
  }
}

/// Nothing but the first layer and one for all others is looked at.
TEST_F(ProfileTest, FoldsLayersThatAreAlike) {
  open("llama-3-70b", 128);
  const Work &work = get(1, false);
  EXPECT_EQ(work.blocks.size(), 4u);
  EXPECT_EQ(work.layers(), 80);
  EXPECT_EQ(work.before, 1);
  EXPECT_EQ(work.after, 1);
}

/// GPT-2 has a bias in each of a layer's four matmuls and GELU in one.
TEST_F(ProfileTest, HasEpiloguesInMatmuls) {
  auto countForward = [&](EpilogueKind epilogues, OperationKind kind) {
    open("gpt2", 128, Precision::BF16, std::nullopt, epilogues);
    const Work &work = get(1, false);
    const planner::Block &layer = work.blocks[work.order[work.before]];
    return std::ranges::count_if(
        layer.operations, [&](const planner::Operation &op) {
          return op.kind == kind && op.pass == planner::Pass::Forward;
        });
  };
  auto countBoth = [&](OperationKind kind) {
    return std::pair(countForward(EpilogueKind::None, kind),
                     countForward(EpilogueKind::All, kind));
  };
  auto [plain, fused] = countBoth(OperationKind::Kernel);
  EXPECT_LE(fused + 3, plain);
  auto [matmuls, same] = countBoth(OperationKind::Matmul);
  EXPECT_EQ(matmuls, same);
}

/// A model whose layers are of the kinds that `pattern` names: A has one matmul
/// of 8 by 8, F the same with a weight that is not trained, B two of 8 by 16.
/// Below the layers there is a table, which is trained only if `trains`.
static std::string writeLayers(const std::string &pattern, bool trains = true) {
  std::string parameters, body;
  auto addParameter = [&](const std::string &name, const char *type) {
    parameters += "nn.parameter @" + name + " : " + type +
                  " init<mean = 0.0, std = 0.5>\n";
  };
  const std::string tokens = "tensor<Nx6xi32>", x = "tensor<Nx6x8xf32>",
                    wide = "tensor<Nx6x16xf32>", table = "tensor<16x8xf32>",
                    square = "tensor<8x8xf32>";
  addParameter("embed", table.c_str());
  addParameter("head", table.c_str());
  body += std::string(trains ? "%e" : "%table") +
          " = nn.read @embed value : " + table + "\n";
  if (!trains)
    body += "%e = nn.stop_gradient %table : " + table + "\n";
  body += "%x0 = nn.embedding %e, %tokens : (" + table + ", " + tokens +
          ") -> " + x + "\n";
  for (size_t i = 0; i < pattern.size(); ++i) {
    std::string n = std::to_string(i), out = "%x" + std::to_string(i + 1),
                layer = " {nn.layer = " + n + " : i64} : ";
    bool isWide = pattern[i] == 'B', isFrozen = pattern[i] == 'F';
    addParameter("w" + n, isWide ? table.c_str() : square.c_str());
    body += (isFrozen ? "%r" : "%w") + n + " = nn.read @w" + n + " value" +
            layer + (isWide ? table : square) + "\n";
    if (isFrozen)
      body += "%w" + n + " = nn.stop_gradient %r" + n + layer + square + "\n";
    body += (isWide ? "%h" : "%y") + n + " = nn.matmul %x" + n + ", %w" + n +
            " \"bsh,vh->bsv\"" + layer + "(" + x + ", " +
            (isWide ? table : square) + ") -> " + (isWide ? wide : x) + "\n";
    if (isWide) {
      addParameter("v" + n, table.c_str());
      body += "%v" + n + " = nn.read @v" + n + " value" + layer + table +
              "\n%y" + n + " = nn.matmul %h" + n + ", %v" + n +
              " \"bsv,vh->bsh\"" + layer + "(" + wide + ", " + table + ") -> " +
              x + "\n";
    }
    body += out + " = nn.add %x" + n + ", %y" + n + layer + x + "\n";
  }
  std::string last = std::to_string(pattern.size());
  body +=
      "%o = nn.read @head value : " + table + "\n%z = nn.matmul %x" + last +
      ", %o \"bsh,vh->bsv\" : (" + x + ", " + table + ") -> " + wide +
      "\n%sum, %count = nn.softmax_cross_entropy %z, %targets ignore -100 : (" +
      wide + ", " + tokens + ") -> (tensor<f32>, tensor<f32>)\n";
  return parameters + "func.func @loss(%tokens: " + tokens +
         ", %targets: " + tokens + ") -> (tensor<f32>, tensor<f32>) {\n" +
         body + "return %sum, %count : tensor<f32>, tensor<f32>\n}";
}

/// A layer is looked at for each kind behind each kind, however deep the model
/// is, and what is counted is that of all layers.
TEST_F(ProfileTest, FoldsKindsThatAlternate) {
  auto profileOf = [&](const std::string &pattern) -> const Work & {
    openText(writeLayers(pattern));
    return get(1, false);
  };
  EXPECT_EQ(profileOf("ABABAB").order,
            (std::vector<int>{0, 1, 2, 3, 2, 3, 2, 4}));
  EXPECT_EQ(profileOf("AAABAAAB").order,
            (std::vector<int>{0, 1, 2, 2, 3, 4, 2, 2, 3, 5}));
  EXPECT_EQ(profileOf("ABBA").order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  std::string deep;
  for (int i = 0; i < 63; ++i)
    deep += "AB";
  const Work &work = profileOf(deep);
  EXPECT_EQ(work.blocks.size(), 5u);
  EXPECT_EQ(work.layers(), 126);
  Totals totals = sumUp(work);
  EXPECT_EQ(totals.parameters, 63 * (64 + 256) + 2 * 128);
  // Of the forward pass: what a token takes is one for each parameter that is
  // no table it is looked up in.
  double all = totals.matmul[0];
  Totals few = sumUp(profileOf("AB"));
  EXPECT_EQ(all / (63 * (64 + 256) + 128), few.matmul[0] / (64 + 256 + 128));
}

/// Frozen layers are of another kind, and of two: those below all that is
/// trained have no backward pass, the others hand a gradient on. None has
/// gradients of weights.
TEST_F(ProfileTest, KnowsWhatIsNotTrained) {
  openText(writeLayers("FFFAFF", /*trains=*/false));
  const Work &work = get(1, false);
  EXPECT_EQ(work.order, (std::vector<int>{0, 1, 2, 2, 3, 4, 5, 6}));
  auto countMatmuls = [&](int block, planner::Pass pass) {
    return std::ranges::count_if(
        work.blocks[block].operations, [&](const planner::Operation &op) {
          return op.kind == OperationKind::Matmul && op.pass == pass;
        });
  };
  for (auto [block, inputs, weights] :
       {std::tuple(1, 0, 0), {2, 0, 0}, {3, 0, 1}, {4, 1, 0}, {5, 1, 0}}) {
    EXPECT_EQ(countMatmuls(block, planner::Pass::Forward), 1);
    EXPECT_EQ(countMatmuls(block, planner::Pass::BackwardInput), inputs);
    EXPECT_EQ(countMatmuls(block, planner::Pass::BackwardWeight), weights);
    for (const ParameterGroup &group : work.blocks[block].parameters) {
      EXPECT_EQ(group.frozen, block != 3) << block;
      EXPECT_EQ(group.readBackward, inputs > 0) << block;
    }
  }
  EXPECT_TRUE(work.blocks.front().parameters.front().frozen);
  // Six layers forward, two inputs' gradients and one weight's; the head has
  // all three. Two operations a multiplication, on 6 tokens.
  EXPECT_EQ(work.modelFlopsPerSequence, 2 * 6 * (9 * 64 + 3 * 128));
}

/// What has no label within the last layer belongs to it; there is no head.
TEST_F(ProfileTest, AHeadIsBehindAllLayers) {
  const std::string text = R"(
  nn.parameter @embed : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  nn.parameter @w : tensor<16x8xf32> init<mean = 0.0, std = 0.5>
  func.func @loss(%tokens: tensor<Nx6xi32>, %targets: tensor<Nx6xi32>)
      -> (tensor<f32>, tensor<f32>) {
    %e = nn.read @embed value {nn.layer = 0 : i64} : tensor<16x8xf32>
    %x = nn.embedding %e, %tokens {nn.layer = 0 : i64} :
        (tensor<16x8xf32>, tensor<Nx6xi32>) -> tensor<Nx6x8xf32>
    %w = nn.read @w value {nn.layer = 1 : i64} : tensor<16x8xf32>
    %y = nn.matmul %x, %w "bsh,vh->bsv" {nn.layer = 1 : i64} :
        (tensor<Nx6x8xf32>, tensor<16x8xf32>) -> tensor<Nx6x16xf32>
    %z = nn.tanh %y : tensor<Nx6x16xf32>
    %sum, %count = nn.softmax_cross_entropy %z, %targets ignore -100
        {nn.layer = 1 : i64} :
        (tensor<Nx6x16xf32>, tensor<Nx6xi32>) -> (tensor<f32>, tensor<f32>)
    return %sum, %count : tensor<f32>, tensor<f32>
  })";
  openText(text);
  const Work &work = get(1, false);
  ASSERT_EQ(work.blocks.size(), 2u);
  EXPECT_EQ(work.blocks.back().name, "layer 1");
  EXPECT_EQ(work.after, 0);
}

TEST_F(ProfileTest, SaysWhyADegreeIsImpossible) {
  open("gpt2", 64);
  std::string reason;
  EXPECT_EQ(profile->get({8, 1, false}, /*sequences=*/2, reason), nullptr);
  EXPECT_EQ(reason, "transformer.h.0.attn: tp=8 does not divide the 12 "
                    "key/value heads of nn.attention; possible are 1, 2, 3, 4, "
                    "6, 12");
}

/// What the planner costs is sharded for its cluster: over slow links as little
/// is sent as can be.
TEST_F(ProfileTest, IsShardedForTheCluster) {
  auto countSent = [&](double bandwidth) {
    Cluster cluster = *parseCluster("h100:1x8");
    cluster.intra.bandwidth = bandwidth;
    open("gpt2", 1024, Precision::BF16, cluster);
    double sent = 0;
    for (auto [kind, elements] : sumUp(get(2, false, 8)).collective)
      sent += elements * getSentShare(kind, 2);
    return sent;
  };
  EXPECT_LT(countSent(1e8), 0.5 * countSent(4.5e11));
}

/// What is cheapest depends on the tokens of a rank. There is a work for each
/// answer, and one for all numbers between two that have the same.
TEST_F(ProfileTest, IsSplitForTheSequencesOfARank) {
  Cluster cluster = *parseCluster("h100:1x8");
  open("gpt2", 64, Precision::BF16, cluster);
  auto countSent = [&](double sequences) {
    double sent = 0;
    for (auto [kind, elements] : sumUp(get(2, false, sequences)).collective)
      sent += elements;
    return sent;
  };
  // Where there are few tokens, parameters weigh more: they are split, which
  // has activations sent.
  EXPECT_GT(countSent(0.125), 2 * countSent(128));
  EXPECT_NE(&get(2, false, 0.125), &get(2, false, 128));
  EXPECT_EQ(&get(2, false, 128), &get(2, false, 120));
  // One rank splits nothing.
  EXPECT_EQ(&get(1, false, 0.125), &get(1, false, 128));
}

/// Run operation by operation, a layer keeps the activation of its gate as
/// well, beside gate, product and the other half. Megatron-Core's kernel for
/// the three does not, nor do compilers.
TEST_F(ProfileTest, OtherProgramsKeepActivationsOfGates) {
  const char *model = "llama-3.2-1b";
  const double tokens = 128, ffn = 8192;
  auto getKept = [&](const char *framework) {
    open(model, int64_t(tokens), Precision::BF16, std::nullopt,
         EpilogueKind::None, framework);
    const Work &work = get(1, false);
    return work.blocks[work.order[1]].kept.elements;
  };
  double own = getKept("plait");
  EXPECT_EQ(getKept("megatron-core"), own);
  EXPECT_EQ(getKept("fsdp-compiled"), own);
  EXPECT_EQ(getKept("fsdp") - own, tokens * ffn);
  EXPECT_EQ(getKept("deepspeed") - own, tokens * ffn);
}

/// Those of query, key and value where all are of one size, and of gate and up;
/// not where each fills the device by itself.
TEST_F(ProfileTest, JoinsGradientsThatLieSideBySide) {
  using Calls = std::vector<int64_t>;
  auto getJoined = [&](const char *model, int tensor) {
    open(model, 128, Precision::BF16, *parseCluster("h100:1x8"));
    const Work &work = get(tensor, false);
    Calls joined;
    for (const planner::Operation &op : work.blocks[work.order[1]].operations)
      if (op.joined > 1) {
        EXPECT_EQ(op.pass, planner::Pass::BackwardWeight) << op.name;
        joined.push_back(op.joined);
      }
    return joined;
  };
  EXPECT_EQ(getJoined("gpt2", 1), (Calls{3}));
  EXPECT_EQ(getJoined("llama-3-8b", 1), (Calls{2}));
  EXPECT_EQ(getJoined("llama-3-8b", 8), (Calls{2, 2}));
}

/// On GPUs sums over rows are of each sequence first: gradients of biases and
/// of norms. A processor adds all rows at once.
TEST_F(ProfileTest, SumsSequencesByThemselvesOnGpus) {
  auto countSums = [&](const char *cluster) {
    open("gpt2", 128, Precision::BF16, *parseCluster(cluster));
    const Work &work = get(1, false);
    return llvm::count_if(
        work.blocks[work.order[1]].operations,
        [](const planner::Operation &op) { return op.sumsSequences; });
  };
  EXPECT_GT(countSums("h100:1x8"), 0);
  EXPECT_EQ(countSums("cpu:8"), 0);
}

TEST_F(ProfileTest, FailsWithTheModel) {
  ScopedDiagnosticHandler silent(&context, [](Diagnostic &) {});
  EXPECT_EQ(
      ModelProfile::create(context,
                           [](int64_t) -> FailureOr<OwningOpRef<ModuleOp>> {
                             return failure();
                           }),
      nullptr);
}
