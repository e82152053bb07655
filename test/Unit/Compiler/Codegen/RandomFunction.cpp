//===- RandomFunction.cpp - Functions of fusable ops ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomFunction.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

#include <random>
#include <vector>

using namespace plait;
using namespace plait::test;

namespace {

using Shape = std::vector<int64_t>;

struct Drawn {
  std::string name;
  Shape shape;
  bool isUsed = false;
};

class Generator {
public:
  Generator(unsigned seed, bool bf16) : engine(seed), bf16(bf16) {
    extents = {1, 2, 3, 4, pick({4, 5, 6}), pick({7, 16, 17, 33})};
    for (int i = 0; i < 2; ++i)
      extents.push_back(pick(extents));
  }

  std::string draw();

private:
  // Not std::uniform_int_distribution, which libraries implement differently.
  int64_t below(int64_t count) { return engine() % count; }
  template <typename T> T pick(const std::vector<T> &from) {
    return from[below(from.size())];
  }
  int64_t pick(std::initializer_list<int64_t> from) {
    return pick(std::vector<int64_t>(from));
  }

  Shape drawShape(int64_t least, int64_t most);
  std::string type(const Shape &shape, const char *element = "f32");
  std::string list(const std::vector<int64_t> &numbers);
  std::string argument(const Shape &shape, const char *element);
  /// Adds an op and returns the name of its result.
  std::string add(const std::string &text, const Shape &shape);
  Drawn &value();
  std::string valueOf(const Shape &shape);
  std::string ids(const Shape &shape);

  void drawUnary();
  void drawBinary();
  void drawBroadcast();
  void drawReduction();
  void drawLookup();
  void drawLookupGradient();
  void drawPick();
  void drawRotation();
  void drawMask();
  void drawDropout();
  void drawCast();

  std::mt19937 engine;
  bool bf16;
  std::vector<int64_t> extents;
  std::vector<std::string> arguments;
  std::string body;
  std::vector<Drawn> values;
  int numbers = 0;
};

} // namespace

static int64_t count(const Shape &shape) {
  int64_t product = 1;
  for (int64_t extent : shape)
    product *= extent;
  return product;
}

Shape Generator::drawShape(int64_t least, int64_t most) {
  Shape shape;
  for (int64_t rank = least + below(most - least + 1); rank > 0; --rank)
    shape.push_back(pick(extents));
  return count(shape) <= 2048 ? shape : drawShape(least, most);
}

std::string Generator::type(const Shape &shape, const char *element) {
  std::string text = "tensor<";
  for (int64_t extent : shape)
    text += std::to_string(extent) + "x";
  return text + element + ">";
}

std::string Generator::list(const std::vector<int64_t> &numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "[" : ", ") + std::to_string(number);
  return (text.empty() ? "[" : text) + "]";
}

std::string Generator::argument(const Shape &shape, const char *element) {
  std::string name = "%a" + std::to_string(arguments.size());
  arguments.push_back(name + ": " + type(shape, element));
  return name;
}

std::string Generator::add(const std::string &text, const Shape &shape) {
  std::string name = "%" + std::to_string(numbers++);
  body += "  " + name + " = nn." + text + "\n";
  values.push_back({name, shape});
  return name;
}

/// Late ones are likelier.
Drawn &Generator::value() {
  size_t index = std::max(below(values.size()), below(values.size()));
  values[index].isUsed = true;
  return values[index];
}

/// A value of this shape: one that there is, a constant, another one spread.
std::string Generator::valueOf(const Shape &shape) {
  std::vector<std::string> same;
  for (Drawn &other : values)
    if (other.shape == shape)
      same.push_back(other.name);
  if (!same.empty() && below(3))
    return pick(same);
  if (below(6) == 0)
    return add("fill 5.0e-01 : " + type(shape), shape);
  std::vector<int64_t> dims;
  Shape from;
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (below(2)) {
      dims.push_back(dim);
      from.push_back(extent);
    }
  if (dims.size() == shape.size())
    return argument(shape, "f32");
  std::string small = valueOf(from);
  return add("broadcast " + small + " dims " + list(dims) + " : " + type(from) +
                 " -> " + type(shape),
             shape);
}

std::string Generator::ids(const Shape &shape) {
  if (shape.empty() || below(2))
    return argument(shape, "i32");
  std::string name = "%" + std::to_string(numbers++);
  body += "  " + name + " = nn.iota along " +
          std::to_string(below(shape.size())) + " : " + type(shape, "i32") +
          "\n";
  return name;
}

void Generator::drawUnary() {
  Drawn from = value();
  std::string op = pick(std::vector<std::string>{"tanh", "neg", "sigmoid",
                                                 "erf", "stop_gradient"});
  add(op + " " + from.name + " : " + type(from.shape), from.shape);
}

void Generator::drawBinary() {
  Drawn from = value();
  std::string other = valueOf(from.shape);
  // Not fused: what is around it is cut.
  if (below(6) == 0) {
    std::string letters = std::string("abcd").substr(0, from.shape.size());
    std::string types = type(from.shape);
    add("matmul " + from.name + ", " + other + " \"" + letters + "," + letters +
            "->" + letters + "\" : (" + types + ", " + types + ") -> " + types,
        from.shape);
    return;
  }
  std::string op =
      pick(std::vector<std::string>{"add", "sub", "mul", "min", "mul"});
  std::string result =
      add(op + " " + from.name + ", " + other + " : " + type(from.shape),
          from.shape);
  values.back().isUsed = true;
  add("tanh " + result + " : " + type(from.shape), from.shape);
}

void Generator::drawBroadcast() {
  Drawn from = value();
  Shape shape = from.shape;
  std::vector<bool> isNew(shape.size(), false);
  for (int64_t more = 1 + below(2); more > 0 && shape.size() < 4; --more) {
    int64_t at = below(shape.size() + 1);
    shape.insert(shape.begin() + at, pick(extents));
    isNew.insert(isNew.begin() + at, true);
  }
  if (count(shape) > 4096)
    return;
  std::vector<int64_t> dims;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (!isNew[dim])
      dims.push_back(dim);
  // One number a row may be found anywhere.
  if (isNew.back() && shape.back() > 1 && below(2))
    for (size_t left = dims.size(); left > 1; --left)
      std::swap(dims[left - 1], dims[below(left)]);
  for (size_t i = 0; i < dims.size(); ++i)
    shape[dims[i]] = from.shape[i];
  add("broadcast " + from.name + " dims " + list(dims) + " : " +
          type(from.shape) + " -> " + type(shape),
      shape);
}

void Generator::drawReduction() {
  Drawn from = value();
  Shape kept;
  std::vector<int64_t> dims;
  int64_t reduced = 1;
  for (auto [dim, extent] : llvm::enumerate(from.shape)) {
    if (below(2)) {
      kept.push_back(extent);
      continue;
    }
    dims.push_back(dim);
    reduced *= extent;
  }
  if (dims.empty())
    return;
  std::string kind = below(3) ? "sum " : "max ";
  std::string result =
      add("reduce " + kind + from.name + " dims " + list(dims) + " : " +
              type(from.shape) + " -> " + type(kept),
          kept);
  values.back().isUsed = true;
  add("scale " + result + " by " + std::to_string(1.0 / double(reduced)) +
          " : " + type(kept),
      kept);
}

void Generator::drawLookup() {
  Shape tableShape = drawShape(2, 2), shape = drawShape(0, 2);
  std::string table = valueOf(tableShape), id = ids(shape);
  Shape result = shape;
  result.push_back(tableShape[1]);
  add("embedding " + table + ", " + id + " : (" + type(tableShape) + ", " +
          type(shape, "i32") + ") -> " + type(result),
      result);
}

void Generator::drawLookupGradient() {
  Drawn from = value();
  if (from.shape.empty())
    return;
  Shape shape(from.shape.begin(), std::prev(from.shape.end()));
  Shape table{pick(extents), from.shape.back()};
  std::string id = ids(shape);
  add("embedding_grad " + from.name + ", " + id + " : (" + type(from.shape) +
          ", " + type(shape, "i32") + ") -> " + type(table),
      table);
}

void Generator::drawPick() {
  Drawn from = value();
  if (from.shape.empty())
    return;
  Shape shape(from.shape.begin(), std::prev(from.shape.end()));
  std::string id = ids(shape);
  if (below(3) == 0)
    add("valid " + id + " ignore 3 : " + type(shape, "i32") + " -> " +
            type(shape),
        shape);
  add("pick " + from.name + ", " + id + " : " + type(from.shape) + ", " +
          type(shape, "i32") + " -> " + type(from.shape),
      from.shape);
}

void Generator::drawRotation() {
  Drawn from = value();
  if (!from.shape.empty() && from.shape.back() % 2 == 0)
    add("rotate_half " + from.name + " : " + type(from.shape), from.shape);
}

/// Minus infinity does not stay.
void Generator::drawMask() {
  Drawn from = value();
  if (from.shape.size() < 2)
    return;
  const char *sights[] = {"", " window 2", " window 2 bidirectional"};
  std::string window = sights[below(3)];
  std::string masked =
      add("causal_mask " + from.name + window + " : " + type(from.shape),
          from.shape);
  add("tanh " + masked + " : " + type(from.shape), from.shape);
  values.erase(std::prev(values.end(), 2));
}

void Generator::drawDropout() {
  Drawn from = value();
  if (from.shape.empty())
    return;
  std::string site = std::to_string(below(4)), keys = ids({from.shape.front()});
  add("dropout " + from.name + ", " + keys + " probability 0.4 site " + site +
          " : " + type(from.shape) + ", " + type({from.shape.front()}, "i32"),
      from.shape);
}

void Generator::drawCast() {
  Drawn from = value();
  std::string name = "%" + std::to_string(numbers++);
  std::string half = type(from.shape, "bf16"), whole = type(from.shape);
  body += "  " + name + " = nn.cast " + from.name + " : " + whole + " -> " +
          half + "\n";
  add("cast " + name + " : " + half + " -> " + whole, from.shape);
}

std::string Generator::draw() {
  using Rule = void (Generator::*)();
  static constexpr Rule rules[] = {
      &Generator::drawUnary,     &Generator::drawBinary,
      &Generator::drawBinary,    &Generator::drawBinary,
      &Generator::drawBroadcast, &Generator::drawBroadcast,
      &Generator::drawReduction, &Generator::drawReduction,
      &Generator::drawReduction, &Generator::drawLookup,
      &Generator::drawPick,      &Generator::drawLookupGradient,
      &Generator::drawRotation,  &Generator::drawMask,
      &Generator::drawDropout};
  for (int i = 0; i < 3; ++i) {
    Shape shape = drawShape(1, 3);
    values.push_back({argument(shape, "f32"), shape});
  }
  for (int64_t left = 4 + below(20); left > 0; --left) {
    if (bf16 && below(4) == 0)
      drawCast();
    else
      (this->*rules[below(std::size(rules))])();
  }
  std::string names, types;
  for (const Drawn &value : values)
    if (!value.isUsed || below(8) == 0) {
      names += (names.empty() ? "" : ", ") + value.name;
      types += (types.empty() ? "" : ", ") + type(value.shape);
    }
  std::string inputs;
  for (const std::string &input : arguments)
    inputs += (inputs.empty() ? "" : ", ") + input;
  std::string end =
      names.empty() ? "return" : "return " + names + " : " + types;
  return "func.func @f(" + inputs + ") -> (" + types + ") {\n" + body + "  " +
         end + "\n}\n";
}

std::string test::drawFunction(unsigned seed, bool bf16) {
  return Generator(seed, bf16).draw();
}
