"""Seeded bugs in the scripts of nodes: roles, the helpers' clock, and orders."""

from __future__ import annotations

from proof.differential.lua_mutant import LuaMutant

MEMBER_MUTANTS: tuple[LuaMutant, ...] = (
    LuaMutant("helper_claims", "claim", "if (worker[4] or 'worker') ~= 'worker' then", "if false then"),
    LuaMutant("helper_claims_one", "lib/claim_one", " and (worker[4] or 'worker') == 'worker'", ""),
    LuaMutant("role_changes", "register", "'role') or 'worker') ~= role", "'role') or 'worker') == 'nobody'"),
    LuaMutant("lost_node_registers", "register", "return known == '0' or known and", "return known and"),
    LuaMutant("helper_lease_clamps_workers", "register", "'ZADD', HELPER_LEASES, ARGV[2]", "'ZADD', LEASES, ARGV[2]"),
    LuaMutant("helper_clamp_not_set", "register", "reclamp(HELPER_CLOCK, HELPER_LEASES)", ""),
    LuaMutant("helper_on_the_workers_clock", "register", "local ends = advance(HELPER_CLOCK)", "local ends = tick()"),
    LuaMutant("helper_newcomer_begins_a_grace", "register", "advance(HELPER_CLOCK)", "advance(HELPER_CLOCK, 0)"),
    LuaMutant("carried_orders_overwrite", "register", "'HSETNX'", "'HSET'"),
    LuaMutant("carried_orders_forgotten", "register", "if ARGV[5] ~= '' then", "if false then"),
    LuaMutant("helper_ticks_for_workers", "beat", "helper and read_clock(CLOCK) or tick(interval)", "tick(interval)"),
    LuaMutant("helper_beats_in_vain", "beat", "if helper then redis", "if false then redis"),
    LuaMutant("helper_begins_no_grace", "beat", "advance(HELPER_CLOCK, interval)", "advance(HELPER_CLOCK)"),
    LuaMutant("orders_not_told", "beat", "known[2] or nil", "nil"),
    LuaMutant("report_forgotten", "beat", "if ARGV[4] ~= '' then", "if false then"),
    LuaMutant("empty_report_stored", "beat", "if ARGV[4] ~= '' then", "if true then"),
    LuaMutant("orders_overwritten", "order", "if (version or '0') ~= ARGV[2] then", "if false then"),
    LuaMutant("repeated_order_counts", "order", "if state == wanted then", "if false then"),
    LuaMutant("orders_for_the_gone", "order", "if not lease or lease == '0' then", "if lease == '0' then"),
    LuaMutant("orders_keep_their_version", "order", "(version or 0) + 1", "(version or 0) + 0"),
    LuaMutant("helpers_swept_as_workers", "revive", "if not redis.call('ZSCORE', HELPERS, boot) then", "if true then"),
    LuaMutant("dead_helpers_stay", "revive", "if helpers_sure then remove_helpers() end", ""),
    LuaMutant(
        "sweeps_do_not_move_helpers",
        "revive",
        "advance(HELPER_CLOCK, tonumber(ARGV[3]), true)",
        "read_clock(HELPER_CLOCK)",
    ),
    LuaMutant(
        "slow_sweeps_spare_helpers",
        "revive",
        "advance(HELPER_CLOCK, tonumber(ARGV[3]), true)",
        "advance(HELPER_CLOCK, 0, true)",
    ),
    LuaMutant("helper_leaves_its_lease", "lib/members", "redis.call('ZREM', HELPER_LEASES, boot)", ""),
    LuaMutant(
        "helper_clock_stays", "lib/members", "redis.call('UNLINK', HELPER_CLOCK)", "redis.call('EXISTS', HELPER_CLOCK)"
    ),
    LuaMutant("worker_leaves_its_lease", "lib/members", "redis.call('ZREM', LEASES, boot)", ""),
)
