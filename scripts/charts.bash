# shellcheck shell=bash
# For scripts that put charts into results/; meant to be sourced.

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
            -e "s#rgb\\( *([0-9]+), *([0-9]+), *([0-9]+)\\)#rgb(\\1,\\2,\\3)#g" "$file"
    done
}
