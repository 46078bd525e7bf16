/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of the state machines in the form of ini_table.pml, tgt_table.pml and apm_table.pml: `transitions ini|tgt|apm`. */
#include <stdio.h>
#include <string.h>

#include "btl_xrc_apm_fsm.h"
#include "btl_xrc_conn_fsm.h"

static void print_ini(void)
{
    for (int s = 0; s < XRC_INI_STATES; ++s) {
        for (int e = 0; e < XRC_INI_EVENTS; ++e) {
            struct xrc_ini_step step = xrc_ini_next((enum xrc_ini_state) s, (enum xrc_ini_event) e);
            printf("INI(%s, %s, %s, %s)\n", xrc_ini_state_name((enum xrc_ini_state) s),
                   xrc_ini_event_name((enum xrc_ini_event) e), xrc_ini_state_name(step.state),
                   xrc_ini_action_name(step.action));
        }
    }
}

static void print_tgt(void)
{
    for (int s = 0; s < XRC_TGT_STATES; ++s) {
        for (int e = 0; e < XRC_TGT_EVENTS; ++e) {
            struct xrc_tgt_step step = xrc_tgt_next((enum xrc_tgt_state) s, (enum xrc_tgt_event) e);
            printf("TGT(%s, %s, %s, %s)\n", xrc_tgt_state_name((enum xrc_tgt_state) s),
                   xrc_tgt_event_name((enum xrc_tgt_event) e), xrc_tgt_state_name(step.state),
                   xrc_tgt_action_name(step.action));
        }
    }
}

static void print_apm(void)
{
    for (int s = 0; s < XRC_APM_STATES; ++s) {
        for (int e = 0; e < XRC_APM_EVENTS; ++e) {
            struct xrc_apm_step step = xrc_apm_next((enum xrc_apm_state) s, (enum xrc_apm_event) e);
            printf("APM(%s, %s, %s, %s)\n", xrc_apm_state_name((enum xrc_apm_state) s),
                   xrc_apm_event_name((enum xrc_apm_event) e), xrc_apm_state_name(step.state),
                   xrc_apm_action_name(step.action));
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        return 2;
    }
    if (strcmp(argv[1], "ini") == 0) {
        print_ini();
    } else if (strcmp(argv[1], "tgt") == 0) {
        print_tgt();
    } else {
        print_apm();
    }
    return 0;
}
