/* SPDX-License-Identifier: BSD-3-Clause */
/* The two state machines, from the tables. Each row that is taken is noted, and told when the search ends. */

mtype = {
    S_IDLE, S_REQUESTED, S_READY, S_DRAINING, S_FAILED, S_CLOSED,
    E_OPEN, E_RESPONSE, E_STALE, E_REJECT, E_TIMER, E_SILENT, E_EXPIRED, E_BROKEN, E_CLOSE,
    E_GONE, E_DRAINED,
    A_NOTHING, A_REQUEST, A_RESEND, A_NEXT_CONTACT, A_CONNECT, A_REPORT, A_DISCONNECT, A_ABANDON,
    A_DRAIN, A_LET_GO,
    T_NONE, T_MAKING, T_READY,
    F_REQUEST, F_NEWER, F_OLDER, F_LEAVING, F_DISCONNECT, F_MADE, F_BROKEN, F_ORPHANED,
    B_NOTHING, B_CREATE, B_REPLACE, B_ANSWER, B_REJECT, B_RELEASE, B_UNLIST
}

/* Rows taken, by line of their file; no part of a state. */
hidden byte taken_ini[96];
hidden byte taken_tgt[96];

c_decl {
    static void tell_taken(void)
    {
        extern unsigned char taken_ini[], taken_tgt[];
        int row;
        for (row = 0; row < 96; ++row) {
            if (taken_ini[row]) {
                printf("taken ini_table.pml:%d\n", row);
            }
            if (taken_tgt[row]) {
                printf("taken tgt_table.pml:%d\n", row);
            }
        }
    }
}

#define INI(from, event, to, action) \
    :: (ini_state == S_##from && ini_event == E_##event) -> \
        taken_ini[__LINE__] = 1; ini_state = S_##to; ini_action = A_##action
#define TGT(from, event, to, action) \
    :: (tgt_state == T_##from && tgt_event == F_##event) -> \
        taken_tgt[__LINE__] = 1; tgt_state = T_##to; tgt_action = B_##action

/* The state becomes the next one, and the action is set. */
inline ini_next(ini_state, ini_event, ini_action)
{
    d_step {
        if
#include "ini_table.pml"
        fi
    }
}

inline tgt_next(tgt_state, tgt_event, tgt_action)
{
    d_step {
        if
#include "tgt_table.pml"
        fi
    }
}

/* An assertion with a name: pan prints it when it is violated. Each name is a variable that stays 0. */
#define RULE(name, condition) assert((condition) || name)
