/* cuBLAS at run time. The program is not linked with it: loading cuBLAS and cuBLASLt takes a tenth of a second and maps
 * 200 MB, which most commands do not need. It is opened when a GPU path first needs it:
 *   1. the file that FABENCH_CUBLAS names, or libcublas.so.<major> in the folder that it names, in lib,
 *      nvidia/cublas/lib or nvidia/cu<major>/lib of that folder (Python's packages); no other place is searched then;
 *   2. libcublas.so.<major> by the loader's search: LD_LIBRARY_PATH, the program's RUNPATH, the system's folders;
 *   3. libcublas.so.<major> in the library folder of the toolkit that the program was built with.
 * <major> is the version of the cublas_api.h that the program was built with; other versions are refused. cuBLASLt
 * comes with cuBLAS, which is linked with it. An open library is never closed. */
#ifndef FABENCH_REFERENCE_CUBLAS_LIBRARY_H
#define FABENCH_REFERENCE_CUBLAS_LIBRARY_H

#include <cublasLt.h>
#include <cublas_v2.h>

#include "kernels/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every function that is used: its name in struct cublas_functions, its name in the library. */
#define CUBLAS_FUNCTIONS(FUNCTION) \
    FUNCTION(get_property, cublasGetProperty) \
    FUNCTION(get_status_string, cublasGetStatusString) \
    FUNCTION(create, cublasCreate_v2) \
    FUNCTION(destroy, cublasDestroy_v2) \
    FUNCTION(set_math_mode, cublasSetMathMode) \
    FUNCTION(set_stream, cublasSetStream_v2) \
    FUNCTION(get_stream, cublasGetStream_v2) \
    FUNCTION(set_workspace, cublasSetWorkspace_v2) \
    FUNCTION(gemm_strided_batched, cublasGemmStridedBatchedEx_64) \
    FUNCTION(gemm_batched, cublasGemmBatchedEx_64) \
    FUNCTION(lt_create, cublasLtCreate) \
    FUNCTION(lt_destroy, cublasLtDestroy) \
    FUNCTION(lt_matmul, cublasLtMatmul) \
    FUNCTION(lt_heuristic, cublasLtMatmulAlgoGetHeuristic) \
    FUNCTION(lt_product_create, cublasLtMatmulDescCreate) \
    FUNCTION(lt_product_destroy, cublasLtMatmulDescDestroy) \
    FUNCTION(lt_product_set, cublasLtMatmulDescSetAttribute) \
    FUNCTION(lt_layout_create, cublasLtMatrixLayoutCreate) \
    FUNCTION(lt_layout_destroy, cublasLtMatrixLayoutDestroy) \
    FUNCTION(lt_preference_create, cublasLtMatmulPreferenceCreate) \
    FUNCTION(lt_preference_destroy, cublasLtMatmulPreferenceDestroy) \
    FUNCTION(lt_preference_set, cublasLtMatmulPreferenceSetAttribute)

struct cublas_functions {
#define CUBLAS_FIELD(field, function) __typeof__(&function) field;
    CUBLAS_FUNCTIONS(CUBLAS_FIELD)
#undef CUBLAS_FIELD
};

/* Opens the library at the first call, from any thread; every later call returns the same result. NULL, with a sentence
 * in why (which may be NULL), where there is none. */
const struct cublas_functions *cublas_library(struct attn_message *why);

/* One attempt, for cublas_library and its test: opens what `named` says, as FABENCH_CUBLAS does; NULL or "" = places 2
 * and 3. False with a sentence. */
bool cublas_library_open(const char *named, struct cublas_functions *, struct attn_message *why);

#ifdef __cplusplus
}
#endif
#endif
