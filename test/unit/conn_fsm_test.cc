// SPDX-License-Identifier: BSD-3-Clause
// Wire-up: each pair of state and event against an independent copy of the tables, and what must hold whatever happens.
#include "btl_xrc_conn_fsm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace {

// One line a state, one word an event, in the order of the enums: "STATE/ACTION", "-" for "stays, nothing to do".
const char *const ini_rows[XRC_INI_STATES][XRC_INI_EVENTS] = {
    /*              OPEN                 RESPONSE         STALE  REJECT                    TIMER                SILENT                    EXPIRED          BROKEN           CLOSE                GONE                      DRAINED */
    /* IDLE */      {"REQUESTED/REQUEST", "-",            "-",   "-",                      "-",                 "-",                      "-",             "FAILED/REPORT", "CLOSED/NOTHING",    "-",                      "-"},
    /* REQUESTED */ {"-",                 "READY/CONNECT", "-",  "REQUESTED/NEXT_CONTACT", "REQUESTED/RESEND",  "REQUESTED/NEXT_CONTACT", "FAILED/REPORT", "FAILED/REPORT", "CLOSED/ABANDON",    "REQUESTED/NEXT_CONTACT", "-"},
    /* READY */     {"-",                 "-",            "-",   "-",                      "-",                 "-",                      "-",             "FAILED/REPORT", "CLOSED/DISCONNECT", "DRAINING/DRAIN",         "-"},
    /* DRAINING */  {"-",                 "-",            "-",   "-",                      "-",                 "-",                      "-",             "FAILED/REPORT", "CLOSED/NOTHING",    "-",                      "IDLE/LET_GO"},
    /* FAILED */    {"-",                 "-",            "-",   "-",                      "-",                 "-",                      "-",             "-",             "CLOSED/ABANDON",    "-",                      "-"},
    /* CLOSED */    {"-",                 "-",            "-",   "-",                      "-",                 "-",                      "-",             "-",             "-",                 "-",                      "-"},
};

const char *const tgt_rows[XRC_TGT_STATES][XRC_TGT_EVENTS] = {
    /*            REQUEST          NEWER             OLDER  LEAVING         DISCONNECT      MADE            BROKEN         ORPHANED */
    /* NONE */   {"MAKING/CREATE", "MAKING/CREATE",  "-",   "NONE/REJECT",  "-",            "NONE/RELEASE", "NONE/REJECT", "-"},
    /* MAKING */ {"-",             "-",              "-",   "-",            "-",            "READY/ANSWER", "NONE/REJECT", "NONE/UNLIST"},
    /* READY */  {"READY/ANSWER",  "MAKING/REPLACE", "-",   "READY/REJECT", "NONE/RELEASE", "-",            "-",           "NONE/UNLIST"},
};

std::string shown(xrc_ini_state from, xrc_ini_step step)
{
    if (step.state == from && step.action == XRC_INI_DO_NOTHING) {
        return "-";
    }
    return std::string(xrc_ini_state_name(step.state)) + "/" + xrc_ini_action_name(step.action);
}

std::string shown(xrc_tgt_state from, xrc_tgt_step step)
{
    if (step.state == from && step.action == XRC_TGT_DO_NOTHING) {
        return "-";
    }
    return std::string(xrc_tgt_state_name(step.state)) + "/" + xrc_tgt_action_name(step.action);
}

TEST(Initiator, EachPair)
{
    for (int s = 0; s < XRC_INI_STATES; ++s) {
        for (int e = 0; e < XRC_INI_EVENTS; ++e) {
            const auto state = static_cast<xrc_ini_state>(s);
            const auto event = static_cast<xrc_ini_event>(e);
            EXPECT_EQ(shown(state, xrc_ini_next(state, event)), ini_rows[s][e])
                << xrc_ini_event_name(event) << " in " << xrc_ini_state_name(state);
        }
    }
}

TEST(Target, EachPair)
{
    for (int s = 0; s < XRC_TGT_STATES; ++s) {
        for (int e = 0; e < XRC_TGT_EVENTS; ++e) {
            const auto state = static_cast<xrc_tgt_state>(s);
            const auto event = static_cast<xrc_tgt_event>(e);
            EXPECT_EQ(shown(state, xrc_tgt_next(state, event)), tgt_rows[s][e])
                << xrc_tgt_event_name(event) << " in " << xrc_tgt_state_name(state);
        }
    }
}

// All sequences of events up to some length from IDLE: one request starts it, one connect at most, one report at most. For
// each INI that is let go there may be another one.
void walk(xrc_ini_state state, int depth, int requests, int connects, int reports, int let_go)
{
    ASSERT_LE(requests, 1 + let_go);
    ASSERT_LE(connects, requests);
    ASSERT_LE(reports, 1);
    ASSERT_LE(let_go, connects);
    if (depth == 0) {
        return;
    }
    for (int e = 0; e < XRC_INI_EVENTS; ++e) {
        const xrc_ini_step step = xrc_ini_next(state, static_cast<xrc_ini_event>(e));
        ASSERT_LT(step.state, XRC_INI_STATES);
        walk(step.state, depth - 1, requests + (step.action == XRC_INI_DO_REQUEST),
             connects + (step.action == XRC_INI_DO_CONNECT), reports + (step.action == XRC_INI_DO_REPORT),
             let_go + (step.action == XRC_INI_DO_LET_GO));
    }
}

TEST(Initiator, ConnectsOnceWhateverComes)
{
    walk(XRC_INI_IDLE, 6, 0, 0, 0, 0);
}

// There is one way back to IDLE: connected, told that the TGT is gone, and sure that nothing was lost on the way.
TEST(Initiator, IsLetGoOnlyWhenDrained)
{
    for (int s = 0; s < XRC_INI_STATES; ++s) {
        for (int e = 0; e < XRC_INI_EVENTS; ++e) {
            const xrc_ini_step step = xrc_ini_next(static_cast<xrc_ini_state>(s), static_cast<xrc_ini_event>(e));
            const bool back = s != XRC_INI_IDLE && step.state == XRC_INI_IDLE;
            EXPECT_EQ(back, s == XRC_INI_DRAINING && e == XRC_INI_EV_DRAINED);
            EXPECT_EQ(step.action == XRC_INI_DO_LET_GO, back);
            EXPECT_EQ(step.action == XRC_INI_DO_DRAIN, s == XRC_INI_READY && e == XRC_INI_EV_GONE);
        }
    }
}

TEST(Initiator, ClosedStaysClosed)
{
    for (int s = 0; s < XRC_INI_STATES; ++s) {
        EXPECT_EQ(xrc_ini_next(static_cast<xrc_ini_state>(s), XRC_INI_EV_CLOSE).state, XRC_INI_CLOSED);
    }
}

// Two ranks never make two TGTs: whoever finds one listed, made or in the making, does not create.
TEST(Target, CreatesOnlyWhereNoneIsListed)
{
    for (int e = 0; e < XRC_TGT_EVENTS; ++e) {
        EXPECT_NE(xrc_tgt_next(XRC_TGT_MAKING, static_cast<xrc_tgt_event>(e)).action, XRC_TGT_DO_CREATE);
        EXPECT_NE(xrc_tgt_next(XRC_TGT_READY, static_cast<xrc_tgt_event>(e)).action, XRC_TGT_DO_CREATE);
    }
}

// What is listed is answered for; a leaving rank neither makes nor replaces, and never gives one INI another one's TGT.
TEST(Target, WhatARequestMeans)
{
    const xrc_ini_id listed = {7, 0x11}, last = {UINT32_MAX, 0x11};
    for (bool leaving : {false, true}) {
        EXPECT_EQ(xrc_tgt_request_event(nullptr, listed, leaving), leaving ? XRC_TGT_EV_LEAVING : XRC_TGT_EV_REQUEST);
        EXPECT_EQ(xrc_tgt_request_event(&listed, listed, leaving), XRC_TGT_EV_REQUEST);
        EXPECT_EQ(xrc_tgt_request_event(&listed, {6, 0x11}, leaving), XRC_TGT_EV_OLDER);
        for (const xrc_ini_id &newer : {xrc_ini_id{8, 0x12}, xrc_ini_id{7, 0x12}}) {
            EXPECT_EQ(xrc_tgt_request_event(&listed, newer, leaving),
                      leaving ? XRC_TGT_EV_LEAVING : XRC_TGT_EV_NEWER);
        }
        EXPECT_EQ(xrc_tgt_request_event(&last, {0, 0x12}, leaving), leaving ? XRC_TGT_EV_LEAVING : XRC_TGT_EV_NEWER);
    }
    for (xrc_tgt_state state : {XRC_TGT_NONE, XRC_TGT_MAKING, XRC_TGT_READY}) {
        const xrc_tgt_action action = xrc_tgt_next(state, XRC_TGT_EV_LEAVING).action;
        EXPECT_TRUE(action == XRC_TGT_DO_REJECT || action == XRC_TGT_DO_NOTHING) << xrc_tgt_action_name(action);
    }
}

TEST(Names, AreThereAndDiffer)
{
    std::set<std::string> names;
    for (int i = 0; i < XRC_INI_STATES; ++i) {
        EXPECT_TRUE(names.insert(xrc_ini_state_name(static_cast<xrc_ini_state>(i))).second);
    }
    names.clear();
    for (int i = 0; i < XRC_INI_EVENTS; ++i) {
        EXPECT_TRUE(names.insert(xrc_ini_event_name(static_cast<xrc_ini_event>(i))).second);
    }
    names.clear();
    for (int i = 0; i < XRC_INI_ACTIONS; ++i) {
        EXPECT_TRUE(names.insert(xrc_ini_action_name(static_cast<xrc_ini_action>(i))).second);
    }
    names.clear();
    for (int i = 0; i < XRC_TGT_EVENTS; ++i) {
        EXPECT_TRUE(names.insert(xrc_tgt_event_name(static_cast<xrc_tgt_event>(i))).second);
    }
    names.clear();
    for (int i = 0; i < XRC_TGT_ACTIONS; ++i) {
        EXPECT_TRUE(names.insert(xrc_tgt_action_name(static_cast<xrc_tgt_action>(i))).second);
    }
    EXPECT_STREQ(xrc_ini_state_name(XRC_INI_STATES), "?");
    EXPECT_STREQ(xrc_ini_event_name(XRC_INI_EVENTS), "?");
    EXPECT_STREQ(xrc_ini_action_name(XRC_INI_ACTIONS), "?");
    EXPECT_STREQ(xrc_tgt_state_name(XRC_TGT_STATES), "?");
    EXPECT_STREQ(xrc_tgt_event_name(XRC_TGT_EVENTS), "?");
    EXPECT_STREQ(xrc_tgt_action_name(XRC_TGT_ACTIONS), "?");
}

TEST(Backoff, RisesAndStaysBounded)
{
    unsigned last = 0;
    for (unsigned attempt = 0; attempt < 40; ++attempt) {
        const unsigned longest = xrc_ini_backoff_ms(attempt, 0), shortest = xrc_ini_backoff_ms(attempt, 255);
        EXPECT_GE(longest, last);
        EXPECT_LE(longest, 1000u);
        EXPECT_GE(shortest, longest - longest / 4);
        EXPECT_LE(shortest, longest);
        EXPECT_GE(shortest, 15u);
        last = longest;
    }
    EXPECT_EQ(xrc_ini_backoff_ms(0, 0), 20u);
    EXPECT_EQ(last, 1000u);
    EXPECT_EQ(xrc_ini_backoff_ms(UINT32_MAX, UINT32_MAX), 750u);
}

}  // namespace
