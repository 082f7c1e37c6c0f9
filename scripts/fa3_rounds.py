"""What decode_vs_fa3.py and eight_bits_vs_fa3.py share: FlashAttention-3 from its wheel, options, the CSV, errors."""

import argparse
import csv
import importlib.util
import os
import sys

from pytorch_rounds import Failure, Rounds


class Flash3(Rounds):
    """FlashAttention-3 from the wheel."""

    def __init__(self, options):
        library = options.library
        super().__init__(options.samples, options.warmup_ms, options.min_time_ms)
        spec = None if library else importlib.util.find_spec("fa3_fwd")
        if not library and not (spec and spec.submodule_search_locations):
            raise Failure(6, "there is no package fa3_fwd: python3 -m pip install fa3-fwd==0.0.3")
        path = library or os.path.join(list(spec.submodule_search_locations)[0], "_C.abi3.so")
        try:
            self.torch.ops.load_library(path)
        except OSError as error:
            raise Failure(6, f"{path}: {error}") from error


def counts_of(text):
    """ "1k,8" as [1024, 8]."""
    try:
        counts = [int(word.rstrip("k")) * (1024 if word.endswith("k") else 1) for word in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text}: whole numbers from 1 on with commas; 1k is 1024")
    return counts


def shapes_of(text):
    """ "32x8" as [(32, 8)]."""
    shapes = [tuple(counts_of(pair.replace("x", ","))) for pair in text.split(",")]
    if any(len(shape) != 2 or shape[0] % shape[1] for shape in shapes):
        raise argparse.ArgumentTypeError(f"{text}: query x key heads with commas, as 32x8,64x8")
    return shapes


def parser_of(description):
    """The options of both."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabench", metavar="PATH", required=True, help="the program")
    parser.add_argument("--impl", default="fused_sm90", metavar="NAME", help="whom [fused_sm90]")
    parser.add_argument("--library", metavar="FILE", help="_C.abi3.so of the wheel, where it is not installed")
    parser.add_argument("--csv", metavar="FILE", help="write a row for each point")
    parser.add_argument("--samples", type=int, default=30, help="of FlashAttention-3, at least [30]")
    parser.add_argument("--warmup-ms", type=float, default=50, help="of each measurement, at least [50]")
    parser.add_argument("--min-time-ms", type=float, default=100, help="of the samples together, at least [100]")
    return parser


class Table:
    """The CSV, row by row, so that a run that is cut leaves what it has measured. Without a file: nothing."""

    def __init__(self, file, columns):
        self.file, self.writer = file, None
        if file:
            self.writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            self.writer.writeheader()

    def write(self, row):
        if self.writer:
            self.writer.writerow(row)
            self.file.flush()


def run(name, options, columns, measure_all):
    """The exit code of measure_all(options, table), or of an error, which is said."""
    try:
        if not options.csv:
            return measure_all(options, Table(None, columns))
        try:
            with open(options.csv, "w", encoding="utf-8", newline="") as file:
                return measure_all(options, Table(file, columns))
        except OSError as error:
            raise Failure(7, f"{options.csv}: {error.strerror}") from error
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return failure.code
