//===- AbilitiesTest.cpp - What other programs can run --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of abilities against docs/Abilities.md, what its rows refuse, and
// that a search for a program stays in its row: the choice, what is told beside
// it, and what is advised where nothing fits.
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/Abilities.h"
#include "SearchSetting.h"

#include <algorithm>
#include <fstream>
#include <sstream>

using namespace plait;
using namespace plait::planner;

namespace {

const Abilities &getRow(const std::string &name) {
  Result<Framework> framework = findFramework(name);
  EXPECT_TRUE(framework.ok()) << name;
  return getAbilities(framework.ok() ? *framework : Framework());
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != text.npos;
}

std::string getMessage(const Status &status) {
  return status.ok() ? "" : status.message();
}

/// A choice with one sequence a microbatch, on a mesh such as "pp=2,dp=4".
Configuration makeChoice(const std::string &mesh) {
  Configuration choice;
  choice.mesh = *Mesh::parse(mesh);
  choice.schedule = "1f1b";
  choice.microBatch = 1;
  return choice;
}

Training makeTraining(int64_t globalBatch) {
  Training training;
  training.globalBatch = globalBatch;
  return training;
}

/// The cells of the line of the first table of docs/Abilities.md that names
/// `framework`; empty: there is none.
std::vector<std::string> findDocumented(const std::string &framework) {
  std::ifstream file(PLAIT_SOURCE_DIR "/docs/Abilities.md");
  bool isInTable = false;
  for (std::string line; std::getline(file, line);) {
    if (isInTable && !line.starts_with('|'))
      break;
    isInTable |= line.starts_with('|');
    std::vector<std::string> cells;
    std::istringstream rest(line);
    for (std::string cell; std::getline(rest, cell, '|');) {
      cell.erase(0, cell.find_first_not_of(' '));
      cell.erase(cell.find_last_not_of(' ') + 1);
      cells.push_back(cell);
    }
    if (cells.size() > 1 && contains(cells[1], "`" + framework + "`"))
      return cells;
  }
  return {};
}

} // namespace

TEST(Abilities, AreOfAllPrograms) {
  const SearchSpace all = SearchSpace::all();
  for (const Framework &framework : getFrameworks()) {
    const Abilities &row = getAbilities(framework);
    bool isOurs = std::string(framework.name) == "plait";
    EXPECT_EQ(row.space.name, isOurs ? "all" : framework.name);
    EXPECT_EQ(row.version.empty(), isOurs) << framework.name;
    visitStrategy(
        [&](const Field &field, const auto &values, const auto &known) {
          for (const auto &value : values)
            EXPECT_NE(std::ranges::find(known, value), known.end())
                << framework.name << ", " << field.name;
        },
        row.space, all);
  }
}

// Columns: framework, version, schedules, ZeRO, tp, context parallelism,
// recomputation, offload.
TEST(Abilities, AreWhatIsDocumented) {
  for (const Framework &framework : getFrameworks()) {
    std::vector<std::string> cells = findDocumented(framework.name);
    ASSERT_EQ(cells.size(), 9u) << framework.name;
    const Abilities &row = getAbilities(framework);
    if (!row.version.empty()) {
      EXPECT_EQ(cells[2], row.version);
    }
    EXPECT_EQ(cells[3] == "no pipeline", !row.hasPipelines) << framework.name;
    std::string zero;
    for (int stage : row.space.zero)
      zero += (zero.empty() ? "" : ", ") + std::to_string(stage);
    EXPECT_EQ(cells[4], zero == "0, 1, 2, 3" ? "0 to 3" : zero);
    EXPECT_EQ(cells[5], row.hasTensor ? "yes" : "no") << framework.name;
    bool hasContext = row.space.mesh[Axis::CP] != std::vector{1};
    EXPECT_EQ(cells[6] == "none", !hasContext) << framework.name;
    for (ContextParallel kind : SearchSpace::all().contextParallel) {
      bool has = std::ranges::find(row.space.contextParallel, kind) !=
                 row.space.contextParallel.end();
      EXPECT_EQ(contains(cells[6], "`" + print(kind) + "`"), hasContext && has)
          << framework.name << ", " << print(kind);
    }
    EXPECT_EQ(cells[8] == "none", row.space.offload.size() == 1)
        << framework.name;
  }
}

TEST(Abilities, LookAtMeshes) {
  auto check = [](const char *name, const char *mesh) {
    return getMessage(getRow(name).checkMesh(*Mesh::parse(mesh)));
  };
  EXPECT_EQ(check("plait", "pp=2,dp=2,cp=2,tp=2"), "");
  EXPECT_EQ(check("megatron-core", "pp=2,dp=2,cp=2,tp=2"), "");
  EXPECT_EQ(check("fsdp", "dp=8"), "");
  EXPECT_EQ(check("deepspeed", "dp=2,cp=2"), "");
  EXPECT_EQ(check("deepspeed", "pp=2"),
            "pp is 2, but DeepSpeed 0.19.8 has no pipelines that options make");
  EXPECT_EQ(check("fsdp", "tp=4"),
            "tp is 4, but PyTorch 2.15 has no tensor parallelism");
  EXPECT_EQ(check("megatron-2022", "cp=2"),
            "cp is 2, but Korthikanti et al. 2022 has no context parallelism");
  EXPECT_EQ(check("torchtitan", "pp=2,replicate=2,dp=2,cp=2"), "");
  EXPECT_EQ(check("megatron-core", "replicate=2,dp=4"),
            "replicate is 2, but Megatron-Core 0.20 has no groups that divide "
            "state");
  EXPECT_EQ(check("deepspeed", "cp=2,tp=2"),
            "cp is 2, but DeepSpeed 0.19.8 has it without tp only");
}

// Megatron-LM asserts that microbatches are a multiple of its stages where
// stages are virtual.
TEST(Abilities, LookAtMicrobatches) {
  Configuration choice = makeChoice("pp=4,dp=4");
  choice.chunks = 2;
  const Abilities &core = getRow("megatron-core");
  EXPECT_EQ(getMessage(core.check(choice, makeTraining(24))),
            "6 microbatches are no multiple of pp 4, which the chunks of "
            "Megatron-Core 0.20 need");
  EXPECT_EQ(getMessage(core.check(choice, makeTraining(32))), "");
  EXPECT_EQ(getMessage(getRow("torchtitan").check(choice, makeTraining(24))),
            "");
  choice.chunks = 1;
  EXPECT_EQ(getMessage(core.check(choice, makeTraining(24))), "");
}

TEST(Abilities, LookAtOffload) {
  Training training = makeTraining(8);
  Configuration choice = makeChoice("dp=2");
  choice.offload = Offload::Optimizer;
  const Abilities &core = getRow("megatron-core");
  EXPECT_EQ(
      getMessage(core.check(choice, training)),
      "offload is optimizer, which Megatron-Core 0.20 has with ZeRO only");
  choice.zero = 1;
  EXPECT_EQ(getMessage(core.check(choice, training)), "");
  choice = makeChoice("tp=2"); // nothing to divide
  choice.offload = Offload::Optimizer;
  EXPECT_EQ(getMessage(core.check(choice, training)), "");
}

TEST(Abilities, LookAtStages) {
  auto check = [](const char *name, const char *pins) {
    Configuration choice = makeChoice("pp=2");
    choice.layers = {5, 7};
    choice.recompute = *parsePins(pins)->recompute;
    return getMessage(getRow(name).check(choice, makeTraining(8)));
  };
  EXPECT_EQ(check("plait", "recompute=full:1+selective"), "");
  EXPECT_EQ(check("megatron-core", "recompute=none"), "");
  EXPECT_EQ(check("megatron-core", "recompute=full:4"), "");
  EXPECT_EQ(check("megatron-core", "recompute=full:1+selective"),
            "recompute is full:1+selective, but Megatron-Core 0.20 computes "
            "the first layers of all stages again, or all");
  EXPECT_EQ(check("torchtitan", "recompute=full"), "");
  EXPECT_EQ(check("torchtitan", "recompute=full:4"),
            "recompute is full:4, but torchtitan 0.3.0 computes all layers "
            "again, or none");
  EXPECT_EQ(check("megatron-2021", "recompute=none"),
            "layers are 5,7, but Narayanan et al. 2021 gives all stages as "
            "many");
}

// A search takes these in any space, so that the row has to refuse them.
TEST(Abilities, LookAtPins) {
  auto check = [](const char *name, const char *pins) {
    return getMessage(getRow(name).check(*parsePins(pins)));
  };
  for (const char *pins : {"recompute=auto", "offload=activations", "cp=2"})
    EXPECT_EQ(check("plait", pins), "");
  EXPECT_EQ(check("megatron-core", "offload=optimizer"), "");
  EXPECT_EQ(check("megatron-core", "offload=activations"),
            "offload is activations, which Megatron-Core 0.20 does not have");
  EXPECT_EQ(check("fsdp", "offload=optimizer"),
            "offload is optimizer, which PyTorch 2.15 does not have");
  EXPECT_EQ(check("torchtitan", "recompute=auto"),
            "recompute is auto, but torchtitan 0.3.0 does not choose for each "
            "layer by itself");
}

// A field that divides nothing in a layout may have any value.
TEST(Abilities, DisregardWhatDividesNothing) {
  Training training = makeTraining(24);
  Configuration choice = makeChoice("tp=2");
  choice.microBatch = 3;
  choice.schedule = "gpipe";
  choice.contextParallel = ContextParallel::Heads;
  choice.zero = 0;
  const Abilities &titan = getRow("torchtitan");
  EXPECT_TRUE(titan.runs(choice, training));
  choice.mesh = *Mesh::parse("dp=2");
  EXPECT_FALSE(titan.runs(choice, training)); // ZeRO 0
  choice.zero = 3;
  EXPECT_TRUE(titan.runs(choice, training));
  choice.mesh = *Mesh::parse("dp=2,cp=2");
  EXPECT_FALSE(titan.runs(choice, training)); // heads
  choice.contextParallel = ContextParallel::Zigzag;
  EXPECT_TRUE(titan.runs(choice, training));
  choice.recompute = Recompute::Selective;
  EXPECT_TRUE(titan.runs(choice, training));
  choice.mesh = *Mesh::parse("dp=2");
  EXPECT_TRUE(getRow("fsdp").runs(choice, training));
  EXPECT_FALSE(getRow("fsdp-2023").runs(choice, training));
}

TEST(Abilities, HoldSearches) {
  for (const Framework &framework : getFrameworks()) {
    const Abilities &row = getAbilities(framework);
    Setting setting;
    setting.training.framework = framework;
    setting.training.flashAttention = row.hasFlash;
    setting.space = row.space;
    SearchResult result = setting.run();
    EXPECT_TRUE(row.runs(result.configuration, setting.training))
        << framework.name << ": " << print(result.configuration);
    for (const Alternative &variant : result.variants)
      EXPECT_TRUE(row.runs(variant.configuration, setting.training))
          << framework.name << ": " << variant.change;
  }
}

// One layer of one head of 5.1e9 parameters, of which only the batch can be
// split. ZeRO 1 would do, which is no stage of PyTorch's FSDP.
TEST(Abilities, HoldAdvice) {
  Setting setting;
  setting.training.framework = *findFramework("fsdp");
  setting.space = getRow("fsdp").space;
  setting.shape.layers = setting.shape.heads = 1;
  setting.shape.hidden = 20480;
  setting.training.globalBatch = 8;
  setting.pins.zero = 0;
  setting.pins.microBatch = 1;
  std::string message = setting.message();
  EXPECT_TRUE(contains(message, "what fits: `zero` ")) << message;
  EXPECT_FALSE(contains(message, "`zero` 1 (")) << message;
}
