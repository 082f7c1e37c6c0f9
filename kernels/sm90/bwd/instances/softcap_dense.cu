/* The main kernel of the sm_90 backward of a softcap in dense attention. */
#include "kernels/sm90/bwd/instance.cuh"

using namespace sm90_bwd;

/* As in dense attention, without any of V or K in registers: P for dV takes these (KEEPS_P). Orders of a step are those
 * of bf16 that round P for dV early. No pairs: with these instructions power is no limit, and loops were faster. */
#define SOFTCAP_TILE(NAME, OF, ORDER)                                                                                  \
    template <typename T> struct NAME : OF<T> {                                                                        \
        static constexpr int V_STEPS = 0, K_STEPS = 0;                                                                 \
        static constexpr Schedule SCHEDULE = ORDER;                                                                    \
    };
SOFTCAP_TILE(CappedOnceD128, TILE_NAME(128, 64, ONCE), D128)
SOFTCAP_TILE(CappedLoopD128, TILE_NAME(128, 64, LOOP), D128)
SOFTCAP_TILE(CappedOnceD64, TILE_NAME(64, 128, ONCE), D64_BF16)
SOFTCAP_TILE(CappedLoopD64, TILE_NAME(64, 128, LOOP), D64_BF16)

/* With the times of dense attention (tiles.cuh). */
#define SOFTCAP_DENSE_ROW(NAME, TILE, STEP_TIME, BLOCK_TIME, START_TIME, IS_LOOP, CLUSTER, SUMMARY)                    \
    {{{NAME, SUMMARY "; softcap"}, TILE<__half>::HEAD_DIM, 1, smem_bytes<TILE, Dense>()},                              \
     {TILE<__half>::Q_TILE, STEP_TIME, BLOCK_TIME, START_TIME, IS_LOOP, CLUSTER, false},                               \
     true,                                                                                                             \
     true,                                                                                                             \
     false,                                                                                                            \
     sizeof(Dense::Listed),                                                                                            \
     {WORK_KERNELS(TILE, Dense, Softcap, false), WORK_KERNELS(TILE, Dense, Softcap, true)}},

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_softcap_dense[] = {
    SOFTCAP_DENSE_ROW("bwd_softcap_d128_k128q64", CappedOnceD128, 100, 200, 0, false, 1, "128 keys x 64 queries")
        SOFTCAP_DENSE_ROW("bwd_softcap_d128_k128q64_loop", CappedLoopD128, 100, 160, 40, true, 1,
                          "128 keys x 64 queries" TEXT_END_LOOP)
            SOFTCAP_DENSE_ROW("bwd_softcap_d64_k128q128", CappedOnceD64, 100, 200, 0, false, 1,
                              "128 keys x 128 queries")
                SOFTCAP_DENSE_ROW("bwd_softcap_d64_k128q128_loop", CappedLoopD64, 100, 160, 40, true, 1,
                                  "128 keys x 128 queries" TEXT_END_LOOP){}};
