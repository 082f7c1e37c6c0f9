/* The main kernel of the sm_90 backward of a softcap in dense attention. */
#include "kernels/sm90/bwd/instance.cuh"

using namespace sm90_bwd;

/* As in dense attention, without any of V or K in registers: P for dV takes these (KEEPS_P). Orders of a step are those
 * of bf16 that round P for dV early. No pairs: with these instructions power is no limit, and loops were faster. */
template <typename DenseTile> struct Capped : DenseTile {
    static constexpr int V_STEPS = 0, K_STEPS = 0;
    static constexpr Schedule SCHEDULE = DenseTile::HEAD_DIM == 128 ? D128 : D64_BF16;
};
template <typename T> using CappedOnceD128 = Capped < TILE_NAME(128, 64, ONCE) < T >> ;
template <typename T> using CappedLoopD128 = Capped < TILE_NAME(128, 64, LOOP) < T >> ;
template <typename T> using CappedOnceD64 = Capped < TILE_NAME(64, 128, ONCE) < T >> ;
template <typename T> using CappedLoopD64 = Capped < TILE_NAME(64, 128, LOOP) < T >> ;

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_softcap_dense[] = {
    row_of<CappedOnceD128, Dense, Softcap>("bwd_softcap_d128_k128q64", "128 keys x 64 queries; softcap"),
    row_of<CappedLoopD128, Dense, Softcap>("bwd_softcap_d128_k128q64_loop",
                                           "128 keys x 64 queries" LOOP_TEXT "; softcap"),
    row_of<CappedOnceD64, Dense, Softcap>("bwd_softcap_d64_k128q128", "128 keys x 128 queries; softcap"),
    row_of<CappedLoopD64, Dense, Softcap>("bwd_softcap_d64_k128q128_loop",
                                          "128 keys x 128 queries" LOOP_TEXT "; softcap"),
    {}};
