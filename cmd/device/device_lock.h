/* Mutual exclusion of `ab` and `gate`: one measures a device at a time, whichever user started it, and the others wait.
 *
 * The lock is flock(2) on files named after the device in the folders of $FABENCH_LOCK_DIR (separated by colons), else
 * in /run/lock and /tmp. Both are locked where possible: a user may have no access to the first, and a service may have
 * a private /tmp. The kernel releases the lock when the process ends, for whatever reason. Containers that share a GPU
 * must share a folder too. */
#ifndef FABENCH_DEVICE_LOCK_H
#define FABENCH_DEVICE_LOCK_H

#include <stdbool.h>

enum { DEVICE_LOCK_FILES = 2 };
struct device_hold {
    int files[DEVICE_LOCK_FILES], count;
}; /* descriptors of the locked files; count 0 = not held */

/* Takes the lock of the device with this name ("0000:01:00.0", "cpu"); while another process holds it, says so on
 * stderr and waits, until `stop` returns true. EXIT_OK with the hold, EXIT_INTERRUPTED, or EXIT_IO after a sentence. */
int device_lock(const char *device, bool (*stop)(void), struct device_hold *);
void device_unlock(struct device_hold *); /* releases it where it is held */

#endif
