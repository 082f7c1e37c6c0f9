# What several scripts do; sourced from the root of the checkout, under `set -o pipefail`: configuring and building one
# preset, and putting charts into results/.
# shellcheck shell=bash

# build_preset PRESET TARGET...: configures build/PRESET where its folder is not configured as set-up says, and builds
# the targets (all of them when none is named). A first build shows its progress on stderr, a later one only errors.
# FABENCH_CUDA, FABENCH_WERROR and FABENCH_LINEINFO, where set, are the options of CMakeLists.txt of these names; a folder keeps what it was
# configured with once.
build_preset() {
    local preset=$1 folder=build/$1 built log wanted launcher language name cmake_arguments=() target_arguments=()
    shift
    if [ -e .deps/setup.env ]; then
        # shellcheck source=/dev/null
        . .deps/setup.env
        cmake_arguments=("${fabench_cmake_arguments[@]}")
    fi
    # The preset asan has its own.
    [ -z "${FABENCH_CUDA:-}" ] || [ "$preset" = asan ] || cmake_arguments+=("-DFABENCH_CUDA=$FABENCH_CUDA")
    [ -z "${FABENCH_WERROR:-}" ] || cmake_arguments+=("-DFABENCH_WERROR=$FABENCH_WERROR")
    [ -z "${FABENCH_LINEINFO:-}" ] || cmake_arguments+=("-DFABENCH_LINEINFO=$FABENCH_LINEINFO")
    # A compiler cache where there is one, or what the environment names; an empty value where there is none, so that a
    # cache that was removed since the last build is not looked for.
    launcher=$(command -v ccache || true)
    for language in C CXX CUDA; do
        name=CMAKE_${language}_COMPILER_LAUNCHER
        cmake_arguments+=("-D$name=${!name-$launcher}")
    done
    built=$folder/built-${*:-all}
    [ $# -eq 0 ] || target_arguments=(--target "$@")
    wanted="${cmake_arguments[*]}"
    mkdir -p "$folder"
    if [ ! -e "$folder/CMakeCache.txt" ] || [ "$wanted" != "$(cat "$folder/configured-with" 2>/dev/null)" ]; then
        echo "build: configuring $folder" >&2
        cmake --preset "$preset" "${cmake_arguments[@]}" >"$folder/configure.log" 2>&1 ||
            { cat "$folder/configure.log" >&2; return 1; }
        grep -E '^-- CUDA: ' "$folder/configure.log" >&2 || true # what is built, in one line
        echo "$wanted" >"$folder/configured-with"
    fi
    if [ -e .git ] && ! git rev-parse HEAD >"$folder/commit.txt" 2>&1; then
        echo "build: the commit will be 'unknown' in records: $(head -n 1 "$folder/commit.txt")" >&2
    fi
    log=$folder/build.log
    if [ -e "$built" ]; then
        cmake --build "$folder" -j "$(nproc)" "${target_arguments[@]}" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
    else
        echo "build: building $folder (everything that is said: $log)" >&2
        cmake --build "$folder" -j "$(nproc)" "${target_arguments[@]}" 2>&1 | tee "$log" |
            { grep --line-buffered -E '^\[ *[0-9]+%\] Building' >&2 || true; } || { tail -n 40 "$log" >&2; return 1; }
        touch "$built"
    fi
}

# keep_charts DIR PATTERN...: of the files that gnuplot and its scripts left in DIR, keeps those whose names match a pattern,
# and makes the SVG files smaller: without empty groups, indentation, and attributes that are SVG's defaults. What they
# show stays the same.
keep_charts() {
    local folder=$1 file pattern is_kept
    shift
    for file in "$folder"/*.svg "$folder"/*.gp "$folder"/*.dat; do
        is_kept=
        for pattern in "$@"; do
            # shellcheck disable=SC2053 # a pattern
            [[ $(basename "$file") != $pattern ]] || is_kept=yes
        done
        [ -n "$is_kept" ] || rm -f "$file"
    done
    for file in "$folder"/*.svg; do
        [ -e "$file" ] || continue
        sed -zE -i -e ':again; s#<g [^>]*>\s*</g>\s*##g; t again' -e 's#\s*\n\s*#\n#g' \
            -e 's# stroke-linecap="butt" stroke-linejoin="miter"##g' -e 's# stroke-width="1\.00"##g' \
            -e "s#rgb\\( *([0-9]+), *([0-9]+), *([0-9]+)\\)#rgb(\\1,\\2,\\3)#g" \
            -e 's#<g fill="none" color="black" stroke="currentColor"#<g class="l"#g' -e 's# font-family="Arial"##g' \
            -e 's#<g id="gnuplot_plot_[^"]*" ><title>[^<]*</title>#<g>#g' \
            -e 's#<g id="gnuplot_canvas"#<style>.l{fill:none;color:black;stroke:currentColor}</style>\n&#' \
            -e 's#<g id="gnuplot_canvas"#& font-family="Arial"#' -e 's# +(/?>)#\1#g' "$file"
    done
}

# without_absent_charts PAGE.md: takes out the charts whose files are not beside the page, and sections that held nothing else.
without_absent_charts() {
    local page=$1 chart
    while read -r chart; do
        [ -e "$(dirname "$page")/$chart" ] || sed -i "/^!\\[.*\\]($chart)\$/d" "$page"
    done < <(sed -nE 's/^!\[.*\]\(([^)]*)\)$/\1/p' "$page")
    awk '/^## / { heading = $0; next }
         heading != "" && NF { print heading "\n"; heading = "" }
         heading == "" && (NF || !was_empty) { print }
         { was_empty = !NF }' "$page" >"$page.new" && mv "$page.new" "$page"
}
