/* Loading a BLAS with dlopen. Only the two functions below are used, so their prototypes stand here and no BLAS header
 * is needed; both follow the LP64 interface (32-bit integers), which libraries of these two names have. */
#include "reference/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values of cblas.h, the same in every CBLAS. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void (*sgemm_function)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                               int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void (*set_threads_function)(int);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    const char *name;
    char asked[256], problem[384];
    sgemm_function sgemm;
    set_threads_function set_threads;
} blas;

static bool load_one(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(blas.problem, sizeof blas.problem, "%.250s", reason ? reason : name);
        return false;
    }
    void *sgemm = dlsym(library, "cblas_sgemm");
    if (!sgemm) {
        snprintf(blas.problem, sizeof blas.problem, "%.250s has no cblas_sgemm", name);
        dlclose(library);
        return false;
    }
    void *set_threads = dlsym(library, "openblas_set_num_threads");
    memcpy(&blas.sgemm, &sgemm, sizeof sgemm); /* POSIX lets void * hold a function, ISO C has no cast for it */
    memcpy(&blas.set_threads, &set_threads, sizeof set_threads);
    blas.name = name;
    blas.problem[0] = '\0';
    return true;
}

static void load(void)
{
    const char *asked = getenv("FABENCH_BLAS");
    if (asked && *asked) {
        if (strlen(asked) >= sizeof blas.asked) {
            snprintf(blas.problem, sizeof blas.problem, "FABENCH_BLAS is longer than %zu bytes", sizeof blas.asked - 1);
            return;
        }
        strcpy(blas.asked, asked);
        load_one(blas.asked);
        return;
    }
    if (!load_one("libopenblas.so.0") && !load_one("libblas.so.3"))
        snprintf(blas.problem, sizeof blas.problem,
                 "neither libopenblas.so.0 nor libblas.so.3 can be loaded; install libopenblas0 or set FABENCH_BLAS");
}

const char *blas_library(void)
{
    pthread_once(&once, load);
    return blas.name;
}

const char *blas_problem(void)
{
    pthread_once(&once, load);
    return blas.problem;
}

void blas_set_threads(int threads)
{
    pthread_once(&once, load);
    if (blas.set_threads)
        blas.set_threads(threads);
}

void blas_sgemm(int64_t m, int64_t n, int64_t k, float alpha, struct blas_operand a, struct blas_operand b, float beta,
                float *c, int64_t c_stride)
{
    pthread_once(&once, load);
    blas.sgemm(ROW_MAJOR, a.transposed ? TRANS : NO_TRANS, b.transposed ? TRANS : NO_TRANS, (int)m, (int)n, (int)k,
               alpha, a.data, (int)a.stride, b.data, (int)b.stride, beta, c, (int)c_stride);
}
