/* CUDA devices that are none, for tests of several devices: linked into a program in the place of
 * cmd/device/backend.c, they are the CPU under the names of FAKE_BOARDS (fake_boards.h). What is launched is computed;
 * its time is made up from the problem, the board and the number of the sample, so that no verdict of a test depends on
 * the machine. */
#include "tests/fake/fake_boards.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/device/backend.h"

static enum attn_status open_fake(struct backend *, int ordinal, struct attn_message *why);
static enum attn_status list_fake(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why);

#ifndef FABENCH_WITH_CUDA
#define FABENCH_WITH_CUDA
#endif
#define backend_open_cuda open_fake
#define backend_list_cuda list_fake
#include "cmd/device/backend.c"

static struct backend_ops ops;
static const struct backend_ops *cpu_ops;
static struct fake_board board;
static int ordinal_here;
static long launches, samples;

/* The file that remembers an event of a board; NULL without FAKE_STATE. The caller frees it. */
static char *state_file(int ordinal, const char *what)
{
    const char *folder = getenv("FAKE_STATE");
    return folder ? xasprintf("%s/board-%d-%s", folder, ordinal, what) : NULL;
}

static bool has_happened(int ordinal, const char *what)
{
    char *path = state_file(ordinal, what);
    const bool has = path && access(path, F_OK) == 0;
    free(path);
    return has;
}

static void remember(int ordinal, const char *what)
{
    char *path = state_file(ordinal, what);
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file)
        fclose(file);
    free(path);
}

/* False from the launch on at which the board falls off the bus. */
static bool is_there(struct attn_message *why)
{
    if (!board.fails_at || ++launches < board.fails_at)
        return true;
    remember(ordinal_here, "lost");
    snprintf(why->text, sizeof why->text, "unspecified launch failure (made up)");
    return false;
}

static enum attn_status launch_fake(struct backend *be, const struct launcher *l, struct attn_message *why)
{
    return is_there(why) ? cpu_ops->launch(be, l, why) : ATTN_ERROR;
}

/* FAKE_VARIANTS="tile_b=0.9 tile_c=1.1": what the time of a variant is multiplied with; 1 where it is not there. */
static double variant_factor(const struct launcher *l)
{
    const char *name = l->impl && l->impl->variant && l->request ? l->impl->variant(l->request) : NULL;
    const char *at = getenv("FAKE_VARIANTS");
    for (; name && at && *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, strlen(name)) == 0 && at[strlen(name)] == '=')
            return strtod(at + strlen(name) + 1, NULL);
    return 1;
}

/* As long as its length is, 3 more or less in 1000 by the number of the sample, and longer on a slow board. */
static enum attn_status sample_fake(struct backend *be, const struct launcher *l, bool cold, double *time_ms,
                                    struct attn_message *why)
{
    if (!is_there(why))
        return ATTN_ERROR;
    const enum attn_status status = cpu_ops->sample(be, l, cold, time_ms, why);
    const double noise = 0.001 * (double)((samples * 7919 + 13 * ordinal_here) % 7 - 3);
    const bool is_long = l->request && l->request->problem->q_len >= 256;
    const double slow_pct = board.slow_pct + board.slow_once_pct + (is_long ? board.slow_long_pct : 0);
    samples++;
    *time_ms = 1e-2 * (l->request ? (double)l->request->problem->q_len : 1) *
               (l->impl && strstr(l->impl->name, "naive") ? 3 : 1) * variant_factor(l) * (1 + noise) *
               (1 + slow_pct / 100);
    return status;
}

static void close_fake(struct backend *be)
{
    if (board.slow_once_pct > 0)
        remember(ordinal_here, "was-slow");
    cpu_ops->close(be);
}

static void name_fake(const struct fake_board *fake, int ordinal, struct device_info *info)
{
    snprintf(info->name, sizeof info->name, "NVIDIA Fake 100%s", fake->is_mig ? " MIG 1g.10gb" : "");
    fake_board_pci(ordinal, info->pci_bus_id, sizeof info->pci_bus_id);
    fake_board_uuid(fake, info->uuid, sizeof info->uuid);
}

static enum attn_status list_fake(struct device_info devices[DEVICES_MAX], int *count, struct attn_message *why)
{
    struct fake_board boards[FAKE_BOARDS_MAX];
    *count = fake_boards(boards);
    for (int i = 0; i < *count; i++) {
        memset(&devices[i], 0, sizeof devices[i]);
        name_fake(&boards[i], i, &devices[i]);
    }
    if (*count == 0)
        backend_say_no_device(12080, 12080, "none visible", why);
    return *count > 0 ? ATTN_OK : ATTN_ERROR;
}

static enum attn_status open_fake(struct backend *be, int ordinal, struct attn_message *why)
{
    struct fake_board boards[FAKE_BOARDS_MAX];
    const int count = fake_boards(boards);
    if (ordinal >= count) {
        snprintf(why->text, sizeof why->text, "cuda:%d: there are %d CUDA devices, numbered from 0", ordinal, count);
        return ATTN_ERROR;
    }
    board = boards[ordinal];
    ordinal_here = ordinal;
    if (board.is_exclusive || has_happened(ordinal, "lost")) {
        snprintf(why->text, sizeof why->text, "%s (made up)",
                 board.is_exclusive ? "all CUDA-capable devices are busy or unavailable" : "no CUDA-capable device");
        return ATTN_ERROR;
    }
    if (has_happened(ordinal, "was-slow"))
        board.slow_once_pct = 0;
    const enum attn_status status = backend_open_cpu(be, why);
    if (status != ATTN_OK)
        return status;
    cpu_ops = be->ops;
    ops = *cpu_ops;
    ops.close = close_fake;
    ops.launch = launch_fake;
    ops.sample = sample_fake;
    be->ops = &ops;
    name_fake(&board, ordinal, &be->info);
    snprintf(be->info.arch, sizeof be->info.arch, "fake");
    be->info.compute_capability = 90;
    be->info.multiprocessors = 132;
    be->info.max_sm_clock_mhz = board.clock_mhz;
    be->info.memory_gb_per_s = board.memory_gb_per_s;
    if (board.memory_gb_per_s > 0)
        be->info.l2_bytes = 1024;
    return ATTN_OK;
}
