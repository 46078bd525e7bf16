// SPDX-License-Identifier: BSD-3-Clause
// Alternate paths: each pair of state and event against an independent copy of the table, and what must hold whatever happens.
#include "btl_xrc_apm_fsm.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace
{

// One line a state, one word an event, in the order of the enums: "STATE/ACTION", "-" for "stays, nothing to do".
const char *const rows[XRC_APM_STATES][XRC_APM_EVENTS] = {
    /*             START         GRANTED        REFUSED         TIMER            SEEN          BROKEN          MIGRATED      PORT_DOWN         PORT_UP          CLOSE */
    /* OFF */ {"ASKING/ASK", "-", "-", "-", "-", "-", "-", "-", "-", "CLOSED/NOTHING"},
    /* ASKING */
    {"-", "LOADED/LOAD", "ASKING/OTHER", "ASKING/REPEAT", "-", "-", "ASKING/ASK", "-", "ASKING/REPEAT",
     "CLOSED/NOTHING"},
    /* LOADED */
    {"-", "-", "-", "LOADED/LOOK", "ARMED/NOTE", "ASKING/OTHER", "ASKING/ASK", "LOADED/MIGRATE", "-", "CLOSED/NOTHING"},
    /* ARMED */ {"-", "-", "-", "-", "-", "ASKING/OTHER", "ASKING/ASK", "ARMED/MIGRATE", "-", "CLOSED/NOTHING"},
    /* CLOSED */ {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
};

std::string shown(xrc_apm_state from, xrc_apm_step step)
{
    if (step.state == from && step.action == XRC_APM_DO_NOTHING) {
        return "-";
    }
    return std::string(xrc_apm_state_name(step.state)) + "/" + xrc_apm_action_name(step.action);
}

TEST(Paths, EachPair)
{
    for (int s = 0; s < XRC_APM_STATES; ++s) {
        for (int e = 0; e < XRC_APM_EVENTS; ++e) {
            const auto state = static_cast<xrc_apm_state>(s);
            const auto event = static_cast<xrc_apm_event>(e);
            EXPECT_EQ(shown(state, xrc_apm_next(state, event)), rows[s][e])
                << xrc_apm_event_name(event) << " in " << xrc_apm_state_name(state);
        }
    }
}

// From wherever an open connection is, a migration, then an answer and a look make it armed again.
TEST(Paths, AMigrationIsAlwaysFollowedByAnotherArming)
{
    for (xrc_apm_state start : {XRC_APM_ASKING, XRC_APM_LOADED, XRC_APM_ARMED}) {
        xrc_apm_step s = xrc_apm_next(start, XRC_APM_EV_MIGRATED);
        EXPECT_EQ(s.action, XRC_APM_DO_ASK);
        s = xrc_apm_next(s.state, XRC_APM_EV_GRANTED);
        EXPECT_EQ(s.action, XRC_APM_DO_LOAD);
        s = xrc_apm_next(s.state, XRC_APM_EV_SEEN);
        EXPECT_EQ(s.state, XRC_APM_ARMED);
    }
}

// The INI is given an alternate only after its TGT has one: else it could migrate to where nobody takes its packets.
TEST(Paths, LoadOnlyFollowsAnAnswer)
{
    for (int s = 0; s < XRC_APM_STATES; ++s) {
        for (int e = 0; e < XRC_APM_EVENTS; ++e) {
            xrc_apm_step step = xrc_apm_next(static_cast<xrc_apm_state>(s), static_cast<xrc_apm_event>(e));
            EXPECT_EQ(step.action == XRC_APM_DO_LOAD, s == XRC_APM_ASKING && e == XRC_APM_EV_GRANTED);
        }
    }
}

TEST(Paths, ClosedIsForEver)
{
    for (int s = 0; s < XRC_APM_STATES; ++s) {
        EXPECT_EQ(xrc_apm_next(static_cast<xrc_apm_state>(s), XRC_APM_EV_CLOSE).state, XRC_APM_CLOSED);
    }
    for (int e = 0; e < XRC_APM_EVENTS; ++e) {
        xrc_apm_step step = xrc_apm_next(XRC_APM_CLOSED, static_cast<xrc_apm_event>(e));
        EXPECT_EQ(step.state, XRC_APM_CLOSED);
        EXPECT_EQ(step.action, XRC_APM_DO_NOTHING);
    }
}

// Only a target that is armed may be made to migrate, and an armed one must never be rearmed: the HCA refuses both.
TEST(Target, EachFinding)
{
    EXPECT_EQ(xrc_apm_tgt_next(XRC_APM_TGT_SPENT), XRC_APM_TGT_DO_LOAD);
    EXPECT_EQ(xrc_apm_tgt_next(XRC_APM_TGT_WAITING), XRC_APM_TGT_DO_LOAD);
    EXPECT_EQ(xrc_apm_tgt_next(XRC_APM_TGT_HAS_IT), XRC_APM_TGT_DO_AGREE);
    EXPECT_EQ(xrc_apm_tgt_next(XRC_APM_TGT_BEHIND), XRC_APM_TGT_DO_FOLLOW);
    EXPECT_EQ(xrc_apm_tgt_next(XRC_APM_TGT_IN_USE), XRC_APM_TGT_DO_REFUSE);
    EXPECT_EQ(xrc_apm_tgt_next(XRC_APM_TGT_ELSEWISE), XRC_APM_TGT_DO_REFUSE);
}

TEST(Names, AllDifferent)
{
    std::set<std::string> names;
    for (int s = 0; s < XRC_APM_STATES; ++s) {
        names.insert(xrc_apm_state_name(static_cast<xrc_apm_state>(s)));
    }
    EXPECT_EQ(names.size(), static_cast<size_t>(XRC_APM_STATES));
    names.clear();
    for (int e = 0; e < XRC_APM_EVENTS; ++e) {
        names.insert(xrc_apm_event_name(static_cast<xrc_apm_event>(e)));
    }
    EXPECT_EQ(names.size(), static_cast<size_t>(XRC_APM_EVENTS));
    names.clear();
    for (int a = 0; a < XRC_APM_ACTIONS; ++a) {
        names.insert(xrc_apm_action_name(static_cast<xrc_apm_action>(a)));
    }
    EXPECT_EQ(names.size(), static_cast<size_t>(XRC_APM_ACTIONS));
    EXPECT_STREQ(xrc_apm_state_name(static_cast<xrc_apm_state>(XRC_APM_STATES)), "?");
    EXPECT_STREQ(xrc_apm_event_name(static_cast<xrc_apm_event>(XRC_APM_EVENTS)), "?");
    EXPECT_STREQ(xrc_apm_action_name(static_cast<xrc_apm_action>(XRC_APM_ACTIONS)), "?");
}

} // namespace
