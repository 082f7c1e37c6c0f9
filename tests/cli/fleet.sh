#!/usr/bin/env bash
# report --boards: the records of a fleet, made from one record of the CPU by changing its host, its board and its
# times.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
run_small --seqlen 128,256,512 --impl naive,fused --jsonl one.jsonl
expect_code 0

# hosts FIRST LAST RECORDS [WORDS]: RECORDS records of each of these hosts in fleet/, each with two boards, whose speeds
# differ by up to 0.5 %. A host, a board and a percentage in WORDS make this board slower, as "3 1 4"; with a length,
# "3 1 4 512", its cases of this length alone.
hosts() {
    mkdir -p fleet
    awk -v first="$1" -v last="$2" -v records="$3" -v slow="${4:-}" '
        { line[NR] = $0 }
        function board(text, host, b, k,    name, pci, factor, value) {
            name = sprintf("node%03d", host)
            pci = "0000:" (b + 1) "0:00.0"
            split(slow, s, " ")
            factor = 1 + ((host * 7 + b * 3 + k * 5) % 11 - 5) / 1000
            if (s[1] == host && s[2] == b && (!s[4] || text ~ ("\"q_len\": ?" s[4] ","))) factor *= 1 + s[3] / 100
            sub(/"host":\{"name":"[^"]*"/, "\"host\":{\"name\":\"" name "\"", text)
            sub(/"device":\{/, "\"device\":{\"pci_bus_id\":\"" pci "\",\"pcie_width\":8,\"pcie_width_max\":16,", text)
            if (text !~ /"type": ?"row"/) return text
            name = sprintf("%04x%04x", host, b)
            sub(/\{"type"/, "{\"type\":\"row\",\"pci\":\"" pci "\",\"board\":\"" name "\",\"x\"", text)
            match(text, /"time_ms":[0-9.e+-]+/)
            value = substr(text, RSTART + 10, RLENGTH - 10)
            return substr(text, 1, RSTART + 9) sprintf("%.9g", value * factor) substr(text, RSTART + RLENGTH)
        }
        END { for (host = first; host <= last; host++) for (k = 0; k < records; k++) {
            file = sprintf("fleet/node%03d-%d.jsonl", host, k)
            for (b = 0; b < 2; b++) for (n = 1; n <= NR; n++) print board(line[n], host, b, k) >file
            close(file) } }' one.jsonl
}

hosts 1 12 1 "5 1 9"
run report --boards fleet --out page
expect_code 0
expect_stdout '24 boards of 12 hosts in 12 records'
expect_stdout 'node005 0000:20:00\.0: [89]\.[0-9]+ % slower than the median of the others, '
expect "with its telemetry" grep -qE '^- node005 .*, [0-9.]+ robust standard deviations; PCIe x8 of x16$' page/boards.md
expect "nobody is missing" grep -qx 'None\.' page/boards.md
expect "a line for each board" test "$(wc -l <page/boards.csv)" -eq 25
expect "the board that is named" \
    test "$(csv_cell page/boards.csv 10 host) $(csv_cell page/boards.csv 10 named)" = "node005 1"
expect "nobody else" test "$(tail -n +2 page/boards.csv | cut -d, -f11 | sort | uniq -c | tr -s ' ')" = " 23 0
 1 1"
expect "its cases" test "$(csv_cell page/boards.csv 1 cases) $(csv_cell page/boards.csv 1 compared)" = "6 6"
expect "a heat map of 24 cells" test "$(grep -c '<rect x' page/boards.svg)" -eq 24
expect "well-formed" sh -c "! command -v python3 >/dev/null ||
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' page/boards.svg"

# Two of its six cases alone.
rm -r fleet
hosts 1 12 1 "7 0 9 512"
run report --boards fleet --out page
expect_code 0
expect_stdout 'node007 0000:10:00\.0: a quarter of its cases is at least [78]\.[0-9]+ % slower than the others'
expect "it alone" test "$(tail -n +2 page/boards.csv | cut -d, -f1,11 | grep -c ',1$')" = 1

# A healthy fleet; several records of a board have a spread of their own; --out none is Markdown.
rm -r fleet
hosts 1 12 3
run report --boards fleet --out none
expect_code 0
expect_stdout 'None of 24 boards\.'
expect_stdout '^# Boards of a fleet'
run report --boards fleet --out page
expect "a spread within a board" test "$(csv_cell page/boards.csv 1 within_pct | grep -cE '^0?\.[0-9]|^1')" -eq 1
expect "all its records" test "$(csv_cell page/boards.csv 1 records) $(csv_cell page/boards.csv 1 rows)" = "3 18"

# Who is missing: a node without a record, one that was killed, one of which a board brought no row, a failed check.
rm -r fleet
hosts 1 10 1
head -n 3 fleet/node004-0.jsonl >cut && mv cut fleet/node004-0.jsonl
sed -i '1s/{"type"/{"boards":["0000:10:00.0","0000:20:00.0","0000:30:00.0"],"type"/' fleet/node006-0.jsonl
sed -i 's/"check":"pass"/"check":"fail"/' fleet/node007-0.jsonl
run report --boards fleet --nodes node001,node002,node011 --out none
expect_code 0
expect_stdout 'node011: no record'
expect_stdout 'node004 0000:10:00\.0: 2 of 6 cases, its record ends early'
expect_stdout 'node006 0000:30:00\.0: no rows'
expect_stdout 'node007 0000:10:00\.0: 6 of 6 rows failed'
expect "the rows so far are in it" grep -qE '^\| node004 \| 0000:10:00.0 \| 00040000 \| +2 \|' out

# Few boards are not judged; records of the host alone; what is no record.
rm -r fleet
hosts 1 2 1 "1 0 30"
run report --boards fleet/node001-0.jsonl fleet/node002-0.jsonl --out none
expect_code 0
expect_stdout 'No board is judged: a model needs 8 boards'
run report --boards one.jsonl --out none
expect_code 0
expect_stdout "$(uname -n) +\| cpu"
echo '{"type":"header","schema":99}' >fleet/other.jsonl
run report --boards fleet --out none
expect_code 5
expect_stderr 'other.jsonl: .*schema'
expect_stdout 'fleet/other.jsonl: cannot be read'
expect_stdout '4 boards of 2 hosts in 2 records'
mkdir empty
run report --boards empty
expect_code 5
expect_stderr 'report --boards: no record was read'
run report --boards absent.jsonl
expect_code 5
refused '--nodes a: needs --boards' report one.jsonl --nodes a
refused '--history: cannot be used with --boards' report one.jsonl --boards --history

# A link to nothing is a record that cannot be read; names of hosts and boards are text, not XML.
rm -r fleet page
hosts 1 1 1
ln -s absent.jsonl fleet/node002-0.jsonl
sed -i -e 's/"name":"node001"/"name":"a<b\\u0001"/' -e 's/0000:10:00.0/\&x/' fleet/node001-0.jsonl
run report --boards fleet --out page
expect_code 5
expect_stdout 'fleet/node002-0.jsonl: cannot be read'
expect "their names in the heat map" grep -q '<title>a&lt;b  &amp;x</title>' page/boards.svg
mkdir -p whole/boards.md # a folder in the place of the file
run report --boards one.jsonl --out whole
expect_code 7
expect_stderr 'whole/boards.md: '

# 1,000 records of 100 hosts: the time and the memory are said, not judged.
rm -r fleet
hosts 1 100 10 "77 0 9"
what="1,000 records of 100 hosts"
SECONDS=0 code=0
if [ -x /usr/bin/time ]; then
    /usr/bin/time -f '%e s, %M KB' "$fabench" report --boards fleet --out page >out 2>err || code=$?
    echo "1,000 records of 100 hosts: $(tail -n 1 err)"
else
    "$fabench" report --boards fleet --out page >out 2>err || code=$?
    echo "1,000 records of 100 hosts: $SECONDS s"
fi
expect_code 0
expect_stdout '200 boards of 100 hosts in 1000 records'
expect_stdout 'node077 0000:10:00\.0: [789]\.[0-9]+ % slower'
expect "one is named" test "$(tail -n +2 page/boards.csv | cut -d, -f11 | grep -c 1)" -eq 1
expect "a cell for each board" test "$(grep -c '<rect x' page/boards.svg)" -eq 200

finish
