/* Communicators: how the ranks of a group exchange memory.

   A communicator is a table of functions in C, so that an engine is a table: threads and processes
   of a machine (shared_team.h), MPI (mpi_communicator.h), or NCCL, whose memory is that of GPUs
   (nccl_communicator.h). Every rank of a group calls the same
   functions in the same order. Memory that is read and memory that is written do not overlap. Counts
   are of elements, bytes of one rank's block. */
#ifndef RLX_COMMUNICATOR_H
#define RLX_COMMUNICATOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RLX_COMMUNICATOR_ABI 2

/* How elements are combined, from rank 0 on: f16 and bf16 in f32 and rounded once. */
typedef enum { RLX_SUM, RLX_PROD, RLX_MIN, RLX_MAX } rlx_reduction;

typedef enum {
  RLX_COMM_OK,
  RLX_COMM_LATE,        /* a rank had not come after the limit: rlx_wait::late */
  RLX_COMM_FAILED,      /* rlx_wait::message says why */
  RLX_COMM_INTERRUPTED, /* rlx_wait::ends said so */
} rlx_comm_status;

/* How long a function waits for other ranks, and what it says of them. */
typedef struct {
  int64_t limit_ns;
  int (*ends)(void *asked); /* whether to wait no longer; may be null, and is asked every 10 ms */
  void *asked;
  int32_t late; /* the number of a rank that had not come, -1: not known */
  char message[200];
} rlx_wait;

typedef struct rlx_communicator {
  uint32_t abi; /* RLX_COMMUNICATOR_ABI */
  int32_t rank, ranks;
  void *context; /* the first argument of the functions */

  /* dtype is a number of element_types.h, reduction an rlx_reduction. */
  int (*all_reduce)(void *context, const void *in, void *out, int64_t count, int32_t dtype,
                    int32_t reduction, rlx_wait *wait);
  /* in has a block of `count` elements for each rank, out one. */
  int (*reduce_scatter)(void *context, const void *in, void *out, int64_t count, int32_t dtype,
                        rlx_wait *wait);
  /* out has a block for each rank. */
  int (*all_gather)(void *context, const void *in, void *out, int64_t bytes, rlx_wait *wait);
  /* in and out have a block for each rank. */
  int (*all_to_all)(void *context, const void *in, void *out, int64_t bytes, rlx_wait *wait);
  /* What this rank has goes to the rank `to`, and what `from` has comes; -1: to or from none, which
     leaves out as it is. */
  int (*permute)(void *context, const void *in, void *out, int64_t bytes, int32_t to, int32_t from,
                 rlx_wait *wait);
  int (*broadcast)(void *context, const void *in, void *out, int64_t bytes, int32_t root,
                   rlx_wait *wait);
  /* Copies bytes of the host into memory of this kind; null: that is the host's. */
  int (*put)(void *context, void *out, const void *data, int64_t bytes, rlx_wait *wait);
  /* This rank comes no more: those that wait for it need not. May be null. */
  void (*leave)(void *context);
  void (*release)(void *context);
} rlx_communicator;

#ifdef __cplusplus
}
#endif

#endif
