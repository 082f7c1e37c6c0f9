/* fused_sm90, forward: FlashAttention (Dao 2023, algorithm 1) on wgmma and TMA, for compute capability 9.0.
 *
 * A block lives as long as the kernel, one on each multiprocessor, and takes tiles of BLOCK_M rows of one head, one after
 * the other. Two threads of one warpgroup copy, two to four warpgroups compute: each has 64 rows, whose scores, probabilities
 * and output stay in its registers, and all keys, or (KEY_SHARES 2) a half of every block of keys; such halves are added up
 * through shared memory.
 *
 *   two threads that copy, on into the next tile   consumer (a warpgroup of 64 rows)
 *   as far ahead as slots are free                   S = Q K_last^T; softmax
 *     .. K_2 K_1 K_0 Q' K'_last ..                   for n = last - 1 .. 0
 *        takes the next tile before K_1                in its turn issue S' = Q K_n^T, then O += P V_{n+1}
 *     .. V_2 V_1 V_0 V'_last ..                        d128: maxima of S' while O += P V still runs
 *                                                      wait for O; P = 2^S' in 16 bits
 *                                                      d64: maxima of P; where one is too large, of S', and P again
 *                                                      rescale O if a maximum moved
 *                                                    O += P V_0; O / l to Q's slot, TMA store
 *
 *   softmax, with c = scale * log2(e):
 *     m' = max(m, c rowmax(S))  only if that is more than 8 above m; else m' = m
 *     P = 2^(c S - m')          one FFMA and one ex2 an element
 *     l = 2^(m - m') l + rowsum(P); O likewise, only where some row of the warp moved its m
 *   A maximum that is stale by up to 8 keeps P below 2^8 and cancels in the end, as O and l are held against the same m.
 *   At the end O / l, LSE = ln 2 * (m + log2 l); a row without a key has l = 0: O = 0, LSE = -inf.
 *
 * Turns go round among a block's warpgroups: one starts its products when the one before has its scores, or has started the
 * first ones of all, or leaves out a block, so that one's products run beside another's exponentials. There are none in
 * causal tiles whose warpgroups leave out different blocks: there warpgroups are kept apart by waiting for the next V before
 * the exponentials and not when it is needed (all of d64 does).
 *
 * Masks exist in a warpgroup's last blocks only, where the diagonal or the end of the keys is: a uniform branch. Rows
 * past q_len and keys past kv_len are zeros (TMA) and masked; TMA does not write rows past q_len. Where a tile has more rows
 * than a warpgroup has keys of a block (d64), a warpgroup leaves out a tile's blocks that none of its rows sees, up to one,
 * and which of the rows it has goes round, as the last ones of a causal tile see the most.
 *
 * Order of tiles: heads in sections whose K and V fit into the L2; within a section the longest rows first, so that short
 * ones fill the end (causal), and head by head where all are equally long. The next tile comes from a counter in the
 * workspace that a memset of the same launch clears; there is none where each block has one tile.
 *
 * Shared memory (all tiles of 64-column panels, 128B swizzle; O goes out through Q's slot):
 *   | Q x Q_STAGES | K x STAGES | V x STAGES | barriers, places | exchange between shares x EXCHANGES |
 *
 * The assembler moves a wait for wgmma up past arithmetic, to the start of its basic block; where a wait shall stay behind
 * something there must be a branch in between. It also serialises products (C7511, C7515) whose sums are in flight over
 * the end of a loop.
 *
 * Ladder. fp16 on an H200 (700 W), 16384 tokens, hidden 2048, bshd, cold L2, at length 1k 4k 16k: speed over cuDNN 9.19's
 * in the same rounds (x), or per cent of the GEMM against the version before in one run (%). Comparisons of versions were
 * made with a scratch library of variants; the speed of the code as it stands is in results/h200/.
 *
 *   step                                             d128 full       d128 causal     d64 full        d64 causal
 *   1 FlashAttention-3's order of products     x     1.01 1.03 1.03  1.01 1.05 1.05  1.02 1.13 1.20  0.85 1.06 1.17
 *     (before: the wait for O in front of the softmax; a branch put it back: 65.8 73.5 76.2 -> 67.4 77.1 80.1 %)
 *   2 integer maxima of three (half the instructions; expected 5 %), one fence for both products, rounding beside the
 *     exponentials after the wait for O        %     68 79 82        51 70 76        47 57 64        30 48 58
 *                                              ->    72 84 88        52 74 82        49 60 67        32 52 63
 *   3 sections of equal size, so that no last one leaves multiprocessors without work; tiles taken late, K' before V_0
 *     (expected 5 to 10 % of causal)           %                     51 73 81                        33 54 66
 *                                              ->                    55 78 87                        36 56 66
 *   4 Q in registers for d128 (spares 1/3 of the reads of shared memory by Q K^T); undone by 7
 *                                              %     .. 81.0 85.0    .. 75.5 84.0
 *                                              ->    .. 81.7 85.9    .. 75.6 84.5
 *   5 three stages, and 128 rows for short causal d64                                1.02 -> 1.08 (1k) 0.88 -> 1.03 (1k)
 *   6 the producer divides by the group once a tile, not at every load of K and V, which waited for the unit that the
 *     exponentials saturate (expected up to 4 %)
 *                                              %     68.9 81.2 84.8  53.8 75.8 84.7  49.6 59.7 64.8  37.0 52.2 62.9
 *                                              ->    70.6 83.3 86.6  54.9 77.9 86.8  51.2 62.1 67.7  38.0 53.8 65.2
 *   7 Q of d128 in shared memory again: now worth 0.1 to 3 % where 4 was worth 1
 *                                              ->    71.6 85.4 89.2  55.0 78.7 88.0
 *   With 1 to 7, over cuDNN 9.19 in the rounds of one run, medians of three (results/h200/repeats/20261121-8989ea877b-sm90, another
 *   of repeats/, and 20261121-be7bff93ce-paper): d128 full 1.08 1.14 1.16, causal 1.13 1.22 1.24; d64 full 1.11 1.20 1.25,
 *   causal 1.06 1.16 1.25. Over the best peer's ratios to cuDNN: 0.99 (d128 causal 16k) to 1.11, geometric mean of 40 points
 *   1.037.
 *   no gain, each against its neighbours in one run:
 *     turns of the warpgroups (equal); one exponential in 4 or 8 by a polynomial of degree 3 on the FMA pipe (-6 to -12 %:
 *     the assembler puts it before the exponentials instead of between them); all blocks of all tiles as one sequence of
 *     steps (-2 % d128, -7 % d64 full); the next tile's first product beside the epilogue (-2 %, d64 -7 %); half of the
 *     exponentials before the wait for O (-2 %); 128 x 160 tiles (+-1 %); sections of 1/4, 1/2 or 1 L2 (+-0.5 %), all heads
 *     in one (-6 % at 4k). After 6 and 7: d128 192 x 80 (-2 to -22 %), 128 x 96 with three stages (-3 to -7 %); d64
 *     192 x 96 with four stages (-3 to -11 %), 128 x 192 (-8 to -17 %); the counter cleared by a kernel that this one overlaps with,
 *     instead of a memset (+-0.2 %).
 *   8 few tiles, as of one batch with 8 heads at 2k: 128 rows a tile at d64 too (88 tiles of 192 left a third of the
 *     multiprocessors without work; expected a third more)
 *                                              x                                    0.85 -> 1.02     0.89 -> 1.03
 *   9 for these, four warpgroups on 128 rows, the keys of a block halved between them: two alone took 1.46 us for 128 keys
 *     (2k and 4k of race 33), some 2200 clocks, of which products and exponentials need 1024 each (expected a third more)
 *                                              x                                    1.03 -> 1.13     1.04 -> 1.15
 *     Half of the rows finished by either share instead of all by one: + 0.4 %. No counter to clear where each block has
 *     one tile: d128 at 1k and 2k + 3 and 2 %
 *   10 256 x 64, four warpgroups, where the rows divide well (192 of 1k pad an eighth)
 *                                              x                                    1.11 -> 1.18 (1k)
 *   11 a warpgroup leaves out blocks that none of its rows sees (9 % of the work of 192 x 128 at 1k causal, 15 % of
 *     256 x 64; expected half of that), and has other rows in every tile (0.4 to 2 % of it)
 *       192 x 128 at 1k 2k 4k 8k               x                                                      0.94 1.11 1.15 1.23
 *                                             ->                                                      1.02 1.18 1.20 1.26
 *       256 x 64                               x                                                      1.04 1.09 1.12 1.15
 *                                             ->                                                      1.24 1.23 1.21 1.21
 *   12 also those of rows past q_len, 192 x 128 at 1k 4k 16k
 *                                              x                                    1.11 1.21 1.26   1.03 1.20 1.27
 *                                             ->                                    1.17 1.23 1.27   1.08 1.24 1.28
 *   13 the tile by its estimated time, not by bounds of length: of 26 shapes the best in 24, 0.9 and 4.7 %
 *     off in two (race 25)
 *     With 1 to 13 (results/h200/20261121-70a3c204a6-paper and two more of repeats/): d64 full 1.18 1.24 1.27, causal 1.25
 *     1.25 1.29; d128 full 1.08 1.14 1.16, causal 1.14 1.23 1.24. Over the best peer's: 0.992 to 1.249, geometric mean 1.069.
 *     no gain: 192 x 128 with four stages, 256 x 64 with eight (+-0.5 %); 256 x 80 does not fit its registers (C7512); the
 *     first tile's place found beside the barriers' set-up (-0.7 to +0.6 %); of 9, the shares or all four warpgroups started
 *     one after the other's first exponentials (-2.0 to +0.4 %)
 *   14 (d64) maxima of whole rows, four shuffles and a vote, only where a thread's own largest score passes a bound of the
 *     row; a loop that never repeats keeps the exponentials behind the wait for O (race 34)
 *                                              x                                    1.17 1.24 1.28   1.24 1.25 1.29
 *                                             ->                                    1.22 1.26 1.29   1.28 1.26 1.32
 *     Without that loop half of it. lazye of race 34, two comparisons and two choices a step fewer, is 2 to 6 % slower than
 *     this in the tiles whose FFMAs thereby lost .reuse of the rows' maxima in the listing, and 2 % in the tile that kept
 *     it (few tiles, full; causal equal): ports of the register file, which wgmma uses too, are a guess and not the whole of it.
 *   15 (d64) instead, maxima looked at after the weights, two in a register: 15 instructions for 64 scores instead of 32, not
 *     between S' and the exponentials, and scores outlive them for the rare case (expected 5 %; races 35 and 36)
 *       256 x 64                               x                                    1.18             1.25
 *                                             ->                                    1.30 1.30 1.29   1.34 1.36 1.36
 *       few tiles, 2k                          x                                    1.13             1.16
 *                                             ->                                    1.21             1.26
 *   16 turns (race 36; causal 256 x 64 loses 4 % to gains 1 %)
 *       192 x 128                              x                                    1.14 1.24 1.33
 *                                             ->                                    1.21 1.30 1.34
 *       256 x 64                              ->                                    1.31 1.31 1.31
 *       few tiles, 2k                         ->                                    1.23
 *   17 (d128) turns, and V waited for where it is needed (races 41 to 43)
 *                                              x     1.08 1.14 1.16  1.13 1.23 1.24
 *                                             ->     1.14 1.16 1.16  1.19 1.26 1.27
 *     The second without the first: 1.11 1.11 1.11 and 1.11 1.10 1.09 (race 38): both warpgroups do the same at the same time.
 *     The first without the second: 1.07 1.14, 1.13 1.24 (race 42).
 *   18 a quarter of Q in registers for 256 x 64, whose S takes 128 bytes a clock from shared memory (race 42)
 *                                              x                                    1.31 1.31 1.31   1.34 1.36 1.36
 *                                             ->                                    1.32 1.33 1.33   1.35 1.38 1.38
 *     Another build of the same, the registers as one array, gained nothing (race 43: 1.30 1.31 1.31, 1.34 1.36 1.35): of this
 *     gain the assembler's arrangement is a part, as of every 1 % here.
 *   19 64 x 128 between two warpgroups, all of Q in registers, where 128 rows leave multiprocessors without work (races 46
 *     and 47; 8 heads)
 *       1k                                     x                                    1.21             1.24
 *                                             ->                                    1.50             1.42
 *       2k                                     x                                                     1.26
 *                                             ->                                                     1.34
 *     and what two shares exchange in fours: + 0.2 %.
 *     With 1 to 19 (results/h200/repeats/20261122-219fe8cd71-paper and two more): d64 full 1.33 1.33 1.34, causal 1.35 1.38
 *     1.38; d128 full 1.14 1.16 1.16, causal 1.20 1.26 1.27. Over the best peer's: 1.011 to 1.349, geometric mean 1.127.
 *     no gain: d128 by 15 (-3 % full from 4k on, few tiles -20 % without turns); half of the exponentials' arguments before the
 *     wait for O (d64 -3 %); a turn passed between both products (d64 -1 to -5 %, d128 -1 to +0.8 %), turns in pairs of
 *     four warpgroups (-1 to -3 %), one after the other's share (+-0.2 %); P in two buffers, or written before O is there, is
 *     serialised (C7513); for 256 x 64 more of Q in registers spills; 128 x 128 between two warpgroups (1.13 beside 1.23), 64 x 256
 *     (1k 1.53 and 1.43, 4 heads at 2k 1.69 beside 1.58, but 2k causal 1.28 beside 1.34); descriptors asked for by another
 *     warp (+-0.5 %).
 *   20 (all) the threads that copy are chosen by elect.sync and not by threadIdx.x == 0, of which the assembler does not see
 *     that it is one thread: it had put a loop of ten instructions around each copy (race 59; 56 for the division)
 *       d64 1k 4k 16k                          x                                    1.32 1.33 1.34   1.34 1.37 1.38
 *         places by products, no division     ->                                    1.34 1.33 1.34   1.37 1.38 1.37
 *         elect.sync                          ->                                    1.37 1.36 1.36   1.40 1.41 1.41
 *       d128 1k 4k 16k                         x     1.14 1.16 1.16  1.19 1.26 1.27
 *         places by products                  ->     1.15 1.16 1.16  1.21 1.27 1.27
 *         elect.sync                          ->     1.18 1.19 1.19  1.24 1.29 1.29
 *     Every instruction of these threads is issued beside the 850 (by the listing) that the consumers in the same quarter of
 *     the multiprocessor execute in a step: a loop over K and V, some 30 more a step, takes up to 2 % back (race 62).
 *   21 (d64) V by a thread of its own in the next quarter (races 63, 64, 66)
 *       d64 1k 4k 16k                         ->                                    1.38 1.37 1.37   1.43 1.43 1.43
 *       d128 1k 4k 16k                        ->     1.17 1.18 1.18  1.22 1.28 1.29
 *     d128 is 0.1 to 1 % behind one thread without the early loads of 22 (nh, race 66). Why is not understood: V's thread alone
 *     costs 1 % at 1k and gains 0.2 to 0.5 % from 4k on (s1, s3 beside bh, race 63; causal 4k -0.2 to 0.1 %); versions with
 *     neither are 0.2 to 1.4 % behind too (cc and ff beside nn, races 59 and 60); the query heads as one number gave 0.5 % back
 *     at 1k full (s7 beside s5); where the code lies does not matter (races 64 and 65).
 *   22 few tiles: one step of Q in registers for 128 x 128 (full: nothing in race 50, 0.4 % after 20 and 1.2 to 1.5 % with what
 *     follows, race 61; causal -1.7 % in race 50 and not measured since); the first loads before the block's first barrier, and
 *     what is seldom executed out of the way of what is fetched first: instructions come from cold caches too (race 54)
 *       2k by 20 to 22 (race 66)               x                                    1.24             1.35
 *                                             ->                                    1.28             1.38
 *     no gain, 2k full: the first Q and K asked for by address, for their pages (-1.3 to -2 %, though the clocks of a loop of
 *     one kernel show them 300 clocks earlier), O and LSE likewise (-0.4 to -0.9 %), LSE stored after O (0 to -0.7 %), two steps
 *     of Q in registers (spills, -33 %). One copying warp instead of four does not give consumers more registers: 17 warps are
 *     five in one quarter, which leaves 96 for each.
 *     With 1 to 22 (results/h200/repeats/20261122-b3293dff7c-fwd and two more): d64 full 1.38 1.37 1.37, causal 1.44 1.43
 *     1.43; d128 full 1.17 1.18 1.18, causal 1.23 1.29 1.29. Over the best peer's: 1.027 to 1.441, geometric mean 1.160.
 *   23 (d128) 64 x 128 between two warpgroups, all of Q in registers, one exchange instead of two, which do not fit; where 128
 *     rows leave multiprocessors without work, or causal with the longest tile alone (race 70; 8 heads; expected a
 *     third)
 *       1k                                     x     1.19             1.19
 *                                             ->     1.59             1.59
 *       2k                                     x                      1.19
 *                                             ->                      1.48
 *     where both tiles are busy all the time it takes 1.14 to 1.21 times as long a row and key; 12 heads at 2k, which the
 *     estimate gives to it: full +7 %, causal -4 %. No gain: 96 keys with three stages (-1 to -7 %), maxima after (-1 to
 *     -10 %).
 *   24 few tiles: where a tile is is known before its Q, and what a warpgroup works out for it is done while Q is on its way
 *     (+0.9 %); no requests for descriptors right before the loads that fetch them themselves (0 to +0.4 %)
 *       2k full (races 71 and 73)              x                                    1.28
 *                                             ->                                    1.29
 *     d128 loses 0 to 0.7 %, without an instruction of its loop changed. In race 74 the same loop was 0.1 to 0.5 % faster
 *     moved to a multiple of 32 bytes, -0.2 to +0.4 % moved elsewhere: not used.
 *     no gain, 2k full: the first step's maxima and weights once on zeros while the first K is on its way (-4.6 %; why is not
 *     known); each tile of rows begins its keys at another place (-1 to -2.7 %: then the blocks of a head do not ask for the
 *     same lines at the same time); V's thread finds its first tile itself (-0.3 to -0.4 %), waits for Q and not for the place
 *     (0 to +0.2 %); the first three barriers set up and used before the others (-0.3 to +0.4 %, not used until 25)
 *     With 1 to 24 (results/h200/repeats/20261122-9fb46a1b48-paper and two more): d64 full 1.38 1.37 1.37, causal 1.43 1.43
 *     1.43; d128 full 1.17 1.18 1.17, causal 1.23 1.29 1.29. Over the best peer's: 1.026 to 1.431, geometric mean 1.158.
 *   25 (races 84 to 93; per cent of each step beside the one before, which do not add up, as the assembler arranges every
 *     version in its own way)
 *       the first products of a block in turns, too: all at once each of them ended late: few tiles of d64 full +0.9 to 1.5 %
 *         (beside two other ways to end a tile 0.1 to 0.4), causal at 1k and 2k +1.4 and 1.6 %; d128 full -0.2 to +0.6 %
 *       the first three barriers set up and used before the others: 0 to +0.5 %
 *       the second share alone ends a tile, as it is half a step behind the first where there are turns, and does all but O
 *         while the last product runs: few tiles of d64 full equal, causal +0.6 to 1.0 % (4k -0.7), d128 of two shares -2.2
 *         to +0.9 %
 *       that, too, for d128 in one share: +0.2 to 2.2 % (race 93; -0.5 to +0.8 in race 90)
 *       the turn passed when the scores are there, and not when both products have been issued: few tiles of d64 full 0 to
 *         0.2 %, the grid -0.1 to +0.2 %, other few tiles -0.9 to +0.6 %
 *       operands of wgmma by keep_uniform: the loop of few tiles has 402 instructions by the listing and had 412, d128's 682
 *         and 692; all ten were between products: few tiles of d64 +0.6 to 1.3 %, d64 +0.4 to 0.8 %, d128 +0.2 to 0.8 %
 *       race 93, 1k 4k 16k                     x     1.16 1.17 1.18  1.23 1.29 1.29  1.38 1.37 1.37  1.43 1.43 1.43
 *                                             ->     1.19 1.19 1.19  1.25 1.30 1.30  1.39 1.38 1.38  1.44 1.44 1.44
 *       race 92, 2k, 8 heads                   x     1.18            1.45            1.29            1.38
 *                                             ->     1.20            1.48            1.32            1.42
 *     no gain, few tiles of d64 full: the first Q and K by the consumers' own copies (-2.3 to -3.7 %: K is there 900 to 1000
 *     clocks later than by the copy engine, Q 1100, races/20261122-clock-k2-race.txt), the first place from a grid of three
 *     dimensions (-0.3 %), O stored by its threads (-0.6 %), the way from the exchange on gone once beforehand for its
 *     instructions' sake (-0.1 to -0.4 %), barriers for halves of Q and K (-1.6 %), the first products of every tile in turns
 *     (-0.1 to -0.3 %), the turn passed before the last product (-0.2 to -0.9 %), the last two (-0.5 to -1.5), three (-1.7 to
 *     -2.3), LSE after O (+0.2 to 0.5 % by itself; +0.1 to 0.4 with the first products in turns, where LSE before it has +1.2
 *     to 1.5); V's slot taken from K's of the step before (d64 full +0.5 % up to 4k, -0.2 at 16k, few tiles -1.5 to +0.1 %);
 *     the base of shared memory by keep_uniform (d64 full 0 to +0.4 %, causal -0.5 to -0.8, few tiles of 2k -0.3 to -0.7).
 *     The same source in other words, loops of as many instructions in another order, was up to 1.7 % slower (race 93: d2,
 *     e2, f2).
 *     With 1 to 25 (results/h200/repeats/20261122-c4e10af3bc-sm90 and two more): d64 full 1.39 1.38 1.38, causal 1.44 1.44
 *     1.44; d128 full 1.19 1.19 1.19, causal 1.25 1.30 1.30. Over the best peer's: 1.035 to 1.440, geometric mean 1.169.
 *   racecheck reports which tile a slot of Q holds (`place`), written by the thread that copies Q against the reads of the
 *   slot's last use, where a block takes as many tiles as there are slots, or more. The reads come before a __syncwarp and
 *   that before the arrival of lane 0 at q_empty, which the producer waits for: of the kind that the head of
 *   fused_sm90_bwd.cu explains.
 *   Few tiles (one batch, 8 heads, 2k; bar: within 7 % of the grid's r at 2k): d64 full -2.9 % on one host and -5.8 % on
 *     another (by 24: -4.1 and -7.1 %), causal -2.0 and -1.3, d128 +3.2 and +0.2, +14 and +14 % (medians of three processes;
 *     the first host has two GPUs, the other of which was busy; results/h200/20261122-c4e10af3bc-few-tiles.csv).
 *   synccheck reported the barrier of two shares while it was bar_sync (20261122-59a95f0bcd-checks.txt); bar_sync_apart, the
 *   same instruction marked as one to come to apart, it has nothing against (20261122-c4e10af3bc-checks.txt).
 *   next: 64 x 256 beside 64 x 128, and 12 heads of d128, where the estimate of
 *     time knows what a tile costs beside its keys. d128 from 8k on runs into the power limit: K and V by multicast to pairs
 *     of blocks; the upper halves of operands, which are set again for every product. Where a loop begins, in all tiles.
 *     d64: row sums as eight more columns of O += P V, ones in V, spares a tenth of a step's instructions, but LSE comes from
 *     rounded weights then. The 2300 clocks from the first request for Q to its arrival, which are 900 where memory is warm
 *     (20261122-clock-k2-cold.txt). `place` read by lane 0 alone, which racecheck would follow.
 */
#include "kernels/sm90/fused_sm90.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/common/checks.h"
#include "kernels/device/bar_sync.cuh"
#include "kernels/device/divide.cuh"
#include "kernels/device/elect.cuh"
#include "kernels/device/exp2.cuh"
#include "kernels/device/ldmatrix.cuh"
#include "kernels/device/mbarrier.cuh"
#include "kernels/device/pack.cuh"
#include "kernels/device/panel_sm80.cuh"
#include "kernels/device/pipeline_state.cuh"
#include "kernels/device/setmaxnreg.cuh"
#include "kernels/device/shared_memory.cuh"
#include "kernels/device/softmax_sm80.cuh"
#include "kernels/device/softmax_sm90.cuh"
#include "kernels/device/stmatrix.cuh"
#include "kernels/device/tma.cuh"
#include "kernels/device/uniform.cuh"
#include "kernels/device/wgmma.cuh"
#include "kernels/common/tensor_map.h"

namespace {

using namespace device;

constexpr int WARPGROUP = 128, ROW_BYTES = 128, PANEL_COLUMNS = 64, Q_STAGES = 2;
constexpr int64_t MAX_LEN = INT32_MAX - 65536; /* column and row numbers of whole tiles stay within an int */
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
constexpr float STALE_LOG2 = 8.0f; /* how far a row's maximum may lag behind */
/* The maximum of a row that has seen no key: finite, so that a masked score less it is -inf and no NaN. */
constexpr float NO_MAXIMUM = -FLT_MAX;
constexpr size_t COUNTER_BYTES = 256;

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* When a warpgroup looks whether a maximum has to move. BEFORE it weighs the scores, while O += P V still runs; or AFTER, at
 * the weights, of which there are two in a register, beginning over in the rare case. AFTER is fewer instructions and needs
 * the scores until the end; and it has the next V before the exponentials, which keeps warpgroups apart without turns. */
enum Look { BEFORE, AFTER };

/* head_dim, rows, keys, stages of K and V, among how many warpgroups of the same rows the keys of a block are divided, when
 * maxima are looked at, how many steps of 16 columns of Q are in registers, and how long a row and key takes beside the other tiles
 * of the head_dim, in per cent. */
#define FWD_TILES(ROW)                                                                                                 \
    ROW(128, 128, 128, 2, 1, BEFORE, 0, 100)                                                                           \
    ROW(128, 64, 128, 2, 2, BEFORE, 8, 120)                                                                            \
    ROW(64, 192, 128, 3, 1, AFTER, 0, 100)                                                                             \
    ROW(64, 256, 64, 5, 1, AFTER, 1, 99)                                                                               \
    ROW(64, 128, 128, 3, 2, AFTER, 1, 104)                                                                             \
    ROW(64, 64, 128, 5, 2, AFTER, 4, 150)

#define TILE_NAME(DIM, ROWS, KEYS, KV, SHARES) FwdD##DIM##M##ROWS##N##KEYS##S##KV##K##SHARES
#define TILE_STRUCT(DIM, ROWS, KEYS, KV, SHARES, WHEN, HELD, COST)                                                     \
    struct TILE_NAME(DIM, ROWS, KEYS, KV, SHARES) {                                                                    \
        static constexpr int HEAD_DIM = DIM, BLOCK_M = ROWS, BLOCK_N = KEYS, STAGES = KV, KEY_SHARES = SHARES;         \
        static constexpr int HELD_STEPS = HELD;                                                                        \
        static constexpr bool LOOKS_AFTER = WHEN == AFTER;                                                             \
    };
FWD_TILES(TILE_STRUCT)

template <typename Tile> struct Size {
    static constexpr int ROW_GROUPS = Tile::BLOCK_M / 64, CONSUMERS = ROW_GROUPS * Tile::KEY_SHARES;
    static constexpr int THREADS = WARPGROUP * (1 + CONSUMERS);
    static constexpr int PANELS = Tile::HEAD_DIM / PANEL_COLUMNS;
    static constexpr int Q_PANEL_BYTES = Tile::BLOCK_M * ROW_BYTES, KV_PANEL_BYTES = Tile::BLOCK_N * ROW_BYTES;
    static constexpr int KEYS = Tile::BLOCK_N / Tile::KEY_SHARES;         /* of a block, for one warpgroup */
    static constexpr int SCORES = KEYS / 2, OUTPUTS = Tile::HEAD_DIM / 2; /* registers of a thread */
    /* What a thread of the first share gives to the second: O, and the maxima and sums of its two rows. */
    static constexpr int GIVEN = OUTPUTS + 4, LAST_SHARE = Tile::KEY_SHARES - 1;
    static constexpr int EXCHANGE = Tile::KEY_SHARES == 1 ? 0 : ROW_GROUPS * GIVEN * WARPGROUP;
    static constexpr int EXCHANGES = PANELS == 1 ? Q_STAGES : 1; /* of two panels only one fits */
    static constexpr int HELD_Q = Tile::HELD_STEPS > 0 ? Tile::HELD_STEPS : 1; /* there is no array of none */
    /* LSE and 1 / l while the last product runs. The loop of d64 in one share becomes another by it, in 192 x 128 a slower
     * one by 1.6 % (race 87). */
    static constexpr bool FINISHES_EARLY = Tile::KEY_SHARES == 2 || Tile::HEAD_DIM == 128;
    static constexpr bool SKIPS = KEYS < Tile::BLOCK_M; /* warpgroups leave out blocks that none of their rows sees */
    /* What the producer leaves of the registers of all threads at launch, in eights. */
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : CONSUMERS == 3 ? 160 : 112;
    static_assert(CONSUMERS >= 2 && CONSUMERS <= 4, "the register budgets are for two, three and four");
    static_assert(Tile::KEY_SHARES <= 2 && GIVEN % 4 == 0, "a tile is joined from at most two shares, in fours");
    static_assert(Tile::HELD_STEPS <= Tile::HEAD_DIM / 16, "what is held of Q is in the tile");
    static_assert(KEYS % 16 == 0 && Tile::HEAD_DIM % PANEL_COLUMNS == 0, "whole steps of wgmma, whole panels");
};

/* Which rows of which head a tile is, and how many blocks of keys it needs; no blocks = there are no more tiles. */
struct Place {
    int batch, head, first_row, blocks;
};

template <typename Tile> struct alignas(1024) Smem {
    uint16_t q[Q_STAGES][Tile::BLOCK_M * Tile::HEAD_DIM]; /* Q, and O at the end */
    uint16_t k[Tile::STAGES][Tile::BLOCK_N * Tile::HEAD_DIM];
    uint16_t v[Tile::STAGES][Tile::BLOCK_N * Tile::HEAD_DIM];
    uint64_t q_full[Q_STAGES], q_empty[Q_STAGES], place_full[Q_STAGES];
    uint64_t k_full[Tile::STAGES], k_empty[Tile::STAGES], v_full[Tile::STAGES], v_empty[Tile::STAGES];
    Place place[Q_STAGES]; /* which tile a slot of Q holds or waits for */
    /* Between shares of the keys. */
    float4 exchange[Size<Tile>::EXCHANGES][Size<Tile>::EXCHANGE > 0 ? Size<Tile>::EXCHANGE / 4 : 1];
};

struct Arguments {
    CUtensorMap q, k, v, o;
    float *lse; /* [batch, q_heads, q_len] */
    int *next;  /* tiles that were taken beyond the first of each block; NULL = there are none beyond */
    int q_len, kv_len, row_tiles;
    Divisor q_heads, group;             /* group: query heads of a key head */
    Divisor first_heads, section_heads; /* heads of the first section, which may be smaller, and of the others */
    Divisor section_tiles;              /* row_tiles * section_heads */
    int tiles;                          /* row_tiles * batch * q_heads */
    float scale_log2;                   /* scale * log2(e) */
    bool causal;
};

struct Rows {
    float max_log2[2], sum[2]; /* of this thread's rows g and g + 8; the sum is over its own columns */
};

/* Blocks of keys up to the last that any row of the tile sees; one, all masked, when none sees any. */
template <typename Tile> __device__ __forceinline__ int blocks_of(const Arguments &arg, int first_row)
{
    int keys = arg.kv_len;
    if (arg.causal)
        keys = min(keys, min(first_row + Tile::BLOCK_M, arg.q_len) + arg.kv_len - arg.q_len);
    return (max(keys, 1) + Tile::BLOCK_N - 1) / Tile::BLOCK_N;
}

template <typename Tile> __device__ __forceinline__ Place place_of(const Arguments &arg, int tile)
{
    const int first_tiles = arg.first_heads.divisor * arg.row_tiles;
    const bool is_first = tile < first_tiles;
    int first_head = 0;
    if (!is_first) {
        const int section = quotient(tile - first_tiles, arg.section_tiles);
        tile -= first_tiles + section * arg.section_tiles.divisor;
        first_head = arg.first_heads.divisor + section * arg.section_heads.divisor;
    }
    const Divisor &heads = is_first ? arg.first_heads : arg.section_heads;
    const int rank = quotient(tile, heads), head = first_head + tile - rank * heads.divisor;
    const int batch = quotient(head, arg.q_heads), row_tile = arg.causal ? arg.row_tiles - 1 - rank : rank;
    const int first_row = row_tile * Tile::BLOCK_M;
    return {batch, head - batch * arg.q_heads.divisor, first_row, blocks_of<Tile>(arg, first_row)};
}

/* ---- producer ------------------------------------------------------------------------------------------------- */

/* All panels of one box of rows. */
template <typename Tile, int PANEL_BYTES>
__device__ __forceinline__ void load_panels(const void *slot, const CUtensorMap *map, const uint64_t *full,
                                            uint64_t l2_policy, int row, int head, int batch)
{
    const uint32_t barrier = shared_address(full);
    mbarrier_arrive_expect(barrier, Size<Tile>::PANELS * PANEL_BYTES);
#pragma unroll
    for (int panel = 0; panel < Size<Tile>::PANELS; ++panel)
        tma_load(shared_address(slot) + panel * PANEL_BYTES, map, barrier, l2_policy, panel * PANEL_COLUMNS, row, head,
                 batch);
}

/* Says which tile a slot of Q will hold. */
template <typename Tile> __device__ __forceinline__ void announce(Smem<Tile> &smem, int slot, const Place &place)
{
    smem.place[slot] = place;
    mbarrier_arrive(shared_address(&smem.place_full[slot]));
}

template <typename Tile>
__device__ __forceinline__ void load_q(Smem<Tile> &smem, const Arguments &arg, int slot, const Place &place)
{
    load_panels<Tile, Size<Tile>::Q_PANEL_BYTES>(smem.q[slot], &arg.q, &smem.q_full[slot], L2_EVICT_FIRST,
                                                 place.first_row, place.head, place.batch);
}

/* Block n of K or V. */
template <typename Tile>
__device__ __forceinline__ void load_block(const void *slot, const CUtensorMap *map, const uint64_t *full, int n, int kv_head,
                                           int batch)
{
    load_panels<Tile, Size<Tile>::KV_PANEL_BYTES>(slot, map, full, L2_EVICT_LAST, n * Tile::BLOCK_N, kv_head, batch);
}

/* The first loads, into slots that nobody has used, as soon as their barriers are there: amid the barriers' set-up and not in
 * the producers, whose instructions lie far behind and have to be fetched, too. Answers which tile they are of. */
template <typename Tile> __device__ __forceinline__ Place load_first(Smem<Tile> &smem, const Arguments &arg)
{
    const Place place = place_of<Tile>(arg, blockIdx.x);
    const int kv_head = quotient(place.head, arg.group);
    load_q<Tile>(smem, arg, 0, place);
    load_block<Tile>(smem.k[0], &arg.k, &smem.k_full[0], place.blocks - 1, kv_head, place.batch);
    load_block<Tile>(smem.v[0], &arg.v, &smem.v_full[0], place.blocks - 1, kv_head, place.batch);
    return place;
}

/* Q and K, on into the next tile. A tile is taken as late as hides its latency: who takes one early cannot know that it will be
 * free last. */
template <typename Tile> __device__ __forceinline__ void produce_qk(Smem<Tile> &smem, const Arguments &arg)
{
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> k;
    const auto next_k = [&](const Place &place, int kv_head, int n) {
        mbarrier_wait(shared_address(&smem.k_empty[k.stage]), k.phase ^ 1);
        load_block<Tile>(smem.k[k.stage], &arg.k, &smem.k_full[k.stage], n, kv_head, place.batch);
        k.advance();
    };
    Place place = place_of<Tile>(arg, blockIdx.x);
    int kv_head = quotient(place.head, arg.group);

    q.advance(); /* load_first */
    k.advance();
    for (;;) {
        int n = place.blocks - 2;
#pragma unroll 1
        for (; n > 1; --n)
            next_k(place, kv_head, n);
        const int tile = arg.next == NULL ? arg.tiles : atomicAdd(arg.next, 1) + static_cast<int>(gridDim.x);
#pragma unroll 1
        for (; n >= 0; --n)
            next_k(place, kv_head, n);
        mbarrier_wait(shared_address(&smem.q_empty[q.stage]), q.phase ^ 1);
        if (tile >= arg.tiles)
            break;
        place = place_of<Tile>(arg, tile);
        kv_head = quotient(place.head, arg.group);
        announce(smem, q.stage, place);
        load_q<Tile>(smem, arg, q.stage, place);
        q.advance();
        next_k(place, kv_head, place.blocks - 1);
    }
    announce(smem, q.stage, {0, 0, 0, 0}); /* there are no more */
}

/* V: a thread of its own, whose warp is in another quarter of the multiprocessor, as its instructions take their turn from the
 * consumers there. It learns of tiles as they do, but does not wait for Q. */
template <typename Tile> __device__ __forceinline__ void produce_v(Smem<Tile> &smem, const Arguments &arg)
{
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> v;
    int loaded = 1; /* load_first */

    v.advance();
    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.place_full[q.stage]), q.phase);
        const Place place = smem.place[q.stage];
        mbarrier_arrive(shared_address(&smem.q_empty[q.stage]));
        if (place.blocks == 0)
            break;
        const int kv_head = quotient(place.head, arg.group);
#pragma unroll 1
        for (int n = place.blocks - 1 - loaded; n >= 0; --n) {
            mbarrier_wait(shared_address(&smem.v_empty[v.stage]), v.phase ^ 1);
            load_block<Tile>(smem.v[v.stage], &arg.v, &smem.v_full[v.stage], n, kv_head, place.batch);
            v.advance();
        }
        loaded = 0;
    }
}

/* ---- consumer: products --------------------------------------------------------------------------------------- */

/* Both of these come after a fence that follows the last touch of their registers. */

/* Starts S = Q K^T. With 64 keys a product reads shared memory as fast as it can: Q, or what fits, is in registers. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_scores(float (&s)[Size<Tile>::SCORES], uint32_t (&held_q)[Size<Tile>::HELD_Q][4],
                                             uint32_t q, uint32_t k)
{
    using S = Size<Tile>;
#pragma unroll
    for (int step = 0; step < Tile::HEAD_DIM / 16; ++step) {
        const int panel = step / 4, within = step % 4 * 32, of_k = (panel * S::KV_PANEL_BYTES + within) / 16;
        if (step < Tile::HELD_STEPS)
            wgmma<T, S::KEYS>::template registers<WGMMA_K_MAJOR>(s, held_q[step], k + of_k, step > 0);
        else
            wgmma<T, S::KEYS>::template shared<WGMMA_K_MAJOR, WGMMA_K_MAJOR>(s, q + (panel * S::Q_PANEL_BYTES + within) / 16,
                                                                             k + of_k, step > 0);
    }
    wgmma_commit();
}

/* Starts O += P V. */
template <typename T, typename Tile>
__device__ __forceinline__ void start_output(float (&o)[Size<Tile>::OUTPUTS], uint32_t (&p)[Size<Tile>::SCORES / 2],
                                             uint32_t v)
{
#pragma unroll
    for (int step = 0; step < Size<Tile>::KEYS / 16; ++step)
        wgmma<T, Tile::HEAD_DIM>::template registers<WGMMA_MN_MAJOR>(o, &p[4 * step], v + step * (16 * ROW_BYTES / 16),
                                                                     true);
    wgmma_commit();
}

/* ---- consumer: softmax ---------------------------------------------------------------------------------------- */

/* Moves the rows' maxima where they must; `alpha` is what O and the sums are to be multiplied with. Answers whether any
 * row of the warp moved. */
template <int SCORES>
__device__ __forceinline__ bool move_maxima(const float (&s)[SCORES], Rows &rows, float (&alpha)[2], float scale_log2)
{
    bool any_moves = false;
    float top[2];
    row_maxima(top, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float old = rows.max_log2[half], now = top[half] * scale_log2;
        const bool moves = now > old + STALE_LOG2;
        rows.max_log2[half] = moves ? now : old;
        alpha[half] = moves ? exp2_approx(old - now) : 1.0f;
        any_moves = any_moves || moves;
    }
    any_moves = __any_sync(WHOLE_WARP, any_moves);
    if (any_moves) {
        rows.sum[0] *= alpha[0];
        rows.sum[1] *= alpha[1];
    }
    return any_moves;
}

template <int OUTPUTS> __device__ __forceinline__ void rescale(float (&o)[OUTPUTS], const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i)
        o[i] *= factor[i / 2 % 2];
}

/* Scores become weights, 2^(score - the row's maximum), in pairs; `sum` is that of the rows so far and these. */
template <typename T, int SCORES>
__device__ __forceinline__ void weigh(uint32_t (&p)[SCORES / 2], float (&sum)[2], const float (&s)[SCORES], const Rows &rows,
                                      float scale_log2)
{
    sum[0] = rows.sum[0];
    sum[1] = rows.sum[1];
#pragma unroll
    for (int i = 0; i < SCORES / 2; ++i) {
        const int half = i % 2;
        const float x = exp2_approx(fmaf(s[2 * i], scale_log2, -rows.max_log2[half]));
        const float y = exp2_approx(fmaf(s[2 * i + 1], scale_log2, -rows.max_log2[half]));
        sum[half] += x;
        sum[half] += y;
        p[i] = pack2<T>(x, y);
    }
}

/* The same, where a weight above 2^STALE_LOG2 has the maxima moved, O rescaled and all weights computed again, once. */
template <typename T, int SCORES, int OUTPUTS>
__device__ __forceinline__ void weigh_within_bound(uint32_t (&p)[SCORES / 2], float (&o)[OUTPUTS], const float (&s)[SCORES],
                                                   Rows &rows, float scale_log2)
{
    constexpr uint32_t EXPONENT = int(STALE_LOG2), LARGEST = /* 2^STALE_LOG2, its bits */
        std::is_same<T, __half>::value ? (15 + EXPONENT) << 10 : (127 + EXPONENT) << 7;
    uint32_t headroom = (0x7fff - LARGEST) * 0x10001u;
    float sum[2], alpha[2];
    int again;
    /* Being a loop keeps the assembler from moving the exponentials up to before the wait for O. The holds keep the
     * additions within it, and its condition in one predicate. */
#pragma unroll 1
    do {
        weigh<T>(p, sum, s, rows, scale_log2);
        again = __any_sync(WHOLE_WARP, passes(p, headroom));
        asm volatile("" : "+r"(again), "+f"(sum[0]), "+f"(sum[1]));
        if (again) {
            move_maxima(s, rows, alpha, scale_log2);
            rescale(o, alpha);
            headroom = 0; /* nothing passes: it ends even where there are NaN */
        }
        asm volatile("" : "+r"(again));
    } while (again);
    rows.sum[0] = sum[0];
    rows.sum[1] = sum[1];
}

/* ---- consumer: a tile ----------------------------------------------------------------------------------------- */

/* A team is the warpgroups that work on the same rows: one, or one for each share of the keys. Named barriers: 0 is
 * __syncthreads, then one of each team, then one of each warpgroup for its turns. */
__device__ __forceinline__ int team_barrier(int team) { return 1 + team; }

/* Turns: a warpgroup waits for its own before it starts its products, and gives the turn to the next when it has its scores;
 * of its first tile's first product when that has started. */
template <typename Tile> __device__ __forceinline__ void await_turn(int consumer)
{
    bar_sync(1 + Size<Tile>::ROW_GROUPS + consumer, 2 * WARPGROUP);
}

template <typename Tile> __device__ __forceinline__ void pass_turn(int consumer)
{
    const int next = consumer + 1 == Size<Tile>::CONSUMERS ? 0 : consumer + 1;
    bar_arrive(1 + Size<Tile>::ROW_GROUPS + next, 2 * WARPGROUP);
}

/* One lane of each warp says that the warp is done with a slot. */
__device__ __forceinline__ void release(const uint64_t *empty)
{
    if (threadIdx.x % 32 == 0)
        mbarrier_arrive(shared_address(empty));
}

/* Where two warpgroups share the keys, the first leaves what it has of the tile to the second, which is half a step behind it
 * where there are turns, and waits for it in any case. What a thread gives goes to the one of the same place, in fours that
 * lie WARPGROUP apart. Nobody writes what is still being read: there are two exchanges, used in turns with the slots of Q, or
 * one, which is written when both are done with the tile before. */
template <typename Tile>
__device__ __forceinline__ void give_tile(float4 *exchange, int team, const float (&o)[Size<Tile>::OUTPUTS], const Rows &rows)
{
    using S = Size<Tile>;

    if constexpr (S::EXCHANGES == 1)
        bar_sync_apart(team_barrier(team), 2 * WARPGROUP);
    exchange[0] = make_float4(rows.max_log2[0], rows.max_log2[1], rows.sum[0], rows.sum[1]);
#pragma unroll
    for (int i = 0; i < S::OUTPUTS / 4; ++i)
        exchange[(1 + i) * WARPGROUP] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    bar_sync_apart(team_barrier(team), 2 * WARPGROUP);
}

/* The end of a tile for this thread's rows, by the last share: writes LSE, multiplies `keep` with 1 / l, or with 0 in a row
 * that sees no key, and has whole rows' sums in `rows`. Of two shares it waits for what the first gives; `keep` and `add` are
 * what the O of this share and that of the first are to be multiplied with then. */
template <typename Tile>
__device__ __forceinline__ void finish_rows(float (&keep)[2], float (&add)[2], Rows &rows, const float4 *exchange,
                                            const Place &place, const Arguments &arg, int team, int warp_row)
{
    using S = Size<Tile>;
    const int lane = threadIdx.x % 32, row = place.first_row + warp_row + lane / 4;
    float *lse = arg.lse + (int64_t(place.batch) * arg.q_heads.divisor + place.head) * arg.q_len;

    if constexpr (Tile::KEY_SHARES == 2) {
        if constexpr (S::EXCHANGES == 1)
            bar_sync_apart(team_barrier(team), 2 * WARPGROUP);
        bar_sync_apart(team_barrier(team), 2 * WARPGROUP);
        const float4 given = exchange[0];
        const float max_log2[2] = {given.x, given.y}, sum[2] = {given.z, given.w};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float most = fmaxf(rows.max_log2[half], max_log2[half]);
            keep[half] = exp2_approx(rows.max_log2[half] - most);
            add[half] = exp2_approx(max_log2[half] - most);
            rows.sum[half] = rows.sum[half] * keep[half] + sum[half] * add[half];
            rows.max_log2[half] = most;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(rows.sum[half]);
        const bool sees_none = sum == 0.0f; /* P of a row's maximum is 1 or more, but for rounding; of a NaN it is NaN */
        const float inverse = sees_none ? 0.0f : __fdividef(1.0f, sum);
        keep[half] *= inverse;
        if constexpr (Tile::KEY_SHARES == 2)
            add[half] *= inverse;
        rows.sum[half] = sum;
        if (lane % 4 == 0 && row + 8 * half < arg.q_len)
            lse[row + 8 * half] = sees_none ? -INFINITY : LN_2 * (rows.max_log2[half] + __log2f(sum));
    }
}

/* Adds to this share's O what the other one has given. */
template <typename Tile>
__device__ __forceinline__ void join_output(float (&o)[Size<Tile>::OUTPUTS], const float (&keep)[2], const float (&add)[2],
                                            const float4 *exchange)
{
#pragma unroll
    for (int i = 0; i < Size<Tile>::OUTPUTS / 4; ++i) {
        const float4 given = exchange[(1 + i) * WARPGROUP];
        o[4 * i] = o[4 * i] * keep[0] + given.x * add[0];
        o[4 * i + 1] = o[4 * i + 1] * keep[0] + given.y * add[0];
        o[4 * i + 2] = o[4 * i + 2] * keep[1] + given.z * add[1];
        o[4 * i + 3] = o[4 * i + 3] * keep[1] + given.w * add[1];
    }
}

/* This warp's O to the Q slot, which all warps of the team have read for the last time, and from there to device memory. */
template <typename T, typename Tile>
__device__ __forceinline__ void store_tile(const uint16_t *slot, const Place &place, const Arguments &arg, int warp_row,
                                           const float (&o)[Size<Tile>::OUTPUTS])
{
    const int lane = threadIdx.x % 32;
    const uint32_t to = shared_address(slot) + warp_row * ROW_BYTES;
#pragma unroll
    for (int i = 0; i < Tile::HEAD_DIM / 16; ++i) {
        const uint32_t packed[4] = {pack2<T>(o[8 * i], o[8 * i + 1]), pack2<T>(o[8 * i + 2], o[8 * i + 3]),
                                    pack2<T>(o[8 * i + 4], o[8 * i + 5]), pack2<T>(o[8 * i + 6], o[8 * i + 7])};
        stmatrix_x4(to + i / 4 * Size<Tile>::Q_PANEL_BYTES + (rows_first(lane) ^ i % 4 * 32), packed);
    }
    async_proxy_fence();
    __syncwarp();
    if (elect_one()) {
#pragma unroll
        for (int panel = 0; panel < Size<Tile>::PANELS; ++panel)
            tma_store(&arg.o, to + panel * Size<Tile>::Q_PANEL_BYTES, panel * PANEL_COLUMNS, place.first_row + warp_row,
                      place.head, place.batch);
        tma_store_commit();
    }
}

template <typename T, typename Tile, bool TURNS>
__device__ __forceinline__ void consume(Smem<Tile> &smem, const Arguments &arg, int consumer)
{
    using S = Size<Tile>;
    const int share = Tile::KEY_SHARES == 1 ? 0 : consumer / S::ROW_GROUPS; /* known as 0 to the compiler */
    const int team = consumer - share * S::ROW_GROUPS, first_key = share * S::KEYS;
    const int lane = threadIdx.x % 32, row_in_group = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const int own_row = team * 64 + threadIdx.x / 32 % 4 * 16 + lane / 4;
    int row_group = team; /* which rows of the tile */
    const int shift = arg.kv_len - arg.q_len;
    const uint64_t *stored = NULL; /* the Q slot of the last tile, whose O may be on its way out of it; not yet released */
    PipelineState<Q_STAGES> q;
    PipelineState<Tile::STAGES> k, v;
    /* Operands of wgmma: where slot 0 of K and of V is, and how far the next slot is. */
    const uint32_t first_k = keep_uniform(wgmma_k_major(shared_address(smem.k[0]) + first_key * ROW_BYTES));
    const uint32_t first_v =
        keep_uniform(wgmma_mn_major(shared_address(smem.v[0]) + first_key * ROW_BYTES, S::KV_PANEL_BYTES));
    constexpr uint32_t SLOT_STEP = S::PANELS * S::KV_PANEL_BYTES / 16;

    if (TURNS && consumer == S::CONSUMERS - 1)
        pass_turn<Tile>(consumer); /* the first one begins */
    for (;; q.advance()) {
        mbarrier_wait(shared_address(&smem.place_full[q.stage]), q.phase); /* Q may still be on its way */
        const Place place = smem.place[q.stage];
        if (place.blocks == 0)
            break;
        if constexpr (S::SKIPS) /* the last rows of a causal tile have the most keys: they go round */
            row_group = row_group + 1 == S::ROW_GROUPS ? 0 : row_group + 1;
        /* One number in two orders of adding: by them the assembler arranges the whole loop, worth 1 % at either head_dim. */
        const int thread_row = S::SKIPS ? row_group * 64 + row_in_group : own_row;
        const int first_row = place.first_row + row_group * 64; /* of the warpgroup; all its rows see the blocks before: */
        const int first_masked = ((arg.causal ? max(min(arg.kv_len, first_row + 1 + shift), 0) : arg.kv_len) +
                                  Tile::BLOCK_N - S::KEYS - first_key) /
                                 Tile::BLOCK_N;
        const uint32_t query = keep_uniform(wgmma_k_major(shared_address(smem.q[q.stage]) + row_group * 64 * ROW_BYTES));
        const auto k_operand = [&] { return first_k + k.stage * SLOT_STEP; };
        const auto v_operand = [&] { return first_v + v.stage * SLOT_STEP; };
        const auto mask = [&](float (&s)[S::SCORES], int n) {
            const int first_column = n * Tile::BLOCK_N + first_key + lane % 4 * 2;
            const int diagonal = place.first_row + thread_row + shift + 1;
            const int limit[2] = {(arg.causal ? min(arg.kv_len, diagonal) : arg.kv_len) - first_column,
                                  (arg.causal ? min(arg.kv_len, diagonal + 8) : arg.kv_len) - first_column};
            mask_scores(s, limit);
        };
        uint32_t held_q[S::HELD_Q][4];
        const auto hold_q = [&] {
#pragma unroll
            for (int step = 0; step < Tile::HELD_STEPS; ++step)
                wgmma_hold(held_q[step]);
        };
        Rows rows = {{NO_MAXIMUM, NO_MAXIMUM}, {0.0f, 0.0f}};
        float s[S::SCORES], o[S::OUTPUTS], alpha[2];
        uint32_t p[S::SCORES / 2];
        int n = place.blocks - 1;

        if constexpr (S::SKIPS) { /* the blocks that none of these rows sees, up to a last one */
            const int sees = first_row >= arg.q_len ? 0 : arg.causal ? first_row + 64 + shift : arg.kv_len;
            const int last = max(sees - 1 - first_key, 0) / Tile::BLOCK_N;
            /* Unrolled it is code between what is fetched at the start. Causal 192 x 128 reads a special register at every step
             * below when this is not unrolled at all; what that costs was not measured alone. */
#pragma unroll(TURNS ? 1 : 2)
            for (; n > last; --n) {
                if constexpr (TURNS) {
                    await_turn<Tile>(consumer);
                    pass_turn<Tile>(consumer);
                }
                mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
                release(&smem.k_empty[k.stage]);
                k.advance();
                mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
                release(&smem.v_empty[v.stage]);
                v.advance();
            }
        }
#pragma unroll
        for (int i = 0; i < S::OUTPUTS; ++i)
            o[i] = 0.0f;
        mbarrier_wait(shared_address(&smem.q_full[q.stage]), q.phase);
        if constexpr (Tile::HELD_STEPS > 0) {
            const uint32_t warp_rows =
                shared_address(smem.q[q.stage]) + (row_group * 64 + threadIdx.x / 32 % 4 * 16) * ROW_BYTES;
#pragma unroll
            for (int step = 0; step < Tile::HELD_STEPS; ++step)
                ldmatrix_x4(held_q[step], warp_rows + step / 4 * S::Q_PANEL_BYTES +
                                              swizzle_128b(lane % 16, step % 4 * 2 + lane / 16));
        }
        mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
        if (TURNS && stored == NULL) /* the first products: all at once they would all be late */
            await_turn<Tile>(consumer);
        hold_q();
        wgmma_fence();
        start_scores<T, Tile>(s, held_q, query, k_operand());
        if (stored != NULL) {
            if (elect_one())
                tma_store_wait_read<0>();
            __syncwarp(); /* who arrives may be another thread */
            release(stored);
        } else if (TURNS) {
            pass_turn<Tile>(consumer);
        }
        wgmma_wait<0>();
        wgmma_hold(s);
        release(&smem.k_empty[k.stage]);
        k.advance();
        if (n >= first_masked)
            mask(s, n);
        move_maxima(s, rows, alpha, arg.scale_log2);
        weigh<T>(p, rows.sum, s, rows, arg.scale_log2);
        if constexpr (Tile::LOOKS_AFTER)
            mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
#pragma unroll 1
        for (--n; n >= 0; --n) {
            mbarrier_wait(shared_address(&smem.k_full[k.stage]), k.phase);
            if constexpr (!Tile::LOOKS_AFTER)
                mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
            if constexpr (TURNS)
                await_turn<Tile>(consumer);
            wgmma_hold(o);
            wgmma_hold(p);
            hold_q();
            wgmma_fence();
            start_scores<T, Tile>(s, held_q, query, k_operand());
            start_output<T, Tile>(o, p, v_operand());
            wgmma_wait<1>();
            wgmma_hold(s);
            if constexpr (TURNS)
                pass_turn<Tile>(consumer);
            release(&smem.k_empty[k.stage]);
            k.advance();
            if (n >= first_masked)
                mask(s, n);
            bool moved = false;
            if constexpr (!Tile::LOOKS_AFTER)
                moved = move_maxima(s, rows, alpha, arg.scale_log2);
            const PipelineState<Tile::STAGES> done = v;
            v.advance();
            /* Now and not when it is needed: see turns, above. Or never: both are branches that keep the assembler from moving
             * the wait for O up before the maxima. */
            if constexpr (Tile::LOOKS_AFTER) {
                const bool is_next_v_here = mbarrier_try(shared_address(&smem.v_full[v.stage]), v.phase);
                if (!is_next_v_here)
                    mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
            } else if (arg.tiles == 0) {
                mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
            }
            wgmma_wait<0>();
            wgmma_hold(o);
            wgmma_hold(p);
            release(&smem.v_empty[done.stage]);
            if constexpr (Tile::LOOKS_AFTER) {
                weigh_within_bound<T>(p, o, s, rows, arg.scale_log2);
            } else {
                weigh<T>(p, rows.sum, s, rows, arg.scale_log2);
                if (moved)
                    rescale(o, alpha);
            }
        }
        if constexpr (!Tile::LOOKS_AFTER)
            mbarrier_wait(shared_address(&smem.v_full[v.stage]), v.phase);
        wgmma_hold(o);
        wgmma_hold(p);
        wgmma_fence();
        start_output<T, Tile>(o, p, v_operand());
        const int warp_row = row_group * 64 + threadIdx.x / 32 % 4 * 16;
        float4 *const exchange = /* this thread's part of it */
            smem.exchange[q.stage % S::EXCHANGES] + team * (S::GIVEN / 4) * WARPGROUP + threadIdx.x % WARPGROUP;
        float keep[2] = {1.0f, 1.0f}, add[2];
        if (S::FINISHES_EARLY && share == S::LAST_SHARE) /* while the last product runs */
            finish_rows<Tile>(keep, add, rows, exchange, place, arg, team, warp_row);
        wgmma_wait<0>();
        wgmma_hold(o);
        release(&smem.v_empty[v.stage]);
        v.advance();
        if (share == S::LAST_SHARE) {
            if (!S::FINISHES_EARLY)
                finish_rows<Tile>(keep, add, rows, exchange, place, arg, team, warp_row);
            if constexpr (Tile::KEY_SHARES == 1)
                rescale(o, keep);
            else
                join_output<Tile>(o, keep, add, exchange);
            if (__any_sync(WHOLE_WARP, rows.sum[0] == 0.0f || rows.sum[1] == 0.0f)) { /* 0 times an infinite V is no 0 */
#pragma unroll
                for (int i = 0; i < S::OUTPUTS; ++i)
                    if (rows.sum[i / 2 % 2] == 0.0f)
                        o[i] = 0.0f;
            }
            if constexpr (Tile::KEY_SHARES == 1)
                bar_sync(team_barrier(team), WARPGROUP); /* all four warps have read Q for the last time */
            store_tile<T, Tile>(smem.q[q.stage], place, arg, warp_row, o);
        } else if constexpr (Tile::KEY_SHARES == 2) {
            give_tile<Tile>(exchange, team, o, rows);
        }
        stored = &smem.q_empty[q.stage];
    }
    if (TURNS && consumer == 0)
        await_turn<Tile>(consumer); /* takes the last pass: no barrier stays half full */
    if (elect_one())
        tma_store_wait_read<0>(); /* shared memory must outlive the stores */
}

/* ---- kernel --------------------------------------------------------------------------------------------------- */

template <typename T, typename Tile, bool TURNS>
__global__ void __launch_bounds__(Size<Tile>::THREADS, 1) fused_fwd_kernel(const __grid_constant__ Arguments arg)
{
    using S = Size<Tile>;
    extern __shared__ char shared[];
    Smem<Tile> &smem = *reinterpret_cast<Smem<Tile> *>(shared);
    const int warp = keep_uniform(threadIdx.x / 32), warpgroup = warp / 4;

    if (warp == 0 && elect_one()) {
        constexpr int CONSUMER_WARPS = S::CONSUMERS * 4;
        /* What the first loads need, the loads, and then the rest. */
        mbarrier_init(shared_address(&smem.q_full[0]), 1);
        mbarrier_init(shared_address(&smem.k_full[0]), 1);
        mbarrier_init(shared_address(&smem.v_full[0]), 1);
        mbarrier_init_fence();
        const Place place = load_first<Tile>(smem, arg);
        for (int i = 0; i < Q_STAGES; ++i) {
            if (i > 0)
                mbarrier_init(shared_address(&smem.q_full[i]), 1);
            mbarrier_init(shared_address(&smem.place_full[i]), 1);
            mbarrier_init(shared_address(&smem.q_empty[i]), CONSUMER_WARPS + 1); /* produce_v */
        }
        for (int i = 0; i < Tile::STAGES; ++i) {
            if (i > 0) {
                mbarrier_init(shared_address(&smem.k_full[i]), 1);
                mbarrier_init(shared_address(&smem.v_full[i]), 1);
            }
            mbarrier_init(shared_address(&smem.k_empty[i]), CONSUMER_WARPS);
            mbarrier_init(shared_address(&smem.v_empty[i]), CONSUMER_WARPS);
        }
        mbarrier_init_fence();
        announce(smem, 0, place);
        tma_prefetch_map(&arg.o);
    }
    __syncthreads();
    if (warpgroup == 0) {
        registers_decrease<S::PRODUCER_REGISTERS>();
        if (warp < 2 && elect_one()) {
            if (warp == 0)
                produce_qk<Tile>(smem, arg);
            else
                produce_v<Tile>(smem, arg);
        }
    } else {
        registers_increase<S::CONSUMER_REGISTERS>();
        consume<T, Tile, TURNS>(smem, arg, warpgroup - 1);
    }
}

/* ---- variants and launch -------------------------------------------------------------------------------------- */

struct Variant {
    struct attn_variant shown;
    int head_dim, block_m, block_n, keys, cost; /* keys: of a block, for one warpgroup; cost: of a row and key */
    size_t smem_bytes;
    cudaError_t (*launch)(const Arguments &, enum attn_dtype, unsigned blocks, cudaStream_t, const char **call);
};

template <typename T, typename Tile, bool TURNS>
cudaError_t launch_typed(const Arguments &arg, unsigned blocks, cudaStream_t stream, const char **call)
{
    *call = "cudaFuncSetAttribute";
    const cudaError_t error = cudaFuncSetAttribute(
        fused_fwd_kernel<T, Tile, TURNS>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Smem<Tile>)));
    if (error != cudaSuccess) {
        cudaGetLastError(); /* not to be found again by the next check */
        return error;
    }
    *call = "fused_fwd_kernel";
    fused_fwd_kernel<T, Tile, TURNS><<<blocks, Size<Tile>::THREADS, sizeof(Smem<Tile>), stream>>>(arg);
    return cudaGetLastError();
}

template <typename Tile>
cudaError_t launch_tile(const Arguments &arg, enum attn_dtype dtype, unsigned blocks, cudaStream_t stream,
                        const char **call)
{
    if constexpr (Size<Tile>::SKIPS) {
        if (arg.causal) /* no turns among warpgroups that leave out different blocks */
            return dtype == ATTN_FP16 ? launch_typed<__half, Tile, false>(arg, blocks, stream, call)
                                      : launch_typed<__nv_bfloat16, Tile, false>(arg, blocks, stream, call);
    }
    return dtype == ATTN_FP16 ? launch_typed<__half, Tile, true>(arg, blocks, stream, call)
                              : launch_typed<__nv_bfloat16, Tile, true>(arg, blocks, stream, call);
}

#define SHARES_NAME_1 ""
#define SHARES_NAME_2 "_k2"
#define SHARES_TEXT_1 ""
#define SHARES_TEXT_2 ", the keys of a block halved between two warpgroups"
#define SHOWN(D, M, N, KV, SHARES)                                                                                     \
    {                                                                                                                  \
        "fwd_d" #D "_m" #M "n" #N "_s" #KV SHARES_NAME_##SHARES,                                                       \
            #M " x " #N " tile, 64 rows a warpgroup, " #KV " stages of K and V" SHARES_TEXT_##SHARES                   \
    }
#define TABLE_ROW(DIM, ROWS, KEYS, KV, SHARES, WHEN, HELD, COST)                                                                   \
    {SHOWN(DIM, ROWS, KEYS, KV, SHARES), DIM, ROWS, KEYS, KEYS / SHARES, COST,                                                 \
     sizeof(Smem<TILE_NAME(DIM, ROWS, KEYS, KV, SHARES)>), launch_tile<TILE_NAME(DIM, ROWS, KEYS, KV, SHARES)>},
#define SHOWN_ROW(DIM, ROWS, KEYS, KV, SHARES, WHEN, HELD, COST) SHOWN(DIM, ROWS, KEYS, KV, SHARES),

const Variant table[] = {FWD_TILES(TABLE_ROW)};

int64_t row_tiles_of(const struct attn_problem *p, const Variant *v)
{
    return (p->q_len + v->block_m - 1) / v->block_m;
}

/* How long the last multiprocessor is busy, in rows times keys times their cost. Full tiles take the same time each and are
 * dealt out evenly. Of causal ones, whose warpgroups read on to the end of the block that their diagonal is in, the longest
 * comes first and the others fill the gaps, as far as they are shorter than it. */
double busy(const struct attn_request *request, const Variant *v)
{
    const struct attn_problem *p = request->problem;
    const double tiles = double(row_tiles_of(p, v)) * double(p->q_heads) * double(p->batch);
    const double each = tiles / request->device->multiprocessors, q_len = double(p->q_len), kv_len = double(p->kv_len);
    const double seen = kv_len >= q_len ? kv_len - q_len / 2 : kv_len * kv_len / (2 * q_len); /* by a row, on average */
    const double longest_or_all = std::fmax(kv_len, each * (seen + v->keys / 2)); /* keys */
    const double shortest = std::ceil(each) * (kv_len - q_len);                   /* below 0: no bound */

    return v->block_m * v->cost * (p->causal ? std::fmax(longest_or_all, shortest) : std::ceil(each) * kv_len);
}

/* The variant that the request forces, or else the one that ends first. NULL with the reason when there is none. */
const Variant *find_variant(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const size_t limit = request->device->smem_per_block_bytes;
    const Variant *known = NULL, *choice = NULL;

    for (const Variant &v : table) {
        if (v.head_dim != p->head_dim || (request->variant && strcmp(v.shown.name, request->variant) != 0))
            continue;
        known = &v;
        if (v.smem_bytes <= limit && (!choice || busy(request, &v) < busy(request, choice)))
            choice = &v;
    }
    if (choice)
        return choice;
    if (!known)
        attn_fail(why, ATTN_UNSUPPORTED, "the forward has no variant %s for head_dim %d", request->variant,
                  int(p->head_dim));
    else
        attn_fail(why, ATTN_UNSUPPORTED, "%s needs %zu bytes of shared memory, a block has at most %zu",
                  known->shown.name, known->smem_bytes, limit);
    return NULL;
}

/* Heads go in sections of about half of the L2 in K and V, in whole groups. All sections are of one size but the first,
 * as a small last one would leave most multiprocessors without work. Where no tile is longer than another the heads go
 * one by one. */
void set_sections(Arguments *arg, const struct attn_problem *p, const struct attn_device *device)
{
    const int64_t groups = p->batch * p->kv_heads, group = p->q_heads / p->kv_heads;
    const int64_t bytes = groups * 2 * p->kv_len * p->head_dim * 2, target = int64_t(device->l2_bytes / 2);
    int64_t sections = p->causal ? (bytes + target / 2) / target : groups;

    sections = sections < 1 ? 1 : sections > groups ? groups : sections;
    const int64_t size = (groups + sections - 1) / sections, others = (groups - 1) / size;
    arg->section_heads = divisor_of(size * group);
    arg->section_tiles = divisor_of(size * group * arg->row_tiles);
    arg->first_heads = divisor_of((groups - others * size) * group);
}

enum attn_status make_arguments(const struct attn_request *request, const struct attn_tensors *t, const Variant *v,
                                void *workspace, Arguments *arg, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    enum attn_status status = tensor_map_encode(&arg->q, "q", &t->q, p, p->q_heads, p->q_len, v->block_m, why);

    if (status == ATTN_OK)
        status = tensor_map_encode(&arg->k, "k", &t->k, p, p->kv_heads, p->kv_len, v->block_n, why);
    if (status == ATTN_OK)
        status = tensor_map_encode(&arg->v, "v", &t->v, p, p->kv_heads, p->kv_len, v->block_n, why);
    if (status == ATTN_OK) /* a warp stores its own 16 rows */
        status = tensor_map_encode(&arg->o, "o", &t->o, p, p->q_heads, p->q_len, 16, why);
    arg->lse = t->lse;
    arg->next = static_cast<int *>(workspace);
    arg->q_len = int(p->q_len);
    arg->kv_len = int(p->kv_len);
    arg->q_heads = divisor_of(p->q_heads);
    arg->group = divisor_of(p->q_heads / p->kv_heads);
    arg->row_tiles = int(row_tiles_of(p, v));
    arg->tiles = int(arg->row_tiles * p->batch * p->q_heads);
    set_sections(arg, p, request->device);
    arg->scale_log2 = p->scale * LOG2_E;
    arg->causal = p->causal;
    return status;
}

} // namespace

extern "C" {

const struct attn_variant fused_sm90_fwd_variants[] = {FWD_TILES(SHOWN_ROW){NULL, NULL}};

enum attn_status fused_sm90_fwd_accepts(const struct attn_request *request, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const Variant *v = find_variant(request, why);

    if (!v)
        return ATTN_UNSUPPORTED;
    if (p->q_len > MAX_LEN || p->kv_len > MAX_LEN)
        return attn_fail(why, ATTN_UNSUPPORTED, "the forward takes lengths up to %lld", (long long)MAX_LEN);
    const int64_t row_tiles = row_tiles_of(p, v);
    const enum attn_status status = attn_check_grid(row_tiles, p->q_heads, p->batch, why);
    /* The counter may run past the last tile by the number of blocks. */
    if (status == ATTN_OK && row_tiles * p->q_heads * p->batch > INT32_MAX - request->device->multiprocessors)
        return attn_fail(why, ATTN_UNSUPPORTED,
                         "%lld tiles and as many more as there are multiprocessors are over 2^31 - 1",
                         (long long)(row_tiles * p->q_heads * p->batch));
    return status;
}

size_t fused_sm90_fwd_workspace_bytes(const struct attn_request *) { return COUNTER_BYTES; }

const char *fused_sm90_fwd_variant(const struct attn_request *request)
{
    struct attn_message why;
    const Variant *v = find_variant(request, &why);

    return v ? v->shown.name : NULL;
}

enum attn_status fused_sm90_fwd_launch(const struct attn_request *request, const struct attn_tensors *tensors,
                                       const struct attn_run *run, struct attn_message *why)
{
    const struct attn_problem *p = request->problem;
    const Variant *v = find_variant(request, why);
    const cudaStream_t stream = static_cast<cudaStream_t>(run->stream);
    const char *call = "cudaMemsetAsync";
    Arguments arg;

    if (!v)
        return ATTN_UNSUPPORTED;
    const enum attn_status status = make_arguments(request, tensors, v, run->workspace, &arg, why);
    if (status != ATTN_OK)
        return status;
    const int blocks = request->device->multiprocessors < arg.tiles ? request->device->multiprocessors : arg.tiles;
    cudaError_t error = cudaSuccess;
    if (blocks == arg.tiles)
        arg.next = NULL;
    else
        error = cudaMemsetAsync(arg.next, 0, sizeof *arg.next, stream);
    if (error == cudaSuccess)
        error = v->launch(arg, p->dtype, unsigned(blocks), stream, &call);
    if (error != cudaSuccess)
        return attn_fail(why, ATTN_ERROR, "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
    return ATTN_OK;
}

} /* extern "C" */
