/* What no launch can be faster than: the FLOPs of the visible pairs at the peak of the device's matrix units and its
 * highest clock, and reading at the memory's peak what the L2 cannot hold of the inputs, whatever was in it before. A
 * time below it is wrong, whoever claims it: the row fails by the rule "floor". Not on a CPU or a device that is not in
 * the table, whose peaks are not known. */
#ifndef FABENCH_FLOORS_H
#define FABENCH_FLOORS_H

#include "cmd/device/backend.h"
#include "cmd/plan/plan.h"

#define FLOOR_RULE "floor"

struct floors {
    double compute_ms, read_ms; /* of one launch; 0 = not known, or none */
    double peak_tflops, peak_gb_per_s;
};

/* keeps_p: `prepare` has computed P, so that a backward has one product less. Keys of which a right kernel may find
 * that they have no weight, or that no row sees, have no floor. */
struct floors floors_of(const struct device_info *, const struct plan_item *, bool keeps_p);

/* May a kernel find, without computing them, that some pairs have no weight? */
bool floors_may_leave_pairs(const struct plan_item *);

/* Is a launch of time_ms possible, and one of the sustained region, of sustained_ms (NaN = there was none)? */
bool floors_allow(const struct floors *, double time_ms, double sustained_ms);
/* Why not, in words. */
void floors_describe(const struct floors *, double time_ms, double sustained_ms, int64_t samples, char *text,
                     unsigned long size);

#endif
