/* Edit distance between short names. */
#include "cmd/base/nearest.h"

#include <string.h>

static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    int row[LONGEST + 1], above[LONGEST + 1], above_that[LONGEST + 1];
    const int a_length = (int)strnlen(a, LONGEST + 1), b_length = (int)strnlen(b, LONGEST + 1);
    if (a_length > LONGEST || b_length > LONGEST)
        return LONGEST;
    for (int j = 0; j <= b_length; j++)
        row[j] = above[j] = j;
    for (int i = 1; i <= a_length; i++) {
        memcpy(above_that, above, sizeof above);
        memcpy(above, row, sizeof above);
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above_that[j - 2] + 1 < best)
                best = above_that[j - 2] + 1; /* two neighbours swapped */
            row[j] = best;
        }
    }
    return row[b_length];
}

const char *nearest_name(const char *word, const char *const *names, int count)
{
    const char *const bare = word + strspn(word, "-");
    const int length = (int)strlen(bare);
    const char *nearest = NULL;
    int least = length / 3 + 1 > 3 ? 4 : length / 3 + 2;
    for (int i = 0; i < count; i++) {
        const char *const name = names[i] + strspn(names[i], "-");
        int distance = edit_distance(bare, name);
        /* A name that shares no letter is not suggested; a part of a name counts as its abbreviation and is. */
        if (distance >= length && distance >= (int)strlen(name))
            continue;
        if (length >= 3 && distance > 1 && strstr(name, bare))
            distance = 1;
        if (distance < least) {
            least = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
