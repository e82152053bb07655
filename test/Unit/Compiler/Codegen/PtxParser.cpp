//===- PtxParser.cpp - The instructions of a kernel -----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxParser.h"

#include <algorithm>
#include <regex>
#include <sstream>

using namespace plait;
using namespace plait::test;

unsigned test::sizeOf(PtxType type) {
  switch (type) {
  case PtxType::B16:
  case PtxType::U16:
  case PtxType::BF16:
    return 2;
  case PtxType::B64:
  case PtxType::U64:
  case PtxType::S64:
    return 8;
  default:
    return 4;
  }
}

static PtxOp opOf(const std::string &text) {
  static const char *const names[] = {
      "abs",  "add",  "and",      "bar",      "barrier", "bfe",  "bfi",
      "bra",  "brx",  "copysign", "cvt",      "cvta",    "div",  "ex2",
      "exit", "fma",  "ld",       "ldmatrix", "mad",     "max",  "min",
      "mma",  "mov",  "mul",      "neg",      "not",     "or",   "popc",
      "rcp",  "rem",  "ret",      "selp",     "setp",    "shfl", "shl",
      "shr",  "sqrt", "st",       "sub",      "vote",    "xor"};
  static_assert(std::size(names) == static_cast<size_t>(PtxOp::Unknown));
  return static_cast<PtxOp>(
      std::find(std::begin(names), std::end(names), text) - std::begin(names));
}

static PtxType typeOf(const std::string &text) {
  static const std::map<std::string, PtxType> types = {
      {"pred", PtxType::Pred}, {"b16", PtxType::B16},
      {"b32", PtxType::B32},   {"b64", PtxType::B64},
      {"u16", PtxType::U16},   {"u32", PtxType::U32},
      {"u64", PtxType::U64},   {"s32", PtxType::S32},
      {"s64", PtxType::S64},   {"f32", PtxType::F32},
      {"bf16", PtxType::BF16}, {"bf16x2", PtxType::BF16x2}};
  auto found = types.find(text);
  return found == types.end() ? PtxType::None : found->second;
}

static std::string trim(const std::string &text) {
  size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos)
    return "";
  return text.substr(first, text.find_last_not_of(" \t\n") + 1 - first);
}

/// Pieces between separators that stand outside of braces and brackets.
static std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  for (char c : text) {
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c == separator && depth == 0)
      pieces.emplace_back();
    else
      pieces.back() += c;
  }
  for (std::string &piece : pieces)
    piece = trim(piece);
  return pieces;
}

namespace {

class KernelParser {
public:
  KernelParser(PtxModule::Kernel &kernel,
               const std::map<std::string, uint64_t> &shared)
      : kernel(kernel) {
    for (const auto &[name, bytes] : shared)
      sharedSizes[name] = bytes;
  }

  std::string run(const std::string &text, std::string &name);

private:
  using Lists = std::vector<std::pair<std::string, std::string>>;
  bool parseHead(const std::string &head);
  std::vector<std::string> splitBody(const std::string &body, Lists &lists);
  void placeLabels(const std::vector<std::string> &statements);
  void parseStatement(const std::string &text);
  void parseInstruction(std::string text);
  PtxOperand parseOperand(std::string text);
  PtxOperand parseAddress(const std::string &text);
  PtxOperand placeShared(const std::string &name);
  unsigned registerOf(const std::string &name);

  PtxModule::Kernel &kernel;
  std::string error;
  std::map<std::string, unsigned> registers;
  std::map<std::string, uint64_t> params, labels, sharedSizes, sharedPlaces;
  std::map<std::string, std::vector<PtxOperand>> tables;
};

} // namespace

unsigned KernelParser::registerOf(const std::string &name) {
  return registers.try_emplace(name, registers.size()).first->second;
}

PtxOperand KernelParser::placeShared(const std::string &name) {
  auto [place, isNew] = sharedPlaces.try_emplace(name, kernel.sharedBytes);
  if (isNew)
    kernel.sharedBytes += (sharedSizes[name] + 15) / 16 * 16;
  PtxOperand operand;
  operand.kind = PtxOperand::Shared;
  operand.number = place->second;
  return operand;
}

/// `%rd1+16`, `name+4` or a name alone.
PtxOperand KernelParser::parseAddress(const std::string &text) {
  std::vector<std::string> parts = split(text, '+');
  PtxOperand operand = parseOperand(parts[0]);
  operand.address = true;
  if (parts.size() > 1)
    operand.number += std::stoll(parts[1]);
  return operand;
}

PtxOperand KernelParser::parseOperand(std::string text) {
  PtxOperand operand;
  if (text[0] == '!') {
    operand = parseOperand(text.substr(1));
    operand.negated = true;
  } else if (text[0] == '{') {
    operand.kind = PtxOperand::Vector;
    for (const std::string &part : split(text.substr(1, text.size() - 2), ','))
      operand.parts.push_back(parseOperand(part));
  } else if (text[0] == '[') {
    operand = parseAddress(text.substr(1, text.size() - 2));
  } else if (text == "%tid.x" || text == "%ctaid.x") {
    operand.kind = text[1] == 't' ? PtxOperand::Thread : PtxOperand::Block;
  } else if (text[0] == '%') {
    operand.kind = PtxOperand::Register;
    operand.reg = registerOf(text);
  } else if (text.substr(0, 2) == "0f") {
    operand.number = std::stoul(text.substr(2), nullptr, 16);
  } else if (std::isdigit(text[0]) || text[0] == '-') {
    operand.number = text[0] == '-' ? std::stoll(text) : std::stoull(text);
  } else if (params.count(text)) {
    operand.kind = PtxOperand::Param;
    operand.number = params[text];
  } else if (sharedSizes.count(text)) {
    operand = placeShared(text);
  } else {
    operand.kind = PtxOperand::Label;
    auto found = labels.find(text);
    if (found == labels.end() && !tables.count(text))
      error = "unknown operand '" + text + "'";
    else if (tables.count(text))
      operand.parts = tables[text];
    else
      operand.number = found->second;
  }
  return operand;
}

void KernelParser::parseInstruction(std::string text) {
  PtxInstruction instruction;
  instruction.text = text;
  if (text[0] == '@') {
    size_t space = text.find_first_of(" \t");
    std::string guard = text.substr(1, space - 1);
    instruction.guardNegated = guard[0] == '!';
    instruction.guard = registerOf(guard.substr(instruction.guardNegated));
    text = trim(text.substr(space));
  }
  size_t space = text.find_first_of(" \t");
  std::vector<std::string> name = split(text.substr(0, space), '.');
  auto has = [&](const char *part) {
    return std::find(name.begin(), name.end(), part) != name.end();
  };
  // Approximations are not what they are of, but for what is nothing else.
  if (!has("approx") || name[0] == "ex2")
    instruction.op = opOf(name[0]);
  instruction.shared = has("shared"), instruction.param = has("param");
  instruction.high = has("hi"), instruction.wide = has("wide");
  instruction.nan = has("NaN");
  instruction.type = typeOf(name.back());
  if (name.size() > 1) {
    instruction.from = typeOf(name[name.size() - 2]);
    instruction.variant = name[1];
  }
  if (space != std::string::npos)
    for (const std::string &operand : split(text.substr(space), ','))
      instruction.operands.push_back(parseOperand(operand));
  kernel.code.push_back(std::move(instruction));
}

void KernelParser::parseStatement(const std::string &text) {
  // An array of bytes, or one number.
  static const std::regex shared(
      R"(\.shared \.align \d+ \.(\w+) (\w+)(?:\[(\d+)\])?)");
  std::smatch match;
  if (std::regex_search(text, match, shared))
    sharedSizes[match[2]] =
        match[3].matched ? std::stoull(match[3]) : sizeOf(typeOf(match[1]));
  else if (text[0] != '.')
    parseInstruction(text);
}

/// Parameters and the number of threads. False without the latter.
bool KernelParser::parseHead(const std::string &head) {
  static const std::regex param(R"(\.param \.(\w+)[^,\n)]* (\w+)[,\n])");
  for (std::sregex_iterator it(head.begin(), head.end(), param), end; it != end;
       ++it) {
    params[(*it)[2]] = kernel.paramBytes.size();
    kernel.paramBytes.push_back(8);
  }
  std::smatch match;
  static const std::regex threads(R"(\.(?:req|max)ntid (\d+))");
  if (!std::regex_search(head, match, threads))
    return false;
  kernel.threads = std::stoul(match[1]);
  return true;
}

/// The statements, the labels by the index of the statement that they stand
/// before, and by label the lists of branch targets.
std::vector<std::string> KernelParser::splitBody(const std::string &body,
                                                 Lists &lists) {
  std::vector<std::string> statements;
  std::smatch match;
  static const std::regex label(R"(^\s*(\$\w+):\s*)");
  std::istringstream lines(body);
  std::string line, pending;
  while (std::getline(lines, line)) {
    line = line.substr(0, line.find("//"));
    if (std::regex_search(line, match, label)) {
      std::string rest = trim(match.suffix());
      if (rest.substr(0, 14) == ".branchtargets")
        lists.push_back({match[1], ""});
      labels[match[1]] = statements.size();
      line = rest;
    }
    pending += line + " ";
    if (line.find(';') == std::string::npos)
      continue;
    std::string statement = trim(pending.substr(0, pending.find(';')));
    pending.clear();
    if (statement.substr(0, 14) == ".branchtargets")
      lists.back().second = statement.substr(14);
    else if (statement[0] != '.' || statement.substr(0, 7) == ".shared")
      statements.push_back(statement);
  }
  return statements;
}

/// A declaration among the statements is no instruction, so places shift.
void KernelParser::placeLabels(const std::vector<std::string> &statements) {
  std::vector<uint64_t> places;
  uint64_t place = 0;
  for (const std::string &statement : statements) {
    places.push_back(place);
    place += statement[0] != '.';
  }
  places.push_back(place);
  for (auto &[name, index] : labels)
    index = places[index];
}

std::string KernelParser::run(const std::string &text, std::string &name) {
  name = text.substr(0, text.find('('));
  size_t open = text.find("\n{");
  std::string body = text.substr(open + 2);
  if (!parseHead(text.substr(0, open)))
    return "kernel '" + name + "' does not say how many threads it has";
  // Labels first: branches name those that are still to come.
  Lists lists;
  std::vector<std::string> statements =
      splitBody(body.substr(0, body.find("\n}")), lists);
  placeLabels(statements);
  for (const auto &[name, list] : lists)
    for (const std::string &target : split(list, ','))
      tables[name].push_back(parseOperand(target));
  for (const std::string &statement : statements)
    parseStatement(statement);
  kernel.registers = registers.size();
  return error;
}

std::string test::parseKernel(const std::string &text,
                              const std::map<std::string, uint64_t> &shared,
                              std::string &name, PtxModule::Kernel &kernel) {
  return KernelParser(kernel, shared).run(text, name);
}
