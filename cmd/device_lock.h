/* One measuring gate per device at a time, whoever started it: the others wait in a queue.
 *
 * The lock is flock(2) on a file named after the device, in $FABENCH_LOCK_DIR, else /run/lock, else /tmp: folders that
 * every user of the machine shares (a user's own runtime folder would not keep two users apart). The kernel drops it
 * with the process, however that ends. Containers that share a GPU must share the folder too. */
#ifndef FABENCH_DEVICE_LOCK_H
#define FABENCH_DEVICE_LOCK_H

#include <stdbool.h>

/* Takes the lock of the device with this name ("0000:01:00.0", "cpu"); while another process holds it, says so on stderr
 * and waits until `stop` says true. EXIT_OK with the descriptor in *lock, EXIT_INTERRUPTED, or EXIT_IO after a
 * sentence. */
int device_lock(const char *device, bool (*stop)(void), int *lock);
void device_unlock(int lock);

#endif
