/* What a process may use of the machine (cmd/base/host.h), from trees of files of a made-up /proc and /sys. */
#include "tests/unit/unit_help.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/base/host.h"

/* Writes a file of the tree, with its folders. */
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/tree%s", help_folder, path);
    for (char *slash = whole + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A machine of 16 CPUs, 64 GiB, 32 MiB of cache, without control groups. */
static void machine(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s/tree", help_folder);
    assert_int_equal(system(command), 0);
    put("/proc/self/status", "Name:\tfabench\nCpus_allowed:\tffff\nCpus_allowed_list:\t0-15\n");
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\n");
    put("/proc/loadavg", "4.25 3.00 2.00 5/600 1234\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/level", "3\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n");
}

static struct host_limits limits(void)
{
    char root[300];
    snprintf(root, sizeof root, "%s/tree", help_folder);
    return host_limits(root);
}

static const int64_t gib = (int64_t)1 << 30;

static void a_whole_machine(void **state)
{
    (void)state;
    machine();
    const struct host_limits h = limits();
    assert_int_equal(h.cpus, 16);
    assert_int_equal(h.threads, 16);
    assert_true(isinf(h.cpu_quota));
    assert_int_equal(h.memory_bytes, 64 * gib);
    assert_int_equal(h.memory_limit, 64 * gib);
    assert_int_equal(h.l3_bytes, 32 << 20);
    assert_true(h.load == 4.25);
}

static void the_mask_of_the_process(void **state)
{
    (void)state;
    machine();
    put("/proc/self/status", "Cpus_allowed_list:\t2-3,8\n");
    put("/sys/devices/system/cpu/cpu2/cache/index2/level", "2\n");
    put("/sys/devices/system/cpu/cpu2/cache/index2/size", "2M\n");
    const struct host_limits h = limits();
    assert_int_equal(h.cpus, 3);
    assert_int_equal(h.threads, 3);
    assert_int_equal(h.l3_bytes, 2 << 20); /* of the first CPU of the mask, which has no level 3 */
}

static void groups_of_version_2(void **state)
{
    (void)state;
    machine();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_int_equal(limits().threads, 16);
    assert_int_equal(limits().memory_limit, 64 * gib);
    put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    struct host_limits h = limits();
    assert_true(h.cpu_quota == 1.5);
    assert_int_equal(h.threads, 1); /* two would stand still a quarter of the time */
    assert_int_equal(h.memory_limit, gib);
    /* the limit of a group above it */
    put("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/a/memory.max", "536870912\n");
    h = limits();
    assert_int_equal(h.threads, 4);
    assert_int_equal(h.memory_limit, gib / 2);
    /* less than one CPU is one thread */
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    assert_int_equal(limits().threads, 1);
}

static void threads_that_wait(void **state)
{
    (void)state;
    char root[300];
    struct host_thread_times from, to;
    snprintf(root, sizeof root, "%s/tree", help_folder);
    machine();
    assert_false(host_thread_times(root, &from)); /* a kernel that does not tell */
    put("/proc/self/task/7/comm", "fabench\n");
    assert_false(host_thread_times(root, &from));
    put("/proc/self/task/7/schedstat", "3000000000 500000000 12\n");
    put("/proc/self/task/8/schedstat", "1000000000 0 3\n");
    assert_true(host_thread_times(root, &from));
    assert_true(fabs(from.ran_s - 4) < 1e-9 && fabs(from.waited_s - 0.5) < 1e-9);
    put("/proc/self/task/8/schedstat", "4000000000 1000000000 9\n");
    assert_true(host_thread_times(root, &to));
    assert_true(fabs(host_wait_pct(&from, &to) - 25) < 1e-9);
    assert_true(isnan(host_wait_pct(&to, &from))); /* a thread has ended */
    assert_true(isnan(host_wait_pct(&from, &from)));
    /* this process: it has run */
    assert_true(!host_thread_times("", &to) || to.ran_s > 0);
}

/* In a container the tree begins at the group itself, whose path of the host is not there. */
static void a_container(void **state)
{
    (void)state;
    machine();
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    put("/sys/fs/cgroup/memory.max", "1000000000\n");
    assert_int_equal(limits().threads, 2);
    assert_int_equal(limits().memory_limit, 1000000000);
    put("/proc/self/cgroup", "0::/docker/abc\n");
    assert_int_equal(limits().threads, 2);
}

static void groups_of_version_1(void **state)
{
    (void)state;
    machine();
    put("/proc/self/cgroup", "9:pids:/x\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/\n0::/\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "300000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    struct host_limits h = limits();
    assert_int_equal(h.threads, 3);
    assert_int_equal(h.memory_limit, 2 * gib);
    put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    h = limits();
    assert_int_equal(h.threads, 16);
    assert_int_equal(h.memory_limit, 64 * gib);
}

static void files_that_are_absent_or_odd(void **state)
{
    (void)state;
    machine();
    put("/proc/self/status", "Name: x\n");
    put("/proc/meminfo", "odd\n");
    put("/proc/loadavg", "odd\n");
    put("/proc/self/cgroup", "odd\n0::\n:::\n");
    put("/sys/devices/system/cpu/cpu0/cache/index3/size", "odd\n");
    struct host_limits h = limits();
    assert_int_equal(h.cpus, 0);
    assert_int_equal(h.threads, 1);
    assert_int_equal(h.memory_limit, 0);
    assert_int_equal(h.l3_bytes, 0);
    assert_true(isnan(h.load));
    h = host_limits("/nowhere");
    assert_int_equal(h.threads, 1);
}

static void threads_of_the_environment(void **state)
{
    (void)state;
    assert_int_equal(host_threads_wanted(NULL), 0);
    assert_int_equal(host_threads_wanted(""), 0);
    assert_int_equal(host_threads_wanted("8"), 8);
    assert_int_equal(host_threads_wanted("4,2"), 4);
    static const char *const bad[] = {"0", "-1", "99999999999", "4097", "many", "4x", "1.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(host_threads_wanted(bad[i]), -1);
}

/* A name without a number is that of many models. */
static void the_name_of_the_cpu(void **state)
{
    (void)state;
    char root[300], name[64];
    machine();
    snprintf(root, sizeof root, "%s/tree", help_folder);
    assert_false(host_cpu_name(root, name, sizeof name));
    put("/proc/cpuinfo", "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n");
    assert_true(host_cpu_name(root, name, sizeof name));
    assert_string_equal(name, "AMD EPYC (25/17)");
    put("/proc/cpuinfo", "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9354P 32-Core Processor\n");
    assert_true(host_cpu_name(root, name, sizeof name));
    assert_string_equal(name, "AMD EPYC 9354P 32-Core Processor");
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU\n");
    assert_true(host_cpu_name(root, name, sizeof name));
    assert_string_equal(name, "A CPU");
    put("/proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 50.00\n");
    assert_false(host_cpu_name(root, name, sizeof name));
}

static void the_name_of_the_host(void **state)
{
    char own[256], named[8];
    (void)state;
    assert_int_equal(unsetenv("FABENCH_HOST"), 0);
    host_name(own, sizeof own);
    assert_int_not_equal(own[0], 0);
    assert_int_equal(setenv("FABENCH_HOST", "gpu\t07-long", 1), 0);
    host_name(named, sizeof named);
    assert_memory_equal(named, "gpu 07", 6);
    assert_true(strlen(named) < sizeof named);
    assert_int_equal(setenv("FABENCH_HOST", "", 1), 0); /* as if it was not set */
    host_name(named, sizeof named);
    assert_memory_equal(named, own, 2);
    assert_int_equal(unsetenv("FABENCH_HOST"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_machine),
                                       cmocka_unit_test(the_mask_of_the_process),
                                       cmocka_unit_test(groups_of_version_2),
                                       cmocka_unit_test(a_container),
                                       cmocka_unit_test(threads_that_wait),
                                       cmocka_unit_test(groups_of_version_1),
                                       cmocka_unit_test(files_that_are_absent_or_odd),
                                       cmocka_unit_test(threads_of_the_environment),
                                       cmocka_unit_test(the_name_of_the_cpu),
                                       cmocka_unit_test(the_name_of_the_host)};
    return cmocka_run_group_tests(tests, help_make_folder, help_remove_folder);
}
