/* The main kernel of the sm_90 backward of block masks. */
#include "kernels/sm90/bwd/instance.cuh"
#include "kernels/sm90/bwd/lists.cuh"

using namespace sm90_bwd;

/* As those of dense attention, without registers that the lists need. */
template <typename T> struct ListsD128 : TILE_NAME(128, 64, ONCE)<T> {
    static constexpr int V_STEPS = IS_BF16<T> ? 0 : 2;
};
template <typename T> struct LoopD128 : TILE_NAME(128, 64, LOOP)<T> {
    static constexpr int V_STEPS = IS_BF16<T> ? 0 : 3;
};
template <typename T> struct LoopD64 : TILE_NAME(64, 128, LOOP)<T> {
    static constexpr int V_STEPS = IS_BF16<T> ? 1 : 3, K_STEPS = IS_BF16<T> ? 0 : 3;
};

#define LISTS_TEXT "; block masks, not dense attention"

extern "C" const struct fused_sm90_bwd_tile fused_sm90_bwd_lists[] = {
    row_of<LoopD128, Lists, Plain>("bwd_lists_d128_k128q64_loop", "128 keys x 64 queries" LOOP_TEXT LISTS_TEXT),
    row_of<ListsD128, Lists, Plain>("bwd_lists_d128_k128q64", "128 keys x 64 queries" LISTS_TEXT),
    row_of<LoopD64, Lists, Plain>("bwd_lists_d64_k128q128_loop", "128 keys x 128 queries" LOOP_TEXT LISTS_TEXT),
    row_of<TILE_NAME(64, 128, ONCE), Lists, Plain>("bwd_lists_d64_k128q128", "128 keys x 128 queries" LISTS_TEXT),
    {}};
