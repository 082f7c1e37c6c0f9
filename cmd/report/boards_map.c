/* The heat map and the table of a fleet as files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/base/csv.h"
#include "cmd/base/xml.h"
#include "cmd/report/boards.h"

/* Pixels. The names of hosts are to the left. */
enum { CELL_WIDTH = 64, CELL_HEIGHT = 18, NAMES_WIDTH = 220, TOP = 46, MARGIN = 8 };
/* The distance in per cent with the strongest colour. */
static const double STRONGEST_PCT = 5;

/* White at 0, red for slow, blue for fast; grey where there is no figure. */
static void colour_of(const struct fleet_board *b, char *text, size_t size)
{
    const double share = fmin(1, fabs(b->figures.distance_pct) / STRONGEST_PCT);
    const int rest = 255 - (int)(175 * share), most = 255 - (int)(35 * share);
    if (isnan(b->figures.distance_pct))
        snprintf(text, size, "#d0d0d0");
    else if (b->figures.distance_pct < 0)
        snprintf(text, size, "#%02x%02x%02x", most, rest, rest);
    else
        snprintf(text, size, "#%02x%02x%02x", rest, rest, most);
}

static void put_cell(FILE *out, const struct fleet_board *b, int x, int y)
{
    char colour[16];
    colour_of(b, colour, sizeof colour);
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"%s\"><title>", x, y,
            CELL_WIDTH - 2, CELL_HEIGHT - 2, colour, b->is_slow ? "black" : "none");
    xml_put_text(out, b->host);
    fputc(' ', out);
    xml_put_text(out, b->pci);
    fprintf(out, "</title></rect>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", x + CELL_WIDTH - 6, y + 12);
    if (isnan(b->figures.distance_pct))
        fprintf(out, "%s</text>\n", b->count ? "?" : "none");
    else
        fprintf(out, "%+.2f</text>\n", b->figures.distance_pct);
}

static int most_boards_of_a_host(const struct fleet *f)
{
    int most = 1, here = 0;
    for (int i = 0; i < f->count; i++) {
        here = i && !strcmp(f->boards[i].host, f->boards[i - 1].host) ? here + 1 : 1;
        most = here > most ? here : most;
    }
    return most;
}

static bool close_file(FILE *out)
{
    const bool is_good = fflush(out) == 0 && !ferror(out);
    const int error = errno;
    const bool is_closed = fclose(out) == 0;
    if (!is_good)
        errno = error;
    return is_good && is_closed;
}

bool fleet_write_svg(const struct fleet *f, const char *path)
{
    const int width = NAMES_WIDTH + most_boards_of_a_host(f) * CELL_WIDTH + MARGIN;
    const int height = TOP + f->hosts * CELL_HEIGHT + MARGIN;
    int x = NAMES_WIDTH, y = TOP - CELL_HEIGHT;
    FILE *out = fopen(path, "we");
    if (!out)
        return false;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"16\">speed in %% from the median of the other boards of the model</text>\n"
            "<text x=\"%d\" y=\"32\">red: slower, blue: faster, strongest at %.0f %%; framed: named</text>\n",
            width, height, width, height, MARGIN, MARGIN, STRONGEST_PCT);
    for (int i = 0; i < f->count; i++) {
        if (i == 0 || strcmp(f->boards[i].host, f->boards[i - 1].host) != 0) {
            x = NAMES_WIDTH;
            y += CELL_HEIGHT;
            fprintf(out, "<text x=\"%d\" y=\"%d\">", MARGIN, y + 12);
            xml_put_text(out, f->boards[i].host);
            fputs("</text>\n", out);
        }
        put_cell(out, &f->boards[i], x, y);
        x += CELL_WIDTH;
    }
    fputs("</svg>\n", out);
    return close_file(out);
}

bool fleet_write_csv(const struct fleet *f, const char *path)
{
    FILE *out = fopen(path, "we");
    struct csv_row row = {0};
    if (!out)
        return false;
    fputs("host,pci,board,model,records,rows,failed,cases,cases_asked,compared,named,tflops,distance_pct,deviation,"
          "within_pct,noise_pct,slope_pct,sm_clock_mhz,temp_c,power_w,power_capped_pct,throttled_pct,pcie_width,"
          "ecc_uncorrected\n",
          out);
    for (int i = 0; i < f->count; i++) {
        const struct fleet_board *b = &f->boards[i];
        const struct board_figures *g = &b->figures;
        const int counts[] = {b->records, g->rows, g->failed, g->distinct, b->cases_asked, g->shared, b->is_slow};
        const double reals[] = {g->tflops,    g->distance_pct,     b->deviation,    g->within_pct,
                                g->noise_pct, g->slope_pct,        g->sm_clock_mhz, g->temp_c,
                                g->power_w,   g->power_capped_pct, g->throttled_pct};
        csv_add_foreign(&row, b->host);
        csv_add_foreign(&row, b->pci);
        csv_add_foreign(&row, b->board);
        csv_add_foreign(&row, b->model);
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            csv_add_count(&row, counts[k]);
        for (size_t k = 0; k < sizeof reals / sizeof reals[0]; k++)
            csv_add_real(&row, reals[k], 6);
        csv_add_count(&row, b->health.pcie_width >= 0 ? b->health.pcie_width : INT64_MIN);
        csv_add_count(&row, b->health.ecc_uncorrected >= 0 ? b->health.ecc_uncorrected : INT64_MIN);
        csv_put(&row, out);
    }
    csv_free(&row);
    return close_file(out);
}
