/* SPDX-License-Identifier: BSD-3-Clause */
#include "doctor.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2

static int usage(FILE *out)
{
    fprintf(out, "usage: xrc_doctor [--json] [--device LIST] [--receive-queues QUEUES] [--shim auto|never|always]\n\n"
                 "Tells whether this host can run Open MPI's btl xrc, by doing what it does when a job starts: without "
                 "MPI, and\n"
                 "leaving nothing behind. Run it as the user of the jobs, with the limits that jobs have.\n\n"
                 "  --json                    one JSON object instead of lines\n"
                 "  --device LIST             only these devices or ports, as in mlx5_0,mlx5_1:2 (btl_xrc_if_include)\n"
                 "  --receive-queues QUEUES   as btl_xrc_receive_queues; default " XRC_RECVQ_DEFAULT "\n"
                 "  --shim WHEN               the software HCA, as btl_xrc_shim: auto, where there is no RDMA device "
                 "(default);\n"
                 "                            never; always, and no other device\n"
                 "  --help                    this\n\n"
                 "Each line is OK, warn or bad; under it, what to change. Exit status: 0 it runs, 1 it does not, 2 "
                 "wrong usage.\n");
    return stderr == out ? EXIT_USAGE : EXIT_SUCCESS;
}

static bool read_shim(const char *word, enum shim_use *use)
{
    static const char *const words[] = {[SHIM_AUTO] = "auto", [SHIM_NEVER] = "never", [SHIM_ALWAYS] = "always"};
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); ++i) {
        if (0 == strcmp(word, words[i])) {
            *use = (enum shim_use) i;
            return true;
        }
    }
    fprintf(stderr, "xrc_doctor: --shim is auto, never or always, not '%s'\n", word);
    return false;
}

static bool read_queues(const char *text, struct xrc_recvq *recvq)
{
    unsigned where = 0;
    enum xrc_recvq_fault fault = xrc_recvq_parse(text, recvq, &where);
    if (XRC_RECVQ_OK != fault) {
        fprintf(stderr, "xrc_doctor: --receive-queues, entry %u: %s\n", where + 1, xrc_recvq_fault_text(fault));
    }
    return XRC_RECVQ_OK == fault;
}

/* -1: go on; else the exit status. */
static int read_options(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"json", no_argument, NULL, 'j'},       {"device", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},       {"receive-queues", required_argument, NULL, 'r'},
        {"shim", required_argument, NULL, 's'}, {NULL, 0, NULL, 0},
    };
    bool good = read_queues(XRC_RECVQ_DEFAULT, &options->recvq);
    int letter;
    while (good && -1 != (letter = getopt_long(argc, argv, "h", known, NULL))) {
        switch (letter) {
        case 'j': options->json = true; break;
        case 'd': options->devices = optarg; break;
        case 'r': good = read_queues(optarg, &options->recvq); break;
        case 's': good = read_shim(optarg, &options->shim); break;
        case 'h': return usage(stdout);
        default: good = false;
        }
    }
    return good && optind == argc ? -1 : usage(stderr);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct domain_file file = {NULL, {-1, -1}};
    char name[256] = "";
    int status = read_options(argc, argv, &options);
    if (-1 != status) {
        return status;
    }
    report_begin(options.json);
    gethostname(name, sizeof(name) - 1);
    cJSON_AddStringToObject(report_host(), "name", name);
    host_check_memory(&options);
    host_make_domain_file(&file);
    devices_check(&options, &file);
    host_drop_domain_file(&file);
    return report_end();
}
