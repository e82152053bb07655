/*===- plait-c/plait.h - plait as a C library ---------------------*- C -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Imports a model, plans and compiles it, and trains it step by step. See
// docs/CApi.md.
//
// Errors. A function that may fail returns NULL, or an error that its caller
// frees. Nothing is printed, and the process is never ended. After a failure
// the outputs of a call are what they were.
//
// Handles. Sessions, models, plans and runs are named by handles, which are no
// addresses: one that was closed, or is of another kind, is an error.
//
// Threads. Different sessions may be used by different threads at the same
// time. Calls that name the same session, or anything that has come out of it,
// wait for each other.
//
// Texts are UTF-8. Options are a JSON object whose keys are the long names of
// options of plaitc or plait-run, without dashes; NULL is the same as "{}".
//
//===----------------------------------------------------------------------===*/

#ifndef PLAIT_C_PLAIT_H
#define PLAIT_C_PLAIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLAIT_C_API __attribute__((visibility("default")))
#else
#define PLAIT_C_API
#endif

/** The version of this interface. It changes when a function or a type here
    does so in a way that programs notice; what is only added changes nothing.
 */
#define PLAIT_C_VERSION 1

typedef struct plait_session plait_session;
typedef struct plait_model plait_model;
typedef struct plait_plan plait_plan;
typedef struct plait_run plait_run;

/* A tensor as DLPack has it, declared by dlpack/dlpack.h. */
struct DLManagedTensor;

/*===--- Errors -----------------------------------------------------------===*/

/** The reason of a failure. More fields may follow in later versions. */
typedef struct plait_error {
  /** The cause, as docs/Errors.md numbers it; never 0. */
  int32_t code;
  /** One line that names the culprit, the value and the bound. */
  const char *message;
  /** The option that is to blame, or "". */
  const char *field;
  /** The place in the model, such as "own.mlir:7:3", or "". */
  const char *place;
  /** Lines of what may help, or "". */
  const char *hint;
} plait_error;

/** Frees an error; NULL is allowed. */
PLAIT_C_API void plait_error_free(plait_error *error);

/*===--- Sessions ---------------------------------------------------------===*/

/** Returns the version of the library, such as "0.1.0". */
PLAIT_C_API const char *plait_version(void);

/** Opens a session. `version` is PLAIT_C_VERSION; a library that has another
    one fails. */
PLAIT_C_API plait_error *plait_session_open(uint32_t version,
                                            plait_session **session);

/** How much a message matters. */
enum { PLAIT_INFO = 0, PLAIT_NOTE = 1, PLAIT_WARNING = 2 };

/** Hears a message, which is valid during the call. Must not call functions of
    the same session. */
typedef void (*plait_listener)(void *user, int severity, const char *message);

/** Sets who hears what is no error: notes, warnings, what is being done. NULL:
    nobody, as at first. Calls come one at a time, mostly from the thread that
    has called a function here, and from others where something is written
    beside steps. */
PLAIT_C_API plait_error *plait_session_listen(plait_session *session,
                                              plait_listener listener,
                                              void *user);

/** Closes a session, model, plan or run; NULL is allowed. A session closes all
    that has come out of it. A run that is closed writes nothing more. */
PLAIT_C_API plait_error *plait_close(void *handle);

/** Describes a model, plan or run: a JSON object, which the caller gives to
    plait_text_free(). */
PLAIT_C_API plait_error *plait_describe(void *handle, char **json);

/** Frees a text; NULL is allowed. */
PLAIT_C_API void plait_text_free(char *text);

/*===--- From a model to a plan -------------------------------------------===*/

/** Imports a model: a folder with config.json, that file, or a .mlir file.
    `options` are those of plaitc that change a model: "dropout",
    "document-mask", "target-weights", "lora", "lora-alpha",
    "lora-targets", "no-decay", "freeze", "lr-factor",
   "optimizer-of", "balance", "ignore-field", "shard". */
PLAIT_C_API plait_error *plait_model_import(plait_session *session,
                                            const char *path,
                                            const char *options,
                                            plait_model **model);

/** Lets the planner choose how to train the model. `options` are those of
    plaitc that a compilation has, "cluster" among them; what they decide is not
    chosen. `choice` is a JSON object, which the caller gives to
    plait_text_free(): under "options" what plait_model_compile() takes, under
    "prediction" what plaitc --json tells. */
PLAIT_C_API plait_error *plait_model_plan(plait_model *model,
                                          const char *options, char **choice);

/** Describes the cluster that `name` is, as the option "cluster" has it:
    `json` is an object with "cluster", "name", "device", "nodes",
    "devices_per_node", "devices" and "memory_limit_bytes", what training can
    use of a device. The caller gives it to plait_text_free(). */
PLAIT_C_API plait_error *plait_cluster_describe(plait_session *session,
                                                const char *name, char **json);

/** Lets the planner choose as plait_model_plan() does, among what another
    training program can run, and writes the choice in the words of that:
    `program` is "megatron", "torchtitan" or "deepspeed". `emitted` is a JSON
    object, which the caller gives to plait_text_free(): "text", "notes" that it
    has no room for, and "options" and "prediction" of the choice. What that
    program would train otherwise is an error. */
PLAIT_C_API plait_error *plait_model_emit(plait_model *model,
                                          const char *options,
                                          const char *program, char **emitted);

/** Reads the job of another program, "megatron", and compares it with the best
    that the same program could run. `job` is the text of its flags, or of a
    script that starts it. `model` is NULL where the flags say the model. Of
    `options`, as plait_model_plan() has them, "cluster" is needed, and what
    else is there outweighs the job; "ignore-field" names flags that change
    neither arithmetic nor layout. `audit` is a JSON object, which the caller
    gives to plait_text_free(): "options" and "prediction" of the job, the same
    two under "best", "config", the text of the model's config.json, "notes" of
    what was not read, and "text" for people. */
PLAIT_C_API plait_error *plait_job_audit(plait_session *session,
                                         const char *program, const char *job,
                                         plait_model *model,
                                         const char *options, char **audit);

/** Compiles the model, and writes the plan to `path`, completely or not at all.
    Nothing is chosen: what `options` do not decide has its default. */
PLAIT_C_API plait_error *plait_model_compile(plait_model *model,
                                             const char *options,
                                             const char *path,
                                             plait_plan **plan);

/** Opens a file that plaitc or plait_model_compile() has written. */
PLAIT_C_API plait_error *plait_plan_load(plait_session *session,
                                         const char *path, plait_plan **plan);

/*===--- Runs -------------------------------------------------------------===*/

/** Begins a run: binds the ranks of the plan to this process or, where mpirun,
    srun or torchrun has started it, to all that they have started, and sets
    weights. `options` are those of plait-run. Without "tokens" or "text" each
    step is given its data. A process of a launcher has one run at a time. */
PLAIT_C_API plait_error *plait_run_begin(plait_plan *plan, const char *options,
                                         plait_run **run);

/** The most losses that a model names. */
#define PLAIT_MOST_NAMED_LOSSES 13

/** The outcome of a step. More fields may follow in later versions. */
typedef struct plait_step {
  /** sizeof(plait_step), set by the caller. What a program of an earlier
      version does not have is left out. */
  size_t size;
  /** The number of the step, from 1. */
  uint64_t step;
  double loss;
  double gradient_norm;
  double learning_rate;
  /** Tokens that the loss is a mean over. */
  double tokens;
  double seconds;
  /** 1 where loss or gradient norm is not finite and nothing was updated. */
  int32_t skipped;
  /** 1 where the run has gone back to a checkpoint. */
  int32_t rolled_back;
  /** The loss on held-out data, where it was due after the step, else NaN. */
  double evaluation_loss;
  /** The losses that the model names, as "named_losses" of plait_describe() of
      the plan lists them, and those on held-out data, as evaluation_loss. What
      the plan does not name is NaN. */
  double named_losses[PLAIT_MOST_NAMED_LOSSES];
  double evaluation_named_losses[PLAIT_MOST_NAMED_LOSSES];
} plait_step;

/** Does one step. `tokens` is NULL and `count` 0 where the run reads its data
    itself. Else they are the rows of the step's global batch, one after the
    other: of each sequence + 1 tokens the first `sequence` are the inputs and
    the last the targets. Of a plan with "float_inputs" (plait_describe()) each
    row has behind its tokens the bits of their float32, input by input. After a
   failure that the data is not to blame for, the run is only good for
   plait_close(). */
PLAIT_C_API plait_error *plait_run_step(plait_run *run, const int32_t *tokens,
                                        size_t count, plait_step *step);

/** Kinds of tensors of a parameter. A gradient is that of the last step, summed
   over the tokens of its batch. */
enum { PLAIT_WEIGHT = 0, PLAIT_GRADIENT = 1 };

/** Asks for the whole tensor, in the place of a rank. */
#define PLAIT_WHOLE (-1)

/** Gives a tensor in float32, as it is between two steps; `name` is that of the
    parameter. With a rank of this process it is what that rank holds, padding
    included. The whole tensor of a plan that several ranks divide is put
    together in the process of rank 0, by a call of all processes; elsewhere
    `tensor` becomes NULL. Of several sites whole weights are their mean, and a
    gradient is the first site's.

    Where the memory is this process's own and has the tensor as it is, the
    tensor is that memory: each step changes it, and writing to it is an error
    that nobody notices (see plait_run_set_tensor()). Else it is a copy. Its
    memory lives until its deleter is called, also after plait_close(). */
PLAIT_C_API plait_error *plait_run_tensor(plait_run *run, const char *name,
                                          int32_t kind, int32_t rank,
                                          struct DLManagedTensor **tensor);

/** Sets the weights of a parameter on all ranks that hold some. `tensor` is the
    whole of it, float32 in row-major order on the host. All processes call this
    with the same. The caller keeps the tensor. */
PLAIT_C_API plait_error *
plait_run_set_tensor(plait_run *run, const char *name,
                     const struct DLManagedTensor *tensor);

/** Writes a model folder that Hugging Face's transformers open. All processes
    call this. */
PLAIT_C_API plait_error *plait_run_save(plait_run *run, const char *directory);

/** Writes a checkpoint into the run's directory, the option "checkpoint", where
    it has none of this step, and waits until it is complete. All processes call
    this. */
PLAIT_C_API plait_error *plait_run_checkpoint(plait_run *run);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLAIT_C_PLAIT_H */
