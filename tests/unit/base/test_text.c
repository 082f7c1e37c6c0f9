/* Text: strings that grow, lists of names, and text in the width of a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/base/log.h"
#include "cmd/base/terminal.h"
#include "cmd/base/text.h"

/* ---- text ---- */

/* Strings that grow, shell words and their inverse, cleaning. */

static void an_empty_text(void **state)
{
    (void)state;
    struct text text = {0};
    assert_string_equal(text_string(&text), "");
    text_clear(&text);
    text_separate(&text, ", ");
    assert_string_equal(text_string(&text), "");
    char *taken = text_take(&text);
    assert_string_equal(taken, "");
    free(taken);
    text_free(&text);
    text_free(&text);
}

static void a_text_grows(void **state)
{
    (void)state;
    enum { PARTS = 5000 };
    struct text text = {0};
    size_t expected = 0;
    for (int i = 0; i < PARTS; i++) {
        char part[40];
        text_separate(&text, ", ");
        text_add(&text, "part %d of %s", i, "it");
        expected += (size_t)snprintf(part, sizeof part, "%spart %d of it", i ? ", " : "", i);
        assert_int_equal(text.length, expected);
        assert_string_equal(text_string(&text) + expected - strlen(part), part);
    }
    assert_int_equal(strlen(text_string(&text)), expected);
    char *taken = text_take(&text);
    assert_int_equal(strlen(taken), expected);
    assert_string_equal(text_string(&text), "");
    free(taken);
}

static void lengths_around_the_allocated_size(void **state)
{
    (void)state;
    char long_word[300];
    memset(long_word, 'x', sizeof long_word);
    for (int first = 0; first < 200; first++)
        for (int second = 0; second < 70; second++) {
            struct text text = {0};
            text_add_bytes(&text, long_word, (size_t)first);
            text_add(&text, "%.*s", second, long_word);
            text_add_char(&text, 'y');
            assert_int_equal(strlen(text_string(&text)), first + second + 1);
            assert_int_equal(text.bytes[first + second], 'y');
            assert_true(text.size > text.length);
            text_free(&text);
        }
}

static void a_cleared_text_is_used_again(void **state)
{
    (void)state;
    struct text text = {0};
    text_add(&text, "a long first text, longer than the second one");
    const size_t size = text.size;
    text_clear(&text);
    assert_string_equal(text_string(&text), "");
    text_add(&text, "%d", 42);
    assert_string_equal(text_string(&text), "42");
    assert_int_equal(text.size, size);
    text_free(&text);
}

static void no_memory_ends_the_program(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* its shadow memory needs more than the limit */
#endif
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 64 << 20, .rlim_max = 64 << 20};
        struct text text = {0};
        freopen("/dev/null", "w", stderr);
        if (setrlimit(RLIMIT_AS, &limit) == 0)
            for (int i = 0; i < 100000000; i++)
                text_add(&text, "one more part of a text that never ends, ");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_IO);
}

static void words_are_quoted_where_a_shell_needs_it(void **state)
{
    (void)state;
    static const struct {
        const char *word, *quoted;
    } cases[] = {
        {"fabench", "fabench"},
        {"--impl-lib=/a/b.so", "--impl-lib=/a/b.so"},
        {"16k:64k:*2", "'16k:64k:*2'"},
        {"", "''"},
        {"two words", "'two words'"},
        {"it's", "'it'\\''s'"},
        {"'", "''\\'''"},
        {"a\\b", "'a\\b'"},
        {"$HOME", "'$HOME'"},
        {"~", "'~'"},
        {"new\nline", "'new\nline'"},
        {"\xC3\xA9", "'\xC3\xA9'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text text = {0};
        text_add_quoted(&text, cases[i].word);
        assert_string_equal(text_string(&text), cases[i].quoted);
        text_add_shell_word(&text, cases[i].word);
        assert_int_equal(text.length, 2 * strlen(cases[i].quoted) + 1);
        assert_int_equal(text.bytes[strlen(cases[i].quoted)], ' ');
        text_free(&text);
    }
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

/* Any bytes but NUL; every second word of the few characters that matter to a shell. */
static void random_word(uint64_t *seed, char *word, size_t most)
{
    static const char special[] = "'\\ \"\n\t$`a-";
    const bool is_special = next_random(seed) % 2;
    const size_t length = next_random(seed) % most;
    for (size_t i = 0; i < length; i++)
        word[i] = is_special ? special[next_random(seed) % (sizeof special - 1)] : (char)(1 + next_random(seed) % 255);
    word[length] = '\0';
}

static void splitting_is_the_inverse_of_quoting(void **state)
{
    (void)state;
    uint64_t seed = 17;
    for (int round = 0; round < 20000; round++) {
        struct name_list words = {0}, back = {0};
        struct text line = {0};
        const int count = (int)(next_random(&seed) % 6);
        for (int i = 0; i < count; i++) {
            char word[24];
            random_word(&seed, word, sizeof word);
            name_list_add(&words, word);
            text_add_shell_word(&line, word);
        }
        assert_true(text_split_shell(text_string(&line), &back));
        assert_int_equal(back.count, count);
        for (int i = 0; i < count; i++)
            assert_string_equal(back.names[i], words.names[i]);
        name_list_free(&words);
        name_list_free(&back);
        text_free(&line);
    }
}

/* The same words as `sh` makes of the line. */
static void a_shell_reads_the_same_words(void **state)
{
    (void)state;
    uint64_t seed = 4;
    struct text line = {0}, expected = {0}, read = {0};
    text_add(&line, "printf '<%%s>'");
    for (int i = 0; i < 300; i++) {
        char word[24];
        random_word(&seed, word, sizeof word);
        text_add_shell_word(&line, word);
        text_add(&expected, "<%s>", word);
    }
    char buffer[4096];
    FILE *shell = popen(text_string(&line), "r");
    assert_non_null(shell);
    for (size_t count; (count = fread(buffer, 1, sizeof buffer, shell)) > 0;)
        text_add_bytes(&read, buffer, count);
    assert_int_equal(pclose(shell), 0);
    assert_string_equal(text_string(&read), text_string(&expected));
    text_free(&line);
    text_free(&expected);
    text_free(&read);
}

static void lines_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int count;
        const char *words[3];
    } cases[] = {
        {"", 0, {NULL}},
        {"   ", 0, {NULL}},
        {"''", 1, {""}},
        {"a  b ", 2, {"a", "b"}},
        {" a '' b", 3, {"a", "", "b"}},
        {"a'b c'd", 1, {"ab cd"}},
        {"a\\ b", 1, {"a b"}},
        {"\\'", 1, {"'"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct name_list words = {0};
        assert_true(text_split_shell(cases[i].line, &words));
        assert_int_equal(words.count, cases[i].count);
        for (int k = 0; k < words.count; k++)
            assert_string_equal(words.names[k], cases[i].words[k]);
        name_list_free(&words);
    }
}

static void an_open_quote_is_refused(void **state)
{
    (void)state;
    static const char *const lines[] = {"'", "a 'b", "a b'c d", "'a'\\''", "x 'y' 'z"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct name_list words = {0};
        name_list_add(&words, "kept");
        assert_false(text_split_shell(lines[i], &words));
        assert_int_equal(words.count, 1);
        assert_string_equal(words.names[0], "kept");
        name_list_free(&words);
    }
}

static void cleaning(void **state)
{
    (void)state;
    static const struct {
        const char *from, *clean;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"a\tb\nc\x7F", "a b c "},
        {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"\xFF\xC3x", "??x"},
        {"\x1B]0;title\x07x", " ]0;title x"},
        {"\x1B[31m\xC2\x9B"
         "2J\xC2\xA0",
         " [31m  2J\xC2\xA0"}, /* CSI in both forms; U+00A0 is no control */
        {"\x9B"
         "2J",
         "?2J"},
        {"\xC0\x80", "??"},      /* an overlong NUL */
        {"\xED\xA0\x80", "???"}, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char clean[32];
        struct text text = {0};
        text_clean(cases[i].from, clean, sizeof clean);
        assert_string_equal(clean, cases[i].clean);
        text_add_clean(&text, cases[i].from);
        assert_string_equal(text_string(&text), cases[i].clean);
        text_free(&text);
    }
    char small[4];
    text_clean("ab\xC3\xA9", small, sizeof small);
    assert_string_equal(small, "ab"); /* the character of two bytes has not room */
}

static void cutting_keeps_both_ends(void **state)
{
    (void)state;
    char cut[16];
    assert_string_equal(text_cut_middle("123456789012345", cut, sizeof cut), "123456789012345");
    assert_string_equal(text_cut_middle("1234567890123456", cut, sizeof cut), "1234...90123456");
    assert_string_equal(text_cut_middle("/home/somebody/results/run.jsonl", cut, sizeof cut), "/hom...un.jsonl");
    assert_string_equal(text_cut_middle("", cut, sizeof cut), "");
    char smallest[8];
    assert_string_equal(text_cut_middle("123456789", smallest, sizeof smallest), "1...789");
    /* Two paths that differ at their ends only. */
    char a[40], b[40];
    text_cut_middle("/a/very/long/path/to/some/library/libone.so", a, sizeof a);
    text_cut_middle("/a/very/long/path/to/some/library/libtwo.so", b, sizeof b);
    assert_string_not_equal(a, b);
    /* Characters of two bytes stay whole wherever the cut falls. */
#define THREE "\xC3\xA4\xC3\xB6\xC3\xBC"
    const char *umlauts = THREE THREE THREE THREE;
    for (size_t size = 8; size < 24; size++) {
        char text[24], clean[24];
        text_cut_middle(umlauts, text, size);
        assert_true(strlen(text) < size);
        text_clean(text, clean, sizeof clean);
        assert_string_equal(text, clean);
    }
}

static int text_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text),
        cmocka_unit_test(a_text_grows),
        cmocka_unit_test(lengths_around_the_allocated_size),
        cmocka_unit_test(a_cleared_text_is_used_again),
        cmocka_unit_test(no_memory_ends_the_program),
        cmocka_unit_test(words_are_quoted_where_a_shell_needs_it),
        cmocka_unit_test(splitting_is_the_inverse_of_quoting),
        cmocka_unit_test(a_shell_reads_the_same_words),
        cmocka_unit_test(lines_by_hand),
        cmocka_unit_test(an_open_quote_is_refused),
        cmocka_unit_test(cleaning),
        cmocka_unit_test(cutting_keeps_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- name_list ---- */

/* Lists of names, joined and searched. */

static void joined(void **state)
{
    (void)state;
    struct name_list list = {0};
    static const char *const expected[] = {"", "", ",bcd", ",bcd,", ",bcd,,e"};
    static const char *const names[] = {"", "bcd", "", "e"};
    for (int i = 0; i <= 4; i++) {
        char *text = name_list_join(&list);
        assert_string_equal(text, expected[i]);
        free(text);
        if (i < 4)
            name_list_add(&list, names[i]);
    }
    name_list_free(&list);
}

static void found(void **state)
{
    (void)state;
    struct name_list list = {0};
    assert_false(name_list_has(&list, ""));
    name_list_add_part(&list, "fused_sm90", 5);
    name_list_print(&list, "%s%d", "sm", 90);
    assert_true(name_list_has(&list, "fused"));
    assert_true(name_list_has(&list, "sm90"));
    assert_false(name_list_has(&list, "fused_sm90"));
    assert_null(name_list_argv(&list)[2]);
    assert_int_equal(list.count, 2);
    name_list_free(&list);
}

static void removed(void **state)
{
    (void)state;
    struct name_list list = {0};
    for (int i = 0; i < 5; i++)
        name_list_print(&list, "%d", i);
    name_list_remove(&list, 1, 2);
    assert_int_equal(list.count, 3);
    char *text = name_list_join(&list);
    assert_string_equal(text, "0,3,4");
    free(text);
    name_list_remove(&list, 2, 1);
    name_list_remove(&list, 0, 0);
    name_list_add(&list, "end");
    text = name_list_join(&list);
    assert_string_equal(text, "0,3,end");
    free(text);
    name_list_remove(&list, 0, 3);
    assert_int_equal(list.count, 0);
    name_list_free(&list);
}

static int name_list_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined),
        cmocka_unit_test(found),
        cmocka_unit_test(removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- text in the width of a terminal ---- */

static void commands_can_be_pasted(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    wrap_command(out, 24, 2, "echo 'a b  c' \"d e\" f\\ g 'it'\\''s h' i j k l m n o p q");
    fclose(out);
    int lines = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1, lines++)
        assert_true(strcspn(line, "\n") <= 24);
    assert_true(lines >= 3);
    char *again = NULL;
    assert_true(asprintf(&again, "[ \"$(%s)\" = \"a b  c d e f g it's h i j k l m n o p q\" ]", text) > 0);
    assert_int_equal(system(again), 0);
    free(again);
    free(text);
}

static void text_is_shortened_at_characters(void **state)
{
    (void)state;
    char text[32];
    const struct {
        const char *from;
        int limit;
        const char *to;
    } cases[] = {
        {"hello", 5, "hello"},
        {"hello!", 5, "he..."},
        {"hello!", 3, "hel"},
        {"hello!", 0, ""},
        {"hello!", -1, ""},
        {"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 5, "\xc3\xa9\xc3\xa9..."},
        {"\xc3\xa9\xc3\xa9", 2, "\xc3\xa9\xc3\xa9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        strcpy(text, cases[i].from);
        wrap_shorten(text, cases[i].limit);
        assert_string_equal(text, cases[i].to);
    }
}

static int terminal_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_can_be_pasted),
        cmocka_unit_test(text_is_shortened_at_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return text_tests() + name_list_tests() + terminal_tests(); }
