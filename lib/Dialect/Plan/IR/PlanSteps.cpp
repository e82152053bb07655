//===- PlanSteps.cpp - Steps of the plan dialect --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What each kind of step uses, costs and is checked for. The plan file is
// checked again when it is read (lib/Plan/CheckSteps.cpp), since it may come
// from anywhere; here slips of a pass or a hand are found where they are made.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plan/IR/PlanIR.h"
#include "plait/Dialect/Plan/IR/RowPitch.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::plan;

#include "plait/Dialect/Plan/IR/PlanInterfaces.cpp.inc"

//===----------------------------------------------------------------------===//
// FunctionOp and ConstantOp
//===----------------------------------------------------------------------===//

/// (C3)
static LogicalResult verifyInside(FunctionOp function, Operation *step,
                                  const StepUse &use) {
  int64_t slot = use.memory.getSlot();
  if (slot < 0)
    return success();
  ArrayRef<int64_t> slots = function.getBytes();
  if (slot >= int64_t(slots.size()))
    return step->emitOpError("has ")
           << use.what << " in slot " << slot << ", but its function has "
           << slots.size();
  if (use.memory.getEnd() > slots[slot])
    return step->emitOpError("has ")
           << use.what << " up to byte " << use.memory.getEnd() << " of slot "
           << slot << ", which has " << slots[slot];
  return success();
}

/// After the steps have verified themselves, whose uses are asked for here.
/// Memory in buffers is checked with the program (verifySteps()).
LogicalResult FunctionOp::verifyRegions() {
  // (C2)
  ArrayRef<int64_t> bytes = getBytes();
  if (bytes.empty() || bytes.size() != getSlots().size())
    return emitOpError("has ")
           << getSlots().size() << " names and " << bytes.size()
           << " sizes of slots, expected one each or more";
  for (int64_t size : bytes)
    if (size < 0)
      return emitOpError("has a slot of ") << size << " bytes";
  // The offset of a slot is known to actions alone, so that this is all that
  // can be checked of it here.
  for (Operation &op : getBody().front()) {
    auto step = dyn_cast<StepOpInterface>(op);
    // (C1)
    if (!step && !isa<ConstantOp>(op))
      return op.emitOpError("is neither a step nor a constant, but in @")
             << getSymName();
    if (!step)
      continue;
    for (const StepUse &use : step.getUses())
      if (failed(verifyInside(*this, &op, use)))
        return failure();
  }
  return success();
}

static int64_t countBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
}

/// The op that knows the numbers is kept as a body and not computed here: a
/// rank may have other rows of the table, and tables would fill the IR.
LogicalResult ConstantOp::verifyRegions() {
  // (C1)
  Block &block = getBody().front();
  auto yield = cast<YieldOp>(block.getTerminator());
  // The terminator is implicit, so that a block is never empty.
  Operation &source = block.front();
  if (!isa<ConstantDataOpInterface>(source) ||
      yield->getPrevNode() != &source ||
      yield.getOperands() != source.getResults())
    return emitOpError("expected one op that knows numbers, and its result");
  // (C2)
  int64_t bytes = countBytes(source.getResult(0).getType());
  if (!getMemory().getBuffer() || getMemory().getBytes() != bytes)
    return emitOpError("is in ")
           << getMemory() << ", expected " << bytes << " bytes of a buffer";
  return success();
}

//===----------------------------------------------------------------------===//
// KernelOp
//===----------------------------------------------------------------------===//

ClusterOp KernelOp::getCluster() {
  return cast<ClusterOp>(getBody().front().front());
}

/// An output that is accumulated counts as written; that it is read as well
/// changes no order, since writes conflict with everything.
SmallVector<StepUse> KernelOp::getUses() {
  SmallVector<StepUse> uses;
  for (auto memory : getInputs().getAsRange<MemoryAttr>())
    uses.push_back({"an input", memory});
  for (auto memory : getOutputs().getAsRange<MemoryAttr>())
    uses.push_back({"an output", memory, /*writes=*/true});
  return uses;
}

/// (C2)
static LogicalResult verifySizes(KernelOp op, StringRef what, ArrayAttr given,
                                 ValueRange values) {
  if (given.size() != values.size())
    return op.emitOpError("has ")
           << given.size() << " " << what << "s, expected " << values.size();
  for (auto [memory, value] :
       llvm::zip_equal(given.getAsRange<MemoryAttr>(), values))
    if (memory.getBytes() != getStoredBytes(value))
      return op.emitOpError("has an ")
             << what << " of " << memory.getBytes() << " bytes, expected "
             << getStoredBytes(value) << ", those of " << value.getType();
  return success();
}

/// Row pitches are checked here and not with the attribute, which is verified
/// before the region and so before the inputs are known.
LogicalResult KernelOp::verifyRegions() {
  Block &block = getBody().front();
  if (failed(verifyLayouts(*this, block.getArgumentTypes())))
    return failure();
  // (C1)
  auto yield = cast<YieldOp>(block.getTerminator());
  auto cluster = dyn_cast<ClusterOp>(block.front());
  if (!cluster || yield->getPrevNode() != cluster ||
      cluster.getOperands() != ValueRange(block.getArguments()) ||
      yield.getOperands() != cluster.getResults())
    return emitOpError("expected one plan.cluster of the arguments, and its "
                       "results");
  if (failed(verifySizes(*this, "input", getInputs(), block.getArguments())) ||
      failed(verifySizes(*this, "output", getOutputs(), cluster.getResults())))
    return failure();
  // (C3)
  if (int64_t(getFlops()) < 0 || int64_t(getTraffic()) < 0)
    return emitOpError("has ") << int64_t(getFlops()) << " flops and "
                               << int64_t(getTraffic()) << " bytes of traffic";
  return success();
}

//===----------------------------------------------------------------------===//
// GemmOp
//===----------------------------------------------------------------------===//

static bool isFloat(Type type) { return type.isF32() || type.isBF16(); }

/// From the first element of a strided box to the last, batch included. Gaps
/// between rows count, what is behind the last element does not.
static int64_t countBytes(ArrayRef<int64_t> sizes, ArrayRef<int64_t> batch,
                          ArrayRef<int64_t> strides, Type type) {
  SmallVector<int64_t> all(sizes);
  all.append(batch.begin(), batch.end());
  return countSpan(all, strides) * type.getIntOrFloatBitWidth() / 8;
}

int64_t GemmOp::countABytes() {
  return countBytes({int64_t(getM()), int64_t(getK())}, getBatchSizes(),
                    getAStrides(), getType());
}

int64_t GemmOp::countBBytes() {
  return countBytes({int64_t(getK()), int64_t(getN())}, getBatchSizes(),
                    getBStrides(), getType());
}

/// C's columns lie side by side, and have no stride.
int64_t GemmOp::countCBytes() {
  SmallVector<int64_t> strides(getCStrides());
  strides.insert(strides.begin() + 1, 1);
  return countBytes({int64_t(getM()), int64_t(getN())}, getBatchSizes(),
                    strides, getCType());
}

/// GELU's input is an operand of its gradient and a result of GELU itself.
SmallVector<StepUse> GemmOp::getUses() {
  SmallVector<StepUse> uses = {{"A", getA()}, {"B", getB()}};
  if (MemoryAttr bias = getBiasAttr())
    uses.push_back({"the bias", bias});
  if (MemoryAttr input = getGeluInputAttr())
    uses.push_back(
        {"GELU's input", input, getEpilogue() != Epilogue::GeluGradient});
  uses.push_back({"C", getC(), /*writes=*/true});
  return uses;
}

/// In double: the operations of a large GEMM with a batch fit, but sums of them
/// for predictions need not.
double GemmOp::getMatrixFlops() {
  double flops = 2.0 * int64_t(getM()) * int64_t(getN()) * int64_t(getK());
  for (int64_t size : getBatchSizes())
    flops *= double(size);
  return flops;
}

/// (C1) and (C2)
static LogicalResult verifyStrides(GemmOp op, StringRef what,
                                   ArrayRef<int64_t> strides, bool isResult) {
  size_t expected = op.getBatchSizes().size() + (isResult ? 1 : 2);
  if (strides.size() != expected)
    return op.emitOpError("has ") << strides.size() << " strides of " << what
                                  << ", expected " << expected;
  for (int64_t stride : strides)
    if (stride < 0)
      return op.emitOpError("has a stride of ") << what << " of " << stride;
  if (!isResult && strides[0] != 1 && strides[1] != 1)
    return op.emitOpError("has strides ")
           << strides[0] << " and " << strides[1] << " of " << what
           << "'s rows and columns, expected 1 as one of them";
  return success();
}

/// (C5)
static LogicalResult verifyEpilogue(GemmOp op) {
  Epilogue kind = op.getEpilogue();
  bool adds = kind == Epilogue::Bias || kind == Epilogue::BiasGelu;
  bool isPlain = kind == Epilogue::None || kind == Epilogue::Bias;
  bool reads = kind == Epilogue::GeluGradient;
  // GELU may leave its input or not, so that only the gradient needs it.
  if (adds != bool(op.getBiasAttr()) || (isPlain && op.getGeluInputAttr()) ||
      (reads && !op.getGeluInputAttr()))
    return op.emitOpError("has operands that are not those of epilogue ")
           << stringifyEpilogue(kind);
  bool overwrites = op.getAccumulate() == Accumulate::Overwrite;
  if (kind != Epilogue::None && (!op.getBatchSizes().empty() || !overwrites))
    return op.emitOpError("has epilogue ")
           << stringifyEpilogue(kind) << " and "
           << (overwrites ? "a batch" : "adds to C");
  return success();
}

/// Sizes and strides first: (C3) counts bytes by them.
LogicalResult GemmOp::verify() {
  // (C1)
  SmallVector<int64_t> sizes = {int64_t(getM()), int64_t(getN()),
                                int64_t(getK())};
  llvm::append_range(sizes, getBatchSizes());
  for (int64_t size : sizes)
    if (size < 1)
      return emitOpError("has a size of ") << size << ", expected at least 1";
  if (failed(verifyStrides(*this, "A", getAStrides(), false)) ||
      failed(verifyStrides(*this, "B", getBStrides(), false)) ||
      failed(verifyStrides(*this, "C", getCStrides(), true)))
    return failure();
  // (C4)
  if (!isFloat(getType()) || (!getCType().isF32() && getCType() != getType()))
    return emitOpError("is of ")
           << getType() << " with C of " << getCType()
           << ", expected f32 or bf16, and C of f32 or the same";
  // (C3)
  std::pair<StepUse, int64_t> operands[] = {{{"A", getA()}, countABytes()},
                                            {{"B", getB()}, countBBytes()},
                                            {{"C", getC()}, countCBytes()}};
  for (const auto &[use, bytes] : operands)
    if (use.memory.getBytes() != bytes)
      return emitOpError("has ") << use.memory.getBytes() << " bytes of "
                                 << use.what << ", expected " << bytes;
  return verifyEpilogue(*this);
}

//===----------------------------------------------------------------------===//
// GroupedGemmOp
//===----------------------------------------------------------------------===//

SmallVector<StepUse> GroupedGemmOp::getUses() {
  return {{"A", getA()},
          {"B", getB()},
          {"ids", getIds()},
          {"C", getC(), /*writes=*/true}};
}

/// Each row meets one matrix.
double GroupedGemmOp::getMatrixFlops() {
  return 2.0 * double(getRows()) * double(getK()) * double(getN());
}

std::array<int64_t, 4> GroupedGemmOp::countElements() {
  int64_t rows = getRows(), k = getK(), n = getN();
  int64_t matrices = int64_t(getExperts()) * k * n;
  bool makes = getMakesMatrices();
  return {rows / int64_t(getRepeat()) * k, makes ? rows * n : matrices, rows,
          makes ? matrices : rows * n};
}

LogicalResult GroupedGemmOp::verify() {
  // (C1)
  for (int64_t size : {int64_t(getRows()), int64_t(getRepeat()),
                       int64_t(getExperts()), int64_t(getK()), int64_t(getN())})
    if (size < 1)
      return emitOpError("has a size of ") << size << ", expected at least 1";
  if (getRows() % getRepeat())
    return emitOpError("has ") << int64_t(getRows()) << " rows, expected a "
                               << "multiple of " << int64_t(getRepeat());
  // (C3)
  if (!isFloat(getType()) || (!getCType().isF32() && getCType() != getType()))
    return emitOpError("is of ")
           << getType() << " with C of " << getCType()
           << ", expected f32 or bf16, and C of f32 or the same";
  // (C2)
  const int64_t in = getType().getIntOrFloatBitWidth() / 8,
                out = getCType().getIntOrFloatBitWidth() / 8;
  const int64_t units[] = {in, in, int64_t(sizeof(int32_t)), out};
  for (auto [use, count, unit] :
       llvm::zip_equal(getUses(), countElements(), units))
    if (use.memory.getBytes() != count * unit)
      return emitOpError("has ") << use.memory.getBytes() << " bytes of "
                                 << use.what << ", expected " << count * unit;
  // (C4)
  bool isReordered = getBegin() && getBegin()->isReordered();
  if (int64_t(getLimit()) < 0 || isReordered)
    return emitOpError("has limit ")
           << int64_t(getLimit()) << ", expected at least 0, and experts in "
           << "their own order";
  return success();
}

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

/// Forward, `out` and `stats` are written; backward they are read, with the
/// gradient of `out`, and three gradients are written.
SmallVector<StepUse> AttentionOp::getUses() {
  bool forward = !getGradients();
  SmallVector<StepUse> uses = {{"q", getQ()}, {"k", getK()}, {"v", getV()}};
  if (MemoryAttr starts = getStartsAttr())
    uses.push_back({"starts of documents", starts});
  if (MemoryAttr sinks = getSinksAttr())
    uses.push_back({"sinks", sinks});
  if (MemoryAttr keys = getDropoutKeysAttr())
    uses.push_back({"dropout's keys", keys});
  uses.push_back({"stats", getStats(), forward});
  uses.push_back({"out", getOut(), forward});
  if (forward)
    return uses;
  static constexpr StringRef names[] = {"out's gradient", "q's gradient",
                                        "k's gradient", "v's gradient"};
  for (auto [index, memory] :
       llvm::enumerate(getGradients()->getAsRange<MemoryAttr>()))
    uses.push_back({names[index], memory, /*writes=*/index > 0});
  return uses;
}

/// (C3)
static LogicalResult verifyTensors(AttentionOp op) {
  int64_t unit = op.getType().getIntOrFloatBitWidth() / 8;
  int64_t rows = int64_t(op.getBatch()) * int64_t(op.getHeads()) *
                 int64_t(op.getQueries());
  // Tensors are dense: no strides, so that sizes follow from the shape.
  int64_t query = rows * int64_t(op.getHeadSize()) * unit;
  int64_t key = int64_t(op.getBatch()) * int64_t(op.getKvHeads()) *
                int64_t(op.getKeys()) * int64_t(op.getHeadSize()) * unit;
  SmallVector<std::pair<MemoryAttr, int64_t>> tensors = {
      {op.getQ(), query},
      {op.getK(), key},
      {op.getV(), key},
      {op.getOut(), query},
      {op.getStats(), rows * int64_t(sizeof(float))}};
  if (auto gradients = op.getGradients()) {
    const int64_t sizes[] = {query, query, key, key};
    for (auto [memory, bytes] :
         llvm::zip_equal(gradients->getAsRange<MemoryAttr>(), sizes))
      tensors.push_back({memory, bytes});
  }
  if (MemoryAttr starts = op.getStartsAttr())
    tensors.push_back(
        {starts, int64_t(op.getBatch()) * int64_t(op.getQueries()) *
                     int64_t(sizeof(int32_t))});
  if (MemoryAttr sinks = op.getSinksAttr())
    tensors.push_back({sinks, int64_t(op.getHeads()) * int64_t(sizeof(float))});
  if (MemoryAttr keys = op.getDropoutKeysAttr())
    tensors.push_back(
        {keys, int64_t(op.getBatch()) * int64_t(sizeof(int32_t))});
  for (auto [memory, bytes] : tensors)
    if (memory.getBytes() != bytes)
      return op.emitOpError("has a tensor at ")
             << memory << ", expected " << bytes << " bytes";
  return success();
}

/// What can be said without a target: which of these a device computes is asked
/// when attention is chosen to stay whole.
LogicalResult AttentionOp::verify() {
  // (C1)
  const int64_t sizes[] = {int64_t(getBatch()),   int64_t(getHeads()),
                           int64_t(getKvHeads()), int64_t(getQueries()),
                           int64_t(getKeys()),    int64_t(getHeadSize())};
  for (int64_t size : sizes)
    if (size < 1)
      return emitOpError("has a size of ") << size << ", expected at least 1";
  if (getHeads() % getKvHeads())
    return emitOpError("has ") << getHeads() << " heads over " << getKvHeads();
  if (IntegerAttr window = getScore().getWindow();
      window && (window.getInt() < 1 || window.getInt() >= int64_t(getKeys())))
    return emitOpError("has a window of ")
           << window.getInt() << ", expected 1 to below " << getKeys();
  // (C2)
  if (getGradients() && getGradients()->size() != 4)
    return emitOpError("has ")
           << getGradients()->size() << " gradients, expected none or 4";
  // (C4)
  if (!isFloat(getType()))
    return emitOpError("is of ") << getType() << ", expected f32 or bf16";
  // (C5)
  bool drops = bool(getDropoutKeysAttr());
  if (drops != bool(getProbabilityAttr()) || drops != bool(getSiteAttr()))
    return emitOpError("has a part of what dropout needs: keys, probability "
                       "and site");
  // (C6)
  auto isReordered = [](nn::BeginAttr begin) {
    return begin && begin.isReordered();
  };
  if (isReordered(getGroupBeginAttr()))
    return emitOpError("has key heads at ")
           << *getGroupBegin() << ", expected them in their own order";
  if (isReordered(getBeginAttr()) &&
      getBegin()->getExtent() != int64_t(getKeys()))
    return emitOpError("has queries at ")
           << *getBegin() << ", expected the order of " << getKeys()
           << " positions, those of its keys";
  // (C7)
  if (getScore().getBidirectional() && getStartsAttr())
    return emitOpError("is bidirectional and has starts of documents, which "
                       "only causal attention has");
  // (C8)
  if (getSinksAttr() && getGradients())
    return emitOpError("has gradients and sinks, which forward attention has");
  return verifyTensors(*this);
}

//===----------------------------------------------------------------------===//
// CollectiveOp
//===----------------------------------------------------------------------===//

SmallVector<StepUse> CollectiveOp::getUses() {
  SmallVector<StepUse> uses = {{"input", getInput()},
                               {"output", getOutput(), /*writes=*/true}};
  if (MemoryAttr ids = getIdsAttr())
    uses.push_back({"ids", ids});
  return uses;
}

/// A stream for each group of ranks: collectives over one run in order, and
/// beside those over another.
Attribute CollectiveOp::getStream() {
  Attribute members = getMembersAttr();
  if (!members)
    return getAxisAttr();
  return ArrayAttr::get(getContext(), {getAxisAttr(), members});
}

int64_t CollectiveOp::countRanks() {
  if (auto members = getMembers())
    return members->size();
  dist::MeshOp mesh = dist::MeshOp::find(*this);
  return mesh ? mesh.getAxisSize(getAxis()) : 0;
}

/// Of the larger side, which is the whole tensor, the share that each rank
/// sends in a ring; of some rows, what even routing has of them.
StepMessage CollectiveOp::getSent() {
  int64_t whole = std::max(getInput().getBytes(), getOutput().getBytes());
  double share = getIds() ? getRowShare(countRanks(), getChoices()) : 1;
  return {getAxis(),
          double(whole) * share * getSentShare(getKind(), countRanks())};
}

/// (C7)
static LogicalResult verifySelection(CollectiveOp op) {
  const CollectiveFacts &facts = getFacts(op.getKind());
  int64_t width = op.getWidth(), choices = op.getChoices();
  if (!op.getIds()) {
    if (width != 1 || choices != 1 || op.getExperts() != 1)
      return op.emitOpError("has sizes of rows without `rows`");
    return success();
  }
  if (facts.readsAll == facts.writesAll || op.getMembers() ||
      op.getOuter() != 1)
    return op.emitOpError("is an ")
           << dist::stringifyKind(op.getKind()) << " of rows with outer "
           << int64_t(op.getOuter())
           << ", expected an all_gather or reduce_scatter of all ranks with "
              "outer 1";
  int64_t chunk = op.getChunk(), most = facts.reduces ? 1 : chunk;
  if (width < 1 || chunk % width || choices < 1 || choices > most ||
      int64_t(op.getExperts()) < 1)
    return op.emitOpError("has rows of ")
           << width << " in blocks of " << chunk << ", with " << choices
           << " choices, and " << int64_t(op.getExperts())
           << " experts a rank; expected a divisor, 1"
           << (facts.reduces ? "" : " or more") << ", and 1 or more";
  int64_t ids = 4 * chunk / width * choices * op.countRanks();
  if (op.getIdsAttr().getBytes() != ids)
    return op.emitOpError("has ")
           << op.getIdsAttr().getBytes() << " bytes of ids, expected " << ids;
  return success();
}

/// (C4)
static LogicalResult verifyBlocks(CollectiveOp op) {
  int64_t one = op.getType().getIntOrFloatBitWidth() / 8, all = 0;
  bool isHuge = false;
  for (int64_t size : {int64_t(op.getOuter()), int64_t(op.getMiddle()),
                       int64_t(op.getChunk())})
    isHuge |= llvm::MulOverflow(one, size, one) != 0;
  if (isHuge || llvm::MulOverflow(one, op.countRanks(), all))
    return op.emitOpError("has ")
           << op.getInput().getBytes() << " bytes in and "
           << op.getOutput().getBytes() << " out, expected 2^63 or more";
  const CollectiveFacts &facts = getFacts(op.getKind());
  // What a rank brings and gets is one block or all of them, as the kind says.
  int64_t input = facts.readsAll ? all : one;
  int64_t output = facts.writesAll ? all : one;
  if (op.getInput().getBytes() == input && op.getOutput().getBytes() == output)
    return success();
  return op.emitOpError("has ")
         << op.getInput().getBytes() << " bytes in and "
         << op.getOutput().getBytes() << " out, expected " << input << " and "
         << output;
}

/// What a kind may have and must have are facts of the table; the op knows no
/// kind by name.
LogicalResult CollectiveOp::verify() {
  // (C1)
  dist::MeshOp mesh = dist::MeshOp::find(*this);
  if (!mesh || !mesh.hasAxis(getAxis()))
    return emitOpError("is over \"")
           << getAxis() << "\", which is no axis of the mesh";
  // (C2)
  for (int64_t size :
       {int64_t(getOuter()), int64_t(getMiddle()), int64_t(getChunk())})
    if (size < 1)
      return emitOpError("has a size of ") << size << ", expected at least 1";
  const CollectiveFacts &facts = getFacts(getKind());
  std::string name = dist::stringifyKind(getKind());
  if (!facts.exchanges && (getMiddle() != 1 || getSplitsInner()))
    return emitOpError("is an ") << name << " that cuts two dimensions";
  // (C3)
  if (facts.reduces != getReduction().has_value())
    return emitOpError("is an ")
           << name << (facts.reduces ? " without" : " with") << " a reduction";
  if (!isFloat(getType()) && !getType().isInteger(32))
    return emitOpError("is of ") << getType() << ", expected f32, bf16 or i32";
  if (facts.reduces && !isFloat(getType()))
    return emitOpError("reduces ") << getType() << ", expected f32 or bf16";
  // (C5)
  int64_t last = -1, ranks = mesh.getAxisSize(getAxis());
  for (int64_t member : getMembers().value_or(ArrayRef<int64_t>())) {
    if (member <= last || member >= ranks)
      return emitOpError("has members [")
             << *getMembers() << "], expected ascending indices below "
             << ranks;
    last = member;
  }
  // (C6)
  if (isInPlace() && !facts.worksInPlace)
    return emitOpError("is an ") << name << " in place";
  // (C7)
  if (failed(verifySelection(*this)))
    return failure();
  return verifyBlocks(*this);
}

//===----------------------------------------------------------------------===//
// CopyOp
//===----------------------------------------------------------------------===//

SmallVector<StepUse> CopyOp::getUses() {
  return {{"source", getSource()}, {"target", getTarget(), /*writes=*/true}};
}

/// One stream for each way: a device copies in both at once.
Attribute CopyOp::getStream() { return getKindAttr(); }

LogicalResult CopyOp::verify() {
  // (C1)
  if (getSource().getBytes() == getTarget().getBytes())
    return success();
  return emitOpError("copies ")
         << getSource().getBytes() << " bytes to " << getTarget().getBytes();
}
