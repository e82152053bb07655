//===- TestKernels.c - Kernels of the test plan ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include <stdint.h>
#include <time.h>

// args[0][i] *= first token, plus 1 when scalars[0].
void plait_test_scale(char *const *args, const int64_t *scalars, int64_t begin,
                      int64_t end) {
  float *values = (float *)args[0];
  const int32_t *tokens = (const int32_t *)args[1];
  for (int64_t i = begin; i < end; ++i)
    values[i] = values[i] * (float)tokens[0] + (float)scalars[0];
}

// args[0][i] += args[1][i]
void plait_test_add(char *const *args, const int64_t *scalars, int64_t begin,
                    int64_t end) {
  (void)scalars;
  for (int64_t i = begin; i < end; ++i)
    ((float *)args[0])[i] += ((const float *)args[1])[i];
}

// Takes scalars[0] milliseconds.
void plait_test_sleep(char *const *args, const int64_t *scalars, int64_t begin,
                      int64_t end) {
  (void)args, (void)begin, (void)end;
  struct timespec span = {scalars[0] / 1000, scalars[0] % 1000 * 1000000};
  nanosleep(&span, 0);
}
