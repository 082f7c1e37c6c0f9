/* The command line as a whole: rules that join options, output paths, quoting, --help and --version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/options/options_run.h"

/* ---- Options together -------------------------------------------------------------------------------------------- */

static void pairs_that_contradict(void **state)
{
    (void)state;
    refused("--batch 2 --total-tokens 4k", "--batch 2: cannot be used with --total-tokens 4k; give one of them");
    refused("--hidden 1k --heads 8", "--heads 8: cannot be used with --hidden 1k; give one of them");
    taken("--batch 2 --hidden 1k");
    taken("--heads 2 --total-tokens 1k");
    taken("--preset paper --d 64 --seqlen 1k --samples 5 --max-noise 2% --warmup-ms 1");
    refused("--logit-std 4 --dist zeros",
            "--logit-std 4: cannot be used with --dist zeros; it is for normal, uniform, sharp and huge");
    refused("--dist normal,peak --logit-std 4",
            "--logit-std 4: cannot be used with --dist peak; it is for normal, uniform, sharp and huge");
    refused("--dist constant --logit-std 1,4",
            "--logit-std 1,4: cannot be used with --dist constant; it is for normal, uniform, sharp and huge");
    refused("--dist rising --logit-std 4",
            "--logit-std 4: cannot be used with --dist rising; it is for normal, uniform, sharp and huge");
    refused("--input . --logit-std 4",
            "--logit-std 4: cannot be used with --input, whose tensors are taken as they are");
    refused("--input . --dist normal,zeros",
            "--dist normal,zeros: cannot be a list with --input, which has one set of tensors");
    refused("--quiet --verbose", "--quiet: cannot be used with --verbose; give one of them");
    refused("--check off --rtol 0.1",
            "--rtol 0.1: cannot be used with --check off; must be left out, or --check full|sample");
    refused("--atol 1 --rtol 0.1 --check off",
            "--atol 1: cannot be used with --check off; must be left out, or --check full|sample");
    refused("--out none --plot png", "--plot png: cannot be used with --out none; must be term or none");
    taken("--out none --plot term");
    taken("--out none --plot none");
    taken("--out none");
}

static void key_heads_divide_heads(void **state)
{
    (void)state;
    refused("--heads 8 --kv-heads 3", "--kv-heads 3: must divide --heads 8");
    refused("--kv-heads 16 --heads 8", "--kv-heads 16: must divide --heads 8");
    taken("--heads 8 --kv-heads 1");
    taken("--heads 8 --kv-heads 8");
    refused("--hidden 1k --d 64,128 --kv-heads 16",
            "--kv-heads 16: must divide the 8 heads that --hidden 1k makes of --d 128");
    taken("--hidden 1k --d 64 --kv-heads 16");
    taken("--hidden 8 --d 64 --kv-heads 1"); /* at least one head */
    refused("--hidden 8 --d 64 --kv-heads 2", "--kv-heads 2: must divide the 1 heads that --hidden 8 makes of --d 64");
}

static void products_that_overflow(void **state)
{
    (void)state;
    refused(
        "--batch 2147483647 --heads 2147483647 -n 2147483647 --d 256",
        "--batch 2147483647: too large; batch 2147483647 x heads 2147483647 x len 2147483647 x head dim 256 must be "
        "at most 2^40 elements");
    refused(
        "--batch 4k --heads 1024k --d 64 -n 64",
        "--heads 1024k: too large; batch 4096 x heads 1048576 x len 64 x head dim 64 must be at most 2^40 elements");
    taken("--batch 4k --heads 1024k --d 8 -n 32"); /* 2^40, exactly the most */
    refused("--batch 4k --heads 1024k --d 8 -n 33",
            "--heads 1024k: too large; batch 4096 x heads 1048576 x len 33 x head dim 8 must be at most 2^40 elements");
    refused("--batch 1 --heads 1 -n 2147483647",
            "--seqlen 2147483647: too large; batch 1 x heads 1 x q_len 2147483647 x kv_len 2147483647 must be at most "
            "2^56 scores");
    refused("--kv-len 2147483647 --d 128 --heads 16",
            "--kv-len 2147483647: too large; batch 16 x heads 16 x len 2147483647 x head dim 128 must be at most 2^40 "
            "elements");
    /* The list is searched, not only its first value. */
    refused_with("--batch 1 --heads 1 -n 1k,2147483647,2k", "--seqlen 1k,2147483647,2k: too large;");
    /* Many short sequences of a large token count times a long kv_len. */
    refused_with("--total-tokens 1048576k -n 1 --kv-len 16k", "too large; batch 1073741824 x heads 32 x len 16384");
}

static void windows_heads_and_dropout(void **state)
{
    (void)state;
    refused("--causal --window-right 5",
            "--window-right 5: cannot be used with --causal, which ends at the diagonal; must be none or 0");
    refused_with("--causal=both --window-right none,1", "--window-right none,1: cannot be used with --causal");
    taken("--causal --window-right 0,none --window-left 7");
    taken("--window-right 5");
    taken("--no-causal --window-right 5");
    refused("--heads 8,12 --kv-heads 4,8",
            "--kv-heads 4,8: must divide --heads 8,12, each of them; --shape takes pairs, as 32x8,64x8");
    refused("--shape 8x2 --kv-heads 4", "--shape 8x2: cannot be used with --kv-heads 4; give one of them");
    refused("--shape 8x2 --hidden 512", "--shape 8x2: cannot be used with --hidden 512; give one of them");
    refused_with("--shape 8x2,2147483647x1 --batch 4k", "--shape 8x2,2147483647x1: too large;");
    refused("--mask-block 64", "--mask-block 64: needs --block-mask SPEC, whose blocks it sizes");
    refused("--hadamard --d 96 --dtype e4m3",
            "--hadamard: cannot be used with --d 96; head dims must be powers of two");
    refused("--scale-block 64 --dtype e5m2 --fp8-scale head",
            "--scale-block 64: needs --fp8-scale block, whose blocks it sizes");
    refused("--fp8-scale head", "--fp8-scale head: needs 8-bit inputs: --dtype e4m3 or e5m2");
    refused("--out-dtype fp16 --dtype e4m3,fp32",
            "--out-dtype fp16: cannot be used with --dtype fp32, whose output has its type; it is for e4m3 and e5m2");
    refused("--hadamard --dtype bf16",
            "--hadamard: cannot be used with --dtype bf16, which are not quantised; it is for e4m3 and e5m2");
    refused("--mode fwd,bwd --dtype bf16,e4m3",
            "--mode fwd,bwd: cannot be used with --dtype e4m3, which has no backward; must be fwd");
    refused("--quant-in-time --dtype bf16", "--quant-in-time: needs 8-bit inputs: --dtype e4m3 or e5m2");
    refused("--quant-in-time --dtype e4m3 --sustain-s 5",
            "--quant-in-time: cannot be used with --sustain-s, whose regions are launches alone");
    taken("--quant-in-time --dtype bf16,e4m3");
    taken("--dtype bf16,e4m3");
    taken("--mode fwd --dtype e4m3,e5m2 --out-dtype bf16,fp16 --fp8-scale tensor,block --scale-block 1 --hadamard");
    refused("--lengths list:5 --batch 2", "--lengths list:5: cannot be used with --batch, which it replaces");
    refused("--dropout-seed 3", "--dropout-seed 3: needs --dropout P, whose seed it is");
    refused("--dropout 1e-6",
            "--dropout 1e-6: too small for the 16 bits that decide an element; must be 0, or from 1.53e-05 to 0.9999");
}

/* Head dims that differ, and what is added to logits. */
static void head_dims_and_biases(void **state)
{
    (void)state;
    refused("--d 36", "--d 36: must be a multiple of 8 from 8 to 256");
    refused("--d 192x264",
            "--d 192x264: must be multiples of 8 from 8 to 256 with commas, or pairs of them for Q and K "
            "x V as 192x128; or 576x512 in --mode decode");
    refused("--d 576x512", "--d 576x512: 576x512 needs --mode decode, a forward against a cache");
    refused_with("--d 576x256 --mode decode --kv-len 1k --batch 1", "--d 576x256: must be multiples of 8");
    taken("--d 192x128,64x128,64 --mode fwd,bwd");
    taken("--d 576x512 --mode decode --kv-len 1k --batch 1");
    refused("--alibi --bias full",
            "--alibi: cannot be used with --bias full, which is added in the same place; give one");
    taken("--alibi --sink");
    taken("--bias heads --sink --mode bwd");
    refused_with("--cache-dtype e4m3", "--cache-dtype e4m3: needs --mode decode");
}

/* Decode stands alone, needs the lengths of its caches, and no other mode takes its options. */
static void decode_and_others(void **state)
{
    (void)state;
    taken("--mode decode --kv-len 4k,64k --batch 1 --page-size 16 --splits 4");
    taken("--mode decode --preset quick");
    taken("--preset decode");
    taken("--preset decode --mode decode --seqlen 1,4 --page-size 0");
    refused("--preset decode --mode fwd",
            "--mode fwd: cannot be used with --preset decode, whose problems are forwards against a cache; must be "
            "decode or left out");
    taken("--mode decode --lengths uniform:1:4k --batch 8 --seqlen 1");
    taken("--page-size 0 --splits 0");
    taken("--mode decode --kv-len 1024k --batch 4");
    refused("--mode fwd,decode --kv-len 64",
            "--mode fwd,decode: decode cannot be used with fwd or bwd; must be decode alone, or fwd, bwd or both");
    refused("--mode decode",
            "--mode decode: needs the lengths of the caches: --kv-len N, --lengths SPEC or a --preset");
    refused("--page-size 16", "--page-size 16: needs --mode decode, a forward against a cache");
    refused("--cache-dtype e4m3", "--cache-dtype e4m3: needs --mode decode, a forward against a cache");
    refused("--mode decode --kv-len 8 --cache-dtype none,e5m2 --dtype fp32",
            "--cache-dtype none,e5m2: cannot be used with --dtype fp32; Q must be fp16 or bf16");
    refused("--mode decode --kv-len 8 --cache-dtype e5m2 --dtype e4m3",
            "--cache-dtype e5m2: cannot be used with --dtype e4m3; Q must be fp16 or bf16");
    refused("--mode bwd --splits 2", "--splits 2: needs --mode decode, a forward against a cache");
    refused("--mode decode --kv-len 64 --block-mask local:1",
            "--block-mask local:1: cannot be used with --mode decode, whose few rows have no blocks; must be left out");
    refused("--mode decode --kv-len 64 --lengths list:8",
            "--lengths list:8: cannot be used with --kv-len, which it replaces");
    taken("selftest --mode decode");
    refused("selftest --mode fwd,decode",
            "--mode fwd,decode: decode cannot be used with fwd or bwd; must be decode alone, or fwd, bwd or both");
}

static void outputs_to_stdout(void **state)
{
    (void)state;
    taken("--csv -");
    assert_string_equal(options.csv_path, "-");
    taken("--jsonl=- --csv x.csv");
    refused("--csv - --jsonl -", "--jsonl -: stdout is used by --csv -; only one output can go there");
    refused("--csv - --plot term", "--csv -: stdout is used by --plot term; only one output can go there");
    refused("--plot=term --jsonl=-", "--jsonl -: stdout is used by --plot term; only one output can go there");
    taken("--csv - --plot svg");
}

static void output_paths(void **state)
{
    (void)state;
    refused("--csv dir", "--csv dir: is a directory; must be a file, or - for stdout");
    refused("--jsonl .", "--jsonl .: is a directory; must be a file, or - for stdout");
    refused("--csv absent/x.csv", "--csv absent/x.csv: the directory absent does not exist");
    refused("--csv file/x.csv", "--csv file/x.csv: cannot be written (Not a directory)");
    refused("--csv absent/", "--csv absent/: names a directory; must be a file, or - for stdout");
    refused("--jsonl /absent.jsonl/x", "--jsonl /absent.jsonl/x: the directory /absent.jsonl does not exist");
    refused("--csv x.csv --jsonl ./x.csv", "--jsonl ./x.csv: is the file of --csv; must be another one");
    refused("--csv file --jsonl dir/../file", "--jsonl dir/../file: is the file of --csv; must be another one");
    taken("--csv /dev/null --jsonl /dev/null"); /* no file */
    taken("--csv file --jsonl dir/file");
    taken("--out new --csv new/x.csv --jsonl new/y.jsonl"); /* the directory will be made */
    refused("--out new --csv new/deep/x.csv", "--csv new/deep/x.csv: the directory new/deep does not exist");
    taken("--out new/deep/deeper/");
    refused("--out file", "--out file: file is not a directory");
    refused("--out file/x", "--out file/x: cannot be made (Not a directory)");
    refused("--out -", "--out -: must name a directory");
    refused("--out dangling", "--out dangling: cannot be made (No such file or directory)");
    refused("--dump file", "--dump file: file is not a directory");
    refused("--input absent", "--input absent: must be a directory that exists (No such file or directory)");
    refused("--input file", "--input file: is not a directory");
    refused("--input dir --dump ./dir", "--dump ./dir: is the directory of --input; must be another one");
    refused("verify --outputs absent", "--outputs absent: must be a directory that exists (No such file or directory)");
    refused("verify --outputs dir --dump ./dir", "--dump ./dir: is the directory of --outputs; must be another one");
    refused("verify --outputs dir --deterministic",
            "--deterministic: cannot be used with --outputs, where nothing is launched; must be left out");
    refused("verify --only ''", "--only '': must not be empty");
    refused("--only peak", "--only: is not an option of sweep, only of verify");
    refused("verify --outputs dir --invariance",
            "--invariance: cannot be used with --outputs, where nothing is launched; must be left out");
    refused("verify --invariance --mode fwd,bwd",
            "--mode fwd,bwd: cannot be used with --invariance, which compares forwards; must be fwd or decode");
    refused("verify --invariance --variant wide",
            "--variant wide: cannot be used with --invariance, which leaves the "
            "choice to the implementation; --impl NAME:VARIANT is looked at, too");
    refused("--invariance", "--invariance: is not an option of sweep, only of verify");
    taken("verify --invariance --mode decode --random 5");
    taken("verify --outputs dir --dump new --only peak --impl mine");
    assert_string_equal(options.outputs_dir, "dir");
    assert_string_equal(options.only, "peak");
    refused("--dump-dtype fp32", "--dump-dtype fp32: needs --dump DIR, whose files it is about");
    assert_int_not_equal(access("new", F_OK), 0); /* asking makes nothing */
    assert_int_not_equal(access("x.csv", F_OK), 0);
    char line[6000] = "--csv ";
    memset(line + 6, 'x', 5000);
    refused_with(line, "xxx...: cannot be written (File name too long)");
}

/* Root may write everywhere: the test becomes nobody for a moment. */
/* A folder of --out that holds a record: only --resume and --overwrite may write into it. */
static void records_are_not_replaced(void **state)
{
    static const char *const names[] = {"run.jsonl", "run.csv"};
    (void)state;
    assert_int_equal(mkdir("held", 0755), 0);
    taken("--out held"); /* empty */
    for (int i = 0; i < 2; i++) {
        char path[40], words[300];
        snprintf(path, sizeof path, "held/%s", names[i]);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        taken("--out held"); /* an empty file is no record */
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs("x", file) >= 0 && fclose(file) == 0);
        snprintf(
            words, sizeof words,
            "--out held: holds the %s of an earlier run; must be another folder, or --resume continues the record, "
            "--overwrite replaces it",
            names[i]);
        refused("--out held", words);
        refused_with("--out held/ --plot none", "an earlier run");
        snprintf(words, sizeof words,
                 "--out held: holds the %s of an earlier run; must be another folder, or --overwrite replaces it",
                 names[i]);
        refused("verify --out held", words);
        taken("--out held --overwrite");
        taken("verify --out held --overwrite");
        taken("--out held --resume");
        taken("--out held --dry-run");                   /* writes nothing */
        taken("--out held --jsonl a.jsonl --csv a.csv"); /* nor there */
        unlink(path);
    }
    refused("--out held --resume --overwrite", "--overwrite: cannot be used with --resume; give one of them");
    rmdir("held");
}

static void unwritable_paths(void **state)
{
    (void)state;
    const bool is_root = geteuid() == 0;
    if (is_root && seteuid(65534) != 0)
        skip();
    const int csv_code = run("--csv readonly");
    char csv_text[300], dir_text[300], out_text_copy[300];
    snprintf(csv_text, sizeof csv_text, "%.290s", err_text);
    const int dir_code = run("--jsonl locked/x.jsonl");
    snprintf(dir_text, sizeof dir_text, "%.290s", err_text);
    const int out_code = run("--out locked/a/b");
    snprintf(out_text_copy, sizeof out_text_copy, "%.290s", err_text);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_string_equal(csv_text, "fabench: --csv readonly: is not writable (Permission denied)\n");
    assert_string_equal(dir_text, "fabench: --jsonl locked/x.jsonl: the directory locked is not writable (Permission "
                                  "denied)\n");
    assert_string_equal(out_text_copy, "fabench: --out locked/a/b: the directory locked is not writable (Permission "
                                       "denied)\n");
    assert_int_equal(csv_code, EXIT_USAGE);
    assert_int_equal(dir_code, EXIT_USAGE);
    assert_int_equal(out_code, EXIT_USAGE);
}

/* ---- Sentences, command line, help ------------------------------------------------------------------------------- */

static void hostile_values_stay_on_one_line(void **state)
{
    (void)state;
    char program[] = "fabench", csv[] = "--impl", newline[] = "a\nb\033[31m", unknown[] = "--x\ny";
    char *words[] = {program, csv, newline, NULL}, *others[] = {program, unknown, NULL};
    assert_int_equal(run_words(3, words), EXIT_USAGE);
    assert_string_equal(err_text, "fabench: --impl a?b?[31m: must be names of a-z, 0-9 and _ with commas, as "
                                  "naive,fused\n");
    assert_int_equal(run_words(2, others), EXIT_USAGE);
    assert_string_equal(err_text, "fabench: --x?y: no such option; see fabench --help\n");
    char longest[3000];
    memset(longest, '9', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    char *huge[] = {program, (char[]){"--seqlen"}, longest, NULL};
    assert_int_equal(run_words(3, huge), EXIT_USAGE);
    assert_non_null(strstr(err_text, "999...: \"999"));
    assert_non_null(strstr(err_text, "or a list as 64,128 or 1k:16k:*2\n"));
    assert_true(strlen(err_text) < 500);
    char *option[] = {program, longest, NULL};
    memcpy(longest, "--", 2);
    assert_int_equal(run_words(2, option), EXIT_USAGE);
    assert_true(strlen(err_text) < 200);
}

/* The recorded command line, read by a shell, gives the same words. */
static void command_line_is_quoted(void **state)
{
    (void)state;
    char program[] = "fabench", variant[] = "--variant", odd[] = "it's a $HOME \"`x`\\ *",
         columns[] = "--columns=a,b c";
    char *words[] = {program, variant, odd, columns, NULL};
    assert_int_equal(run_words(4, words), EXIT_OK);
    assert_string_equal(options.command_line, "fabench --variant 'it'\\''s a $HOME \"`x`\\ *' '--columns=a,b c'");
    char command[300], echoed[300] = "";
    snprintf(command, sizeof command, "set -- %s; printf '%%s|' \"$@\"", options.command_line);
    FILE *const shell = popen(command, "r");
    assert_non_null(shell);
    echoed[fread(echoed, 1, sizeof echoed - 1, shell)] = 0;
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(echoed, "fabench|--variant|it's a $HOME \"`x`\\ *|--columns=a,b c|");
    char empty[] = "", file[] = "plot", dash[] = "--";
    char *more[] = {program, file, dash, odd, NULL};
    assert_int_equal(run_words(4, more), EXIT_OK);
    assert_string_equal(options.command_line, "fabench plot -- 'it'\\''s a $HOME \"`x`\\ *'");
    char *bare[] = {empty, NULL};
    assert_int_equal(run_words(1, bare), EXIT_OK);
    assert_string_equal(options.command_line, "''");
}

enum { HELP_LINES = 60 };

static void assert_one_screen(int lines_most)
{
    int lines = 0;
    for (const char *line = out_text; *line; lines++) {
        const size_t length = strcspn(line, "\n");
        if (length > 100)
            fail_msg("%zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
    assert_in_range(lines, 5, lines_most);
}

static void help(void **state)
{
    (void)state;
    static const char *const lines[] = {"--help", "-h", "sweep --help", "--d 64 --help --frob"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(run(lines[i]), EXIT_OK);
        assert_true(done);
        assert_string_equal(err_text, "");
        assert_one_screen(HELP_LINES);
        assert_non_null(strstr(out_text, "--d, --headdim N,..."));
        assert_non_null(strstr(out_text, "--causal[=yes|no|both]  --no-causal"));
        assert_non_null(strstr(out_text, "[64,128]"));
    }
    assert_int_equal(run("--help"), EXIT_OK);
    for (int i = 0; i < option_count; i++) {
        char word[40];
        const bool is_there = (snprintf(word, sizeof word, "  %s", option_table[i].name), strstr(out_text, word));
        bool is_wanted = false; /* some row of this name serves the sweep */
        for (int j = 0; j < option_count; j++)
            is_wanted |= strcmp(option_table[j].name, option_table[i].name) == 0 && !option_table[j].is_hidden &&
                         !option_table[j].is_rare && option_serves(&option_table[j], &command_table[0]);
        if (is_there != is_wanted)
            fail_msg("--help and %s", option_table[i].name);
    }
    assert_null(strstr(out_text, "--price"));
    assert_int_equal(run("report --help"), EXIT_OK);
    assert_non_null(strstr(out_text, "--price LABEL=31000EUR"));
    assert_int_equal(run("--help"), EXIT_OK);
    assert_non_null(strstr(out_text, "fabench plot A.jsonl ... [OPTIONS]"));
    assert_non_null(strstr(out_text, "fabench selftest [OPTIONS]"));
    assert_non_null(strstr(out_text, "fabench gate"));
    assert_int_equal(run("verify --help"), EXIT_OK);
    assert_one_screen(40);
    assert_non_null(strstr(out_text, "fabench verify [OPTIONS]"));
    assert_non_null(strstr(out_text, "--preset quick "));
    assert_non_null(strstr(out_text, "--junit"));
    assert_null(strstr(out_text, "--min-time-ms"));
    assert_null(strstr(out_text, "fabench plot"));
    assert_int_equal(run("ab --help"), EXIT_OK);
    assert_one_screen(HELP_LINES);
    assert_non_null(strstr(out_text, "fabench ab OLD NEW [OPTIONS]"));
    assert_non_null(strstr(out_text, "--pairs MIN,MAX"));
    assert_null(strstr(out_text, "--baseline"));
    assert_int_equal(run("gate --help"), EXIT_OK);
    assert_one_screen(HELP_LINES);
    assert_non_null(strstr(out_text, "--baseline PATH  --current PATH"));
    assert_null(strstr(out_text, "--pairs"));
    assert_int_equal(run("plot -h"), EXIT_OK);
    assert_one_screen(12);
    assert_null(strstr(out_text, "problem: what is computed"));
    refused("--help=x", "--help x: must be all, problem, impl, check, measure, gates or output");
    refused("--help=", "--help '': must be all, problem, impl, check, measure, gates or output");
    refused("--help=mesure",
            "--help mesure: must be all, problem, impl, check, measure, gates or output; did you mean measure");
    refused("--d 63 --help", "--d 63: must be a multiple of 8 from 8 to 256");
}

static void version(void **state)
{
    (void)state;
    assert_int_equal(run("--version"), EXIT_OK);
    assert_true(done);
    assert_string_equal(err_text, "");
    assert_int_equal(strncmp(out_text, "fabench ", 8), 0);
    assert_non_null(strstr(out_text, "built: "));
    assert_non_null(strstr(out_text, "ABI 3\n"));
    assert_int_equal(run("info --version"), EXIT_OK);
    assert_true(done);
}

static void help_to_a_full_disk(void **state)
{
    (void)state;
    const int saved = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY), err = dup(STDERR_FILENO);
    char program[] = "fabench", word[] = "--help", *words[] = {program, word, NULL};
    FILE *const caught = tmpfile();
    fflush(stdout);
    dup2(full, STDOUT_FILENO);
    dup2(fileno(caught), STDERR_FILENO);
    const int code = options_parse(2, words, &options, &done);
    dup2(saved, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(saved);
    close(full);
    close(err);
    clearerr(stdout);
    read_back(caught, err_text, sizeof err_text);
    assert_int_equal(code, EXIT_IO);
    assert_string_equal(err_text, "fabench: stdout cannot be written\n");
}

static void names_of_enums(void **state)
{
    (void)state;
    assert_string_equal(problem_mode_name(ATTN_BWD), "bwd");
    assert_string_equal(problem_dtype_name(ATTN_BF16), "bf16");
    assert_string_equal(problem_dtype_name(ATTN_FP32), "fp32");
    assert_string_equal(problem_layout_name(ATTN_BSHD), "bshd");
    assert_string_equal(problem_dist_name(FILL_TINY), "tiny");
    assert_string_equal(problem_dist_name(FILL_NORMAL), "normal");
    assert_string_equal(problem_l2_name(L2_HOT), "hot");
    assert_string_equal(problem_scope_name(CHECK_SAMPLE), "sample");
    assert_string_equal(option_preset_name(PRESET_CI), "ci");
    assert_string_equal(option_preset_name(PRESET_FULL), "full");
}

static void freeing_twice_is_harmless(void **state)
{
    (void)state;
    taken("--impl a,b --csv x --d 64");
    options_free(&options);
    options_free(&options);
    assert_null(options.csv_path);
}

/* ---- Commands and what they need ---- */

static void plot_takes_files(void **state)
{
    (void)state;
    taken("plot a.jsonl --plot png b.jsonl --out dir -- --odd.jsonl");
    assert_int_equal(options.command, COMMAND_PLOT);
    assert_names(&options.files, "a.jsonl,b.jsonl,--odd.jsonl,");
    refused("plot", "plot: needs the record files to draw, as in fabench plot run.jsonl");
    refused("plot a.jsonl --plot none", "--plot none: draws nothing; must be svg, png, term or md");
    refused(
        "plot a.jsonl --plot-layout slide --overlay file",
        "--overlay file: is drawn in charts over the length alone; must be left out with --plot md and --plot-layout "
        "slide");
    taken("report H200=a.jsonl b.jsonl --price H200=31000EUR --price B=1USD --out dir --overlay file");
    assert_int_equal(options.files.count, 2);
    assert_int_equal(options.prices.count, 2);
    assert_string_equal(options.prices.names[1], "B=1USD");
    assert_string_equal(options.overlay_path, "file");
    refused("report", "report: needs record files, as in fabench report H200=a.jsonl B200=b.jsonl");
    refused("report a.jsonl --plot png", "--plot png: must be svg (within the HTML page) or none");
    refused("report a.jsonl --price ''", "--price '': must not be empty");
    refused("report a.jsonl --plot none --overlay file",
            "--overlay file: cannot be used with --plot none; must be left out");
    refused("plot a.jsonl --overlay absent",
            "--overlay absent: must be a file that exists (No such file or directory)");
    refused("plot a.jsonl --overlay dir", "--overlay dir: is a directory; must be a file");
    refused("--overlay file --out none",
            "--overlay file: cannot be used with --out none, where no chart is drawn; must be left out");
    refused("--price A=1EUR", "--price: is not an option of sweep, only of report");
    refused("plot a.jsonl --out none",
            "--out none: is not a folder for the charts; must be a directory, or --plot term|md");
    taken("plot a.jsonl --out none --plot term");
    refused("plot ''", "'': plot takes no such argument; lists are written with commas, as 64,128");
}

static void tune_needs_an_implementation_and_a_file(void **state)
{
    (void)state;
    taken("tune --impl fused_sm90 --write w --resume --max-time-s 9 --random 20 --mode fwd");
    assert_string_equal(options.tuned_out, "w");
    assert_int_equal(options.random_count, 20);
    taken("tune /dev/null --impl a --write w");
    refused("tune --write w", "tune: needs one implementation, whose variants it tries: --impl NAME");
    refused("tune --impl a,b --write w", "tune: needs one implementation, whose variants it tries: --impl NAME");
    refused("tune --impl a", "tune: needs a file for its choices: --write FILE");
    refused("tune a --impl a --write w --random 3",
            "--random 3: cannot be used with a record, whose problems are tried; give one of them");
    taken("tune --impl a --write w --check sample");
    refused("tune --impl a --write w --check off",
            "--check off: cannot be used with tune, which takes what has passed; full or sample");
    taken("--tuned /dev/null");
    assert_string_equal(options.tuned_path, "/dev/null");
}

static void resume_needs_its_record(void **state)
{
    (void)state;
    static const char needs[] = "--resume: needs the record to continue: the --out DIR or the --jsonl PATH of the run";
    refused("--resume", needs);
    refused("--resume --out none", needs);
    refused("--resume --jsonl -", needs);
    refused("--resume --out dir --jsonl -", needs);
    refused("--resume=yes --out dir", "--resume yes: takes no value");
    refused("--resume --out dir --profile", "--resume: cannot be used with --profile; give one of them");
    refused("--resume --out dir --dry-run", "--resume: cannot be used with --dry-run; give one of them");
    refused("verify --resume --out dir", "--resume: is not an option of verify, only of sweep, tune");
    taken("--resume --out none --jsonl file");
    assert_true(options.resume);
    taken("--out dir");
    assert_false(options.resume);
}

static void ab_takes_two_sides(void **state)
{
    (void)state;
    taken(
        "ab old new --mode bwd --causal --d=128 --impl fused --device cuda:1 --pairs 3,7 --out none --quiet --l2 hot");
    assert_int_equal(options.command, COMMAND_AB);
    assert_names(&options.files, "old,new,");
    assert_names(&options.impls, "fused,");
    assert_list(&options.pairs, "3,7,");
    /* What the processes of both sides get: no output, no gate's own option, no device, no implementation. */
    assert_names(&options.sweep_words, "--mode=bwd,--causal,--d=128,--l2=hot,");
    taken("ab old new --pairs 4 --order-seed 12");
    assert_list(&options.pairs, "4,");
    assert_int_equal(options.order_seed, 12);
    refused("ab old new --order-seed 0", "--order-seed 0: must be a whole number from 1 to 2147483647");
    refused("ab", "ab: needs two programs or two libraries, as in fabench ab OLD NEW; there are 0");
    refused("ab old", "ab: needs two programs or two libraries, as in fabench ab OLD NEW; there is 1");
    refused("ab old new newer", "ab: needs two programs or two libraries, as in fabench ab OLD NEW; there are 3");
    refused("ab a b --pairs 7,3", "--pairs 7,3: must be the least and the most, as 6,16");
    refused("ab a b --pairs 1,3", "--pairs 1,3: 1 is not allowed; each must be a whole number from 2 to 64");
    refused("ab a b --junit -", "--junit -: must be a file: stdout has the results");
    refused("ab a b --junit dir", "--junit dir: is a directory; must be a file, or - for stdout");
    refused("ab a b --check off", "--check: is not an option of ab, only of sweep, verify, gate, tune");
    refused("ab a b --baseline x", "--baseline: is not an option of ab, only of gate");
    taken("verify --accepted list.txt");
    assert_string_equal(options.accepted_path, "list.txt");
    refused("--accepted list.txt", "--accepted: is not an option of sweep, only of verify");
    taken("--points 3,1");
    assert_list(&options.points, "3,1,");
}

static void gate_takes_a_baseline(void **state)
{
    (void)state;
    taken("gate --baseline a.jsonl --current b.jsonl --floors f.csv --junit new.xml");
    assert_string_equal(options.baselines.names[0], "a.jsonl");
    assert_string_equal(options.currents.names[0], "b.jsonl");
    assert_string_equal(options.floors, "f.csv");
    assert_string_equal(options.junit_path, "new.xml");
    assert_names(&options.sweep_words, "");
    taken("gate --baseline a --baseline b --baseline=c --current x --current y");
    assert_names(&options.baselines, "a,b,c,");
    assert_names(&options.currents, "x,y,");
    taken("gate --baseline a --runs 3");
    assert_int_equal(options.runs_max, 3);
    refused("gate --baseline a --runs 17", "--runs 17: must be a whole number from 1 to 16");
    refused("gate --baseline a --current b --runs 3", "--current b: cannot be used with --runs: nothing is measured");
    char many[17 * 14 + 8] = "gate";
    for (int i = 0; i < 17; i++)
        strcat(many, " --baseline=a");
    refused(many, "--baseline: is given more than 16 times; must be 16 records at most");
    taken("gate --floors f.csv --preset ci");
    assert_names(&options.sweep_words, "--preset=ci,");
    refused("gate", "gate: needs something to compare with: --baseline A.jsonl, or --floors FILE");
    refused("gate --baseline a --current b --d 64",
            "--current b: cannot be used with --d=64: a stored run is not measured again");
    refused("gate --baseline a --current b --impl fused",
            "--current b: cannot be used with --impl: a stored run is not measured again");
    refused("gate a.jsonl", "a.jsonl: gate takes no such argument; lists are written with commas, as 64,128");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_that_contradict),
        cmocka_unit_test(key_heads_divide_heads),
        cmocka_unit_test(products_that_overflow),
        cmocka_unit_test(windows_heads_and_dropout),
        cmocka_unit_test(head_dims_and_biases),
        cmocka_unit_test(decode_and_others),
        cmocka_unit_test(outputs_to_stdout),
        cmocka_unit_test(output_paths),
        cmocka_unit_test(records_are_not_replaced),
        cmocka_unit_test(unwritable_paths),
        cmocka_unit_test(hostile_values_stay_on_one_line),
        cmocka_unit_test(command_line_is_quoted),
        cmocka_unit_test(help),
        cmocka_unit_test(version),
        cmocka_unit_test(help_to_a_full_disk),
        cmocka_unit_test(names_of_enums),
        cmocka_unit_test(freeing_twice_is_harmless),
        cmocka_unit_test(plot_takes_files),
        cmocka_unit_test(resume_needs_its_record),
        cmocka_unit_test(tune_needs_an_implementation_and_a_file),
        cmocka_unit_test(ab_takes_two_sides),
        cmocka_unit_test(gate_takes_a_baseline),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
