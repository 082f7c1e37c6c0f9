/* Paths of files, and the name of the program. */
#include "tests/unit/unit_help.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "cmd/base/paths.h"
#include "cmd/base/program.h"

/* ---- paths ---- */

/* Questions about paths (cmd/base/paths.h): what can be written and read, what is the same file, what is removed and
 * made. */

static struct reason why;

static void a_file_to_be_written(void **state)
{
    (void)state;
    assert_true(path_takes_file(help_path("new.csv"), NULL, &why));
    assert_int_not_equal(access(help_path("new.csv"), F_OK), 0); /* asking changes nothing */
    assert_true(path_takes_file(help_write("there.csv", "x"), NULL, &why));
    assert_string_equal(help_read(help_path("there.csv")), "x");
    assert_true(path_takes_file("/dev/null", NULL, &why));
    static const struct {
        const char *path, *words;
    } refused[] = {{"", "must name a file"},
                   {"/tmp", "is a directory; must be a file, or - for stdout"},
                   {"/tmp/absent/", "names a directory; must be a file, or - for stdout"},
                   {"/absent/x.csv", "the directory /absent does not exist"},
                   {"/dev/null/x.csv", "cannot be written (Not a directory)"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_false(path_takes_file(refused[i].path, NULL, &why));
        assert_string_equal(why.text, refused[i].words);
    }
}

static void a_file_in_a_folder_to_be(void **state)
{
    char folder[160], slashes[170];
    (void)state;
    snprintf(folder, sizeof folder, "%s", help_path("later"));
    snprintf(slashes, sizeof slashes, "%s//", folder);
    assert_true(path_takes_file(help_path("later/run.csv"), folder, &why));
    assert_true(path_takes_file(help_path("later/run.csv"), slashes, &why));
    assert_false(path_takes_file(help_path("later2/run.csv"), folder, &why));
    assert_false(path_takes_file(help_path("late/run.csv"), folder, &why)); /* the beginning of its name alone */
}

static void a_folder_to_be_written(void **state)
{
    char long_path[5000];
    (void)state;
    assert_true(path_takes_dir(help_folder, &why));
    assert_true(path_takes_dir(help_path("a/b/c"), &why)); /* its parents are made, too */
    assert_int_not_equal(access(help_path("a"), F_OK), 0);
    assert_true(path_takes_dir("relative-and-new", &why) || strstr(why.text, "not writable"));
    help_write("plain", "x");
    assert_false(path_takes_dir(help_path("plain"), &why));
    assert_has(why.text, "plain is not a directory");
    assert_false(path_takes_dir(help_path("plain/below"), &why));
    assert_string_equal(why.text, "cannot be made (Not a directory)");
    assert_int_equal(symlink("/absent/nowhere", help_path("dangling")), 0);
    assert_false(path_takes_dir(help_path("dangling/below"), &why));
    assert_has(why.text, "cannot be made");
    for (int i = 0; i < 2; i++) {
        assert_false(path_takes_dir(i ? "-" : "", &why));
        assert_string_equal(why.text, "must name a directory");
    }
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    assert_false(path_takes_dir(long_path, &why));
    assert_string_equal(why.text, "cannot be made (File name too long)");
}

static void what_is_to_be_read(void **state)
{
    (void)state;
    assert_true(path_has_file(help_write("input", "x"), &why));
    assert_false(path_has_file(help_path("no-input"), &why));
    assert_string_equal(why.text, "must be a file that exists (No such file or directory)");
    assert_false(path_has_file(help_folder, &why));
    assert_string_equal(why.text, "is a directory; must be a file");
    assert_true(path_has_dir(help_folder, &why));
    assert_false(path_has_dir(help_path("input"), &why));
    assert_string_equal(why.text, "is not a directory");
    assert_false(path_has_dir(help_path("no-folder"), &why));
    assert_string_equal(why.text, "must be a directory that exists (No such file or directory)");
}

/* As somebody else where the test runs as root, who may do everything. */
static void without_the_right(void **state)
{
    const bool is_root = geteuid() == 0;
    (void)state;
    assert_int_equal(chmod(help_folder, 0755), 0);
    assert_int_equal(chmod(help_write("locked", "x"), 0), 0);
    assert_int_equal(mkdir(help_path("closed"), 0500), 0);
    if (is_root)
        assert_int_equal(seteuid(65534), 0);
    struct reason reads = {""}, writes = {""}, makes = {""};
    const bool has_file = path_has_file(help_path("locked"), &reads);
    const bool takes_file = path_takes_file(help_path("locked"), NULL, &writes);
    const bool takes_dir = path_takes_dir(help_path("closed"), &makes);
    if (is_root)
        assert_int_equal(seteuid(0), 0);
    assert_false(has_file);
    assert_string_equal(reads.text, "is not readable (Permission denied)");
    assert_false(takes_file);
    assert_string_equal(writes.text, "is not writable (Permission denied)");
    assert_false(takes_dir);
    assert_has(makes.text, "closed is not writable (Permission denied)");
}

static void the_same_file(void **state)
{
    (void)state;
    help_write("one", "x");
    help_write("two", "x");
    assert_int_equal(symlink(help_path("one"), help_path("link")), 0);
    assert_true(path_is_same(help_path("one"), help_path("one")));
    assert_true(path_is_same(help_path("one"), help_path("./one")));
    assert_true(path_is_same(help_path("one"), help_path("link")));
    assert_false(path_is_same(help_path("one"), help_path("two")));
    assert_false(path_is_same(help_path("one"), help_path("none")));
    assert_true(path_is_same(help_path("none"), help_path("./none"))); /* neither exists yet */
    assert_false(path_is_same(help_path("none"), help_path("nobody")));
    assert_false(path_is_same("/absent/a", "/missing/a"));
    assert_false(path_is_same("/dev/null", "/dev/null")); /* two writers do not disturb each other there */
}

static void what_is_removed(void **state)
{
    (void)state;
    help_write("old", "x");
    assert_true(path_discard(help_path("old")));
    assert_int_not_equal(access(help_path("old"), F_OK), 0);
    assert_true(path_discard(help_path("old"))); /* gone already */
    help_write("target", "x");
    assert_int_equal(symlink(help_path("target"), help_path("to-target")), 0);
    assert_true(path_discard(help_path("to-target"))); /* the link stays, what it leads to is emptied */
    assert_string_equal(help_read(help_path("to-target")), "");
    assert_true(path_discard(help_folder));
    assert_int_equal(access(help_folder, F_OK), 0);
    assert_true(path_discard("/dev/null"));
    assert_int_equal(access("/dev/null", F_OK), 0);
}

static void folders_are_made(void **state)
{
    (void)state;
    assert_true(path_make_dirs(help_path("x/y/z")));
    assert_true(path_has_dir(help_path("x/y/z"), &why));
    assert_true(path_make_dirs(help_path("x/y/z"))); /* again */
    help_write("x/file", "x");
    help_listen();
    const bool made = path_make_dirs(help_path("x/file/below"));
    assert_has(help_said(), "x/file/below: cannot be made: Not a directory");
    assert_false(made);
}

static int paths_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_to_be_written),   cmocka_unit_test(a_file_in_a_folder_to_be),
        cmocka_unit_test(a_folder_to_be_written), cmocka_unit_test(what_is_to_be_read),
        cmocka_unit_test(without_the_right),      cmocka_unit_test(the_same_file),
        cmocka_unit_test(what_is_removed),        cmocka_unit_test(folders_are_made)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}

/* ---- program ---- */

/* The name in hints: the variable of a calling script, argv[0], or the plain name; quoted for a shell. */

static void assert_command(const char *line, const char *want)
{
    char *got = program_command(line);
    assert_string_equal(got, want);
    free(got);
}

static void names(void **state)
{
    (void)state;
    unsetenv("FABENCH_CALLED_AS");
    assert_string_equal(program_name(), "fabench");
    program_set_name("build/release/fabench");
    assert_string_equal(program_name(), "build/release/fabench");
    program_set_name("/my tools/fabench");
    assert_string_equal(program_name(), "'/my tools/fabench'");
    setenv("FABENCH_CALLED_AS", "./scripts/run.sh", 1);
    assert_string_equal(program_name(), "./scripts/run.sh");
    setenv("FABENCH_CALLED_AS", "", 1);
    assert_string_equal(program_name(), "'/my tools/fabench'");
    program_set_name("");
    assert_string_equal(program_name(), "fabench");
    unsetenv("FABENCH_CALLED_AS");
}

static void commands(void **state)
{
    (void)state;
    program_set_name("./fabench");
    assert_command("fabench plot a.jsonl", "./fabench plot a.jsonl");
    assert_command("fabench", "./fabench");
    assert_command("fabench2 plot", "fabench2 plot");
    assert_command("git log fabench", "git log fabench");
    assert_command("", "");
    program_set_name(NULL);
    assert_command("fabench plot a.jsonl", "fabench plot a.jsonl");
}

static int program_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return paths_tests() + program_tests(); }
