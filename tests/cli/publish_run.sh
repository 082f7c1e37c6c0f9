#!/usr/bin/env bash
# scripts/publish_run.sh: both records, in parts where time is limited, also from the packed ones of the call before;
# what it needs and lacks. Its `fabench` measures small problems on the CPU instead of the presets.
. "$(dirname "$0")/lib.sh"

command -v xz >/dev/null || skip "no xz"
mkdir -p checkout/scripts
cp "$root/scripts/publish_run.sh" checkout/scripts/
cat >program <<END
#!/usr/bin/env bash
[ "\$1" != --version ] || { cat version; exit 0; }
echo "\$*" >>$tmp/calls
options=()
while [ \$# -gt 0 ]; do
    case \$1 in
    --preset | --dtype | --impl | --impl-lib | --peer | --warmup-ms | --min-time-ms) shift ;;
    *) options+=("\$1") ;;
    esac
    shift
done
exec "$fabench" --device cpu --seqlen 64,128 --d 64 --batch 1 --heads 1 --mode fwd --causal --impl naive,fused \
    --warmup-ms 0 --min-time-ms 1 --samples 6 --max-noise 100% --l2 hot "\${options[@]}"
END
chmod +x program
sed -i "s#cat version#cat $tmp/version#" program
echo "fabench 0.1.0 (0123456789ab)" >version
go() { # go ARGUMENT...
    what="publish_run.sh $*"
    code=0
    FABENCH=$tmp/program FABENCH_FA3_PLUGIN=$tmp/peer/fa3.so \
        checkout/scripts/publish_run.sh "$@" >out 2>err </dev/null || code=$?
}
rows_of() { xz -dc "$1" | grep '"type": *"row"'; }
rows_in() { rows_of "$1" | wc -l; }

go
expect_code 2
go --limit-s x made
expect_code 2
go made
expect_code 1
expect_stderr '^publish_run: no .*fa3\.so: examples/peers/flash_attention_3/build\.sh makes it'
echo "fabench 0.1.0 (0123456789ab-dirty)" >version
go --impl fused made
expect_code 1
expect_stderr 'with changes'
echo "fabench 0.1.0 (0123456789ab)" >version

# One part ends before acceptance; another call, of a machine that has nothing but the packed record, goes on.
go --impl fused --limit-s 60 made
expect_code 130
expect_stdout 'the same command goes on'
expect "the first record" test "$(rows_in made/paper/run.jsonl.xz)" = 4
expect "not yet the second" test ! -e made/acceptance
rm -r checkout/results
go --impl fused --from made --limit-s 300 again
expect_code 0
expect_stdout 'both records are whole'
expect "both records" test "$(rows_in again/paper/run.jsonl.xz)" = 4 -a "$(rows_in again/acceptance/run.jsonl.xz)" = 4
expect "the first one not measured again" cmp -s <(rows_of made/paper/run.jsonl.xz) <(rows_of again/paper/run.jsonl.xz)
expect "what is asked" grep -q -- '--preset paper --dtype bf16,fp16 .*--impl fused .*--resume' calls
expect "a limit" grep -qE -- '--preset acceptance .*--max-time-s 2[0-9]{2}' calls

# The peer and its packed library.
rm -r checkout/results
mkdir -p peer/lib
touch peer/fa3.so peer/lib/x.so
xz peer/lib/x.so
go whole
expect_code 0
expect_file again/paper/log.txt
expect "the library unpacked" test -e peer/lib/x.so
expect "the peer asked for" grep -qE -- "--impl fused,cudnn,fa3 --impl-lib $tmp/peer/fa3.so --peer fa3" calls
finish
