/* The faults of packed sequences, caches, block masks and 8-bit inputs (rows of the table in cmd/selftest/faults.c): a
 * right kernel gets other lengths, pages, blocks or scales. Each is the `make` of a struct fault. */
#ifndef FABENCH_FAULTS_ARRAYS_H
#define FABENCH_FAULTS_ARRAYS_H

#include "cmd/selftest/fault_job.h"

/* As splits of the keys in decode: as many equal parts of the longest cache. */
enum { FAULT_SPLITS = 4 };

/* Keys behind its diagonal that a row of a prefill sees wrongly. */
enum { FAULT_CHUNK = 64 };

typedef enum attn_status fault_make(const struct fault_job *, enum problem_tensor, struct host_tensors *wrong,
                                    struct attn_message *why);

/* Packed: every row also sees the first key of the next sequence that has keys, as where the end of a sequence is taken
 * one key too late. That key comes before those of the sequence, so that the causal mask does not hide it. */
fault_make faults_first_key;

/* Pages: the first pages of the first and of the last sequence change places in the table. */
fault_make faults_swapped_pages;

/* Pages: the lengths of all caches are rounded up to whole pages. */
fault_make faults_unused_slots;

/* New rows of several lengths, causal: each row also sees the FAULT_CHUNK keys behind its own, those of the next chunk
 * of the prefill, as where the mask is that of a tile of rows. A sequence with one new row has none behind it. */
fault_make faults_next_chunk;

/* A cache, one row a sequence: the last of FAULT_SPLITS parts of the keys is missing. */
fault_make faults_lost_split;

/* A cache, one row a sequence: O is the plain mean of that of the parts that have keys, without their weights, which
 * are exp(LSE of the part - LSE). LSE is right. */
fault_make faults_plain_merge;

/* 8-bit inputs with scales of blocks: the first block of rows of each head of Q, of K, has the scale of the second. Or
 * that of K, of V, is forgotten: what is stored is taken as it is. */
fault_make faults_scale_of_q, faults_scale_of_k, faults_no_scale_of_k, faults_no_scale_of_v;

/* Block mask: one visible block of one head is skipped, where there is one of a row of blocks that has several. */
fault_make faults_skipped_block;

/* Sink: it is two terms of the denominator; it is none of LSE, while O is right. */
fault_make faults_sink_twice, faults_no_sink_in_lse;

/* ALiBi: each head has the slope of the next one. */
fault_make faults_next_slope;

#endif
