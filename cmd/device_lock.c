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

static const char *lock_folder(void)
{
    const char *wanted = getenv("FABENCH_LOCK_DIR");
    if (wanted && *wanted)
        return wanted;
    return access("/run/lock", W_OK | X_OK) == 0 ? "/run/lock" : "/tmp";
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

int device_lock(const char *device, bool (*stop)(void), int *lock)
{
    char *path = xasprintf("%s/fabench-%s.lock", lock_folder(), device);
    struct stat status;
    double waited_s = 0, next_word_s = 0;
    int code = EXIT_OK;
    for (char *at = path + strlen(path) - strlen(device) - 5; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            *at = '-';
    *lock = open_file(path);
    if (*lock < 0 || fstat(*lock, &status) != 0 || !S_ISREG(status.st_mode)) {
        log_error("the lock of device %s, %s, cannot be opened: %s; FABENCH_LOCK_DIR names another folder", device, path,
                  *lock < 0 ? strerror(errno) : "it is no regular file");
        code = EXIT_IO;
    }
    while (code == EXIT_OK && flock(*lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            log_error("%s: %s", path, strerror(errno));
            code = EXIT_IO;
        } else if (stop()) {
            code = EXIT_INTERRUPTED;
        } else {
            if (waited_s >= next_word_s) {
                const int holder = holder_of(*lock);
                char who[40] = "another process";
                if (holder > 0)
                    snprintf(who, sizeof who, "process %d", holder);
                log_warn("device %s is being measured by %s: waiting for it, %.0f s so far (%s)", device, who, waited_s,
                         path);
                next_word_s = waited_s + 60;
            }
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
            waited_s += 0.1;
        }
    }
    if (code == EXIT_OK)
        sign(*lock);
    else if (*lock >= 0)
        close(*lock);
    free(path);
    return code;
}

void device_unlock(int lock)
{
    if (ftruncate(lock, 0) != 0) { /* somebody else's file: nothing was written either */
    }
    close(lock);
}
