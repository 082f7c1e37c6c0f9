/* Shared libraries that are invalid plugins. One file, built once for each value of BAD_KIND:
 *   1 no_symbol   exports no fabench_impls
 *   2 abi_table   serves another ABI number only: answers NULL to ours
 *   3 abi_row     returns a table, but its row was compiled with another ABI number
 *   4 fault       writes through a null pointer in launch
 *   5 hang        never returns from launch
 *   6 exit        ends the process, with code 0, in launch
 *   7 error       launch answers ATTN_ERROR with a sentence
 *   8 empty       a table without a row
 *   9 release     its row is complete (and wrong: nothing is written), then release ends the process
 *  10 reserved    a name that the program keeps for its own
 *  11 letters     a name with letters that no name may have
 *  12 no_launch   a row without a launch function
 *  13 variant     a variant of a name that the program keeps for its own
 *  14 workspace   asks for 2^64 - 1 bytes of workspace at length 1, and for 1 KiB less with each token more
 *  15 killed      while the working folder has a file kill-me, launch ends the process as if it was killed from outside
 *  16 role        claims to be naive, which is judged with doubled bounds
 *  17 abi_1       serves ABI 1 only, as a library that was built with the first version of the header
 *  18 abi_2       serves ABI 2 only: the version before this one
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/attention.h"

#ifndef BAD_KIND
#error "BAD_KIND must be 1 to 18"
#endif

#if BAD_KIND == 1

int bad_plugin_exports_something_else(void);
int bad_plugin_exports_something_else(void) { return 0; }

#elif BAD_KIND == 2

const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl none[1];
    return abi == ATTN_ABI + 1000 ? none : NULL;
}

#elif BAD_KIND == 17 || BAD_KIND == 18

const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl none[1];
    return abi == BAD_KIND - 16 ? none : NULL;
}

#elif BAD_KIND == 8

const struct attn_impl *fabench_impls(int abi)
{
    static const struct attn_impl none[] = {{.abi = ATTN_ABI}};
    (void)abi;
    return none;
}

#else

static enum attn_status accepts(const struct attn_request *request, struct attn_message *why)
{
    return attn_check_attributes(request, 0, why);
}

static size_t workspace_bytes(const struct attn_request *request)
{
    (void)request;
#if BAD_KIND == 14
    return SIZE_MAX - 1024 * (size_t)(request->problem->q_len - 1);
#else
    return 0;
#endif
}

static enum attn_status launch(const struct attn_request *request, const struct attn_tensors *tensors,
                               const struct attn_run *run, struct attn_message *why)
{
    (void)request, (void)tensors, (void)run, (void)why;
#if BAD_KIND == 4
    volatile float *volatile nowhere = NULL;
    *nowhere = 1.0f;
#elif BAD_KIND == 5
    for (volatile unsigned spins = 0;; spins++)
        ;
#elif BAD_KIND == 6
    exit(0);
#elif BAD_KIND == 7
    strcpy(why->text, "the launch failed on purpose");
    return ATTN_ERROR;
#elif BAD_KIND == 15
    if (access("kill-me", F_OK) == 0)
        raise(SIGKILL);
#endif
    return ATTN_OK;
}

#if BAD_KIND == 3
#define ROW_ABI (ATTN_ABI + 1000)
#define ROW_NAME "bad_abi_row"
#elif BAD_KIND == 4
#define ROW_NAME "bad_fault"
#elif BAD_KIND == 5
#define ROW_NAME "bad_hang"
#elif BAD_KIND == 6
#define ROW_NAME "bad_exit"
#elif BAD_KIND == 9
#define ROW_NAME "bad_release"
#elif BAD_KIND == 10
#define ROW_NAME "cudnn"
#elif BAD_KIND == 11
#define ROW_NAME "Bad-Letters"
#elif BAD_KIND == 12
#define ROW_NAME "bad_no_launch"
#elif BAD_KIND == 13
#define ROW_NAME "bad_variant"
#elif BAD_KIND == 14
#define ROW_NAME "bad_workspace"
#elif BAD_KIND == 15
#define ROW_NAME "bad_killed"
#elif BAD_KIND == 16
#define ROW_NAME "bad_role"
#else
#define ROW_NAME "bad_error"
#endif
#ifndef ROW_ABI
#define ROW_ABI ATTN_ABI
#endif

#if BAD_KIND == 9
static enum attn_status prepare(const struct attn_request *request, const struct attn_tensors *tensors, void **plan,
                                struct attn_message *why)
{
    (void)request, (void)tensors, (void)why;
    *plan = NULL;
    return ATTN_OK;
}

static void release(void *plan)
{
    (void)plan;
    _Exit(3);
}
#endif

#if BAD_KIND == 13
static const struct attn_variant variants[] = {{.name = "deterministic", .summary = "bad on purpose"}, {.name = NULL}};
#endif

static const struct attn_impl table[] = {
    {.abi = ROW_ABI,
     .name = ROW_NAME,
     .summary = "bad on purpose",
     .platform = ATTN_CPU,
     .accepts = accepts,
     .workspace_bytes = workspace_bytes,
#if BAD_KIND == 9
     .prepare = prepare,
     .release = release,
#endif
#if BAD_KIND == 13
     .variants = variants,
#endif
#if BAD_KIND == 16
     .role = ATTN_ROLE_NAIVE,
#endif
#if BAD_KIND == 12
     .launch = NULL},
#else
     .launch = launch},
#endif
    {.name = NULL},
};

const struct attn_impl *fabench_impls(int abi)
{
    (void)abi;
    return table;
}

#endif
