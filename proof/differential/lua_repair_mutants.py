"""Seeded bugs in the script that repairs damaged keys."""

from __future__ import annotations

from proof.differential.lua_mutant import LuaMutant

TASKS, LIMITS, BATCHES, MARKS = "lib/mend_tasks", "lib/mend_limits", "lib/mend_batches", "lib/mend_marks"

REPAIR_MUTANTS: tuple[LuaMutant, ...] = (
    LuaMutant("turns_are_not_paced", "reconcile", "math.floor((now - last) / REPAIR_EVERY)", "REPAIR_PAGES"),
    LuaMutant("turns_are_not_noted", "reconcile", "if pages > 0 then", "if false then"),
    LuaMutant("turns_wait_for_time", "reconcile", "if last > now then last = 0 end", ""),
    LuaMutant("cursor_overwritten", "reconcile", "and ARGV[1] == cursor then", "then"),
    LuaMutant("cursor_stands_still", "reconcile", "cursor = ARGV[2]\n", ""),
    LuaMutant("repairs_not_counted", "lib/mend", "count('repaired_' .. kind)", ""),
    LuaMutant("lost_stays_lost", TASKS, "if not redis.call('ZSCORE', home, id) then", "if false then"),
    LuaMutant("repaired_past_the_limits", TASKS, "place(id, r, order(r.at, r.priority))", "ring(r.queue)"),
    LuaMutant("repaired_due_later", TASKS, "redis.call('ZADD', DUE, now, id)", "redis.call('ZADD', DUE, now + 1, id)"),
    LuaMutant(
        "repaired_run_is_new", TASKS, "redis.call('ZADD', home, r.moved, id)", "redis.call('ZADD', home, now, id)"
    ),
    LuaMutant("held_letters_end", TASKS, "return '+inf'", "return now"),
    LuaMutant("key_time_forgotten", TASKS, "r.state == 'done' and r.key_ttl or 0", "0"),
    LuaMutant("unregistered_stays", TASKS, "redis.call('ZADD', BOOTS, 0, boot)", ""),
    LuaMutant("registered_declared_lost", TASKS, "if redis.call('ZSCORE', BOOTS, boot) then return end", ""),
    LuaMutant("loss_not_told", TASKS, "if telling then news", "if false then news"),
    LuaMutant("slots_stay_lost", TASKS, "~= r.fence then", "== 'never' then"),
    LuaMutant("live_task_expires", TASKS, "redis.call('PERSIST', key .. id)", ""),
    LuaMutant("sides_expire", TASKS, "{TASK, MORE, HISTORY, CHECKPOINT, STEPS}", "{TASK}"),
    LuaMutant("lanes_are_no_home", TASKS, "redis.call('ZSCORE', lane, id) and lane or", "false or"),
    LuaMutant("second_place_stays", TASKS, "or r.state and index_of(id, r) == index then", "or r.state then"),
    LuaMutant("strays_stay", TASKS, "if r.corrupt or", "if r.corrupt or not r.state or"),
    LuaMutant("strays_not_counted", TASKS, "else bury_corrupt(id, r) end", "end"),
    LuaMutant("slot_stays_taken", LIMITS, "redis.call('ZREM', SLOTS .. key, id)", ""),
    LuaMutant("earlier_slot_freed", LIMITS, "if limit.key == key then return", "if false then return"),
    LuaMutant("lane_stays_forgotten", LIMITS, "elseif not state and first_in(lane) then", "elseif false then"),
    LuaMutant("lane_order_ignored", LIMITS, "listed == score and", "listed and"),
    LuaMutant("sleepers_stay", LIMITS, "sleep_no_more(lane, key, queue)\n  fixed", "fixed"),
    LuaMutant("all_sleepers_removed", LIMITS, "or redis.call('HGET', LANES, lane) == '-' .. key then", "then"),
    LuaMutant("pacers_stay", LIMITS, "redis.call('HDEL', PACERS, field)", ""),
    LuaMutant("all_pacers_removed", LIMITS, "or redis.call('ZSCORE', DUE, id) then", "then"),
    LuaMutant("waiting_miscounted", LIMITS, "waiting = waiting + redis", "waiting = redis"),
    LuaMutant("inner_batch_stays_live", BATCHES, "if batch_of(inner) then return end", "if true then return end"),
    LuaMutant("live_inner_batch_ended", BATCHES, "if batch_of(inner) then return end", ""),
    LuaMutant("inner_batch_left_behind", BATCHES, "redis.call('ZREM', MEMBERS .. of, member)", ""),
    LuaMutant("live_members_ended", BATCHES, "local r = read(member)", "local r = {}"),
    LuaMutant("size_stays_wrong", BATCHES, "redis.call('HSET', BATCH .. id, 'size', size)", ""),
    LuaMutant("inner_batches_listed", BATCHES, "if g.parent and g.state ~= 'open' or", "if"),
    LuaMutant("batch_kept_briefly", BATCHES, "if g.dead > 0 then", "if false then"),
    LuaMutant("stray_batch_stays", BATCHES, "redis.call('ZREM', BATCHES, id)", ""),
    LuaMutant("bell_stays_long", MARKS, "redis.call('LTRIM', BELL .. queue, 0, 0)", ""),
    LuaMutant("queue_stays_unknown", MARKS, "redis.call('SADD', QUEUES, queue) == 1", "false"),
    LuaMutant(
        "locks_removed", MARKS, "redis.call('PTTL', LOCK .. key) == -1 and (hold.till or 0) + BACKSTOP < now", "true"
    ),
    LuaMutant("old_locks_stay", MARKS, "redis.call('PTTL', LOCK .. key) == -1", "false"),
    LuaMutant(
        "keys_freed",
        MARKS,
        "if r and (r.corrupt or r.state and ask('HGET', MORE .. id, 'key') == key) then",
        "if false then",
    ),
    LuaMutant("sides_stay", MARKS, "if not r.state and not r.corrupt then", "if false then"),
    LuaMutant("sides_removed", MARKS, "if not r.state and not r.corrupt then", "if true then"),
    LuaMutant("nodes_removed", MARKS, "if not redis.call('ZSCORE', BOOTS, boot) then", "if true then"),
    LuaMutant("batches_emptied", MARKS, "if not batch_of(id) then", "if true then"),
)
