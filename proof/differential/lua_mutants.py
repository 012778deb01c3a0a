"""Seeded bugs in the real scripts, as data: in `file`, `old` becomes `new`. The differential harness must notice each.

`text_of` builds the file with the bug in it, for `load_scripts(**{keyword: text})`; one that no longer fits is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import relier.ledger.ledger

LUA = Path(relier.ledger.ledger.__file__).parent / "lua"


@dataclass(frozen=True, slots=True)
class LuaMutant:
    """One bug. `file` is the script's name without its ending, `lib/<name>` for a library."""

    name: str
    file: str
    old: str
    new: str

    @property
    def keyword(self) -> str:
        return self.file.replace("/", "__")

    def text_of(self) -> str:
        text = (LUA / f"{self.file}.lua").read_text(encoding="utf-8")
        if self.old not in text:
            raise LookupError(f"{self.file}.lua does not hold {self.old!r} any more: mutant {self.name} needs another")
        return text.replace(self.old, self.new, 1)


LUA_MUTANTS: tuple[LuaMutant, ...] = (
    LuaMutant(
        "fence_rounded_to_14_digits",
        "lib/record",
        "local function digits(number) return string.format('%.0f', number) end",
        "local function digits(number) return tostring(number) end",
    ),
    LuaMutant(
        "fence_not_checked",
        "lib/lease",
        "if r.state == 'running' and r.fence == fence and r.owner == boot then return 'ok' end",
        "if r.state == 'running' and r.owner == boot then return 'ok' end",
    ),
    LuaMutant(
        "owner_not_checked",
        "lib/lease",
        "if r.state == 'running' and r.fence == fence and r.owner == boot then return 'ok' end",
        "if r.state == 'running' and r.fence == fence then return 'ok' end",
    ),
    LuaMutant(
        "leaves_owned_behind",
        "lib/lease",
        "redis.call('ZREM', OWNED .. r.owner, id)",
        "redis.call('ZREM', OWNED .. r.owner, '')",
    ),
    LuaMutant("repeat_not_known", "lib/settle", "note(id, r, 'settled', move .. ':' .. fence)", "mark(r, 'm')"),
    LuaMutant("release_burns_an_attempt", "release", "r.attempt = r.attempt - 1", "r.attempt = r.attempt + 0"),
    LuaMutant("fence_is_time_alone", "claim", "and fence_now or digits(r.fence + 1)", "and fence_now or fence_now"),
    LuaMutant("plain_claim_forgets_flags", "claim", "flags ~= '-' or ", ""),
    LuaMutant("quiet_leaves_a_trace", "retry", "if kind ~= 'quiet' then log", "if kind then log"),
    LuaMutant("late_claim_served", "claim", "if seq < tonumber(words[1]) then return {'old'} end", ""),
    LuaMutant(
        "claim_repeats_settled",
        "claim",
        "if r.state == 'running' and r.owner == boot and r.fence == words[i + 1] then",
        "if r.state then",
    ),
    LuaMutant("begun_expires", "lib/expired", " and r.fence == '0'", ""),
    LuaMutant("expires_not_listed", "lib/enter", "redis.call('ZADD', EXPIRING, expires, id)", ""),
    LuaMutant("begun_stays_listed", "claim", "redis.call('ZREM', EXPIRING, id)", ""),
    LuaMutant("ended_stays_listed", "lib/loose_ends", "redis.call('ZREM', EXPIRING, id)", ""),
    LuaMutant("expired_stays_queued", "promote", "redis.call('ZREM', READY .. r.queue, id)", ""),
    LuaMutant("expired_stays_due", "promote", "    redis.call('ZREM', DUE, id)\n    finish", "    finish"),
    LuaMutant(
        "late_entry_ends_anything", "promote", "or r.state == 'scheduled') and expired(r)", "or r.state == 'running')"
    ),
    LuaMutant("expiry_wakes_nobody", "promote", "if late and (not due or", "if late and (false and"),
    LuaMutant("busy_queue_forgotten", "lib/tidy_queues", "redis.call('EXISTS', READY .. queue) == 1 or ", ""),
    LuaMutant("paused_queue_forgotten", "lib/tidy_queues", "'', 1, 1) == '1' then", "'', 1, 1) == '2' then"),
    LuaMutant("forgotten_queue_rings", "lib/tidy_queues", "redis.call('DEL', BELL .. queue)", ""),
    LuaMutant("used_queue_stays_idle", "lib/tidy_queues", "if since then redis.call('ZREM', IDLE, queue) end", ""),
    LuaMutant("unused_queue_stays", "lib/tidy_queues", "elseif now - since >= unused then", "elseif false then"),
    LuaMutant("pause_ignored", "claim", "if not pause or string.sub(pause, 1, 1) == '0' then", "if true then"),
    LuaMutant("clock_jumps", "lib/clock", "if gap <= clamp then", "if gap == gap then"),
    LuaMutant("clock_goes_back", "lib/clock", "math.max(0, gap)", "gap"),
    LuaMutant("no_grace", "lib/clock", "grace = t + 2 * clamp", "grace = grace + 0"),
    LuaMutant("jump_costs_a_clamp", "lib/clock", "grace = t + 2 * clamp", "t = t + clamp grace = t + 2 * clamp"),
    LuaMutant("own_pauses_begin_a_grace", "lib/clock", "gap > 2 * interval", "gap > clamp"),
    LuaMutant("slow_sweeper_stands_still", "lib/clock", "t = t + clamp", "t = t + 0"),
    LuaMutant("long_lease_hurries", "lib/clock", "elseif sweeps then", "elseif interval then"),
    LuaMutant("beats_begin_no_grace", "beat", "tick(math.floor(ARGV[2] / 4))", "tick()"),
    LuaMutant("newcomer_begins_a_grace", "register", "tick()", "tick(0)"),
    LuaMutant("supervisor_begins_a_grace", "revive", "sweeps and tonumber(ARGV[3])", "tonumber(ARGV[3])"),
    LuaMutant(
        "boot_removed_with_its_tasks",
        "revive",
        "if redis.call('EXISTS', OWNED .. boot) == 0 then",
        "if looked >= 0 then",
    ),
    LuaMutant("every_death_counts", "lib/resurrect", "if alone then deaths", "if true then deaths"),
    LuaMutant(
        "one_life_more",
        "lib/resurrect",
        "if deaths > most or",
        "if deaths > most + 1 or",
    ),
    LuaMutant(
        "suspect_convicted_by_its_worker",
        "revive",
        "resurrect(id, r, alone, why)",
        "resurrect(id, r, alone or has(r, 'a'), why)",
    ),
    LuaMutant("scares_unlimited", "lib/resurrect", " or scares > 2 + 2 * most then", " then"),
    LuaMutant("one_scare_more", "lib/resurrect", "scares > 2 + 2 * most", "scares > 3 + 2 * most"),
    LuaMutant(
        "put_backs_share_their_time", "retry", "if kind == 'locked' then mine, other", "if false then mine, other"
    ),
    LuaMutant("no_room_loses_its_place", "retry", "now + delay, kind == 'quiet')", "now + delay, false)"),
    LuaMutant("every_retry_keeps_its_place", "retry", "now + delay, kind == 'quiet')", "now + delay, true)"),
    LuaMutant("place_kept_for_ever", "promote", "    unmark(r, 'p')\n", ""),
    LuaMutant("put_backs_add_up", "retry", "      redis.call('HDEL', MORE .. id, other)\n", ""),
    LuaMutant("scares_for_ever", "retry", ", 'since', 'scares')", ", 'since')"),
    LuaMutant("revived_go_last", "lib/resurrect", "requeue(id, r, r.at - REVIVED)", "requeue(id, r, r.at)"),
    LuaMutant(
        "key_stays_after_death", "lib/loose_ends", "if not lost then redis.call", "if state == 'x' then redis.call"
    ),
    LuaMutant("lost_frees_its_key", "lib/loose_ends", "if not lost then redis.call", "if state ~= 'x' then redis.call"),
    LuaMutant(
        "replay_keeps_expiry",
        "replay",
        "redis.call('SET', TASK .. id, head(r) .. body)",
        "redis.call('SET', TASK .. id, head(r) .. body, 'KEEPTTL')",
    ),
    LuaMutant("replay_without_its_key", "replay", "if key then redis.call('SET', IDEM .. key, id) end", ""),
    LuaMutant("promote_leaves_due", "promote", "redis.call('ZREM', DUE, id)", "redis.call('ZREM', DUE, '')"),
    LuaMutant("older_checkpoint_wins", "checkpoint", "if of == fence and tonumber(last) >= seq then", "if false then"),
    LuaMutant("progress_of_a_zombie", "progress", "if said == 'ok' then", "if r.state then"),
    LuaMutant("step_overwritten", "step", "'HSETNX'", "'HSET'"),
    LuaMutant("priority_reversed", "lib/order", "at_us - priority * PRIORITY_STEP", "at_us + priority * PRIORITY_STEP"),
    LuaMutant("cancel_ignores_version", "cancel", "if r.version ~= ARGV[2] then", "if false then"),
    LuaMutant("short_commit_without_fence", "lib/commit_plain", "fence ~= ARGV[a + 1] or ", ""),
    LuaMutant("short_commit_without_owner", "lib/commit_plain", "owner ~= boot or ", ""),
    LuaMutant("short_commit_forgets_flags", "lib/commit_plain", "flags ~= '-' or ", ""),
    LuaMutant(
        "short_claim_forgets_its_seq",
        "lib/claim_one",
        "redis.call('HSET', WORKER .. boot, lane, ARGV[3] .. ' ' .. id .. ' ' .. fence)",
        "",
    ),
    LuaMutant("short_claim_ignores_seq", "lib/claim_one", "last < tonumber(ARGV[3]) and ", ""),
    LuaMutant("short_claim_of_the_lost", "lib/claim_one", "worker[1] and not worker[2] and ", ""),
    LuaMutant("short_submit_overwrites", "lib/submit_one", ", 'NX')", ")"),
    LuaMutant(
        "short_submit_ignores_keys",
        "lib/submit_one",
        "ARGV[item + 5] == '' and ARGV[item + 7] == '' and ARGV[item + 8] == ''",
        "true",
    ),
    LuaMutant("short_submit_over_a_limit", "lib/submit_one", "if wait > 0 then", "if false then"),
    LuaMutant("short_refusal_of_what_is_here", "lib/submit_one", "redis.call('EXISTS', TASK .. id) == 0", "true"),
    LuaMutant("short_refusal_too_short", "lib/submit_one", "string.format('%.0f', wait)", "'1'"),
    LuaMutant(
        "short_submit_over_the_depth", "lib/submit_one", "redis.call('ZCARD', index) < tonumber(ARGV[2])", "true"
    ),
    LuaMutant("bury_drops_its_follow_ups", "bury", "if ARGV[a + 5] ~= '0' then", "if false then"),
    LuaMutant(
        "repeated_bury_follows",
        "bury",
        "return settle('bury', 6,",
        "if ask('HGET', MORE .. ARGV[3], 'settled') == 'bury:' .. ARGV[4] then\n"
        "  -- here: follow\n  follow(9, tonumber(ARGV[8]), ARGV[7])\nend\nreturn settle('bury', 6,",
    ),
    LuaMutant("bury_brings_nothing", "bury", "tonumber(ARGV[a + 5]), ARGV[a + 4])", "tonumber(ARGV[a + 5]), '')"),
    LuaMutant(
        "stale_commit_brings_its_part",
        "commit",
        "if not r.state then let_go(id, r, boot) end",
        "if said == 'stale' and follow_ups ~= '0' then follow(a + 5, tonumber(follow_ups), ARGV[a + 3]) end",
    ),
    LuaMutant(
        "replaced_in_the_old_queue",
        "lib/replace",
        "local function replace(id, r, tail)\n",
        "local function replace(id, r, tail)\n  with_spec(r)\n",
    ),
    LuaMutant(
        "replaced_keeps_its_payload",
        "lib/replace",
        "local rest = ",
        "local lines = string.match(after, '^[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n')\n"
        "  after = lines .. string.sub(redis.call('GET', TASK .. id), r.body)\n  local rest = ",
    ),
    LuaMutant("replaced_forgets_key_ttl", "lib/replace", "before .. key_ttl .. after", "before .. '-' .. after"),
    LuaMutant("replaced_keeps_its_flag", "lib/replace", "r.flags = string.gsub(r.flags, 'o', '') else", "else"),
    LuaMutant("replaced_though_asked_to_cancel", "retry", "if ARGV[8] and not has(r, 'c') then", "if ARGV[8] then"),
    LuaMutant("joined_too_early", "lib/join", ">= tonumber(size) then", ">= tonumber(size) - 1 then"),
    LuaMutant("complete_join_waits", "lib/join", ">= tonumber(size) then", "> tonumber(size) then"),
    LuaMutant("complete_join_stays_due", "lib/join", "redis.call('ZREM', DUE, id)", "redis.call('ZREM', DUE, '')"),
    LuaMutant("complete_join_rings_nobody", "lib/join", "    ring(r.queue)\n", ""),
    LuaMutant("part_for_the_done", "lib/join", "r.state == 'done' or r.state == 'cancelled'", "r.state == 'cancelled'"),
    LuaMutant(
        "part_counted_twice",
        "lib/join",
        "beside('HSET', STEPS .. id, part,",
        "beside('HSET', STEPS .. id, part .. now,",
    ),
    LuaMutant("first_part_stands", "lib/join", "beside('HSET', STEPS", "beside('HSETNX', STEPS"),
    LuaMutant("parts_without_their_flag", "lib/join", "  mark(r, 's')\n", ""),
    LuaMutant("parts_outlive_the_dead", "lib/join", "if left > 0 then", "if false then"),
    LuaMutant("lock_given_away", "lock", "if not outlived and not (", "if false and not ("),
    LuaMutant(
        "lost_boots_hold_locks", "lock", "hold.task ~= '-' and is_lost(hold.owner)", "hold.task == '' and is_lost(task)"
    ),
    LuaMutant("lost_boot_is_no_member", "lock", "return not lease or lease == '0'", "return lease == '0'"),
    LuaMutant("lost_boot_is_a_member", "lock", "return not lease or lease == '0'", "return not lease"),
    LuaMutant("lock_of_the_lost", "lock", "if task ~= '-' and is_lost(owner) then return {'gone'} end", ""),
    LuaMutant("earlier_attempt_holds", "lock", "if not outlived and not (", "if not ("),
    LuaMutant("zombie_takes_over", "lock", " and hold.fence < (tonumber(fence) or 0)", ""),
    LuaMutant("same_attempt_takes_over", "lock", "hold.fence < (tonumber", "hold.fence <= (tonumber"),
    LuaMutant("lock_repeat_refused", "lock", "if hold.token == token then return {'claimed'} end", ""),
    LuaMutant("lock_outlives_its_time", "lock", "if hold.state and hold.till > now then", "if hold.state then"),
    LuaMutant("token_not_checked", "lib/hold", "if hold.token ~= token then return 'stale', hold end", ""),
    LuaMutant(
        "mark_forgets_its_backstop",
        "lib/hold",
        ",\n    'PX', string.format('%.0f', ms + (state == 'done' and LINGER or BACKSTOP)))",
        ")",
    ),
    LuaMutant("renew_revives_a_result", "renew", "if hold.state ~= 'held' then return 'stale' end", ""),
    LuaMutant("renew_refused_when_full", "renew", "redis.call('PERSIST', key)", ""),
    LuaMutant("step_refused_when_full", "step", "redis.call('HDEL', META, 'full')", ""),
    LuaMutant("checkpoint_refused_when_full", "checkpoint", "redis.call('HDEL', META, 'full')", ""),
    LuaMutant("progress_refused_when_full", "progress", "redis.call('HDEL', META, 'full')", ""),
    LuaMutant("lock_refused_when_full", "lock", "if task ~= '-' then redis.call('HDEL', META, 'full') end", ""),
    LuaMutant("conclude_refused_when_full", "conclude", "redis.call('PERSIST', key)", ""),
    LuaMutant("concludes_twice", "conclude", "if hold.state == 'done' then return 'repeat' end", ""),
    LuaMutant("unlock_takes_a_result", "unlock", "if hold.state ~= 'held' then return 'stale' end", ""),
    LuaMutant("born_at_every_open", "open", "redis.call('HSETNX', META, 'born'", "redis.call('HSET', META, 'born'"),
    LuaMutant("newcomers_remember", "open", "ARGV[3] ~= '' and ", ""),
    LuaMutant("same_mark_noted", "open", "ARGV[3] ~= born and ", ""),
    LuaMutant("last_note_stands", "open", "redis.call('HSETNX', META, 'emptied'", "redis.call('HSET', META, 'emptied'"),
    LuaMutant("submit_without_mark", "submit", "redis.call('HGET', META, 'born') or ''", "''"),
    LuaMutant("short_submit_without_mark", "lib/submit_one", "redis.call('HGET', META, 'born') or ''", "''"),
    LuaMutant("missing_without_mark", "get", "ask('HGET', META, 'born') or ''", "''"),
)
