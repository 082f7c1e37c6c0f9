/* flock with words. */
#include "cmd/device_lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmd/log.h"

/* Where locks lie, in the order in which everybody takes them. */
static int lock_folders(const char *folders[DEVICE_LOCK_FILES])
{
    const char *wanted = getenv("FABENCH_LOCK_DIR");
    if (wanted && *wanted) {
        folders[0] = wanted;
        return 1;
    }
    folders[0] = "/run/lock";
    folders[1] = "/tmp";
    return 2;
}

/* Another user's file in a sticky folder cannot be opened with O_CREAT on a hardened kernel: first as it is. Reading is
 * right enough for flock. */
static int open_file(const char *path)
{
    for (int tries = 0; tries < 10; tries++) {
        int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (file < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
            file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (file >= 0 || errno != ENOENT)
            return file;
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

/* Who holds it, for the sentence; 0 = not known. */
static int holder_of(int file)
{
    char text[24] = "";
    const ssize_t got = pread(file, text, sizeof text - 1, 0);
    return got > 0 ? atoi(text) : 0;
}

/* For the others' sentence; a file of another user stays as it is. */
static void sign(int file)
{
    char text[24];
    const int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length)
        return;
}

/* The file of a device in a folder; -1 with errno. */
static int open_lock(const char *folder, const char *device)
{
    char *path = xasprintf("%s/fabench-%s.lock", folder, device);
    struct stat status;
    for (char *at = path + strlen(path) - strlen(device) - 5; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            *at = '-';
    int file = open_file(path);
    free(path);
    if (file >= 0 && (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))) {
        close(file);
        errno = EINVAL; /* no regular file */
        file = -1;
    }
    return file;
}

/* Waits for one file, saying for whom. */
static int take(int file, const char *device, bool (*stop)(void))
{
    double waited_s = 0, next_word_s = 0;
    while (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            log_error("the lock of device %s: %s", device, strerror(errno));
            return EXIT_IO;
        }
        if (stop())
            return EXIT_INTERRUPTED;
        if (waited_s >= next_word_s) {
            const int holder = holder_of(file);
            char who[40] = "another process";
            if (holder > 0)
                snprintf(who, sizeof who, "process %d", holder);
            log_warn("device %s is being measured by %s: waiting for it, %.0f s so far", device, who, waited_s);
            next_word_s = waited_s + 60;
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        waited_s += 0.1;
    }
    sign(file);
    return EXIT_OK;
}

int device_lock(const char *device, bool (*stop)(void), struct device_hold *hold)
{
    const char *folders[DEVICE_LOCK_FILES];
    const int count = lock_folders(folders);
    int code = EXIT_OK;
    *hold = (struct device_hold){.count = 0};
    for (int i = 0; i < count; i++) {
        const int file = open_lock(folders[i], device);
        if (file >= 0)
            hold->files[hold->count++] = file;
    }
    if (hold->count == 0) {
        log_error("the lock of device %s cannot be opened in %s%s%s: %s; FABENCH_LOCK_DIR names another folder", device,
                  folders[0], count > 1 ? " or " : "", count > 1 ? folders[1] : "", strerror(errno));
        return EXIT_IO;
    }
    for (int i = 0; i < hold->count && code == EXIT_OK; i++)
        code = take(hold->files[i], device, stop);
    if (code != EXIT_OK)
        device_unlock(hold);
    return code;
}

void device_unlock(struct device_hold *hold)
{
    while (hold->count > 0) {
        const int file = hold->files[--hold->count];
        if (holder_of(file) == (int)getpid() && ftruncate(file, 0) != 0) { /* then an old number stays, of no holder */
        }
        close(file);
    }
}
