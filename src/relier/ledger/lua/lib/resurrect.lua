-- Revives or ends a task whose process is gone. `alone`: the dead process ran only this task, so the death counts against it.
-- Any other death is a scare, which proves nothing. After the first scare the task runs as before. From the second on it is a
-- suspect and runs alone in its own process, where it either ends or shows that it is at fault. The number
-- of scares since an attempt last failed by itself is limited, too: a task that kills its worker or host despite isolation must end. The
-- caller has already removed the task from its owner.
-- use: record spec close notes finish_why log requeue
local function resurrect(id, r, alone, cause)
  log(id, r, 'revive', cause)
  if has(r, 'c') then return requeue(id, r) end
  local lost = with_spec(r).on_lost
  if lost then
    finish_dead(id, r, 'lost', lost)
    return 'dead'
  end
  local deaths, scares = tonumber(noted(id, r, 'deaths') or 0), tonumber(noted(id, r, 'scares') or 0)
  if alone then deaths = deaths + 1 else scares = scares + 1 end
  note(id, r, 'deaths', deaths, 'scares', scares)
  redis.call('HDEL', MORE .. id, 'since', 'locked_since')   -- the task did run: a series of put-backs ends here
  local most = r.max_resurrections or MAX_RESURRECTIONS
  if deaths > most or scares > 2 + 2 * most then
    finish_dead(id, r, deaths > most and 'max_resurrections_exceeded' or 'workers_kept_dying')
    return 'dead'
  end
  if scares >= 2 then mark(r, 'a') end
  count('revived')
  return requeue(id, r, r.at - REVIVED)
end
