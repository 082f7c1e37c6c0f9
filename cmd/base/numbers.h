/* Parsing and printing of numbers. Parsing is strict: no trailing text, no overflow, no default. */
#ifndef FABENCH_NUMBERS_H
#define FABENCH_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "16384", "16k" (k = 1024), "1m" (m = 1048576). False when it is anything else, negative, or overflows int64_t. */
bool number_parse_count(const char *text, int64_t *value);
/* Plain decimal floating point, finite. */
bool number_parse_real(const char *text, double *value);
/* "0.5%" or "0.5" -> 0.5; negative refused. */
bool number_parse_percent(const char *text, double *percent);
/* "64,128", "1k:16k:*2", "512:4k:+512", mixed with commas; appends to *values (malloc'd). False with a reason. At most
 * 4096 values. Duplicates are kept once. */
bool number_parse_list(const char *text, int64_t **values, int *count, char *why, size_t why_size);

/* a * b, false on overflow of int64_t. */
bool number_multiply(int64_t a, int64_t b, int64_t *product);

/* splitmix64 (Steele, Lea, Flood 2014): its step from number to number, and the function that mixes one. */
#define NUMBER_MIX_STEP 0x9E3779B97F4A7C15ull
uint64_t number_mix(uint64_t);
/* A number that nobody can know: drawn from the system. */
uint64_t number_secret(void);
/* A number that follows from `seed` and the text. */
uint64_t number_mix_text(uint64_t seed, const char *text);

/* 16384 -> "16k", 1000 -> "1000". */
const char *number_print_count(int64_t value, char *buffer, size_t size);
/* Three or four significant digits for a table: 0.4683 -> "0.468", 30.012 -> "30.01". */
const char *number_print_short(double value, char *buffer, size_t size);
/* Bytes with a binary unit: "2.00 GiB". */
const char *number_print_bytes(double bytes, char *buffer, size_t size);

#endif
