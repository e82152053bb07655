//===- count_memory.c - Counts the most memory that a process has ---------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library to be loaded before the C library's. When the process ends it adds
// a line to the file COUNT_MEMORY: the most bytes that blocks of LEAST bytes or
// more have had at once. Smaller ones hold texts, of which some have times in
// them.
//
//===----------------------------------------------------------------------===//

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LEAST 65536

// Of glibc, which calls these by other names.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_llong held, most;

static long long size_of(void *block) {
  long long size = block ? (long long)malloc_usable_size(block) : 0;
  return size < LEAST ? 0 : size;
}

static void add(long long size) {
  if (size == 0)
    return;
  long long now = atomic_fetch_add(&held, size) + size;
  long long before = atomic_load(&most);
  while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
    ;
}

static void *count(void *block) {
  add(size_of(block));
  return block;
}

void *malloc(size_t size) { return count(__libc_malloc(size)); }
void *calloc(size_t number, size_t size) {
  return count(__libc_calloc(number, size));
}
void *memalign(size_t alignment, size_t size) {
  return count(__libc_memalign(alignment, size));
}
void *aligned_alloc(size_t alignment, size_t size) {
  return count(__libc_memalign(alignment, size));
}
int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = count(__libc_memalign(alignment, size));
  return *block ? 0 : ENOMEM;
}
void *realloc(void *block, size_t size) {
  long long before = size_of(block);
  void *made = __libc_realloc(block, size);
  if (made || size == 0)
    add(-before);
  return count(made);
}
void free(void *block) {
  add(-size_of(block));
  __libc_free(block);
}

__attribute__((destructor)) static void tell(void) {
  // mpirun and its shells load it, too.
  const char *name = getenv("COUNT_MEMORY");
  if (!name || !getenv("OMPI_COMM_WORLD_RANK"))
    return;
  long long found = atomic_load(&most);
  FILE *file = fopen(name, "a");
  if (!file)
    return;
  fprintf(file, "%s %lld\n", getenv("OMPI_COMM_WORLD_RANK"), found);
  fclose(file);
}
