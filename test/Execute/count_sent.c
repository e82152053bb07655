//===- count_sent.c - Counts the bytes that a process sends by MPI --------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library to be loaded before MPI's. When the process ends it adds a line to
// the file COUNT_SENT: the bytes of all messages, and how many there are, of
// those that have COUNT_LEAST bytes or more.
//
//===----------------------------------------------------------------------===//

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long long sent, messages;

int MPI_Isend(const void *data, int count, MPI_Datatype type, int target,
              int tag, MPI_Comm comm, MPI_Request *request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  const char *least = getenv("COUNT_LEAST");
  long long bytes = (long long)count * size;
  if (!least || bytes >= atoll(least)) {
    sent += bytes;
    ++messages;
  }
  return PMPI_Isend(data, count, type, target, tag, comm, request);
}

__attribute__((destructor)) static void tell(void) {
  // mpirun and its shells load it, too.
  if (sent == 0)
    return;
  FILE *file = fopen(getenv("COUNT_SENT"), "a");
  fprintf(file, "%lld %lld\n", sent, messages);
  fclose(file);
}
