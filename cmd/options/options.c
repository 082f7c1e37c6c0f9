/* What belongs to struct options itself: the names of its enums, and freeing it. */
#include "cmd/options/options.h"

#include <stdlib.h>
#include <string.h>

const char *const option_preset_names[] = {[PRESET_NONE] = "none", [PRESET_QUICK] = "quick",
                                           [PRESET_PAPER] = "paper", [PRESET_CI] = "ci",
                                           [PRESET_ACCEPTANCE] = "acceptance", [PRESET_FULL] = "full", NULL};

const char *option_preset_name(enum preset preset) { return option_preset_names[preset]; }

void options_free(struct options *o)
{
    char *const texts[] = {o->variant,  o->out_dir, o->csv_path, o->jsonl_path, o->columns,  o->input_dir,    o->dump_dir,
                           o->baseline, o->current, o->floors,   o->junit_path, o->deciding, o->overlay_path, o->command_line};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    free(o->head_dims.values);
    free(o->q_lens.values);
    free(o->kv_lens.values);
    name_list_free(&o->impls);
    name_list_free(&o->impl_libs);
    name_list_free(&o->files);
    name_list_free(&o->prices);
    name_list_free(&o->sweep_words);
    name_list_free(&o->given);
    free(o->points.values);
    free(o->pairs.values);
    memset(o, 0, sizeof *o);
}
