/* SPDX-License-Identifier: BSD-3-Clause */
/* if_include and if_exclude: whoever names a device or port that is not there is told what is. */
#include "btl_xrc.h"

#include "opal/util/argv.h"
#include "opal/util/printf.h"

#include "btl_xrc_error.h"
#include "btl_xrc_rails.h"
#include "btl_xrc_words.h"

#define PARAMS mca_btl_xrc_component.params

#define ANY_PORT UINT8_MAX

struct names {
    char **ports; /* "device:port" */
    char **all;   /* "device" as well */
};

/* Of a device that does not open nobody knows. */
static unsigned ports_of(struct ibv_device *ibdev)
{
    struct ibv_context *context = ibv_open_device(ibdev);
    struct ibv_device_attr attr = {.phys_port_cnt = 0};
    if (NULL != context) {
        (void) ibv_query_device(context, &attr);
        ibv_close_device(context);
    }
    return attr.phys_port_cnt;
}

static bool is_there(const char *entry, struct ibv_device *ibdev, unsigned ports)
{
    for (unsigned port = 1; port <= (0 == ports ? ANY_PORT : ports); ++port) {
        if (xrc_rails_named(entry, ibv_get_device_name(ibdev), (int) port)) {
            return true;
        }
    }
    return false;
}

static void add_names(struct names *names, const char *device, unsigned ports)
{
    opal_argv_append_nosize(&names->all, device);
    if (0 == ports) {
        opal_argv_append_nosize(&names->ports, device);
    }
    for (unsigned port = 1; port <= ports; ++port) {
        char *name = NULL;
        if (opal_asprintf(&name, "%s:%u", device, port) >= 0) {
            opal_argv_append_nosize(&names->all, name);
            opal_argv_append_nosize(&names->ports, name);
            free(name);
        }
    }
}

static char *add_line(char *text, const char *entry, const struct names *names)
{
    unsigned n = (unsigned) opal_argv_count(names->all);
    unsigned nearest = xrc_words_nearest(entry, (const char *const *) names->all, n);
    char *longer = NULL;
    if (nearest == n
        || opal_asprintf(&longer, "%s%s  %s (nearest: %s)", NULL != text ? text : "", NULL != text ? "\n" : "", entry,
                         names->all[nearest])
               < 0) {
        return text;
    }
    free(text);
    return longer;
}

/* What else is said about devices is not said where a list has named none: this has been the reason. */
static void say(const char *param, const char *lines, const struct names *names, bool none)
{
    bool said = mca_btl_xrc_component.said;
    char there[512];
    xrc_words_list(there, sizeof(there), (const char *const *) names->ports, (unsigned) opal_argv_count(names->ports));
    bool unused = none && NULL != PARAMS.if_include;
    xrc_show_help("no such port", param, opal_process_info.nodename, lines, there,
                  unused ? "No other is named, so the xrc BTL is not used." : "They have no effect.");
    if (!unused) {
        mca_btl_xrc_component.said = said;
    }
}

void xrc_names_check(struct ibv_device **list, unsigned n)
{
    const char *given = NULL != PARAMS.if_include ? PARAMS.if_include : PARAMS.if_exclude;
    struct names names = {NULL, NULL};
    if (NULL == given || 0 == n || !PARAMS.warn_nonexistent_if) {
        return;
    }
    char **entries = opal_argv_split(given, ','), *lines = NULL;
    unsigned good = 0;
    bool *found = (bool *) calloc((size_t) opal_argv_count(entries) + 1, sizeof(*found));
    for (unsigned i = 0; NULL != found && i < n; ++i) {
        unsigned ports = ports_of(list[i]);
        add_names(&names, ibv_get_device_name(list[i]), ports);
        for (int k = 0; k < opal_argv_count(entries); ++k) {
            found[k] = found[k] || is_there(entries[k], list[i], ports);
        }
    }
    for (int k = 0; NULL != found && k < opal_argv_count(entries); ++k) {
        good += found[k];
        lines = found[k] ? lines : add_line(lines, entries[k], &names);
    }
    if (NULL != lines) {
        say(given == PARAMS.if_include ? "if_include" : "if_exclude", lines, &names, 0 == good);
    }
    free(lines);
    free(found);
    opal_argv_free(entries);
    opal_argv_free(names.all);
    opal_argv_free(names.ports);
}
