"""Seeded bugs in the scripts of batches."""

from __future__ import annotations

from proof.differential.lua_mutant import LuaMutant

BATCH_MUTANTS: tuple[LuaMutant, ...] = (
    LuaMutant(
        "member_end_unheard",
        "lib/loose_ends",
        "  if has(r, 'b') then part(id, state, value) end\n",
        "",
    ),
    LuaMutant(
        "member_end_without_value",
        "lib/finish",
        "tie_up(id, r, state, ttl, value)",
        "tie_up(id, r, state, ttl)",
    ),
    LuaMutant(
        "stopped_goes_on",
        "lib/workflow",
        "if not stopped and go_on(",
        "if go_on(",
    ),
    LuaMutant(
        "stop_not_inherited",
        "lib/batch",
        "while g and not g.stopped do g = g.parent and batch_of(string.match(g.parent, '^%S+')) end",
        "g = g.stopped",
    ),
    LuaMutant(
        "input_not_stored",
        "lib/workflow",
        "  if value then redis.call('HSET', RESULTS .. g.id, '>' .. next, value) end\n",
        "",
    ),
    LuaMutant(
        "input_kept_for_ever",
        "lib/workflow",
        "  if state == 'done' and input ~= '-' then redis.call('HDEL', RESULTS .. of, input) end\n",
        "",
    ),
    LuaMutant(
        "callback_plan_kept",
        "lib/workflow",
        "  redis.call('HDEL', PLANS .. g.id, name)\n",
        "",
    ),
    LuaMutant(
        "failure_on_stop",
        "lib/workflow",
        "if not stopped then fire(g, 'f', 'on_failure') end",
        "fire(g, 'f', 'on_failure')",
    ),
    LuaMutant(
        "then_on_abandoned",
        "lib/workflow",
        "g.done == g.size and not g.abandoned",
        "g.done == g.size",
    ),
    LuaMutant(
        "ends_one_early",
        "lib/workflow",
        "g.done + g.dead + g.cancelled < g.size",
        "g.done + g.dead + g.cancelled < g.size - 1",
    ),
    LuaMutant(
        "inner_end_untold",
        "lib/workflow",
        "  if g.parent then return g.parent, outcome end",
        "  if false then return g.parent, outcome end",
    ),
    LuaMutant(
        "tasks_uncounted",
        "lib/workflow",
        "if member == task then redis.call('HINCRBY'",
        "if false then redis.call('HINCRBY'",
    ),
    LuaMutant(
        "dead_kept_too_short",
        "lib/workflow",
        "  if g.dead > 0 then kept = math.max(kept, g.dead_ttl or DEAD_TTL) end\n",
        "",
    ),
    LuaMutant(
        "place_not_inherited",
        "lib/workflow",
        "  flow.place = place\n",
        "  flow.place = '0'\n",
    ),
    LuaMutant(
        "sealed_takes_anything",
        "lib/batch",
        "  if g.state == 'open' then return true end\n  local r",
        "  if g.state then return true end\n  local r",
    ),
    LuaMutant(
        "adder_fence_not_checked",
        "lib/batch",
        "r.state == 'running' and r.fence == fence and",
        "r.state == 'running' and",
    ),
    LuaMutant(
        "adder_of_another_batch",
        "lib/batch",
        "return mine and string.match(mine, '^%S+') == g.id",
        "return mine ~= nil and mine ~= false",
    ),
    LuaMutant(
        "abandoned_takes",
        "lib/batch",
        "if g.abandoned or g.state == 'ended'",
        "if g.state == 'ended'",
    ),
    LuaMutant(
        "known_member_enters",
        "lib/batch",
        "if g and ask('ZSCORE', MEMBERS .. of, id) then return {'ended', id, '', '0'} end\n",
        "",
    ),
    LuaMutant(
        "lease_not_renewed",
        "lib/batch",
        "    if g.state == 'open' then redis.call('ZADD', BATCHES, now + g.lease, g.id) end\n",
        "",
    ),
    LuaMutant(
        "replay_not_taken_back",
        "replay",
        "  rejoin(id)\n",
        "",
    ),
    LuaMutant(
        "replayed_batch_stays_ended",
        "lib/rejoin",
        "    redis.call('HSET', BATCH .. of, 'state', 'sealed')\n",
        "",
    ),
    LuaMutant(
        "replayed_root_reaped",
        "lib/rejoin",
        "    if not g.parent then redis.call('ZADD', BATCHES, '+inf', of) end\n",
        "",
    ),
    LuaMutant(
        "open_for_ever",
        "lib/tidy_batches",
        "else seal(g, g.state == 'open') end",
        "else redis.call('ZADD', BATCHES, '+inf', id) end",
    ),
    LuaMutant(
        "inner_left_behind",
        "lib/tidy_batches",
        "    local leaf, around = innermost(id)\n",
        "    local leaf, around = id, nil\n",
    ),
    LuaMutant(
        "removed_under_then",
        "lib/tidy_batches",
        "if r and r.state and r.state ~= 'done'",
        "if false and r.state ~= 'done'",
    ),
    LuaMutant(
        "cancel_leaves_running",
        "cancel_batch",
        " or r.state == 'running' and not has(r, 'c')",
        "",
    ),
    LuaMutant(
        "cancel_leaves_open",
        "cancel_batch",
        "if g.state == 'open' then seal(g, false) end\n",
        "",
    ),
    LuaMutant(
        "late_seal_of_abandoned",
        "seal_batch",
        "if g.abandoned and ARGV[2] == '' then return {'abandoned', g.state} end\n",
        "",
    ),
)
