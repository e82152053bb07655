//===- MeshTest.cpp - Meshes as text, as values and as numbers of ranks ---===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Mesh.h"
#include "plait/Configuration/Configuration.h"

#include <gtest/gtest.h>

using namespace plait;

namespace {

std::string errorOf(std::string_view text) {
  Result<Mesh> mesh = Mesh::parse(text);
  return mesh.ok() ? "" : mesh.status().message();
}

TEST(Configuration, IsFieldsWithValues) {
  EXPECT_EQ(print(*parseConfiguration("seq=8;zero=2")), "zero=2;seq=8");
  EXPECT_EQ(parseConfiguration("seq=8;zero").status().message(),
            "\"zero\" is no field, expected name=value");
  // Options have their names in backquotes, and the bounds of their fields.
  int64_t zero = 0;
  EXPECT_EQ(parse("`zero`", "4", zero).message(),
            "`zero` is \"4\", expected 0 to 3");
  EXPECT_EQ(parse("`zero`", "4", zero).field(), "zero");
}

TEST(Mesh, ReadsAxesInAnyOrderAndPrintsThemInThatOfRanks) {
  EXPECT_EQ(Mesh::parse("tp=4,pp=2")->print(), "pp=2,dp=1,tp=4");
  EXPECT_EQ(Mesh::parse("tp=4,cp=2,dp=3")->print(" ", ", "),
            "pp 1, dp 3, cp 2, tp 4");
  EXPECT_EQ(Mesh::parse("cp=1")->print(), "pp=1,dp=1,tp=1");
  EXPECT_EQ(*Mesh::parse("1"), Mesh());
  EXPECT_EQ(*Mesh::parse(""), Mesh());
}

TEST(Mesh, IsReadBackFromItsText) {
  for (const AxisFacts &facts : kAxes) {
    Mesh mesh;
    mesh[facts.axis] = 6;
    EXPECT_EQ(*Mesh::parse(mesh.print()), mesh) << facts.name;
    EXPECT_EQ(findAxis(facts.name), &facts);
  }
  EXPECT_EQ(findAxis("x"), nullptr);
}

TEST(Mesh, CountsRanksByWhatTheirAxesMean) {
  Mesh mesh = *Mesh::parse("pp=2,dp=3,ep=11,cp=5,tp=7");
  EXPECT_EQ(mesh.ranks(), 2 * 3 * 11 * 5 * 7);
  EXPECT_EQ(mesh.batchParts(), 3 * 11);
  EXPECT_EQ(mesh.replicas(), 3 * 11 * 5);
  EXPECT_EQ(mesh.product(&AxisFacts::splitsExperts), 11);
  EXPECT_EQ(mesh.product(&AxisFacts::dividesState), 3 * 11 * 5);
  EXPECT_EQ(mesh.product(&AxisFacts::dividesExperts), 3 * 5);
  EXPECT_EQ(mesh.stride(Axis::TP), 1);
  EXPECT_EQ(mesh.stride(Axis::CP), 7);
  EXPECT_EQ(mesh.stride(Axis::EP), 5 * 7);
  EXPECT_EQ(mesh.stride(Axis::DP), 11 * 5 * 7);
  EXPECT_EQ(mesh.stride(Axis::PP), 3 * 11 * 5 * 7);
}

TEST(Mesh, RefusesWhatIsNone) {
  EXPECT_EQ(errorOf("xp=2"),
            "mesh \"xp=2\" names axis \"xp\", expected " + joinAxisNames());
  EXPECT_EQ(errorOf("8"),
            "mesh \"8\" has no size of an axis in \"8\", expected one such as "
            "pp=2,dp=2,tp=2; to have the planner divide devices, give "
            "`cluster` cpu:8");
  EXPECT_EQ(errorOf("dp=2,dp=2"), "mesh \"dp=2,dp=2\" names axis \"dp\" twice");
  for (std::string size :
       {"0", "-1", "", "two", "2x", "16777217", "99999999999999999999"})
    EXPECT_EQ(errorOf("dp=" + size), "mesh \"dp=" + size +
                                         "\" gives axis dp the size \"" + size +
                                         "\", expected 1 to 16777216");
  EXPECT_EQ(errorOf("dp=16777216,tp=2"),
            "mesh \"dp=16777216,tp=2\" has more than 16777216 ranks");
  EXPECT_EQ(errorOf("dp=2,").substr(0, 55),
            "mesh \"dp=2,\" has no size of an axis in \"\", expected one");
}

TEST(Mesh, IsMadeOfNamesAndSizes) {
  using Sizes = std::vector<std::pair<std::string_view, int64_t>>;
  EXPECT_EQ(Mesh::get(Sizes{{"dp", 2}, {"tp", 3}})->print(), "pp=1,dp=2,tp=3");
  EXPECT_EQ(Mesh::get(Sizes{{"xp", 2}}).status().message(),
            "mesh \"xp=2\" names axis \"xp\", expected " + joinAxisNames());
  EXPECT_FALSE(Mesh::get(Sizes{{"dp", 0}}).ok());
}

} // namespace
