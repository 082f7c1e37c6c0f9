/* The names of the enums in struct options. */
#include "cmd/options/options.h"

const char *const option_preset_names[] = {[PRESET_NONE] = "none",
                                           [PRESET_QUICK] = "quick",
                                           [PRESET_PAPER] = "paper",
                                           [PRESET_CI] = "ci",
                                           [PRESET_ACCEPTANCE] = "acceptance",
                                           [PRESET_FULL] = "full",
                                           [PRESET_DATA] = "data",
                                           NULL};

const char *option_preset_name(enum preset preset) { return option_preset_names[preset]; }
