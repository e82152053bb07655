//===- ProgramConverter.cpp - Programs and parameters of a plan -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank's program in the plan file: regions, inputs, constants, shards,
// functions and actions, each read off the op that has decided it. Names become
// numbers here: buffers the offsets that they were given, functions and
// parameters indices of tables, axes positions in the mesh.
//
// What several programs hold (parameters, kernels, tables) is in SharedTables,
// in the order of first use, so that a plan is the same byte for byte in every
// run.
//
//===----------------------------------------------------------------------===//

#include "ProgramConverter.h"

#include "plait/Configuration/CompressionFacts.h"
#include "plait/Conversion/RankScalar.h"
#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Dialect/Plait/IR/Plait.h"
#include "plait/Dialect/Plan/IR/Buffers.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Support/ActionKinds.h"

#include "llvm/ADT/StringSet.h"

#include <cstring>

using namespace mlir;
using namespace plait;
using namespace plait::plan;

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// Lists the slots of a parameter to which micro-batches may add its gradient.
static constexpr nn::Slot kAddedSlots[] = {
    nn::Slot::Gradient, nn::Slot::getState(kErrorState.data())};

/// Tells what a parameter is on the whole mesh: shape, where a file has it, how
/// it begins. Its dtype is that of the master value, whatever is computed with.
static std::unique_ptr<fb::ParameterT> makeParameter(nn::ParameterOp op) {
  auto parameter = std::make_unique<fb::ParameterT>();
  auto type = cast<RankedTensorType>(op.getType());
  parameter->name = op.getSymName().str();
  parameter->shape = type.getShape().vec();
  parameter->dtype = fb::DType::F32;
  // Without a file, a parameter is a tensor of its own name.
  parameter->file_name = parameter->name;
  parameter->file_shape = parameter->box_shape = parameter->shape;
  parameter->box_begin.assign(type.getRank(), 0);
  // A box of a larger tensor: files may hold several parameters as one.
  if (nn::FileAttr file = op.getFileAttr()) {
    parameter->file_name = file.getName().getValue().str();
    parameter->file_shape = file.getShape().vec();
    parameter->box_begin = file.getBegin().vec();
    parameter->box_shape = file.getBox().vec();
    parameter->saved_shape = nn::findSavedShape(op).vec();
  }
  // A normal distribution without spread is a constant.
  double std = op.getInit().getStd().getValueAsDouble();
  parameter->init = std == 0 ? fb::InitKind::Constant : fb::InitKind::Normal;
  parameter->init_value = op.getInit().getMean().getValueAsDouble();
  parameter->init_std = std;
  parameter->rate = op.getRateFactor();
  parameter->unsaved = op->hasAttr(nn::kUnsavedAttr);
  return parameter;
}

/// All parameters of the module are in the table, also those that no program
/// reads: they are saved as they were.
ParameterTable::ParameterTable(ModuleOp module, fb::PlanT &plan)
    : mesh(dist::MeshOp::find(module)),
      optimizer(**findOptimizer(getConfiguration(module).optimizer)),
      compression(getConfiguration(module).compress) {
  for (auto parameter : module.getOps<nn::ParameterOp>()) {
    parameters.push_back(parameter);
    plan.parameters.push_back(makeParameter(parameter));
    if (std::optional<StringRef> own = parameter.getOptimizer();
        own && *own != StringRef(optimizer.name))
      plan.parameters.back()->optimizer = own->str();
    // Until a rank is found that has a gradient.
    plan.parameters.back()->frozen = true;
  }
  owned.resize(parameters.size(), false);
  for (auto program : module.getOps<ProgramOp>()) {
    // By buffers, which exist for what some function accesses, and not by
    // walking functions, which are gone.
    llvm::StringSet<> buffers;
    for (auto buffer : program.getBody().getOps<BufferOp>())
      buffers.insert(buffer.getSymName());
    ParameterPacks packs(module, program.getRank());
    for (auto [parameter, entry] :
         llvm::zip_equal(parameters, plan.parameters)) {
      // What some rank has a gradient of is trained, on all ranks.
      for (nn::Slot slot : kAddedSlots)
        if (buffers.contains(packs.locate(parameter.getSymName(), slot).buffer))
          entry->frozen = false;
    }
  }
}

/// How a rank's part of a parameter lies in the whole: its shape, and which
/// axes split each dimension. Offsets are addShards()'.
std::unique_ptr<fb::ShardT>
ParameterTable::makeShard(nn::ParameterOp parameter) {
  auto shard = std::make_unique<fb::ShardT>();
  auto sharding = cast<dist::ShardingAttr>(parameter.getShardingAttr());
  RankedTensorType local =
      mesh.getLocalType(dist::withSharding(parameter.getType(), sharding));
  shard->local_shape = local.getShape().vec();
  // Axes by their positions in the mesh, major to minor as in the sharding.
  auto convert = [&](dist::ShardingAttr from, auto &dims) {
    for (ArrayAttr axes : from.getDims()) {
      auto dim = std::make_unique<fb::DimShardingT>();
      for (auto axis : axes.getAsRange<StringAttr>())
        dim->axes.push_back(mesh.getAxisIndex(axis.getValue()));
      dims.push_back(std::move(dim));
    }
  };
  convert(sharding, shard->dims);
  // Only where the state is split further than the value (ZeRO 2).
  if (parameter.getStateAttr())
    convert(nn::getSharding(parameter, nn::Slot::Gradient), shard->state_dims);
  return shard;
}

/// Tells how ranks divide `slot` of a parameter; null where each has all of it.
std::unique_ptr<fb::DivisionT>
ParameterTable::makeDivision(nn::ParameterOp parameter,
                             const ParameterPacks &packs, nn::Slot slot) {
  nn::PackOp pack = packs.find(parameter.getSymName());
  // Parts of a parameter are blocks of it.
  if (!pack || !pack.isDivided(slot) || pack.getBlocks())
    return nullptr;
  auto division = std::make_unique<fb::DivisionT>();
  auto axes = pack.getDividingAxes();
  division->axis = mesh.getAxisIndex(axes.front());
  for (StringAttr axis : llvm::drop_begin(axes))
    division->inner_axes.push_back(mesh.getAxisIndex(axis));
  // A rank has as many elements of the pack as every other along the axes, from
  // its own multiple of them on. Where the parameter begins in the pack is the
  // same for all, so that which of its elements a rank has is arithmetic.
  division->elements = pack.getSlotType(slot).getNumElements();
  auto whole = packs.locate(parameter.getSymName(), nn::Slot::Gradient);
  division->begin = whole.offset / sizeof(float);
  return division;
}

/// All that the optimizer keeps of a parameter that is trained on this rank: of
/// one with a balance nothing.
/// Fails where the programs have less or more: what has been edited by hand
/// would name an update that is not the plan's.
LogicalResult ParameterTable::addState(fb::ShardT &shard,
                                       nn::ParameterOp parameter,
                                       const ParameterPacks &packs,
                                       FindOffset find) {
  SmallVector<std::string_view> kept;
  const Optimizer &own = nn::findOptimizer(parameter, optimizer);
  if (!parameter.getBalance())
    llvm::append_range(kept, own.states);
  if (compresses(compression, nn::countDims(parameter)))
    llvm::append_range(kept, getCompressionStates(compression));
  for (std::string_view name : kept) {
    std::optional<uint64_t> offset = find(nn::Slot::getState(name));
    if (!offset)
      return parameter.emitOpError("has a gradient but no ")
             << name << " in the programs";
    auto state = std::make_unique<fb::StateSlotT>();
    state->name = name;
    state->offset = *offset;
    if (isOwnState(name))
      state->own_axis = mesh.getAxisIndex(kDataAxis);
    if (name == kSumErrorState)
      state->division =
          makeDivision(parameter, packs, nn::Slot::getState(name));
    shard.state.push_back(std::move(state));
  }
  for (std::string_view name :
       {kErrorState, kSumErrorState, kEstimateState, kEstimateSumState})
    if (!llvm::is_contained(kept, name) && find(nn::Slot::getState(name)))
      return parameter.emitOpError("keeps ")
             << name << " in the programs, but nothing is fed back";
  for (const Optimizer &other : getOptimizers())
    for (std::string_view name : other.states)
      if (!llvm::is_contained(kept, name) && find(nn::Slot::getState(name)))
        return parameter.emitOpError("has a ")
               << name << " in the programs, which " << own.name
               << " does not keep";
  return success();
}

LogicalResult
ParameterTable::addShards(fb::ProgramT &program, const ParameterPacks &packs,
                          const llvm::StringMap<uint64_t> &offsets) {
  // In the order of the module. A parameter is held by the program if its
  // value, or its pack's, or its copy has a buffer there.
  for (auto [index, parameter] : llvm::enumerate(parameters)) {
    auto find = [&, name = parameter.getSymName()](nn::Slot slot) {
      ParameterPacks::Place place = packs.locate(name, slot);
      auto buffer = offsets.find(place.buffer);
      return buffer == offsets.end()
                 ? std::nullopt
                 : std::optional(buffer->second + place.offset);
    };
    std::optional<uint64_t> value = find(nn::Slot::Value);
    // The copy is all there is of one that lacks a master.
    if (!value)
      value = find(nn::Slot::Compute);
    if (!value)
      continue;
    std::unique_ptr<fb::ShardT> shard = makeShard(parameter);
    shard->parameter = index;
    shard->weight = *value;
    // With a gradient it is trained here.
    auto added = llvm::find_if(kAddedSlots, find);
    if (added != std::end(kAddedSlots)) {
      nn::PackOp pack = packs.find(parameter.getSymName());
      bool isInBlocks = pack && pack.getBlocks();
      shard->gradient = *find(isInBlocks ? nn::Slot::Reduced : *added);
      if (failed(addState(*shard, parameter, packs, find)))
        return failure();
    }
    if (auto copy = find(nn::Slot::Compute)) {
      shard->compute_dtype = fb::DType::BF16;
      shard->compute_weight = *copy;
    }
    shard->division = makeDivision(parameter, packs, nn::Slot::Reduced);
    if (shard->division)
      shard->division->reduced = offsets.lookup(
          packs.locate(parameter.getSymName(), nn::Slot::Reduced).buffer);
    // Of programs that hold the same parameter the first one counts and saves
    // it.
    shard->owner = !owned[index];
    owned[index] = true;
    program.shards.push_back(std::move(shard));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

namespace {

/// Converts one program.
class Converter {
public:
  Converter(ProgramOp program, SharedTables &shared, fb::PlanT &plan)
      : program(program), module(program->getParentOfType<ModuleOp>()),
        shared(shared), plan(plan), memory(program) {}

  FailureOr<std::unique_ptr<fb::ProgramT>> run();

private:
  BufferOp findBuffer(StringRef name) {
    return memory.find(FlatSymbolRefAttr::get(module.getContext(), name));
  }
  void addRegions();
  void addInputs();
  uint32_t addData(ConstantDataOpInterface op, StringRef name, int64_t rows);
  LogicalResult addConstant(ConstantDataOpInterface op, StringRef name);
  LogicalResult addConstants();
  LogicalResult addFunctions();
  void addAction(ActionOp action);

  ProgramOp program;
  ModuleOp module;
  SharedTables &shared;
  fb::PlanT &plan;
  ProgramMemory memory;
  // Of buffers, in the arena; then the index of each function in the program,
  // and the functions that an action before has called.
  llvm::StringMap<uint64_t> offsets;
  llvm::StringMap<int32_t> functions;
  llvm::DenseSet<int32_t> called;
  std::unique_ptr<fb::ProgramT> result = std::make_unique<fb::ProgramT>();
};

} // namespace

// Both are cast: IR and file have one numbering.
#define PLAIT_SAME_ACTION(NAME, NUMBER, ...)                                   \
  static_assert(int(fb::ActionKind::NAME) == NUMBER);
PLAIT_FOR_EACH_ACTION_KIND(PLAIT_SAME_ACTION, PLAIT_SAME_ACTION)
#undef PLAIT_SAME_ACTION
#define PLAIT_SAME_CATEGORY(NAME)                                              \
  static_assert(int(Category::NAME) == int(fb::Category::NAME))
PLAIT_SAME_CATEGORY(Parameters);
PLAIT_SAME_CATEGORY(Gradients);
PLAIT_SAME_CATEGORY(Optimizer);
PLAIT_SAME_CATEGORY(Activations);
PLAIT_SAME_CATEGORY(Transfers);
PLAIT_SAME_CATEGORY(Workspace);
PLAIT_SAME_CATEGORY(Inputs);
PLAIT_SAME_CATEGORY(Constants);
#undef PLAIT_SAME_CATEGORY

/// First of all: everything else refers to buffers by these offsets.
void Converter::addRegions() {
  for (auto buffer : program.getBody().getOps<BufferOp>()) {
    offsets[buffer.getSymName()] = buffer.getAddress();
    auto region = std::make_unique<fb::RegionT>();
    region->name = buffer.getSymName().str();
    region->category = static_cast<fb::Category>(buffer.getCategory());
    region->offset = buffer.getAddress();
    region->bytes = buffer.getBytes();
    region->first_action = buffer.getFirst();
    region->last_action = buffer.getLast();
    result->regions.push_back(std::move(region));
  }
}

// Enumerations of IR and of the plan are cast into each other.
static_assert(int(pipe::PortKind::Starts) == int(fb::InputKind::Starts) &&
              int(pipe::PortKind::Features) == int(fb::InputKind::Features) &&
              int(pipe::PortKind::Context) == int(fb::InputKind::Context));

/// Inputs are rows of 32 bits, those of all microbatches behind one another.
/// How long a row is follows from the buffer: a sequence of tokens, or one key;
/// what is sorted behind tokens is no part of them.
/// They are in the order of their kinds, and float inputs of their numbers.
void Converter::addInputs() {
  std::map<std::pair<int, uint64_t>, std::unique_ptr<fb::InputT>> inputs;
  for (auto buffer : program.getBody().getOps<BufferOp>()) {
    if (!pipe::PortAttr::namesModelInput(buffer.getSymName()))
      continue;
    auto [word, index] = buffer.getSymName().split(' ');
    auto input = std::make_unique<fb::InputT>();
    input->kind = static_cast<fb::InputKind>(*pipe::symbolizePortKind(word));
    input->offset = buffer.getOffset();
    input->microbatches = plan.microbatches;
    input->rows = plan.micro_batch;
    int64_t words = memory.getInputStride(buffer) / sizeof(int32_t);
    if (auto sorted = buffer->getAttrOfType<IntegerAttr>(kSortedAttr)) {
      input->sorted = sorted.getInt();
      // The tokens and as many positions: see SortedTokens.
      words = (words - sorted.getInt() - 1) / 2;
    }
    input->columns = words / plan.micro_batch;
    if (!index.empty())
      index.getAsInteger(10, input->float_input);
    inputs[{int(input->kind), input->float_input}] = std::move(input);
  }
  for (auto &[key, input] : inputs)
    result->inputs.push_back(std::move(input));
}

/// Adds them in the order of their first calls; actions name them by index.
LogicalResult Converter::addFunctions() {
  for (FunctionOp function : getCalled(program, shared.symbols)) {
    FailureOr<std::unique_ptr<fb::FunctionT>> written =
        writeFunction(function, memory, shared.kernels, plan);
    if (failed(written))
      return failure();
    functions[function.getSymName()] = result->functions.size();
    result->functions.push_back(std::move(*written));
  }
  return success();
}

/// The numbers of all constants of that name; the first one has them computed.
uint32_t Converter::addData(ConstantDataOpInterface op, StringRef name,
                            int64_t rows) {
  // The name says all that the numbers depend on.
  auto [it, isNew] = shared.data.try_emplace(name, plan.data.size());
  if (isNew) {
    std::vector<float> numbers = op.getData(rows);
    auto data = std::make_unique<fb::DataT>();
    data->bytes.resize(numbers.size() * sizeof(float));
    std::memcpy(data->bytes.data(), numbers.data(), data->bytes.size());
    plan.data.push_back(std::move(data));
  }
  return it->second;
}

/// The whole table; a rank takes its rows.
LogicalResult Converter::addConstant(ConstantDataOpInterface op,
                                     StringRef name) {
  auto constant = std::make_unique<fb::ConstantT>();
  constant->offset = offsets.lookup(name);
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  int64_t rows = type.getDimSize(0);
  // Ranks share the numbers and differ in where they begin, in bytes: affine in
  // a rank's indices, so that the file does not grow with the ranks.
  if (SmallVector<RankTerm> begin = op.getRankBegin(); !begin.empty()) {
    constant->bytes = byteSize(type);
    if (failed(convertRankTerms(op, begin, constant->bytes / rows,
                                constant->begin)))
      return failure();
    for (const RankTerm &term : begin)
      // The last rank's rows begin at the most that the terms come to.
      rows += term.scale * (dist::MeshOp::find(op).getAxisSize(term.axis) - 1);
  }
  constant->data = addData(op, name, rows);
  result->constants.push_back(std::move(constant));
  return success();
}

/// Each table once a program, however many functions read it. Sorted by offset,
/// so that the order does not depend on that of the functions.
LogicalResult Converter::addConstants() {
  llvm::StringSet<> done;
  for (FunctionOp function : getCalled(program, shared.symbols))
    for (auto constant : function.getBody().getOps<ConstantOp>()) {
      StringRef name = constant.getMemory().getBuffer().getValue();
      auto source = cast<ConstantDataOpInterface>(constant.getSource());
      if (done.insert(name).second && failed(addConstant(source, name)))
        return failure();
    }
  llvm::sort(result->constants, [](const auto &a, const auto &b) {
    return a->offset < b->offset;
  });
  return success();
}

/// A call binds an offset of the arena to each slot; a transfer names one
/// buffer, the rank of the pipeline it goes to or comes from, and which tensor
/// of the boundary it is.
void Converter::addAction(ActionOp op) {
  auto action = std::make_unique<fb::ActionT>();
  action->kind = static_cast<fb::ActionKind>(op.getKind());
  action->stage = op.getStage().value_or(0);
  action->microbatch = op.getMicrobatch().value_or(0);
  if (op.getCallee()) {
    action->function = functions.lookup(*op.getCallee());
    // In the order of the step: that call overwrites what the others add to.
    action->first = called.insert(action->function).second;
    for (size_t slot = 0; slot < op.getBuffers().size(); ++slot)
      action->bindings.push_back(memory.getBound(op, slot).begin);
  } else {
    auto [begin, end] = memory.getMoved(op);
    action->direction =
        op.getBackward() ? fb::Direction::Backward : fb::Direction::Forward;
    action->peer = *op.getPeer();
    action->tensor = op.getTensor().value_or(0);
    action->buffer = begin;
    action->bytes = end - begin;
  }
  result->actions.push_back(std::move(action));
}

/// 1. The arena and where things lie in it.
/// 2. Shards, functions and constants, which refer to offsets.
/// 3. Actions, which refer to functions.
FailureOr<std::unique_ptr<fb::ProgramT>> Converter::run() {
  for (const MemoryPlaceFacts &facts : memoryPlaces)
    setPlaceBytes(*result, facts.place, program.getPlaceBytes(facts.place));
  // 1.
  addRegions();
  result->scalars = offsets.lookup(kScalarsBuffer);
  result->metrics = offsets.lookup(kMetricsBuffer);
  // Plans for GPUs alone have it.
  if (BufferOp buffer = findBuffer(kLibraryWorkspaceBuffer)) {
    result->library_workspace = buffer.getOffset();
    result->library_workspace_bytes = buffer.getBytes();
  }
  addInputs();
  // 2.
  if (failed(shared.parameters.addShards(
          *result, ParameterPacks(module, program.getRank()), offsets)) ||
      failed(addFunctions()) || failed(addConstants()))
    return failure();
  // 3.
  for (auto action : program.getBody().getOps<ActionOp>())
    addAction(action);
  return std::move(result);
}

FailureOr<std::unique_ptr<fb::ProgramT>>
plait::convertProgram(ProgramOp program, SharedTables &shared,
                      fb::PlanT &plan) {
  return Converter(program, shared, plan).run();
}
