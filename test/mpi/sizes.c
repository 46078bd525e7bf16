/* SPDX-License-Identifier: BSD-3-Clause */
#include "sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The PML's headers count towards a limit: the payload at which something changes lies up to this far below it. */
enum { MOST_HEADER_BYTES = 72 };

static void add(struct size_list *list, size_t size)
{
    list->v = realloc(list->v, (list->n + 1) * sizeof(*list->v));
    if (!list->v) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    list->v[list->n++] = size;
}

static void add_range(struct size_list *list, size_t from, size_t to, size_t max)
{
    for (size_t size = from; size <= to && size <= max; size++)
        add(list, size);
}

static void add_limit(struct size_list *list, size_t limit, size_t max)
{
    if (limit > 0)
        add_range(list, limit > MOST_HEADER_BYTES ? limit - MOST_HEADER_BYTES : 0, limit + 1, max);
}

/* "X,128,256,...:X,2048,..." */
static void add_receive_queues(struct size_list *list, const char *spec, size_t max)
{
    for (const char *queue = spec; queue; queue = strchr(queue, ':')) {
        queue += *queue == ':';
        const char *size = strchr(queue, ',');
        if (size)
            add_limit(list, strtoul(size + 1, NULL, 10), max);
    }
}

static void add_more(struct size_list *list, const char *more, size_t max)
{
    for (const char *limit = more; limit; limit = strchr(limit, ',')) {
        limit += *limit == ',';
        add_limit(list, strtoul(limit, NULL, 10), max);
    }
}

static bool ends_with(const char *name, const char *tail)
{
    size_t n = strlen(name), t = strlen(tail);
    return n >= t && !strcmp(name + n - t, tail);
}

static bool is_size_limit(const char *name)
{
    static const char *const tails[] = {
        "_eager_limit",
        "_max_send_size",
        "_rdma_pipeline_send_length",
        "_rdma_pipeline_frag_size",
        "_min_rdma_pipeline_size",
    };
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++)
        if (ends_with(name, tails[i]))
            return true;
    return false;
}

static void add_variable(struct size_list *list, int index, bool is_text, size_t max)
{
    MPI_T_cvar_handle handle;
    union {
        unsigned long number;
        char text[4096];
    } value = {.text = ""};
    int count;

    if (MPI_T_cvar_handle_alloc(index, NULL, &handle, &count))
        return;
    if ((size_t) count <= sizeof(value) && !MPI_T_cvar_read(handle, &value)) {
        if (is_text)
            add_receive_queues(list, value.text, max);
        else
            add_limit(list, value.number, max);
    }
    MPI_T_cvar_handle_free(&handle);
}

static void add_btl_limits(struct size_list *list, size_t max)
{
    int provided, count;

    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) || MPI_T_cvar_get_num(&count))
        return;
    for (int i = 0; i < count; i++) {
        char name[256];
        int name_len = sizeof(name), verbosity, bind, scope;
        MPI_Datatype type;
        MPI_T_enum values;

        if (MPI_T_cvar_get_info(i, name, &name_len, &verbosity, &type, &values, NULL, NULL, &bind, &scope)
            || strncmp(name, "btl_", 4) || !strncmp(name, "btl_self_", 9))
            continue;
        if (is_size_limit(name) && (type == MPI_UNSIGNED_LONG || type == MPI_UNSIGNED_LONG_LONG))
            add_variable(list, i, false, max);
        else if (ends_with(name, "_receive_queues") && type == MPI_CHAR)
            add_variable(list, i, true, max);
    }
    MPI_T_finalize();
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *) a, y = *(const size_t *) b;
    return (x > y) - (x < y);
}

static void sort_unique(struct size_list *list)
{
    size_t kept = 0;

    qsort(list->v, list->n, sizeof(*list->v), by_size);
    for (size_t i = 0; i < list->n; i++)
        if (kept == 0 || list->v[i] != list->v[kept - 1])
            list->v[kept++] = list->v[i];
    list->n = kept;
}

/* Ranks may have been started with different parameters; all must try the same sizes. */
static void share(struct size_list *list)
{
    unsigned long n = list->n;

    MPI_Bcast(&n, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    if (n > list->n)
        list->v = realloc(list->v, n * sizeof(*list->v));
    list->n = n;
    MPI_Bcast(list->v, (int) n, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
}

struct size_list sizes_to_try(size_t max, const char *more)
{
    struct size_list list = {NULL, 0};

    _Static_assert(sizeof(size_t) == sizeof(unsigned long), "sizes travel as MPI_UNSIGNED_LONG");
    add_range(&list, 0, 17, max);
    for (size_t power = 32; power <= max; power *= 2)
        add_range(&list, power - 1, power + 1, max);
    add_btl_limits(&list, max);
    add_more(&list, more, max);
    sort_unique(&list);
    share(&list);
    return list;
}
