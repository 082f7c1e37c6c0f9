/* One measuring gate per device at a time, whoever started it: the others wait in a queue.
 *
 * The lock is flock(2) on files named after the device in the folders of $FABENCH_LOCK_DIR (with a colon in between), else
 * in /run/lock and /tmp, as far as they serve: of two users one may be shut out of the first, and a service may have a
 * /tmp of its own. The
 * kernel drops it with the process, however that ends. Containers that share a GPU must share a folder too. */
#ifndef FABENCH_DEVICE_LOCK_H
#define FABENCH_DEVICE_LOCK_H

#include <stdbool.h>

enum { DEVICE_LOCK_FILES = 2 };
struct device_hold { int files[DEVICE_LOCK_FILES], count; }; /* descriptors; none = not held */

/* Takes the lock of the device with this name ("0000:01:00.0", "cpu"); while another process holds it, says so on stderr
 * and waits until `stop` says true. EXIT_OK with the hold, EXIT_INTERRUPTED, or EXIT_IO after a sentence. */
int device_lock(const char *device, bool (*stop)(void), struct device_hold *);
void device_unlock(struct device_hold *); /* where it is held */

#endif
