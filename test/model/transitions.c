/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of the state machines in the form of ini_table.pml, tgt_table.pml, apm_table.pml and apm_tgt_table.pml:
 * `transitions ini|tgt|apm|apm_tgt`.
 */
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

static void print_apm_tgt(void)
{
    static const char *const found[XRC_APM_TGT_FINDINGS] = {
        [XRC_APM_TGT_SPENT] = "SPENT",   [XRC_APM_TGT_WAITING] = "WAITING", [XRC_APM_TGT_HAS_IT] = "HAS_IT",
        [XRC_APM_TGT_BEHIND] = "BEHIND", [XRC_APM_TGT_IN_USE] = "IN_USE",   [XRC_APM_TGT_ELSEWISE] = "ELSEWISE"};
    static const char *const action[] = {[XRC_APM_TGT_DO_LOAD] = "LOAD",
                                         [XRC_APM_TGT_DO_AGREE] = "AGREE",
                                         [XRC_APM_TGT_DO_FOLLOW] = "FOLLOW",
                                         [XRC_APM_TGT_DO_REFUSE] = "REFUSE"};
    for (int f = 0; f < XRC_APM_TGT_FINDINGS; ++f) {
        printf("FOUND(%s, %s)\n", found[f], action[xrc_apm_tgt_next((enum xrc_apm_tgt_found) f)]);
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
    } else if (strcmp(argv[1], "apm") == 0) {
        print_apm();
    } else {
        print_apm_tgt();
    }
    return 0;
}
