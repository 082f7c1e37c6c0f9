#!/usr/bin/env bash
# scripts/decode_bars.py: what it asks a program for, what it does not repeat, and what it says of made-up records.
. "$(dirname "$0")/lib.sh"

command -v python3 >/dev/null || skip "no python3"
bars=$root/scripts/decode_bars.py

# A program whose times follow from the problem: 8 bits take half, 8 new rows 1.1 times as long; kv 32k fails its check.
cat >program <<'E'
#!/usr/bin/env python3
import itertools, json, sys
words = dict(zip(sys.argv[1:], sys.argv[2:]))
def of(name, default):
    return words.get("--" + name, default).split(",")
with open(words["--jsonl"], "w") as file:
    print('{"type": "header"}', file=file)
    for impl, kv_len, q_len, page, cache in itertools.product(
            of("impl", ""), of("kv-len", "8k"), of("seqlen", "1"), of("page-size", "0"), of("cache-dtype", "none")):
        time_ms = (0.5 if cache == "e4m3" else 1.0) * (1.1 if q_len == "8" else 1.0) * (1.02 if "inv" in impl else 1.0)
        print(json.dumps({
            "type": "row", "status": "ok", "check": "fail" if kv_len == "32k" else "pass", "impl": impl, "asked": impl,
            "mode": words["--mode"], "q_heads": 32, "kv_heads": 8, "kv_len": kv_len, "q_len": int(q_len), "lengths":
            words.get("--lengths", "fixed"), "page_size": int(page), "cache_dtype": None if cache == "none" else cache,
            "time_ms": time_ms, "min_gb": 2.0, "pct_of_read": 95.0 if page == "16" else 99.0}), file=file)
E
chmod +x program
measure() {
    what="measure $*"
    code=0
    FABENCH=$PWD/program "$bars" measure records "$@" >out 2>err || code=$?
}
measure --only pages-16,pages-64,rows,eight,batches
expect_code 0
expect "five processes" test "$(wc -l <out)" -eq 5
measure --only pages-16,lengths
expect "only what is missing" test "$(cut -d: -f1 out)" = lengths
printf '#!/bin/sh\nkill -9 $$\n' >killed
chmod +x killed
code=0
FABENCH=$PWD/killed "$bars" measure crashed --only sm80 >out 2>err || code=$?
expect_code 1
expect "no record of a program that was killed" test ! -e crashed/sm80.jsonl

what=table
code=0
"$bars" table records --csv table.csv >out 2>err || code=$?
expect_code 1
says() { expect "\"$1\" to end with $2" grep -qE "^$1,.*,$2\$" table.csv; }
says "read ceiling,fused_sm90" "0.990,0.98,met"
says "pages,.*,fixed,16" "0.960,0.97,missed"
says "pages,.*,fixed,64" "1.000,0.99,met"
says "new rows,.*,4,8k" "1.000,1.04,met"
says "new rows,.*,8,8k" "1.100,1.04,missed"
says "8 bits / 16 bits" "2.000,1.8,met"
says '"invariant, mean of 2"' "0.980,0.97,met"
expect "no row of a failed check" test -z "$(grep 32k table.csv)"
expect_stdout '; 3 rows did not pass'
"$bars" table nothing >out 2>err || code=$?
expect_code 5
finish
