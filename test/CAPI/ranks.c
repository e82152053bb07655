/* Trains a plan on all processes of its launcher, or on this one alone.

   Usage: ranks PLAN STEPS OPTIONS [TOKENS]

   OPTIONS are those of the run, and TOKENS is a file of uint16 tokens of which
   the rows of each step are given; without it the run reads its data itself.
   Prints, in the process of rank 0, the loss and gradient norm of each step and
   the sum of each parameter's weights. */

#include <dlpack/dlpack.h>
#include <plait-c/plait.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(plait_error *error) {
  if (!error)
    return;
  fprintf(stderr, "error %d: %s\n", (int)error->code, error->message);
  plait_error_free(error);
  exit(1);
}

static long number_of(const char *json, const char *key) {
  char pattern[64];
  snprintf(pattern, sizeof(pattern), "\"%s\":", key);
  return strtol(strstr(json, pattern) + strlen(pattern), NULL, 10);
}

static void print_sum(plait_run *run, const char *name) {
  DLManagedTensor *tensor = NULL;
  check(plait_run_tensor(run, name, PLAIT_WEIGHT, PLAIT_WHOLE, &tensor));
  if (!tensor) /* not the process of rank 0 */
    return;
  int64_t count = 1;
  for (int i = 0; i < tensor->dl_tensor.ndim; ++i)
    count *= tensor->dl_tensor.shape[i];
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += ((const float *)tensor->dl_tensor.data)[i];
  tensor->deleter(tensor);
  printf("%s %.17g\n", name, sum);
}

/* What the processes of a launcher cannot do, since they meet once. */
static void check_refused(plait_error *error, const char *text) {
  if (!error || !strstr(error->message, text)) {
    fprintf(stderr, "expected '%s', got '%s'\n", text,
            error ? error->message : "success");
    exit(4);
  }
  plait_error_free(error);
}

static void meet_twice(plait_plan *plan, const char *path) {
  plait_session *session = NULL;
  plait_plan *same = NULL;
  plait_run *run = NULL;
  check_refused(plait_run_begin(plan, "{}", &run),
                "another run of the launcher's processes is open");
  check(plait_session_open(PLAIT_C_VERSION, &session));
  check(plait_plan_load(session, path, &same));
  check_refused(plait_run_begin(same, "{}", &run),
                "the launcher's processes have met in another session");
  check(plait_close(session));
}

/* Rows follow each other in the file and overlap by one token. */
static void read_rows(FILE *file, long first, long rows, long sequence,
                      int32_t *tokens) {
  for (long row = 0; row < rows; ++row) {
    fseek(file, (first + row) * sequence * 2, SEEK_SET);
    for (long i = 0; i <= sequence; ++i) {
      uint16_t token = 0;
      if (fread(&token, sizeof(token), 1, file) != 1)
        exit(3);
      *tokens++ = token;
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 4 && argc != 5)
    return 2;
  plait_session *session = NULL;
  plait_plan *plan = NULL;
  plait_run *run = NULL;
  char *json = NULL, *state = NULL;
  check(plait_session_open(PLAIT_C_VERSION, &session));
  check(plait_plan_load(session, argv[1], &plan));
  check(plait_describe(plan, &json));
  check(plait_run_begin(plan, argv[3], &run));
  check(plait_describe(run, &state));
  if (getenv("OMPI_COMM_WORLD_SIZE"))
    meet_twice(plan, argv[1]);
  int leads = strstr(state, "\"ranks\":[0") != NULL;
  long batch = number_of(json, "global_batch");
  long sequence = number_of(json, "sequence");
  FILE *file = argc == 5 ? fopen(argv[4], "rb") : NULL;
  size_t count = file ? (size_t)(batch * (sequence + 1)) : 0;
  int32_t *tokens = file ? malloc(count * sizeof(*tokens)) : NULL;
  for (int number = 1; number <= atoi(argv[2]); ++number) {
    if (file)
      read_rows(file, (number - 1) * batch, batch, sequence, tokens);
    plait_step step = {.size = sizeof(step)};
    check(plait_run_step(run, tokens, count, &step));
    if (leads)
      printf("%.9g %.9g\n", step.loss, step.gradient_norm);
  }
  const char *key = "{\"name\":\"";
  for (char *at = strstr(json, key); at; at = strstr(at, key)) {
    char name[256];
    at += strlen(key);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "\""), at);
    print_sum(run, name);
  }
  free(tokens);
  if (file)
    fclose(file);
  plait_text_free(json);
  plait_text_free(state);
  check(plait_close(session));
  return 0;
}
