/* From record files and folders to boards. Of each row only what is compared is kept. */
#include "cmd/report/boards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/base/log.h"
#include "cmd/base/paths.h"
#include "cmd/record/record.h"
#include "cmd/record/record_file.h"
#include "cmd/record/record_folder.h"

static const char *text_at(const json_t *header, const char *path)
{
    const char *text = json_string_value(header_value(header, path));
    return text ? text : "";
}

/* The board of this host and address, a new one where there is none. Records of one host follow each other, so the
 * search begins at the board that was found last. */
static struct fleet_board *find_board(struct fleet *f, const char *host, const char *pci)
{
    for (int i = 0; i < f->count; i++) {
        const int at = (f->last + i) % f->count;
        if (strcmp(f->boards[at].pci, pci) == 0 && strcmp(f->boards[at].host, host) == 0) {
            f->last = at;
            return &f->boards[at];
        }
    }
    if (f->count == f->room) {
        f->room = f->room ? 2 * f->room : 64;
        f->boards = xrealloc(f->boards, (unsigned long)f->room * sizeof *f->boards);
    }
    struct fleet_board *b = &f->boards[f->last = f->count++];
    *b = (struct fleet_board){.health = {-1, -1, -1}};
    snprintf(b->host, sizeof b->host, "%s", host);
    snprintf(b->pci, sizeof b->pci, "%s", pci);
    return b;
}

/* What a header says of its board, and of the boards that it was to be measured with. */
static void take_header(struct fleet *f, const char *host, const json_t *header)
{
    const char *pci = text_at(header, "device.pci_bus_id");
    const json_t *asked = json_object_get(header, "boards");
    struct fleet_board *b = find_board(f, host, *pci ? pci : "cpu");
    b->records++;
    if (!b->options)
        b->options = xstrdup(text_at(header, "policy.options"));
    if (!b->model[0])
        snprintf(b->model, sizeof b->model, "%s", text_at(header, "device.name"));
    b->health = board_health_of(header);
    for (size_t i = 0; i < json_array_size(asked); i++)
        if (json_is_string(json_array_get(asked, i)))
            find_board(f, host, json_string_value(json_array_get(asked, i)));
}

static void take_row(struct fleet *f, const char *host, const struct record_row *row)
{
    struct fleet_board *b = find_board(f, host, row->pci[0] ? row->pci : "cpu");
    if (b->count == b->room) {
        b->room = b->room ? 2 * b->room : 16;
        b->cases = xrealloc(b->cases, (unsigned long)b->room * sizeof *b->cases);
    }
    board_case_of(row, &b->cases[b->count++]);
    if (row->board[0])
        snprintf(b->board, sizeof b->board, "%s", row->board);
    if (!b->model[0])
        snprintf(b->model, sizeof b->model, "%s", row->device);
}

/* A record without the host's name, as a published one, is of a host that is named after the file. */
static bool read_file(void *context, const char *path)
{
    struct fleet *f = context;
    struct record_file file = {0};
    struct attn_message why = {""};
    if (!record_read(path, &file, &why)) {
        log_error("%s", why.text);
        name_list_add(&f->unread, path);
        return false;
    }
    const char *name = text_at(file.header, "host.name");
    char host[sizeof f->boards->host];
    snprintf(host, sizeof host, "%s", *name ? name : path_shown(path).text);
    take_header(f, host, file.header);
    for (size_t i = 0; i < json_array_size(file.later_headers); i++) {
        const json_t *header = json_array_get(file.later_headers, i);
        const char *type = json_string_value(json_object_get(header, "type"));
        if (type && !strcmp(type, "header"))
            take_header(f, host, header);
    }
    for (int i = 0; i < file.count; i++)
        take_row(f, host, &file.rows[i]);
    f->records++;
    record_file_free(&file);
    return true;
}

static int by_host(const void *left, const void *right)
{
    const struct fleet_board *a = left, *b = right;
    const int order = strcmp(a->host, b->host);
    return order ? order : strcmp(a->pci, b->pci);
}

int fleet_read(const struct options *o, struct fleet *f)
{
    bool is_good = true;
    for (int i = 0; i < o->files.count; i++)
        is_good = record_folder_each(o->files.names[i], read_file, f, &f->unread) && is_good;
    if (f->count > 1)
        qsort(f->boards, (size_t)f->count, sizeof *f->boards, by_host);
    for (int i = 0; i < f->count; i++)
        f->hosts += i == 0 || strcmp(f->boards[i].host, f->boards[i - 1].host) != 0;
    for (int i = 0; i < o->nodes.count; i++) {
        bool is_there = false;
        for (int k = 0; k < f->count && !is_there; k++)
            is_there = strcmp(f->boards[k].host, o->nodes.names[i]) == 0;
        if (!is_there)
            name_list_add(&f->absent, o->nodes.names[i]);
    }
    return is_good ? EXIT_OK : EXIT_NOT_COMPARABLE;
}

void fleet_free(struct fleet *f)
{
    for (int i = 0; i < f->count; i++) {
        free(f->boards[i].cases);
        free(f->boards[i].options);
    }
    free(f->boards);
    name_list_free(&f->absent);
    name_list_free(&f->unread);
}
