/* flock with messages about waiting. */
#include "cmd/device/device_lock.h"

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

#include "cmd/base/log.h"

/* The folders of the lock files, separated by colons. Every process locks them in this order. */
static const char *lock_folders(void)
{
    const char *wanted = getenv("FABENCH_LOCK_DIR");
    return wanted && *wanted ? wanted : "/run/lock:/tmp";
}

/* Opens or creates a lock file. An existing file is first opened without O_CREAT, which hardened kernels refuse for
 * another user's file in a sticky folder. Read access is enough for flock, so a new file is made readable by all,
 * whatever the umask. */
static int open_file(const char *path)
{
    for (int tries = 0; tries < 10; tries++) {
        int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (file < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
            file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (file >= 0 || errno != ENOENT)
            return file;
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (file >= 0 && fchmod(file, 0644) != 0) { /* a file system without modes: keep the mode of the mount */
        }
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

/* Process number of the holder, for the message; 0 = not known. */
static int holder_of(int file)
{
    char text[24] = "";
    const ssize_t got = pread(file, text, sizeof text - 1, 0);
    return got > 0 ? atoi(text) : 0;
}

/* Writes this process's number for the messages of others. Another user's file is not changed. */
static void write_holder(int file)
{
    char text[24];
    const int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length)
        return;
}

/* Opens the device's file in a folder and adds it to the hold. An existing file that cannot be opened is a warning,
 * because its owner may be measuring; a folder that cannot be used is ignored, because one folder is enough. */
static void add_file(struct device_hold *hold, const char *folder, int length, const char *device)
{
    char *path = xasprintf("%.*s/fabench-%s.lock", length, folder, device);
    struct stat status, other;
    for (char *at = path + strlen(path) - strlen(device) - 5; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '.')
            *at = '-';
    int file = open_file(path);
    const int error = errno;
    if (file < 0 && lstat(path, &status) == 0)
        log_warn("the lock %s cannot be opened (%s): its holder is not waited for", path, strerror(error));
    bool is_new = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    for (int i = 0; i < hold->count && is_new; i++) /* two names may be the same folder */
        is_new = fstat(hold->files[i], &other) == 0 && (other.st_dev != status.st_dev || other.st_ino != status.st_ino);
    if (is_new)
        hold->files[hold->count++] = file;
    else if (file >= 0)
        close(file);
    free(path);
}

/* Locks one file; while it waits, it says for which process. */
static int lock_file(int file, const char *device, bool (*stop)(void))
{
    double waited_s = 0, next_message_s = 0;
    while (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            log_error("the lock of device %s: %s", device, strerror(errno));
            return EXIT_IO;
        }
        if (stop())
            return EXIT_INTERRUPTED;
        if (waited_s >= next_message_s) {
            const int holder = holder_of(file);
            char who[40] = "another process";
            if (holder > 0)
                snprintf(who, sizeof who, "process %d", holder);
            log_warn("device %s is being measured by %s: waiting for it, %.0f s so far (%s)", device, who, waited_s,
                     lock_folders());
            next_message_s = waited_s + 60;
        }
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        waited_s += 0.1;
    }
    write_holder(file);
    return EXIT_OK;
}

int device_lock(const char *device, bool (*stop)(void), struct device_hold *hold)
{
    int code = EXIT_OK;
    *hold = (struct device_hold){.count = 0};
    for (const char *folder = lock_folders(); *folder && hold->count < DEVICE_LOCK_FILES;) {
        const size_t length = strcspn(folder, ":");
        if (length > 0)
            add_file(hold, folder, (int)length, device);
        folder += length + (folder[length] == ':');
    }
    if (hold->count == 0) {
        log_error("no lock of device %s can be opened in %s; FABENCH_LOCK_DIR names another folder", device,
                  lock_folders());
        return EXIT_IO;
    }
    for (int i = 0; i < hold->count && code == EXIT_OK; i++)
        code = lock_file(hold->files[i], device, stop);
    if (code != EXIT_OK)
        device_unlock(hold);
    return code;
}

void device_unlock(struct device_hold *hold)
{
    while (hold->count > 0) {
        const int file = hold->files[--hold->count];
        if (holder_of(file) == (int)getpid() && ftruncate(file, 0) != 0) { /* the old number then stays: harmless */
        }
        close(file);
    }
}
