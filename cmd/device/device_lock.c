/* flock with words. */
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

/* Where locks lie, in the order in which everybody takes them: the folders, with colons in between. */
static const char *lock_folders(void)
{
    const char *wanted = getenv("FABENCH_LOCK_DIR");
    return wanted && *wanted ? wanted : "/run/lock:/tmp";
}

/* Another user's file in a sticky folder cannot be opened with O_CREAT on a hardened kernel: first as it is. Reading is
 * right enough for flock, and everybody may read it, whatever the umask. */
static int open_file(const char *path)
{
    for (int tries = 0; tries < 10; tries++) {
        int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (file < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
            file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
        if (file >= 0 || errno != ENOENT)
            return file;
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (file >= 0 && fchmod(file, 0644) != 0) { /* a file system without modes: as it mounts them */
        }
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

/* Opens the device's file in a folder and puts it with the others. An existing file that does not open is a warning, as its
 * owner may be measuring; a folder that does not serve is none: the others do. */
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
        log_warn("the lock %s cannot be opened (%s): who holds it is not waited for", path, strerror(error));
    bool is_new = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    for (int i = 0; i < hold->count && is_new; i++) /* folders may be one and the same */
        is_new = fstat(hold->files[i], &other) == 0 &&
                 (other.st_dev != status.st_dev || other.st_ino != status.st_ino);
    if (is_new)
        hold->files[hold->count++] = file;
    else if (file >= 0)
        close(file);
    free(path);
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
            log_warn("device %s is being measured by %s: waiting for it, %.0f s so far (%s)", device, who, waited_s,
                     lock_folders());
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
