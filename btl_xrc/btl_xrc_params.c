/* SPDX-License-Identifier: BSD-3-Clause */
/* What a user can set. Names are those of the openib transport with another prefix, where there was one. */
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_var_group.h"
#include "opal/util/argv.h"
#include "opal/util/printf.h"

#include "btl_xrc.h"
#include "btl_xrc_error.h"
#include "btl_xrc_rails.h"
#include "btl_xrc_words.h"

#define PARAMS mca_btl_xrc_component.params

#define ENV_PREFIX "OMPI_MCA_btl_xrc_"

extern char **environ; /* unistd.h has it under _GNU_SOURCE only */

/* One parameter: where it is kept, its range, its default, its unit. */
struct int_param {
    const char *name;
    const char *help;
    int *value;
    struct xrc_range range;
    mca_base_var_info_lvl_t level;
};

/* clang-format off */
static const struct int_param int_params[] = {
    {"verbose", "How much is reported about devices, connections and queues: 0 nothing, 1 problems, 5 events, 10 "
                "connections and a summary at the end, 30 each wire-up message",
     &PARAMS.verbose, {0, 100, 0, ""}, OPAL_INFO_LVL_4},
    {"max_btls", "Use at most so many ports (-1: all)",
     &PARAMS.max_btls, {-1, XRC_MAX_MODULES, -1, "ports"}, OPAL_INFO_LVL_4},
    {"max_lmc", "Use at most so many LIDs of a port, each as a path of its own (0: all)",
     &PARAMS.max_lmc, {0, 128, 1, "LIDs"}, OPAL_INFO_LVL_5},
    {"ignore_locality", "1: use all HCAs; 0: a process that is bound to processors uses the nearest ones",
     &PARAMS.ignore_locality, {0, 1, 0, ""}, OPAL_INFO_LVL_4},
    {"warn_default_gid_prefix", "1: say so when two ports have one subnet prefix although they are on different "
                                "fabrics",
     &PARAMS.warn_default_gid_prefix, {0, 1, 1, ""}, OPAL_INFO_LVL_4},
    {"warn_nonexistent_if", "1: say so when if_include or if_exclude name what a host does not have",
     &PARAMS.warn_nonexistent_if, {0, 1, 1, ""}, OPAL_INFO_LVL_4},
    {"free_list_num", "Send buffers of each size made at the start, as far as they fit into 512 KiB",
     &PARAMS.free_list_num, {1, 1 << 20, XRC_RECVQ_SENDS, "buffers"}, OPAL_INFO_LVL_5},
    {"free_list_max", "Send buffers of each size at most (-1: no limit)",
     &PARAMS.free_list_max, {-1, INT_MAX, -1, "buffers"}, OPAL_INFO_LVL_5},
    {"free_list_inc", "Send buffers of each size made at a time later on, as far as they fit into 512 KiB",
     &PARAMS.free_list_inc, {1, 1 << 20, XRC_RECVQ_SENDS, "buffers"}, OPAL_INFO_LVL_5},
    {"cq_size", "Length of the completion queue for sends",
     &PARAMS.cq_size, {64, 1 << 22, 8192, "completions"}, OPAL_INFO_LVL_6},
    {"poll_cq_batch", "Completions taken at a time",
     &PARAMS.poll_cq_batch, {1, 64, 16, "completions"}, OPAL_INFO_LVL_6},
    {"rdma_window", "Puts and gets on the way per INI QP",
     &PARAMS.rdma_window, {1, 16384, 64, "operations"}, OPAL_INFO_LVL_5},
    {"max_inline_data", "Largest message handed to the HCA inline, its 16 bytes of header included (-1: what the HCA "
                        "gives, up to 256)",
     &PARAMS.max_inline_data, {-1, 1024, -1, "bytes"}, OPAL_INFO_LVL_5},
    {"pkey_index", "Index of the partition key in the port's table",
     &PARAMS.pkey_index, {0, 65535, 0, ""}, OPAL_INFO_LVL_5},
    {"gid_index", "Index of the GID in the port's table",
     &PARAMS.gid_index, {0, 255, 0, ""}, OPAL_INFO_LVL_5},
    {"ib_service_level", "InfiniBand service level",
     &PARAMS.service_level, {0, 15, 0, ""}, OPAL_INFO_LVL_5},
    {"mtu", "Path MTU: 1 to 5 for 256 to 4096 bytes (0: what the port has)",
     &PARAMS.mtu, {0, 5, 0, ""}, OPAL_INFO_LVL_6},
    {"ib_qp_ous_rd_atom", "Reads and atomics on the way per QP, as far as the HCA can",
     &PARAMS.rd_atomic, {1, 255, 4, "operations"}, OPAL_INFO_LVL_6},
    {"ib_min_rnr_timer", "How long a sender waits when a receiver has no buffer, as the InfiniBand code (0 is the "
                         "longest, 1 to 31 rise from 10 us to 491 ms)",
     &PARAMS.min_rnr_timer, {0, 31, 6, ""}, OPAL_INFO_LVL_6},
    {"ib_timeout", "Time until an unanswered packet is sent again: 4.096 us * 2^value (0: never)",
     &PARAMS.timeout, {0, 31, 14, ""}, OPAL_INFO_LVL_6},
    {"ib_retry_count", "How often a packet is sent again before the path counts as dead",
     &PARAMS.retry_count, {0, 7, 7, "retries"}, OPAL_INFO_LVL_6},
    {"ib_rnr_retry", "How often a sender waits for a receive buffer (7: for ever)",
     &PARAMS.rnr_retry, {0, 7, 7, "retries"}, OPAL_INFO_LVL_6},
    {"enable_apm_over_ports", "Other than 0: as btl_xrc_apm=ports",
     &PARAMS.apm_over_ports, {0, 1, 0, ""}, OPAL_INFO_LVL_5},
    {"enable_apm_over_lmc", "Other than 0: as btl_xrc_apm=lmc",
     &PARAMS.apm_over_lmc, {-1, 127, 0, ""}, OPAL_INFO_LVL_5},
    {"report", "1: at the end, a table for each host of what was made and what happened",
     &PARAMS.report, {0, 1, 0, ""}, OPAL_INFO_LVL_3},
    {"connect_timeout", "How long a peer has to answer a connection request",
     &PARAMS.connect_timeout, {1, 86400, 30, "seconds"}, OPAL_INFO_LVL_4},
};

/* clang-format on */

#define INT_PARAMS (sizeof(int_params) / sizeof(int_params[0]))

struct string_param {
    const char *name;
    const char *help;
    char **value;
    const char *initial;
    mca_base_var_info_lvl_t level;
};

/* clang-format off */
static const struct string_param string_params[] = {
    {"receive_queues", "Receive buffers by size class, each \"X,size,num[,low[,window[,init[,limit]]]]\", joined by "
                       "\":\", sizes rising; up to 8 classes, size: 64 to 67108864 bytes, num: 1 to 65535 buffers, a quarter of which, or "
                       "init, are made at the start",
     &PARAMS.receive_queues, XRC_RECVQ_DEFAULT, OPAL_INFO_LVL_3},
    {"if_include", "Use only these devices or ports, as in mlx5_0,mlx5_1:2", &PARAMS.if_include, NULL,
     OPAL_INFO_LVL_3},
    {"if_exclude", "Do not use these devices or ports; not together with if_include", &PARAMS.if_exclude, NULL,
     OPAL_INFO_LVL_3},
    {"rcache", "Registration cache to use", &PARAMS.rcache, "grdma", OPAL_INFO_LVL_6},
};

/* clang-format on */

#define STRING_PARAMS (sizeof(string_params) / sizeof(string_params[0]))

static const mca_base_var_enum_value_t apm_values[] = {{XRC_APM_USE_OFF, "off"},
                                                       {XRC_APM_USE_PORTS, "ports"},
                                                       {XRC_APM_USE_LMC, "lmc"},
                                                       {XRC_APM_USE_AUTO, "auto"},
                                                       {0, NULL}};

static const mca_base_var_enum_value_t shim_values[] = {
    {XRC_SHIM_AUTO, "auto"}, {XRC_SHIM_NEVER, "never"}, {XRC_SHIM_ALWAYS, "always"}, {0, NULL}};

/* ---- values that cannot be used ---- */

/* The first one, until we know whether anybody is to hear of it. An empty name: there was none. */
static struct {
    char name[32];
    char given[64];
    char valid[96];
    char nearest[32];
} refused;

static void refuse(const char *name, const char *given, const char *valid, const char *nearest)
{
    if ('\0' != refused.name[0]) {
        return;
    }
    snprintf(refused.name, sizeof(refused.name), "%s", name);
    snprintf(refused.given, sizeof(refused.given), "%s", given);
    snprintf(refused.valid, sizeof(refused.valid), "%s", valid);
    snprintf(refused.nearest, sizeof(refused.nearest), "%s", nearest);
}

/* A parameter may be read more than once, from the environment and from files: the last value counts. */
static void accept_again(const char *name)
{
    if (0 == strcmp(refused.name, name)) {
        refused.name[0] = '\0';
    }
}

/*
 * Open MPI takes "abc" for 0 and 12abc for 12. Its enumerators let us read values ourselves: a value that cannot be
 * used is noted and the default put in its place, so that it is xrc_params_check() that speaks, once and not in
 * ompi_info.
 */
static const struct int_param *int_param_of(const mca_base_var_enum_t *self)
{
    const struct int_param *p = int_params;
    while (0 != strcmp(p->name, self->enum_name)) {
        ++p;
    }
    return p;
}

static int number_from_string(mca_base_var_enum_t *self, const char *text, int *value)
{
    const struct int_param *p = int_param_of(self);
    int number;
    accept_again(p->name);
    if (!xrc_words_number(text, &p->range, &number)) {
        char valid[sizeof(refused.valid)], nearest[sizeof(refused.nearest)];
        xrc_words_range(valid, sizeof(valid), &p->range);
        snprintf(nearest, sizeof(nearest), "%d", number);
        refuse(p->name, text, valid, nearest);
        number = p->range.initial;
    }
    *value = number;
    return OPAL_SUCCESS;
}

static int string_from_number(mca_base_var_enum_t *self, const int value, char **text)
{
    (void) self;
    return NULL == text || opal_asprintf(text, "%d", value) >= 0 ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}

static int dump_range(mca_base_var_enum_t *self, char **text XRC_ENUM_DUMP_FORMAT)
{
    char range[sizeof(refused.valid)];
    xrc_words_range(range, sizeof(range), &int_param_of(self)->range);
    *text = strdup(range);
    return NULL != *text ? OPAL_SUCCESS : OPAL_ERR_OUT_OF_RESOURCE;
}

#define MOST_CHOICES 8u

static unsigned words_of(const mca_base_var_enum_value_t *choices, const char **words)
{
    unsigned n = 0;
    for (; n < MOST_CHOICES && NULL != choices[n].string; ++n) {
        words[n] = choices[n].string;
    }
    return n;
}

/* What Open MPI's own enumerators do, which also take numbers. */
static mca_base_var_enum_vfs_fn_t choice_from_string;

static int word_from_string(mca_base_var_enum_t *self, const char *text, int *value)
{
    accept_again(self->enum_name);
    if (OPAL_SUCCESS != choice_from_string(self, text, value)) {
        const char *words[MOST_CHOICES];
        char valid[sizeof(refused.valid)];
        unsigned n = words_of(self->enum_values, words);
        xrc_words_list(valid, sizeof(valid), words, n);
        refuse(self->enum_name, text, valid, words[xrc_words_nearest(text, words, n)]);
        *value = self->enum_values[0].value;
    }
    return OPAL_SUCCESS;
}

/* ---- registering ---- */

static int register_one(const char *name, const char *help, mca_base_var_type_t type, mca_base_var_enum_t *values,
                        mca_base_var_info_lvl_t level, void *storage)
{
    int rc = mca_base_component_var_register(&mca_btl_xrc_component.super.btl_version, name, help, type, values, 0, 0,
                                             level, MCA_BASE_VAR_SCOPE_READONLY, storage);
    return rc < 0 ? rc : OPAL_SUCCESS;
}

/* @a help with the values there are, if they can be listed, and the default behind it. */
static int register_with(const char *name, const char *help, const char *valid, const char *initial,
                         mca_base_var_type_t type, mca_base_var_enum_t *values, mca_base_var_info_lvl_t level,
                         void *storage)
{
    char *text = NULL;
    if (opal_asprintf(&text, "%s [%s%sdefault: %s]", help, valid, '\0' != *valid ? "; " : "", initial) < 0) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    int rc = register_one(name, text, type, values, level, storage);
    free(text);
    return rc;
}

static int register_int(const struct int_param *p)
{
    static const mca_base_var_enum_value_t no_words[] = {{0, NULL}};
    char valid[sizeof(refused.valid)], initial[32];
    mca_base_var_enum_t *numbers;
    int rc = mca_base_var_enum_create(p->name, no_words, &numbers);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    numbers->value_from_string = number_from_string;
    numbers->string_from_value = string_from_number;
    numbers->dump = dump_range;
    *p->value = p->range.initial;
    xrc_words_range(valid, sizeof(valid), &p->range);
    snprintf(initial, sizeof(initial), "%d", p->range.initial);
    rc = register_with(p->name, p->help, valid, initial, MCA_BASE_VAR_TYPE_INT, numbers, p->level, p->value);
    OBJ_RELEASE(numbers);
    return rc;
}

static int register_string(const struct string_param *p)
{
    *p->value = (char *) (uintptr_t) p->initial;
    return register_with(p->name, p->help, "", NULL != p->initial ? p->initial : "none", MCA_BASE_VAR_TYPE_STRING, NULL,
                         p->level, p->value);
}

/* The first choice is the default. */
static int register_choice(const char *name, const char *help, const mca_base_var_enum_value_t *choices, int *value)
{
    const char *words[MOST_CHOICES];
    char valid[sizeof(refused.valid)];
    mca_base_var_enum_t *values;
    int rc = mca_base_var_enum_create(name, choices, &values);
    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    choice_from_string = values->value_from_string;
    values->value_from_string = word_from_string;
    *value = choices[0].value;
    xrc_words_list(valid, sizeof(valid), words, words_of(choices, words));
    rc = register_with(name, help, valid, choices[0].string, MCA_BASE_VAR_TYPE_INT, values, OPAL_INFO_LVL_3, value);
    OBJ_RELEASE(values);
    return rc;
}

static int register_choices(void)
{
    int rc = register_choice("shim",
                             "Software HCA. auto: where xrc was asked for by name and the host has no RDMA device; "
                             "never; always: and no other device",
                             shim_values, &PARAMS.shim);
    if (OPAL_SUCCESS == rc) {
        rc = register_choice("apm",
                             "Automatic path migration: where the alternate path comes from. off: none; ports: another "
                             "active port of the HCA; lmc: another LID of the same port; auto: whatever there is",
                             apm_values, &PARAMS.apm);
    }
    return rc;
}

int xrc_params_register(void)
{
    int rc = register_choices();
    for (unsigned i = 0; i < STRING_PARAMS && OPAL_SUCCESS == rc; ++i) {
        rc = register_string(&string_params[i]);
    }
    for (unsigned i = 0; i < INT_PARAMS && OPAL_SUCCESS == rc; ++i) {
        rc = register_int(&int_params[i]);
    }
    return rc;
}

/* openib's names. Both, or one and another choice: whatever there is. */
static void adopt_synonyms(void)
{
    int use = 0 != PARAMS.apm_over_ports && 0 != PARAMS.apm_over_lmc ? XRC_APM_USE_AUTO
              : 0 != PARAMS.apm_over_ports                           ? XRC_APM_USE_PORTS
              : 0 != PARAMS.apm_over_lmc                             ? XRC_APM_USE_LMC
                                                                     : XRC_APM_USE_OFF;
    if (XRC_APM_USE_OFF == PARAMS.apm) {
        PARAMS.apm = use;
    } else if (XRC_APM_USE_OFF != use && use != PARAMS.apm) {
        PARAMS.apm = XRC_APM_USE_AUTO;
    }
}

int xrc_params_check(void)
{
    unsigned where = 0;
    if ('\0' != refused.name[0]) {
        xrc_show_help("bad parameter", refused.name, refused.given, refused.valid, refused.nearest);
        return OPAL_ERR_BAD_PARAM;
    }
    enum xrc_recvq_fault fault = xrc_recvq_parse(PARAMS.receive_queues, &mca_btl_xrc_component.recvq, &where);
    if (XRC_RECVQ_OK != fault) {
        xrc_show_help("bad receive_queues", NULL != PARAMS.receive_queues ? PARAMS.receive_queues : "", where + 1,
                      xrc_recvq_fault_text(fault));
        return OPAL_ERR_BAD_PARAM;
    }
    adopt_synonyms();
    if (NULL != PARAMS.if_include && NULL != PARAMS.if_exclude) {
        xrc_show_help("include and exclude", PARAMS.if_include, PARAMS.if_exclude);
        return OPAL_ERR_BAD_PARAM;
    }
    return OPAL_SUCCESS;
}

/* ---- parameters that do not exist ---- */

/* Full names of all parameters that start with btl_xrc_, those that every BTL has included; to be freed. */
static const char **known_names(unsigned *n)
{
    const mca_base_var_group_t *group;
    int index = mca_base_var_group_find("opal", "btl", "xrc");
    *n = 0;
    if (index < 0 || OPAL_SUCCESS != mca_base_var_group_get(index, &group)) {
        return NULL;
    }
    size_t size = opal_value_array_get_size((opal_value_array_t *) (uintptr_t) &group->group_vars);
    const int *vars = OPAL_VALUE_ARRAY_GET_BASE(&group->group_vars, int);
    const char **names = (const char **) calloc(size + 1, sizeof(*names));
    for (size_t i = 0; NULL != names && i < size; ++i) {
        const mca_base_var_t *var;
        if (OPAL_SUCCESS == mca_base_var_get(vars[i], &var)) {
            names[(*n)++] = var->mbv_full_name;
        }
    }
    return names;
}

static bool is_known(const char *name, const char *const *names, unsigned n)
{
    unsigned i = xrc_words_nearest(name, names, n);
    return i < n && 0 == strcmp(name, names[i]);
}

/* A line about @a name behind those in @a text, which is given back longer, or as it was. */
static char *add_line(char *text, const char *name, const char *const *names, unsigned n)
{
    unsigned i = xrc_words_nearest(name, names, n);
    bool alike = i < n && xrc_words_alike(name + strlen("btl_xrc_"), names[i] + strlen("btl_xrc_"));
    char *longer = NULL;
    if (opal_asprintf(&longer, "%s%s  %s%s%s%s", NULL != text ? text : "", NULL != text ? "\n" : "", name,
                      alike ? " (nearest: " : "", alike ? names[i] : "", alike ? ")" : "")
        < 0) {
        return text;
    }
    free(text);
    return longer;
}

void xrc_params_warn_unknown(void)
{
    unsigned n;
    const char **names = known_names(&n);
    char *lines = NULL;
    for (char **e = environ; NULL != names && NULL != *e; ++e) {
        const char *end = strchr(*e, '=');
        if (NULL == end || 0 != strncmp(*e, ENV_PREFIX, strlen(ENV_PREFIX))) {
            continue;
        }
        const char *start = *e + strlen("OMPI_MCA_");
        char *name = strndup(start, (size_t) (end - start));
        if (NULL != name && !is_known(name, names, n)) {
            lines = add_line(lines, name, names, n);
        }
        free(name);
    }
    free(names);
    if (NULL != lines) {
        xrc_show_help("unknown parameters", lines);
        free(lines);
    }
}

/* The framework's own list, "btl": was xrc named in it, and not to be left out? */
bool xrc_params_named(void)
{
    int index = mca_base_var_find("opal", "btl", NULL, NULL);
    const char *const *value = NULL;
    if (index < 0 || OPAL_SUCCESS != mca_base_var_get_value(index, &value, NULL, NULL) || NULL == value
        || NULL == *value || '^' == **value) {
        return false;
    }
    char **names = opal_argv_split(*value, ',');
    bool named = false;
    for (char **n = names; NULL != n && NULL != *n; ++n) {
        named = named || 0 == strcmp(*n, "xrc");
    }
    opal_argv_free(names);
    return named;
}

bool xrc_params_ends_alone(void)
{
    int index = mca_base_var_find("ompi", "async", "mpi", "finalize");
    const bool *value = NULL;
    return index >= 0 && OPAL_SUCCESS == mca_base_var_get_value(index, &value, NULL, NULL) && NULL != value && *value;
}

bool xrc_params_port_wanted(const char *device, int port)
{
    if (NULL != PARAMS.if_include) {
        return xrc_rails_named(PARAMS.if_include, device, port);
    }
    return NULL == PARAMS.if_exclude || !xrc_rails_named(PARAMS.if_exclude, device, port);
}
