//===- ModelBuilder.cpp - The module of a model, piece by piece -----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The module while it is built: the loss function with its arguments,
// parameters as they are first read, dropouts in their order, and the tag of
// the layer that ops belong to. Families say what is computed; here is how it
// is written as nn ops, whose result types follow from their operands.
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

#include "plait/Dialect/NN/IR/Inputs.h"
#include "plait/Dialect/NN/IR/Score.h"

#include "llvm/ADT/Sequence.h"

#include <cmath>

using namespace mlir;
using namespace plait;
using namespace plait::hf;

FileBox FileBox::whole(std::string name, Shape shape) {
  return {std::move(name), shape, Shape(shape.size(), 0), shape};
}

FileBox FileBox::interleaved(std::string name, Shape shape, int64_t part,
                             int64_t count) {
  Shape saved = shape, file = shape, begin(shape.size(), 0);
  saved.back() *= count;
  file.push_back(count);
  begin.push_back(part);
  shape.push_back(1);
  return {std::move(name), file, begin, shape, saved};
}

/// A listener, so that no helper has to pass the layer on, and none can forget
/// it.
void LayerListener::notifyOperationInserted(Operation *op,
                                            OpBuilder::InsertPoint) {
  if (layer)
    op->setAttr(nn::kLayerAttr,
                Builder(op->getContext()).getI64IntegerAttr(*layer));
}

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// `table` is [rows, width]: the result has the dimensions of
/// `ids`, then width.
Value LayerBuilder::embedding(Value table, Value ids) {
  Shape shape(typeOf(ids).getShape());
  shape.push_back(typeOf(table).getDimSize(1));
  return nn::EmbeddingOp::create(builder, loc,
                                 typeOf(table).clone(ArrayRef<int64_t>(shape)),
                                 table, ids, nn::BeginAttr());
}

Value LayerBuilder::positions(Value tokens) {
  return nn::IotaOp::create(builder, loc, typeOf(tokens), /*along=*/1,
                            nn::BeginAttr());
}

/// The further results are of each row, and only gradients read them.
Value LayerBuilder::layerNorm(Value x, Value weight, Value bias,
                              double epsilon) {
  auto type = typeOf(x);
  auto rows = type.clone(type.getShape().drop_back());
  return nn::LayerNormOp::create(builder, loc, type, rows, rows, x, weight,
                                 bias, builder.getF32FloatAttr(epsilon))
      .getOut();
}

Value LayerBuilder::layerNorm(Value x, double epsilon) {
  auto type = RankedTensorType::get(typeOf(x).getShape().take_back(),
                                    builder.getF32Type());
  auto fill = [&](float amount) {
    return nn::FillOp::create(builder, loc, type,
                              builder.getF32FloatAttr(amount));
  };
  return layerNorm(x, fill(1.0f), fill(0.0f), epsilon);
}

/// The second result is the reciprocal root of each row, for gradients.
Value LayerBuilder::rmsNorm(Value x, Value weight, double epsilon) {
  auto type = typeOf(x);
  auto rows = type.clone(type.getShape().drop_back());
  return nn::RMSNormOp::create(builder, loc, type, rows, x, weight,
                               builder.getF32FloatAttr(epsilon))
      .getOut();
}

/// A group shares one head of keys and values. The second result of the op, the
/// logarithms of the sums of exponentials, is
/// [batch, groups, heads of a group, sequence]; only gradients need it.
Value LayerBuilder::attention(Value query, Value key, Value value,
                              const Dropout &dropout, const Scores &scores) {
  auto type = typeOf(query);
  ArrayRef<int64_t> shape = type.getShape();
  int64_t lse[] = {shape[0], shape[2], shape[3], shape[1]};
  // A window that is no shorter than the sequence hides nothing.
  IntegerAttr window;
  if (scores.window && scores.window < shape[1])
    window = builder.getI64IntegerAttr(scores.window);
  FloatAttr cap;
  if (scores.cap != 0.0)
    cap = builder.getF32FloatAttr(scores.cap);
  double scale = scores.scale.value_or(1.0 / std::sqrt(double(shape[4])));
  auto score = nn::ScoreAttr::get(builder.getContext(),
                                  builder.getF32FloatAttr(scale), window,
                                  /*bidirectional=*/false, cap);
  return nn::AttentionOp::create(
             builder, loc, type, type.clone(ArrayRef<int64_t>(lse)), query, key,
             value, /*starts=*/Value(), scores.sinks, dropout.keys, score,
             nn::BeginAttr(), dropout.probability, dropout.site,
             nn::BeginAttr())
      .getOut();
}

Route LayerBuilder::route(Value logits, Value bias, const Routing &routing) {
  Shape shape(typeOf(logits).getShape().drop_back());
  shape.push_back(routing.choices);
  auto weights = RankedTensorType::get(shape, builder.getF32Type());
  IntegerAttr kept, groups;
  if (routing.groups > 1) {
    kept = builder.getI64IntegerAttr(routing.kept);
    groups = builder.getI64IntegerAttr(routing.groups);
  }
  FloatAttr scaled;
  if (routing.scaled != 1.0)
    scaled = builder.getF32FloatAttr(routing.scaled);
  auto op = nn::RouteOp::create(
      builder, loc, weights, weights.clone(builder.getI32Type()), logits, bias,
      builder.getI64IntegerAttr(routing.choices),
      nn::ScoresAttr::get(builder.getContext(), routing.scores), kept, groups,
      routing.normalized ? builder.getUnitAttr() : UnitAttr(), scaled);
  return {op.getWeights(), op.getIds()};
}

/// Runs of places whose differences are equal are steps: what a run has more
/// than the one before it is added from its first row on. Indices are exact in
/// f32, and constants multiples of them, so that all of it stays so
/// (LowerPrecision.cpp).
Value LayerBuilder::selection(ArrayRef<int64_t> places, int64_t count) {
  int64_t rows = places.size();
  auto ids = RankedTensorType::get({rows}, builder.getI32Type());
  Value iota =
      nn::IotaOp::create(builder, loc, ids, /*along=*/0, nn::BeginAttr());
  Value row = nn::ConvertOp::create(builder, loc,
                                    ids.clone(builder.getF32Type()), iota);
  auto constant = [&](double x) { return shift(scale(row, 0.0), x); };
  Value place;
  int64_t start = 0, step = 0; // start + step · row, in the present run
  for (int64_t first = 0, end; first < rows; first = end) {
    int64_t own = first + 1 < rows ? places[first + 1] - places[first] : 0;
    for (end = first + 1; end < rows && places[end] == places[end - 1] + own;)
      ++end;
    int64_t ownStart = places[first] - own * first;
    Value more = shift(scale(row, own - step), ownStart - start);
    Value isIn = binary<nn::GreaterOp>(row, constant(first - 0.5));
    more = mul(more, isIn);
    place = place ? add(place, more) : more;
    start = ownStart;
    step = own;
  }
  Value whole = nn::ConvertOp::create(builder, loc, ids, place);
  auto type = RankedTensorType::get({rows, count}, builder.getF32Type());
  Value ones =
      nn::FillOp::create(builder, loc, type, builder.getF32FloatAttr(1.0));
  return nn::PickOp::create(builder, loc, type, ones, whole, nn::BeginAttr());
}

/// The result has the dimensions of the ids and one of the matrices.
Value LayerBuilder::groupedMatmul(Value rows, Value matrices, Value ids,
                                  StringRef spec) {
  Shape shape(typeOf(ids).getShape());
  StringRef letters = spec.split(',').second.split("->").first;
  shape.push_back(typeOf(matrices).getDimSize(letters.find(spec.back())));
  return nn::GroupedMatmulOp::create(
      builder, loc, typeOf(rows).clone(ArrayRef<int64_t>(shape)), rows,
      matrices, ids, builder.getStringAttr(spec), nn::BeginAttr());
}

Value LayerBuilder::weigh(Value rows, Value weights) {
  return mul(rows, broadcast(weights, typeOf(rows).getShape(), {0, 1, 2}));
}

Value LayerBuilder::drop(Value x, const Dropout &dropout) {
  if (!dropout.keys)
    return x;
  return unary<nn::DropoutOp>(x, dropout.keys, dropout.probability,
                              dropout.site, ArrayAttr());
}

/// Begins the loss function: ids and targets in, two scalars out. It stays open
/// until finish(), which returns what the loss op gives.
ModelBuilder::ModelBuilder(MLIRContext &context, const ImportOptions &options)
    : options(options), module(ModuleOp::create(UnknownLoc::get(&context))),
      builder(&context, &listener) {
  builder.setInsertionPointToEnd(module->getBody());
  auto ids = RankedTensorType::get({options.batch, options.sequence},
                                   builder.getI32Type());
  auto scalar = RankedTensorType::get({}, builder.getF32Type());
  loss = func::FuncOp::create(
      builder, NameLoc::get(builder.getStringAttr(nn::kLossFunction)),
      nn::kLossFunction, builder.getFunctionType({ids, ids}, {scalar, scalar}));
  builder.setInsertionPointToStart(loss.addEntryBlock());
}

/// Ops made through the result carry `path` as their location.
LayerBuilder ModelBuilder::at(const Twine &path) {
  return LayerBuilder(builder, NameLoc::get(builder.getStringAttr(path)));
}

/// The first read of a symbol declares its parameter as well; what later reads
/// say of file and initial values is not looked at. Weight decay is for tensors
/// of two and more dimensions in the file: not for biases and weights of norms.
Value ModelBuilder::read(const Twine &symbol, ArrayRef<int64_t> shape,
                         const FileBox &file, Init init) {
  auto type = RankedTensorType::get(shape, builder.getF32Type());
  StringAttr name = builder.getStringAttr(symbol);
  Location loc = NameLoc::get(name);
  if (declared.insert(name).second) {
    const Shape &tensor = file.saved.empty() ? file.shape : file.saved;
    if (!file.saved.empty())
      saved[file.name] = file.saved;
    // Where there are several tensors, one dimension counts them.
    size_t dims = tensor.size() - StringRef(file.name).count('*');
    // Parameters belong to no block: reads of them do.
    OpBuilder declare(loss);
    auto initAttr =
        nn::InitAttr::get(loss.getContext(), declare.getF64FloatAttr(init.mean),
                          declare.getF64FloatAttr(init.std));
    auto fileAttr =
        nn::FileAttr::get(loss.getContext(), declare.getStringAttr(file.name),
                          file.shape, file.begin, file.box);
    nn::ParameterOp::create(declare, loc, name.getValue(), type, initAttr,
                            /*decay=*/dims >= 2,
                            /*rate=*/nullptr, /*optimizer=*/nullptr,
                            /*balance=*/nullptr, fileAttr,
                            /*sharding=*/nullptr, /*state=*/nullptr,
                            /*matrix=*/nullptr);
  }
  return nn::ReadOp::create(builder, loc, type, name.getValue(),
                            nn::Slot::Value);
}

/// A rate of 0 says that it is meant to stay as it is.
Value ModelBuilder::readFrozen(const Twine &symbol, const Shape &shape) {
  Value value = read(symbol, shape, kZeros);
  auto read = value.getDefiningOp<nn::ReadOp>();
  auto parameter = SymbolTable::lookupNearestSymbolFrom<nn::ParameterOp>(
      loss, read.getSymbolAttr());
  parameter.setRateAttr(builder.getF64FloatAttr(0.0));
  return value;
}

Value ModelBuilder::read(const Twine &symbol, const Shape &shape, Init init) {
  return read(symbol, shape, FileBox::whole(symbol.str(), shape), init);
}

/// Each call is a site of its own, with a mask of its own. The first one gives
/// the loss function a third argument: a key for each sequence of the batch. A
/// model without dropout does not have it.
Dropout ModelBuilder::makeDropout(double probability) {
  if (probability == 0.0)
    return {};
  constexpr auto kKeys = nn::InputKind::Keys;
  if (!dropouts) {
    auto type = RankedTensorType::get({options.batch}, builder.getI32Type());
    nn::appendInput(loss, kKeys, type);
  }
  return {nn::findInput(loss, kKeys), builder.getF64FloatAttr(probability),
          builder.getI64IntegerAttr(dropouts++)};
}

/// The dimensions of `bias` are the last ones of `x`.
Value ModelBuilder::addBias(const Twine &path, Value x, Value bias) {
  LayerBuilder nn = at(path);
  int64_t rank = typeOf(x).getRank(), first = rank - typeOf(bias).getRank();
  auto dims = llvm::to_vector(llvm::seq<int64_t>(first, rank));
  return nn.add(x, nn.broadcast(bias, typeOf(x).getShape(), dims));
}

/// The loss is a sum, and its second result the number of targets that count:
/// microbatches and ranks have different numbers of them, so that only a
/// quotient at the end is a mean over tokens.
OwningOpRef<ModuleOp> ModelBuilder::finish(Value logits) {
  LayerBuilder nn = at("loss");
  auto entropy = nn::SoftmaxCrossEntropyOp::create(
      builder, nn.loc, logits, loss.getArgument(1), kIgnoredTarget);
  func::ReturnOp::create(builder, nn.loc, entropy.getResults());
  return std::move(module);
}

/// The limit for learned positions is their table, for rotary ones what the
/// model was trained with; an error either way, at the field that sets it.
void hf::checkSequence(ConfigReader &config, StringRef field, int64_t positions,
                       int64_t sequence) {
  if (sequence > positions)
    config.fail("field \"" + field + "\" is " + Twine(positions) +
                ", too few for a sequence of " + Twine(sequence) + " tokens");
}
