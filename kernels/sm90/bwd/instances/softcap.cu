/* The main kernel of the sm_90 backward of a softcap with windows or packed lengths. */
#include "kernels/sm90/bwd/instance.cuh"
#include "kernels/sm90/bwd/ranges.cuh"

using namespace sm90_bwd;

/* As those of windows in bf16, in fp16, too, without any of V: P for dV takes the registers (KEEPS_P). */
template <typename T> struct SoftcapD128 : TILE_NAME(128, 64, ONCE)<T> {
    static constexpr int V_STEPS = 0, K_STEPS = 0;
};
template <typename T> struct SoftcapD64 : TILE_NAME(64, 128, ONCE)<T> {
    static constexpr int V_STEPS = 0, K_STEPS = 0;
    static constexpr Schedule SCHEDULE = D64_BF16;
};

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_softcap[] = {
    row_of<SoftcapD128, Ranges, Softcap>("bwd_softcap_ranges_d128_k128q64", "128 keys x 64 queries; softcap"),
    row_of<SoftcapD64, Ranges, Softcap>("bwd_softcap_ranges_d64_k128q128", "128 keys x 128 queries; softcap"),
    {}};
