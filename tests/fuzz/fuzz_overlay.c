/* A file of published figures. */
#include <math.h>

#include "cmd/chart/overlay.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct overlay overlay;
    struct record_row row = {0};
    struct attn_message why = {""};
    if (!overlay_read(fuzz_put(0, data, size), &overlay, &why)) {
        FUZZ_CHECK(why.text[0] && !overlay.points);
        return 0;
    }
    FUZZ_CHECK(overlay.count > 0);
    for (int i = 0; i < overlay.count; i++) {
        FUZZ_CHECK(overlay.points[i].tflops > 0 && isfinite(overlay.points[i].tflops));
        overlay_fits(&overlay.points[i], &row);
    }
    overlay_free(&overlay);
    return 0;
}
