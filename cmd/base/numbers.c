/* Strict number parsing and printing. strto* is called only on text that was already checked against the grammar. */
#include "cmd/base/numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cmd/base/log.h"

enum { LIST_LIMIT = 4096 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool number_multiply(int64_t a, int64_t b, int64_t *product) { return !__builtin_mul_overflow(a, b, product); }

/* The count at text[0, length). */
static bool count_in(const char *text, size_t length, int64_t *value)
{
    const char last = length > 1 ? text[length - 1] : 0;
    const int64_t unit = last == 'k' ? 1024 : last == 'm' ? 1048576 : 1;
    const size_t digits = unit > 1 ? length - 1 : length;
    int64_t sum = 0;
    if (digits == 0)
        return false;
    for (size_t i = 0; i < digits; i++)
        if (!is_digit(text[i]) || !number_multiply(sum, 10, &sum) || __builtin_add_overflow(sum, text[i] - '0', &sum))
            return false;
    if (!number_multiply(sum, unit, &sum))
        return false;
    *value = sum;
    return true;
}

bool number_parse_count(const char *text, int64_t *value) { return count_in(text, strlen(text), value); }

/* Length of [sign] digits [. digits] [e [sign] digits] at the start of text, at least one digit in the mantissa; 0 when
 * there is none. */
static size_t real_length(const char *text)
{
    const char *at = text;
    int digits = 0;
    if (*at == '+' || *at == '-')
        at++;
    for (; is_digit(*at); at++)
        digits++;
    if (*at == '.')
        for (at++; is_digit(*at); at++)
            digits++;
    if (digits == 0)
        return 0;
    if (*at == 'e' || *at == 'E') {
        const char *exponent = at + 1;
        if (*exponent == '+' || *exponent == '-')
            exponent++;
        if (!is_digit(*exponent))
            return 0;
        for (at = exponent; is_digit(*at); at++)
            continue;
    }
    return (size_t)(at - text);
}

/* The real number that `text` starts with; `rest` is what follows it. */
static bool real_at(const char *text, double *value, const char **rest)
{
    const size_t length = real_length(text);
    char *end;
    if (length == 0)
        return false;
    errno = 0;
    const double parsed = strtod(text, &end);
    /* ERANGE: a subnormal result is the nearest double and is taken; underflow to 0 and overflow to infinity are
     * refused. */
    if (end != text + length || !isfinite(parsed) || (errno == ERANGE && parsed == 0))
        return false;
    *value = parsed;
    *rest = end;
    return true;
}

bool number_parse_real(const char *text, double *value)
{
    const char *rest;
    double parsed;
    if (!real_at(text, &parsed, &rest) || *rest)
        return false;
    *value = parsed;
    return true;
}

bool number_parse_percent(const char *text, double *percent)
{
    const char *rest;
    double parsed;
    if (!real_at(text, &parsed, &rest) || (*rest && strcmp(rest, "%") != 0) || parsed < 0)
        return false;
    *percent = parsed;
    return true;
}

static bool list_append(int64_t **values, int *count, int64_t value, char *why, size_t why_size)
{
    for (int i = 0; i < *count; i++)
        if ((*values)[i] == value)
            return true;
    if (*count >= LIST_LIMIT) {
        snprintf(why, why_size, "a list has at most %d values", LIST_LIMIT);
        return false;
    }
    *values = xrealloc(*values, (unsigned long)(*count + 1) * sizeof **values);
    (*values)[(*count)++] = value;
    return true;
}

/* One "first:last:*factor" or "first:last:+step" at item[0, length), whose first colon is at `colon`. */
static bool range_append(const char *item, size_t length, const char *colon, int64_t **values, int *count, char *why,
                         size_t why_size)
{
    const char *end = item + length;
    const char *second = memchr(colon + 1, ':', (size_t)(end - colon - 1));
    int64_t first, last, step;
    if (!second || second + 1 >= end || (second[1] != '*' && second[1] != '+') ||
        !count_in(item, (size_t)(colon - item), &first) || !count_in(colon + 1, (size_t)(second - colon - 1), &last) ||
        !count_in(second + 2, (size_t)(end - second - 2), &step)) {
        snprintf(why, why_size, "\"%.*s\" is not a range; ranges are written 1k:16k:*2 or 512:4k:+512",
                 (int)(length > 60 ? 60 : length), item);
        return false;
    }
    const bool multiply = second[1] == '*';
    if (first > last || (multiply ? step < 2 || first < 1 : step < 1)) {
        snprintf(why, why_size, "the range \"%.*s\" %s", (int)(length > 60 ? 60 : length), item,
                 first > last ? "ends before it begins"
                 : multiply   ? "never grows; it needs a start above 0 and *2 or more"
                              : "never grows; it needs +1 or more");
        return false;
    }
    for (int64_t value = first; value <= last;) {
        if (!list_append(values, count, value, why, why_size))
            return false;
        if (multiply ? !number_multiply(value, step, &value) : __builtin_add_overflow(value, step, &value))
            break;
    }
    return true;
}

bool number_parse_list(const char *text, int64_t **values, int *count, char *why, size_t why_size)
{
    const int count_before = *count;
    for (const char *item = text;; item++) {
        const size_t length = strcspn(item, ",");
        const char *colon = memchr(item, ':', length);
        int64_t value;
        bool good;
        if (length == 0) {
            snprintf(why, why_size, *text ? "an item of the list is empty" : "the list is empty");
            good = false;
        } else if (colon) {
            good = range_append(item, length, colon, values, count, why, why_size);
        } else if (count_in(item, length, &value)) {
            good = list_append(values, count, value, why, why_size);
        } else {
            snprintf(why, why_size, "\"%.*s\" is not a whole number (digits, k for 1024, m for 1024k)",
                     (int)(length > 60 ? 60 : length), item);
            good = false;
        }
        if (!good) {
            *count = count_before;
            return false;
        }
        item += length;
        if (!*item)
            return true;
    }
}

const char *number_print_count(int64_t value, char *buffer, size_t size)
{
    if (value > 0 && value % 1024 == 0)
        snprintf(buffer, size, "%" PRId64 "k", value / 1024);
    else
        snprintf(buffer, size, "%" PRId64, value);
    return buffer;
}

const char *number_print_short(double value, char *buffer, size_t size)
{
    const int digits = fabs(value) < 1 ? 3 : 4;
    char scientific[40];
    if (!isfinite(value)) {
        snprintf(buffer, size, "%s", isnan(value) ? "-" : value > 0 ? "inf" : "-inf");
        return buffer;
    }
    /* The number of decimals follows from the exponent after rounding: 9.9996 is "10.00", not "10.000". */
    snprintf(scientific, sizeof scientific, "%.*e", digits - 1, value);
    const int exponent = atoi(strchr(scientific, 'e') + 1);
    if (value == 0)
        snprintf(buffer, size, "0");
    else if (exponent < -4 || exponent > 6)
        snprintf(buffer, size, "%.2e", value);
    else
        snprintf(buffer, size, "%.*f", exponent < digits - 1 ? digits - 1 - exponent : 0, value);
    return buffer;
}

const char *number_print_bytes(double bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    if (!isfinite(bytes)) {
        snprintf(buffer, size, "%s", isnan(bytes) ? "-" : "inf");
        return buffer;
    }
    while (unit < 5 && fabs(bytes) >= (unit ? 1023.995 : 1024.0)) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer, size, "%.*f %s", unit ? 2 : 0, bytes, units[unit]);
    return buffer;
}

uint64_t number_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

uint64_t number_secret(void)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        struct timespec now = {0};
        clock_gettime(CLOCK_REALTIME, &now);
        number = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    }
    return number;
}

uint64_t number_mix_text(uint64_t seed, const char *text)
{
    for (; *text; text++)
        seed = number_mix(seed * 31 + (unsigned char)*text);
    return seed;
}
