//===- AddAdapters.cpp - Low-rank adapters of linear layers ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", with
// the names and shapes of Hugging Face's PEFT. A linear layer is what files
// have as one tensor: several parameters may be parts of it, as queries, keys
// and values are, and these share their A.
//
//===----------------------------------------------------------------------===//

#include "FindInModel.h"

#include "plait/Dialect/NN/IR/Adapters.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"
#include "plait/Dialect/NN/IR/Parameters.h"
#include "plait/Transforms/ModelEdits.h"
#include "plait/Transforms/Passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>
#include <map>

namespace plait {
#define GEN_PASS_DEF_ADDADAPTERSPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {

/// Rows of a matrix [blocks * of, columns] of the files: `count` rows of each
/// block, from `begin` on.
struct Rows {
  int64_t begin, count, of, blocks = 1;
};

/// A matmul of activations and a parameter.
struct Use {
  ContractionOpInterface op;
  nn::ParameterOp weight;
  bool isLeft = false;           // the weight is the left operand
  std::string xLetters, in, out; // of the weight: what is summed, and what not
  SmallVector<int64_t> inExtents, outExtents;
  bool inIsLast = true;
  Rows rows = {}; // which outputs of its layer it makes

  /// Returns the input, which is another value once its maker has an adapter.
  Value x() { return op->getOperand(isLeft ? 1 : 0); }
  int64_t inputs() const { return ShapedType::getNumElements(inExtents); }
};

/// The uses of a tensor of the files.
struct Layer {
  std::vector<Use> uses;
  bool isLinear = true; // it has no others
  bool isInBlock = true;
};

/// Names the linear layers of all blocks among targets, as PEFT calls them.
constexpr StringLiteral kAllLinear = "all-linear";

/// Maps names of modules to layers, in the order in which the model uses them.
using Layers = llvm::MapVector<StringRef, Layer>;

/// Maps names of tensors to shapes.
using Shapes = std::map<std::string, std::array<int64_t, 2>>;

/// Gives new ops what `like` says of where it belongs.
struct PlaceListener : OpBuilder::Listener {
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    op->setDiscardableAttrs(like->getDiscardableAttrDictionary());
  }
  Operation *like = nullptr;
};

} // namespace

//===----------------------------------------------------------------------===//
// What there is
//===----------------------------------------------------------------------===//

/// Returns PyTorch's name of the module that has the tensor.
static StringRef findModule(nn::ParameterOp parameter) {
  StringRef name = nn::findTensor(parameter);
  name.consume_back(".weight");
  return name;
}

/// Whether `x` is what experts are chosen by, but for what is added to it.
static bool isRouted(Value x) {
  return llvm::any_of(x.getUsers(), [](Operation *user) {
    return isa<nn::RouteOp>(user) ||
           (isa<nn::AddOp>(user) && isRouted(user->getResult(0)));
  });
}

/// Returns the rows of the files' matrix that `weight` has, of `inputs`
/// columns, which are the last elements or the first ones. Nothing: its part of
/// the tensor is no run of whole rows, neither of all nor of each block.
static std::optional<Rows> findRows(nn::ParameterOp weight, int64_t inputs,
                                    bool inIsLast) {
  nn::FileAttr file = weight.getFileAttr();
  if (!file) {
    auto type = cast<RankedTensorType>(weight.getType());
    int64_t rows = type.getNumElements() / inputs;
    return Rows{0, rows, rows};
  }
  ArrayRef<int64_t> shape = file.getShape(), begin = file.getBegin(),
                    box = file.getBox();
  // The dimensions of the columns have all of theirs.
  for (int64_t columns = 1; columns != inputs;) {
    if (shape.empty())
      return std::nullopt;
    size_t at = inIsLast ? shape.size() - 1 : 0;
    columns *= shape[at];
    if (box[at] != shape[at] || columns > inputs)
      return std::nullopt;
    for (ArrayRef<int64_t> *dims : {&shape, &begin, &box})
      *dims = inIsLast ? dims->drop_back() : dims->drop_front();
  }
  if (shape.size() == 2 && box[0] == shape[0] && box[1] != shape[1])
    return Rows{begin[1], box[1], shape[1], shape[0]};
  Rows rows{0, ShapedType::getNumElements(box),
            ShapedType::getNumElements(shape)};
  // One run: all of what is behind the first dimension with several.
  bool isCut = false;
  for (auto [size, first, count] : llvm::zip_equal(shape, begin, box)) {
    if (isCut && count != size)
      return std::nullopt;
    isCut |= count > 1;
    rows.begin = rows.begin * size + first;
  }
  return rows;
}

/// Returns what `operand`, which is the value of `weight`, is used for, if it
/// is a linear layer's matrix.
static std::optional<Use> findUse(OpOperand &operand, nn::ParameterOp weight) {
  auto op = dyn_cast<ContractionOpInterface>(operand.getOwner());
  if (!op || !op.contractsOnly() || isRouted(op->getResult(0)))
    return std::nullopt;
  bool isLeft = operand.getOperandNumber() == 0;
  Use use;
  use.op = op;
  use.weight = weight;
  use.isLeft = isLeft;
  use.xLetters = isLeft ? op.getRhsLetters() : op.getLhsLetters();
  StringRef letters = isLeft ? op.getLhsLetters() : op.getRhsLetters();
  auto type = cast<RankedTensorType>(weight.getType());
  for (auto [letter, extent] : llvm::zip_equal(letters, type.getShape())) {
    bool isSummed = !op.getResultLetters().contains(letter);
    // A dimension of all three tensors: each of its entries has a matrix.
    if (isSummed != StringRef(use.xLetters).contains(letter))
      return std::nullopt;
    (isSummed ? use.in : use.out) += letter;
    (isSummed ? use.inExtents : use.outExtents).push_back(extent);
  }
  use.inIsLast = letters == use.out + use.in;
  if (use.in.empty() || use.out.empty() ||
      (!use.inIsLast && letters != use.in + use.out))
    return std::nullopt;
  std::optional<Rows> rows = findRows(weight, use.inputs(), use.inIsLast);
  if (!rows)
    return std::nullopt;
  use.rows = *rows;
  return use;
}

/// Adds the uses of `value`, which is that of `weight`, to its layer's.
static void addUses(Value value, nn::ParameterOp weight, Layer &layer) {
  for (OpOperand &operand : value.getUses()) {
    if (isa<nn::StopGradientOp>(operand.getOwner())) {
      addUses(operand.getOwner()->getResult(0), weight, layer);
      continue;
    }
    std::optional<Use> use = findUse(operand, weight);
    // One A is of all.
    if (!use || (!layer.uses.empty() &&
                 use->inExtents != layer.uses.front().inExtents)) {
      layer.isLinear = false;
      continue;
    }
    layer.isInBlock &= use->op->hasAttr(nn::kLayerAttr);
    layer.uses.push_back(*use);
  }
}

/// Finds all layers, among them those that are no linear ones.
static Layers findLayers(func::FuncOp loss) {
  Layers layers;
  for (SlotOpInterface read : nn::findAccesses(loss, nn::SlotAccess::Read)) {
    auto weight = SymbolTable::lookupNearestSymbolFrom<nn::ParameterOp>(
        loss, read.getSymbolAttr());
    addUses(read.getTensor(), weight, layers[findModule(weight)]);
  }
  return layers;
}

//===----------------------------------------------------------------------===//
// Which of them
//===----------------------------------------------------------------------===//

/// Returns the last parts of the names of linear layers, each once.
static std::string listNames(const Layers &layers) {
  llvm::SetVector<StringRef> names;
  for (const auto &[module, layer] : layers)
    if (layer.isLinear && !layer.uses.empty())
      names.insert(module.substr(module.rfind('.') + 1));
  return names.empty() ? "none" : llvm::join(names, ", ");
}

/// Returns the layers that `target` names: a module, or how its name ends.
static FailureOr<SmallVector<StringRef>>
findTarget(func::FuncOp loss, const Layers &layers, StringRef target) {
  SmallVector<StringRef> found;
  StringRef other;
  for (const auto &[module, layer] : layers) {
    StringRef rest = module;
    if (!rest.consume_back(target) || !(rest.empty() || rest.ends_with(".")))
      continue;
    if (layer.isLinear && !layer.uses.empty())
      found.push_back(module);
    else
      other = module;
  }
  if (!found.empty())
    return found;
  if (!other.empty())
    return loss.emitError("`lora-targets` \"")
           << target << "\" names '" << other
           << "', which is not the matrix of a linear layer alone";
  return loss.emitError("`lora-targets` \"")
         << target
         << "\" names no linear layer; there are: " << listNames(layers);
}

/// Returns the linear layers of the blocks: neither embeddings nor the head.
static FailureOr<SmallVector<StringRef>> findAll(func::FuncOp loss,
                                                 const Layers &layers) {
  SmallVector<StringRef> found;
  for (const auto &[module, layer] : layers)
    if (layer.isLinear && layer.isInBlock && !layer.uses.empty())
      found.push_back(module);
  if (!found.empty())
    return found;
  return loss.emitError("no linear layer is in a block of the model: "
                        "`lora-targets` has to name some; there are: ")
         << listNames(layers);
}

//===----------------------------------------------------------------------===//
// Adapters
//===----------------------------------------------------------------------===//

namespace {

/// Adds the adapters of one layer.
class Adapter {
public:
  /// `saved` gets the shapes that files have of tensors, by name, where
  /// parameters have them with a dimension more.
  Adapter(StringRef module, int64_t rank, double alpha, Shapes &saved)
      : module(module), rank(rank), factor(alpha / double(rank)), saved(saved) {
  }

  /// y + (x · Aᵀ) · alpha / rank · Bᵀ, in the place of y.
  void add(Use &use) {
    Value y = use.op->getResult(0);
    OpBuilder builder(use.op->getContext(), &listener);
    builder.setInsertionPointAfter(use.op);
    listener.like = use.op;
    std::string name = (module + ".lora").str();
    nn::NNBuilder nn(builder, NameLoc::get(builder.getStringAttr(name)));
    char letter = findLetter(use);
    std::string rows;
    for (char one : use.xLetters)
      if (!StringRef(use.in).contains(one))
        rows += one;
    Value &low = lows[use.x()];
    if (!low) {
      Value a = read(nn, declareA(use));
      Value product = nn.matmul(use.x(), a,
                                Twine(use.xLetters) + "," + Twine(letter) +
                                    use.in + "->" + rows + Twine(letter));
      low = nn.scale(product, factor);
    }
    Value b = read(nn, declareB(use));
    Value more =
        nn.matmul(low, b,
                  Twine(rows) + Twine(letter) + "," + use.out + Twine(letter) +
                      "->" + use.op.getResultLetters());
    Value sum = nn.add(y, more);
    y.replaceAllUsesExcept(sum, sum.getDefiningOp());
  }

  /// Names of the parameters.
  const llvm::StringSet<> &getNames() const { return names; }

private:
  /// Returns what contractions call the rank.
  static char findLetter(Use &use) {
    for (char letter = 'a';; ++letter)
      if (!use.op.getSpec().contains(letter))
        return letter;
  }

  Value read(nn::NNBuilder &nn, nn::ParameterOp parameter) {
    return nn::ReadOp::create(nn.builder, nn.loc, parameter.getType(),
                              parameter.getSymName(), nn::Slot::Value);
  }

  /// A starts with the variance of PyTorch's linear layers, 1 / (3 inputs).
  nn::ParameterOp declareA(Use &use) {
    SmallVector<int64_t> shape{rank};
    llvm::append_range(shape, use.inExtents);
    double std = 1.0 / std::sqrt(3.0 * double(use.inputs()));
    return declare(use, plan::kAdapterA, "", shape, std, {0, rank, rank},
                   use.inputs());
  }

  /// B starts as zeros, so that the model starts as it is without adapters.
  nn::ParameterOp declareB(Use &use) {
    SmallVector<int64_t> shape(use.outExtents);
    shape.push_back(rank);
    // A part's parameter is called after the tensor.
    nn::ParameterOp weight = use.weight;
    StringRef part = weight.getSymName();
    if (!part.consume_front(nn::findTensor(weight)))
      part = "";
    return declare(use, plan::kAdapterB, part, shape, 0.0, use.rows, rank);
  }

  /// A view of these rows of a matrix of the files; declared once.
  nn::ParameterOp declare(Use &use, std::string_view end, StringRef part,
                          ArrayRef<int64_t> shape, double std, const Rows &rows,
                          int64_t columns) {
    nn::ParameterOp weight = use.weight;
    auto model = weight->getParentOfType<ModuleOp>();
    std::string symbol = (module + StringRef(end) + part).str();
    names.insert(symbol);
    if (auto known = model.lookupSymbol<nn::ParameterOp>(symbol))
      return known;
    OpBuilder builder(
        weight->getParentOfType<ModuleOp>().lookupSymbol(nn::kLossFunction));
    Location loc = NameLoc::get(builder.getStringAttr(symbol));
    auto init =
        nn::InitAttr::get(builder.getContext(), builder.getF64FloatAttr(0.0),
                          builder.getF64FloatAttr(std));
    std::string tensor =
        (StringRef(plan::kAdapterPrefix) + module + StringRef(end)).str();
    SmallVector<int64_t> matrix{rows.of, columns}, begin{rows.begin, 0},
        box{rows.count, columns};
    if (rows.blocks > 1) {
      saved[tensor] = {rows.blocks * rows.of, columns};
      matrix.insert(matrix.begin(), rows.blocks);
      begin.insert(begin.begin(), 0);
      box.insert(box.begin(), rows.blocks);
    }
    auto file =
        nn::FileAttr::get(builder.getContext(), builder.getStringAttr(tensor),
                          matrix, begin, box);
    return nn::ParameterOp::create(
        builder, loc, symbol,
        RankedTensorType::get(shape, builder.getF32Type()), init,
        /*decay=*/true, /*rate=*/nullptr, /*optimizer=*/nullptr,
        /*balance=*/nullptr, file, /*sharding=*/nullptr, /*state=*/nullptr,
        /*matrix=*/nullptr);
  }

  StringRef module;
  int64_t rank;
  double factor;
  Shapes &saved;
  PlaceListener listener;
  llvm::DenseMap<Value, Value> lows; // of inputs: alpha / rank · x · Aᵀ
  llvm::StringSet<> names;
};

struct AddAdaptersPass : plait::impl::AddAdaptersPassBase<AddAdaptersPass> {
  using AddAdaptersPassBase::AddAdaptersPassBase;

  /// Adapters have none of their own.
  LogicalResult checkParameters() {
    for (auto parameter : getOperation().getOps<nn::ParameterOp>())
      if (plan::isAdapter(nn::findTensor(parameter)))
        return parameter.emitOpError("is an adapter: the model has them, and "
                                     "`lora` would add others");
    return success();
  }

  /// Returns which layers get adapters, in the order of the model.
  FailureOr<llvm::SetVector<StringRef>> choose(func::FuncOp loss,
                                               const Layers &layers) {
    llvm::SetVector<StringRef> chosen;
    if (targets.empty())
      targets = {kAllLinear.str()};
    for (const std::string &option : targets) {
      StringRef target = StringRef(option).trim();
      auto found = target == kAllLinear ? findAll(loss, layers)
                                        : findTarget(loss, layers, target);
      if (failed(found))
        return failure();
      chosen.insert_range(*found);
    }
    return chosen;
  }

  /// Keeps what saved adapters have to say.
  void describe(const Shapes &saved) {
    ModuleOp module = getOperation();
    NamedAttrList model(module->getAttrOfType<DictionaryAttr>(nn::kModelAttr));
    if (!saved.empty()) {
      NamedAttrList shapes(
          dyn_cast_or_null<DictionaryAttr>(model.get(nn::kShapesEntry)));
      for (const auto &[tensor, shape] : saved)
        shapes.set(tensor, Builder(module).getDenseI64ArrayAttr(shape));
      model.set(nn::kShapesEntry, shapes.getDictionary(module.getContext()));
    }
    model.set(plan::kAlphaEntry, Builder(module).getF64FloatAttr(alpha));
    module->setAttr(nn::kModelAttr, model.getDictionary(module.getContext()));
  }

  LogicalResult checkNumbers() {
    if (rank < 1 || rank > ModelEdits::kMostLoraRank)
      return getOperation().emitError("`lora` is ")
             << int64_t(rank) << ", expected 1 to "
             << ModelEdits::kMostLoraRank;
    // True of a NaN too.
    if (!(alpha > 0 && alpha <= ModelEdits::kMostLoraAlpha))
      return getOperation().emitError("`lora-alpha` is ")
             << double(alpha) << ", expected more than 0, up to "
             << ModelEdits::kMostLoraAlpha;
    return success();
  }

  void runOnOperation() override {
    auto loss =
        findModel(getOperation(), "in which adapters are not added any more");
    if (failed(loss))
      return signalPassFailure();
    if (failed(checkNumbers()) || failed(checkParameters()))
      return signalPassFailure();
    Layers layers = findLayers(*loss);
    auto chosen = choose(*loss, layers);
    if (failed(chosen))
      return signalPassFailure();
    llvm::StringSet<> trained;
    Shapes saved;
    for (StringRef module : *chosen) {
      Adapter adapter(module, rank, alpha, saved);
      for (Use &use : layers[module].uses)
        adapter.add(use);
      for (const auto &name : adapter.getNames())
        trained.insert(name.getKey());
    }
    describe(saved);
    for (SlotOpInterface read : nn::findAccesses(*loss, nn::SlotAccess::Read))
      if (!trained.contains(read.getSymbol()))
        stopGradient(read);
  }
};

} // namespace
