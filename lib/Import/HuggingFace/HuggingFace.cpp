//===- HuggingFace.cpp - From a config.json to an nn module ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The importer of Hugging Face's config.json: reads the file, finds the family
// by its `model_type`, and turns what the family has read into a module.
// Nothing of the weights is looked at: names, shapes and initial values are
// enough, and the runtime reads the tensors when a run begins.
//
// A config is read as a whole before anything is built, so that an error leaves
// no half module.
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace plait;
using namespace plait::hf;

/// Fields that every model may have and that change no arithmetic: tokens that
/// only generation knows, types that the weights are stored in, outputs, tasks.
static const StringRef kIgnored[] = {"_attn_implementation*",
                                     "_commit_hash",
                                     "_name_or_path",
                                     "_num_labels",
                                     "architectures",
                                     "auto_map",
                                     "bad_words_ids",
                                     "begin_suppress_tokens",
                                     "bos_token_id",
                                     "chunk_size_feed_forward",
                                     "cls_token_id",
                                     "decoder_start_token_id",
                                     "diversity_penalty",
                                     "do_sample",
                                     "dtype",
                                     "early_stopping",
                                     "encoder_no_repeat_ngram_size",
                                     "eos_token_id",
                                     "exponential_decay_length_penalty",
                                     "finetuning_task",
                                     "forced_bos_token_id",
                                     "forced_eos_token_id",
                                     "gradient_checkpointing",
                                     "id2label",
                                     "is_decoder",
                                     "label2id",
                                     "length_penalty",
                                     "max_length",
                                     "min_length",
                                     "name_or_path",
                                     "no_repeat_ngram_size",
                                     "num_beam_groups",
                                     "num_beams",
                                     "num_labels",
                                     "num_return_sequences",
                                     "output_attentions",
                                     "output_hidden_states",
                                     "output_past",
                                     "output_scores",
                                     "pad_token_id",
                                     "prefix",
                                     "problem_type",
                                     "remove_invalid_values",
                                     "repetition_penalty",
                                     "return_dict",
                                     "return_dict_in_generate",
                                     "sep_token_id",
                                     "suppress_tokens",
                                     "task_specific_params",
                                     "temperature",
                                     "tf_legacy_loss",
                                     "tokenizer_class",
                                     "top_k",
                                     "top_p",
                                     "torch_dtype",
                                     "torchscript",
                                     "transformers_version",
                                     "typical_p",
                                     "unk_token_id",
                                     "use_bfloat16",
                                     "use_cache"};

/// The families, and what reads their config.
static constexpr std::pair<StringLiteral, Model (*)(ConfigReader &, int64_t)>
    kFamilies[] = {{"gpt2", readGPT2},       {"llama", readLlama},
                   {"mistral", readMistral}, {"phi3", readPhi3},
                   {"qwen2", readQwen2},     {"qwen3", readQwen3}};

/// Reads what all families have, and leaves the rest to the family.
/// What would make the model another kind, an encoder or one with
/// cross-attention, is refused here for all families. An unknown type yields an
/// empty model, and the config has a failure by then.
static Model readModel(ConfigReader &config, int64_t sequence,
                       std::string &type) {
  SmallVector<StringRef> names;
  for (const auto &[name, read] : kFamilies)
    // The message of a type that is not known lists these.
    names.push_back(name);
  type = config.getChoice("model_type", names);
  config.ignore(kIgnored);
  // An absent field passes, and so does one that has the usual value.
  for (StringRef field :
       {"add_cross_attention", "is_encoder_decoder", "tie_encoder_decoder"})
    config.requireFlag(field, false);
  config.requireAbsent("cross_attention_hidden_size");
  // Old configs write {} for none.
  config.readObject("pruned_heads", [](ConfigReader &) {});
  for (const auto &[name, read] : kFamilies)
    if (type == name)
      return read(config, sequence);
  return {};
}

std::string plait::getConfigPath(StringRef path) {
  SmallString<128> file(path);
  if (llvm::sys::fs::is_directory(path))
    llvm::sys::path::append(file, "config.json");
  return file.str().str();
}

/// By the absolute path, as "." and ".." have no name of their own. Without a
/// folder, a constant.
std::string plait::getModelName(StringRef path) {
  SmallString<128> absolute(getConfigPath(path));
  if (llvm::sys::fs::make_absolute(absolute))
    return "model";
  llvm::sys::path::remove_dots(absolute, /*remove_dot_dot=*/true);
  StringRef folder =
      llvm::sys::path::filename(llvm::sys::path::parent_path(absolute));
  return folder.empty() ? "model" : folder.str();
}

/// `plait.model` says to later phases and to reports what was imported.
static void setModelAttr(ModuleOp module, StringRef type, StringRef name,
                         const Model &model) {
  Builder builder(module.getContext());
  NamedAttribute entries[] = {
      builder.getNamedAttr("model_type", builder.getStringAttr(type)),
      builder.getNamedAttr("name", builder.getStringAttr(name)),
      builder.getNamedAttr("vocab", builder.getI64IntegerAttr(model.vocab)),
      builder.getNamedAttr("layers", builder.getI64IntegerAttr(model.layers))};
  module->setAttr(nn::kModelAttr, builder.getDictionaryAttr(entries));
}

/// Fails unless the token tensors are of a size that indices can count.
/// Sizes come from the command line, which checks less than an importer needs.
static LogicalResult checkOptions(Location loc, const ImportOptions &options) {
  constexpr int64_t most = ConfigReader::kLargestSize;
  for (auto [name, value] :
       {std::pair("batch", options.batch), {"sequence", options.sequence}})
    if (value < 1 || value > most)
      return emitError(loc)
             << name << " is " << value << ", expected from 1 to " << most;
  // Both are at most 2^24, so that the multiplication does not overflow.
  if (options.batch * options.sequence > most)
    return emitError(loc) << "sequence is " << options.sequence
                          << ", expected at most " << most / options.batch
                          << " with a microbatch of " << options.batch;
  return success();
}

/// 1. Read the file and check what the caller wants of it.
/// 2. Read all fields; the first that is wrong, or known to nobody, ends it.
/// 3. Build the forward pass, and the loss behind it.
/// 4. Verify: an error here is one of this importer, not of the file.
FailureOr<OwningOpRef<ModuleOp>>
plait::importHuggingFace(MLIRContext &context, StringRef path,
                         const ImportOptions &options) {
  Location loc = UnknownLoc::get(&context);
  std::string file = getConfigPath(path);
  // 1.
  auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/true);
  if (!buffer)
    return emitError(loc) << "cannot read " << file << ": "
                          << buffer.getError().message();
  if (failed(checkOptions(loc, options)))
    return failure();

  // 2.
  ConfigReader config((*buffer)->getBuffer());
  // Building asks nothing of the config: by then every field has been accepted.
  std::string type;
  Model model = readModel(config, options.sequence, type);
  if (std::string message = config.finish(); !message.empty())
    return emitError(loc) << file << ": " << message;

  // 3.
  context.loadDialect<nn::NNDialect, func::FuncDialect>();
  ModelBuilder builder(context, options);
  Value logits = model.build(builder);
  OwningOpRef<ModuleOp> module = builder.finish(logits);
  setModelAttr(*module, type, getModelName(file), model);
  // 4.
  if (failed(verify(*module)))
    return failure();
  return module;
}
