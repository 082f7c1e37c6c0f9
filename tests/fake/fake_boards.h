/* A made-up host of several boards, for tests on machines without a GPU. FAKE_BOARDS describes it: a word for each
 * board, with commas; several properties of one with +.
 *
 *   ok            nothing is special
 *   slow=P        its times are P per cent longer, and its clock is lower
 *   slow_long=P   its times of 256 rows or more are P per cent longer
 *   slow_once=P   the same, in the first run of its process group alone (FAKE_STATE names a folder that remembers)
 *   fails=K       falls off the bus at its Kth launch; FAKE_STATE remembers it, so that it cannot be opened again
 *   mig           a MIG slice
 *   exclusive     in exclusive use by another process
 *   others=N      N other processes use it
 *   uuid=I        has the UUID of board I
 *   clock=M       an H100's multiprocessors at M MHz at most
 *   memory=G      memory of G GB/s at most, behind a cache of 1 KB
 *
 * All values are invented. */
#ifndef FABENCH_TEST_FAKE_BOARDS_H
#define FABENCH_TEST_FAKE_BOARDS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_BOARDS_MAX = 16 };

struct fake_board {
    double slow_pct, slow_long_pct, slow_once_pct, clock_mhz, memory_gb_per_s;
    long fails_at;
    int others, uuid_of; /* uuid_of: the board itself, or another */
    bool is_mig, is_exclusive;
};

/* Ends the process where the description is not understood. */
static inline int fake_boards(struct fake_board boards[FAKE_BOARDS_MAX])
{
    const char *at = getenv("FAKE_BOARDS");
    int count = 0;
    while (at && *at && count < FAKE_BOARDS_MAX) {
        struct fake_board *board = &boards[count];
        *board = (struct fake_board){.uuid_of = count};
        for (;; at++) {
            const size_t length = strcspn(at, ",+");
            char word[40];
            snprintf(word, sizeof word, "%.*s", (int)length, at);
            const int known =
                sscanf(word, "slow=%lf", &board->slow_pct) + sscanf(word, "slow_long=%lf", &board->slow_long_pct) +
                sscanf(word, "slow_once=%lf", &board->slow_once_pct) + sscanf(word, "fails=%ld", &board->fails_at) +
                sscanf(word, "others=%d", &board->others) + sscanf(word, "uuid=%d", &board->uuid_of) +
                sscanf(word, "clock=%lf", &board->clock_mhz) + sscanf(word, "memory=%lf", &board->memory_gb_per_s);
            if (known != 1 && strcmp(word, "ok") && strcmp(word, "mig") && strcmp(word, "exclusive")) {
                fprintf(stderr, "FAKE_BOARDS: %s?\n", word);
                exit(99);
            }
            board->is_mig |= strcmp(word, "mig") == 0;
            board->is_exclusive |= strcmp(word, "exclusive") == 0;
            at += length;
            if (*at != '+')
                break;
        }
        count++;
        at += *at == ',';
    }
    return count;
}

static inline void fake_board_pci(int board, char *text, size_t size)
{
    snprintf(text, size, "0000:%02x:00.0", 16 * (board + 1));
}

static inline void fake_board_uuid(const struct fake_board *board, char *text, size_t size)
{
    snprintf(text, size, "%s-00000000-0000-0000-0000-%012d", board->is_mig ? "MIG" : "GPU", board->uuid_of);
}

#endif
