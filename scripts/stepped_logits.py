#!/usr/bin/env python3
"""Inputs whose logits rise in steps: stepped_logits.py DIR HEADS TOKENS HEAD_DIM [two|one]

Writes q.npy, k.npy and v.npy, [1, HEADS, TOKENS, HEAD_DIM] in fp32, for fabench --input DIR. From the last key to the
first, the order in which the forward kernels go over them, the logits of each row are 0 for 256 keys, about 10 for
the next 128, and about 53 for all others: 2^60 to 2^63 times the weight. With `one` they are 0 for 384 keys and 40 to
43 for all others, 2^58 to 2^62: fused_sm90 lets a row max lag by up to 2^64, at head dim 64 from the first block on,
at 128 after the first step (kernels/sm90/fwd/softmax.cuh). Each row has other roundings. V is N(0,1).
scripts/gpu_check.sh runs all tiles on both."""
import array
import os
import random
import struct
import sys


def save(path, heads, rows, head_dim):
    """One head's rows, the same for each head."""
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, %d, %d, %d), }" % (heads, len(rows), head_dim)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        for _ in range(heads):
            file.writelines(rows)


def row(values):
    numbers = array.array("f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def main():
    steps = {"two": (76.0, 14.0, 0.0), "one": (61.0, 0.0, 0.0)}
    folder, numbers, kind = sys.argv[1:2], sys.argv[2:5], (sys.argv[5:] or ["two"])[0]
    if (len(numbers) != 3 or len(sys.argv) > 6 or kind not in steps or
            not all(number.isdigit() and int(number) > 0 for number in numbers)):
        sys.exit(__doc__.splitlines()[0])
    folder, (heads, tokens, head_dim) = folder[0], map(int, numbers)
    rest = [0.0] * (head_dim - 1)
    size = (head_dim / 128) ** 0.5  # logits are divided by sqrt(head_dim)
    levels = [row([size * level] + rest) for level in steps[kind]]
    queries = [row([7.5 + i / 32] + rest) for i in range(16)]
    random.seed(1)
    try:
        os.makedirs(folder, exist_ok=True)
        save(os.path.join(folder, "q.npy"), heads, [queries[i % 16] for i in range(tokens)], head_dim)
        save(os.path.join(folder, "k.npy"), heads,
             [levels[(i >= tokens - 384) + (i >= tokens - 256)] for i in range(tokens)], head_dim)
        save(os.path.join(folder, "v.npy"), heads,
             [row(random.gauss(0.0, 1.0) for _ in range(head_dim)) for _ in range(tokens)], head_dim)
    except OSError as error:
        sys.exit("stepped_logits.py: %s" % error)


if __name__ == "__main__":
    main()
