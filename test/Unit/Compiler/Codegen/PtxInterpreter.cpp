//===- PtxInterpreter.cpp - Runs PTX without a GPU ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxInterpreter.h"

#include "PtxArithmetic.h"
#include "PtxMemory.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <regex>

using namespace plait;
using namespace plait::test;

/// More than any kernel of a test takes; a loop that never ends does.
static constexpr uint64_t kMostInstructions = uint64_t(1) << 26;

namespace {

constexpr unsigned kWarp = 32;

struct Thread {
  enum State { Running, Waiting, Exited };
  State state = Running;
  uint64_t place = 0;
  uint64_t executed = 0;
  std::vector<uint64_t> registers;
};

/// One block of a launch.
class BlockRun {
public:
  BlockRun(const PtxModule::Kernel &kernel, const std::vector<uint64_t> &params,
           PtxMemory &memory, int64_t block)
      : kernel(kernel), params(params), memory(memory), block(block),
        threads(kernel.threads) {
    for (Thread &thread : threads)
      thread.registers.resize(kernel.registers);
  }

  std::string run();

private:
  void advance(unsigned index);
  /// Whether the thread goes on with the next instruction.
  bool step(unsigned index, const PtxInstruction &instruction);
  bool passBarrier();
  bool passExchanges(unsigned warp);
  bool exchange(unsigned warp, unsigned leader);
  bool isTogether(unsigned warp) const;
  void loadMatrices(unsigned warp, const PtxInstruction &instruction);
  void multiplyMatrices(unsigned warp, const PtxInstruction &instruction);
  uint64_t read(unsigned index, const PtxOperand &operand) const;
  void write(unsigned index, const PtxOperand &operand, uint64_t value,
             PtxType type);
  void compute(unsigned index, const PtxInstruction &instruction);
  void load(unsigned index, const PtxInstruction &instruction);
  void store(unsigned index, const PtxInstruction &instruction);
  const PtxInstruction &waitsAt(unsigned index) const {
    return kernel.code[threads[index].place];
  }
  int64_t globalNumber(unsigned index) const {
    return block * kernel.threads + index;
  }
  void fail(unsigned index, const std::string &reason) {
    if (error.empty())
      error = "block " + std::to_string(block) + ", thread " +
              std::to_string(index) + ", '" + waitsAt(index).text +
              "': " + reason;
  }

  const PtxModule::Kernel &kernel;
  const std::vector<uint64_t> &params;
  PtxMemory &memory;
  int64_t block;
  std::vector<Thread> threads;
  std::string error;
};

} // namespace

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

uint64_t BlockRun::read(unsigned index, const PtxOperand &operand) const {
  switch (operand.kind) {
  case PtxOperand::Register: {
    uint64_t value = threads[index].registers[operand.reg];
    return operand.negated ? !value : value;
  }
  case PtxOperand::Thread:
    return index;
  case PtxOperand::Block:
    return block;
  case PtxOperand::Param:
    return params[operand.number];
  default:
    return operand.number;
  }
}

void BlockRun::write(unsigned index, const PtxOperand &operand, uint64_t value,
                     PtxType type) {
  if (type == PtxType::Pred)
    value = value != 0;
  else if (sizeOf(type) == 4)
    value = static_cast<uint32_t>(value);
  else if (sizeOf(type) == 2)
    value = static_cast<uint16_t>(value);
  threads[index].registers[operand.reg] = value;
}

/// Where an address operand points.
static uint64_t offsetOf(const PtxOperand &operand) {
  return operand.kind == PtxOperand::Register ? operand.number : 0;
}

void BlockRun::load(unsigned index, const PtxInstruction &instruction) {
  const PtxOperand &source = instruction.operands[1];
  std::span<const PtxOperand> parts = partsOf(instruction.operands[0]);
  if (instruction.param)
    return write(index, parts[0], read(index, source), instruction.type);
  uint64_t address = read(index, source) + offsetOf(source);
  unsigned size = sizeOf(instruction.type);
  std::string reason =
      memory.check(address, size * parts.size(), instruction.shared, false,
                   globalNumber(index));
  if (!reason.empty())
    return fail(index, reason);
  for (const PtxOperand &part : parts) {
    uint64_t value = memory.load(address, size, instruction.shared);
    // A register may be wider than what is loaded into it.
    if (instruction.type == PtxType::S32)
      value = static_cast<int64_t>(static_cast<int32_t>(value));
    threads[index].registers[part.reg] = value;
    address += size;
  }
}

void BlockRun::store(unsigned index, const PtxInstruction &instruction) {
  const PtxOperand &target = instruction.operands[0];
  std::span<const PtxOperand> parts = partsOf(instruction.operands[1]);
  uint64_t address = read(index, target) + offsetOf(target);
  unsigned size = sizeOf(instruction.type);
  std::string reason =
      memory.check(address, size * parts.size(), instruction.shared, true,
                   globalNumber(index));
  if (!reason.empty())
    return fail(index, reason);
  for (const PtxOperand &part : parts) {
    memory.store(address, size, instruction.shared, read(index, part));
    address += size;
  }
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

bool BlockRun::step(unsigned index, const PtxInstruction &instruction) {
  Thread &thread = threads[index];
  const auto &operands = instruction.operands;
  switch (instruction.op) {
  case PtxOp::Ret:
  case PtxOp::Exit:
    thread.state = Thread::Exited;
    return false;
  case PtxOp::Bar:
  case PtxOp::Barrier:
  case PtxOp::Ldmatrix:
  case PtxOp::Mma:
  case PtxOp::Shfl:
  case PtxOp::Vote:
    thread.state = Thread::Waiting;
    return false;
  case PtxOp::Bra:
    thread.place = operands[0].number;
    return false;
  case PtxOp::Brx: {
    uint64_t choice = read(index, operands[0]);
    if (choice >= operands[1].parts.size())
      fail(index, "branches to target " + std::to_string(choice));
    else
      thread.place = operands[1].parts[choice].number;
    return false;
  }
  case PtxOp::Ld:
    load(index, instruction);
    return true;
  case PtxOp::St:
    store(index, instruction);
    return true;
  default:
    compute(index, instruction);
    return true;
  }
}

void BlockRun::compute(unsigned index, const PtxInstruction &instruction) {
  const auto &operands = instruction.operands;
  PtxInputs inputs;
  for (size_t number = 1; number < operands.size(); ++number)
    for (const PtxOperand &part : partsOf(operands[number]))
      if (inputs.count < std::size(inputs.bits))
        inputs.bits[inputs.count++] = read(index, part);
  std::optional<uint64_t> result = computePtx(instruction, inputs);
  if (!result)
    return fail(index, "the interpreter does not know this instruction");
  std::span<const PtxOperand> parts = partsOf(operands[0]);
  if (parts.size() == 2) {
    bool wide = sizeOf(instruction.type) == 8;
    PtxType half = wide ? PtxType::B32 : PtxType::B16;
    write(index, parts[0], *result, half);
    write(index, parts[1], *result >> (wide ? 32 : 16), half);
  } else {
    write(index, parts[0], *result, resultType(instruction));
  }
}

void BlockRun::advance(unsigned index) {
  Thread &thread = threads[index];
  while (thread.state == Thread::Running && error.empty()) {
    if (thread.place >= kernel.code.size()) {
      thread.place = kernel.code.size() - 1;
      return fail(index, "runs past the end");
    }
    if (++thread.executed > kMostInstructions)
      return fail(index, "does not come to an end");
    const PtxInstruction &instruction = kernel.code[thread.place];
    bool skipped =
        instruction.guard >= 0 &&
        (thread.registers[instruction.guard] != 0) == instruction.guardNegated;
    if (skipped || step(index, instruction))
      ++thread.place;
  }
}

//===----------------------------------------------------------------------===//
// Waiting for others
//===----------------------------------------------------------------------===//

/// If all threads of the block are at one barrier.
bool BlockRun::passBarrier() {
  for (unsigned index = 0; index < threads.size(); ++index)
    if (threads[index].state != Thread::Waiting ||
        threads[index].place != threads[0].place ||
        (waitsAt(index).op != PtxOp::Bar &&
         waitsAt(index).op != PtxOp::Barrier))
      return false;
  for (Thread &thread : threads) {
    ++thread.place;
    thread.state = Thread::Running;
  }
  memory.passBarrier();
  return true;
}

/// Whether all lanes of a warp wait at one place.
bool BlockRun::isTogether(unsigned warp) const {
  const Thread &first = threads[warp * kWarp];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const Thread &thread = threads[warp * kWarp + lane];
    if (thread.state != Thread::Waiting || thread.place != first.place)
      return false;
  }
  return true;
}

/// ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16: lane l has the address of
/// row l % 8 of matrix l / 8, and takes numbers 2 (l % 4) and the next of row
/// l / 4 of each matrix or, transposed, of column l / 4.
void BlockRun::loadMatrices(unsigned warp, const PtxInstruction &instruction) {
  const PtxOperand &source = instruction.operands[1];
  std::span<const PtxOperand> targets = partsOf(instruction.operands[0]);
  bool isTurned = instruction.text.find(".trans.") != std::string::npos;
  if (targets.size() != 4 ||
      instruction.text.find(".m8n8.x4.") == std::string::npos)
    return fail(warp * kWarp, "the interpreter does not know this instruction");
  uint64_t rows[kWarp];
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    unsigned index = warp * kWarp + lane;
    rows[lane] = read(index, source) + offsetOf(source);
    std::string reason = memory.check(rows[lane], 16, /*shared=*/true, false,
                                      globalNumber(index));
    if (!reason.empty())
      return fail(index, reason);
  }
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      auto number = [&](unsigned which) {
        unsigned row = lane / 4, column = lane % 4 * 2 + which;
        if (isTurned)
          std::swap(row, column);
        return memory.load(rows[8 * matrix + row] + 2 * column, 2, true);
      };
      write(warp * kWarp + lane, targets[matrix], number(0) | number(1) << 16,
            PtxType::B32);
    }
}

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, with each number where
/// the manual says that it is. Added up in double: a GPU has an order of its
/// own.
void BlockRun::multiplyMatrices(unsigned warp,
                                const PtxInstruction &instruction) {
  if (instruction.text.find(".m16n8k16.row.col.f32.bf16.bf16.f32") ==
      std::string::npos)
    return fail(warp * kWarp, "the interpreter does not know this instruction");
  auto part = [&](unsigned lane, unsigned operand, unsigned number) {
    return static_cast<uint32_t>(
        read(warp * kWarp + lane, instruction.operands[operand].parts[number]));
  };
  double a[16][16], b[16][8];
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (unsigned half = 0; half < 2; ++half) {
      unsigned row = lane / 4, k = lane % 4 * 2 + half, shift = 16 * half;
      auto widen = [&](unsigned operand, unsigned number) {
        uint32_t bits = part(lane, operand, number) >> shift << 16;
        return std::bit_cast<float>(bits);
      };
      for (unsigned number = 0; number < 4; ++number)
        a[row + number % 2 * 8][k + number / 2 * 8] = widen(1, number);
      for (unsigned number = 0; number < 2; ++number)
        b[k + number * 8][row] = widen(2, number);
    }
  for (unsigned lane = 0; lane < kWarp; ++lane)
    for (unsigned number = 0; number < 4; ++number) {
      unsigned row = lane / 4 + number / 2 * 8,
               column = lane % 4 * 2 + number % 2;
      double sum = std::bit_cast<float>(part(lane, 3, number));
      for (unsigned k = 0; k < 16; ++k)
        sum += a[row][k] * b[k][column];
      write(warp * kWarp + lane, instruction.operands[0].parts[number],
            std::bit_cast<uint32_t>(static_cast<float>(sum)), PtxType::B32);
    }
}

/// Lets the lanes that the leader's mask names exchange, if all are there.
bool BlockRun::exchange(unsigned warp, unsigned leader) {
  const PtxInstruction &instruction = waitsAt(leader);
  if (instruction.op == PtxOp::Ldmatrix || instruction.op == PtxOp::Mma) {
    if (!isTogether(warp))
      return false;
    if (instruction.op == PtxOp::Mma)
      multiplyMatrices(warp, instruction);
    else
      loadMatrices(warp, instruction);
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      Thread &thread = threads[warp * kWarp + lane];
      thread.state = Thread::Running;
      ++thread.place;
    }
    return true;
  }
  bool vote = instruction.op == PtxOp::Vote;
  if (!vote && instruction.op != PtxOp::Shfl)
    return false;
  auto maskOf = [&](unsigned index) {
    return static_cast<uint32_t>(
        read(index, instruction.operands[vote ? 2 : 4]));
  };
  uint32_t mask = maskOf(leader), ballot = 0;
  uint64_t values[kWarp] = {};
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    unsigned index = warp * kWarp + lane;
    if (!(mask >> lane & 1))
      continue;
    const Thread &thread = threads[index];
    if (thread.state != Thread::Waiting ||
        thread.place != threads[leader].place || maskOf(index) != mask)
      return false;
    values[lane] = read(index, instruction.operands[1]);
    ballot |= static_cast<uint32_t>(values[lane] != 0) << lane;
  }
  if (!(mask >> (leader % kWarp) & 1)) {
    fail(leader, "is not in its own mask");
    return false;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    unsigned index = warp * kWarp + lane;
    uint64_t value = ballot;
    if (!vote) {
      unsigned other = lane ^ read(index, instruction.operands[2]);
      if (!(mask >> other & 1))
        fail(index, "exchanges with a lane that is not in the mask");
      value = values[other % kWarp];
    }
    write(index, instruction.operands[0], value, PtxType::B32);
    threads[index].state = Thread::Running;
    ++threads[index].place;
  }
  return true;
}

bool BlockRun::passExchanges(unsigned warp) {
  bool passed = false;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if (threads[warp * kWarp + lane].state == Thread::Waiting)
      passed |= exchange(warp, warp * kWarp + lane);
  return passed;
}

std::string BlockRun::run() {
  if (threads.size() % kWarp)
    return "a block of " + std::to_string(threads.size()) + " threads";
  memory.startBlock(kernel.sharedBytes);
  while (error.empty()) {
    bool moved = false;
    for (unsigned index = 0; index < threads.size(); ++index)
      advance(index);
    for (unsigned warp = 0; warp < threads.size() / kWarp; ++warp)
      moved |= passExchanges(warp);
    moved |= passBarrier();
    if (moved || !error.empty())
      continue;
    for (unsigned index = 0; index < threads.size(); ++index)
      if (threads[index].state != Thread::Exited)
        fail(index, "waits for threads that never come");
    break;
  }
  return error;
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

PtxModule::PtxModule() = default;
PtxModule::~PtxModule() = default;

std::string PtxModule::parse(const std::string &text) {
  static const std::string entry = ".visible .entry ";
  static const std::regex shared(R"(\.shared \.align \d+ \.b8 (\w+)\[(\d+)\])");
  size_t place = text.find(entry);
  std::string head = text.substr(0, place);
  for (std::sregex_iterator it(head.begin(), head.end(), shared), end;
       it != end; ++it)
    globals[(*it)[1]] = std::stoull((*it)[2]);
  while (place != std::string::npos) {
    size_t start = place + entry.size();
    place = text.find(entry, start);
    auto kernel = std::make_unique<Kernel>();
    std::string name;
    std::string error =
        parseKernel(text.substr(start, place - start), globals, name, *kernel);
    if (!error.empty())
      return name + ": " + error;
    kernels[name] = std::move(kernel);
  }
  return "";
}

std::string PtxModule::launch(const std::string &symbol, int64_t blocks,
                              const std::vector<PtxBuffer> &buffers,
                              const std::vector<int64_t> &scalars,
                              bool reversed) {
  std::vector<int64_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  if (reversed)
    std::reverse(order.begin(), order.end());
  return launchSome(symbol, order, buffers, scalars);
}

std::string PtxModule::launchSome(const std::string &symbol,
                                  const std::vector<int64_t> &blocks,
                                  const std::vector<PtxBuffer> &buffers,
                                  const std::vector<int64_t> &scalars) {
  auto found = kernels.find(symbol);
  if (found == kernels.end())
    return "there is no kernel '" + symbol + "'";
  std::vector<uint64_t> params;
  for (const PtxBuffer &buffer : buffers)
    params.push_back(reinterpret_cast<uint64_t>(buffer.start));
  params.insert(params.end(), scalars.begin(), scalars.end());
  if (params.size() != found->second->paramBytes.size())
    return symbol + " has " + std::to_string(found->second->paramBytes.size()) +
           " parameters, not " + std::to_string(params.size());
  PtxMemory memory(buffers);
  for (int64_t block : blocks) {
    std::string error = BlockRun(*found->second, params, memory, block).run();
    if (!error.empty())
      return symbol + ": " + error;
  }
  return "";
}
