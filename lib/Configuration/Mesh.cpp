//===- Mesh.cpp - Axes of a mesh, and their sizes -------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Configuration/Mesh.h"

#include "plait/Configuration/Configuration.h"

#include <algorithm>
#include <charconv>
#include <vector>

using namespace plait;

static constexpr bool isInOrder() {
  for (size_t i = 0; i < std::size(kAxes); ++i)
    if (kAxes[i].axis != Axis(i))
      return false;
  return true;
}
static_assert(isInOrder(), "rows stand in the order of Axis");

std::string plait::joinAxisNames() {
  std::vector<std::string> names;
  for (const AxisFacts &facts : kAxes)
    names.emplace_back(facts.name);
  return joinChoices(names);
}

Mesh::Mesh() {
  for (const AxisFacts &facts : kAxes)
    sizes[facts.axis] = 1;
}

namespace {
/// Fills a mesh axis by axis. Sizes are text in messages, as they were given.
class MeshBuilder {
public:
  MeshBuilder(std::string_view text) : text(text) {}

  /// The product is tested after each axis, while it cannot overflow.
  Status add(std::string_view name, std::optional<int64_t> size,
             std::string_view given) {
    const AxisFacts *facts = findAxis(name);
    if (!facts)
      return fail("mesh \"", text, "\" names axis \"", name, "\", expected ",
                  joinAxisNames());
    if (seen[facts->axis])
      return fail("mesh \"", text, "\" names axis \"", name, "\" twice");
    seen[facts->axis] = true;
    if (!size || *size < 1 || *size > Mesh::kMostRanks)
      return fail("mesh \"", text, "\" gives axis ", name, " the size \"",
                  given, "\", expected 1 to ", Mesh::kMostRanks);
    mesh[facts->axis] = int(*size);
    if (mesh.ranks() > Mesh::kMostRanks)
      return fail("mesh \"", text, "\" has more than ", Mesh::kMostRanks,
                  " ranks");
    return Status::success();
  }

  Mesh mesh;

private:
  std::string_view text;
  PerAxis<bool> seen;
};
} // namespace

/// None where `text` is not a number as a whole.
static std::optional<int64_t> readSize(std::string_view text) {
  int64_t size;
  const char *end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, size);
  return error == std::errc() && rest == end ? std::optional(size)
                                             : std::nullopt;
}

/// Names and sizes are checked as they come, so that the message is of the
/// first mistake.
Result<Mesh> Mesh::parse(std::string_view text) {
  MeshBuilder builder(text);
  if (text.empty() || text == "1")
    return builder.mesh;
  for (std::string_view rest = text;;) {
    size_t comma = rest.find(',');
    std::string_view entry = rest.substr(0, comma);
    size_t equals = entry.find('=');
    if (equals == std::string_view::npos)
      return fail(
          "mesh \"", text, "\" has no size of an axis in \"", entry,
          "\", expected one such as pp=2,dp=2,tp=2; to have the planner "
          "divide devices, give `cluster` cpu:8");
    std::string_view size = entry.substr(equals + 1);
    PLAIT_RETURN_IF_ERROR(
        builder.add(entry.substr(0, equals), readSize(size), size));
    if (comma == std::string_view::npos)
      return builder.mesh;
    rest.remove_prefix(comma + 1);
  }
}

Result<Mesh>
Mesh::get(std::span<const std::pair<std::string_view, int64_t>> sizes) {
  std::string text;
  for (auto [name, size] : sizes)
    text += (text.empty() ? "" : ",") + std::string(name) + "=" +
            std::to_string(size);
  MeshBuilder builder(text);
  for (auto [name, size] : sizes)
    PLAIT_RETURN_IF_ERROR(builder.add(name, size, std::to_string(size)));
  return builder.mesh;
}

std::string Mesh::print(std::string_view assign,
                        std::string_view separate) const {
  std::ostringstream out;
  for (const AxisFacts &facts : kAxes)
    if (names(facts))
      out << (out.tellp() ? separate : "") << facts.name << assign
          << sizes[facts.axis];
  return out.str();
}
