-- Removes a node that owns no task from the namespace. Helpers, the nodes of all other roles, have their own clock, which is
-- removed with the last of them.
-- use: tick
local function remove_boot(boot)
  redis.call('ZREM', BOOTS, boot)
  redis.call('UNLINK', WORKER .. boot, ASKED .. boot)
  if redis.call('ZREM', HELPERS, boot) == 0 then
    redis.call('ZREM', LEASES, boot)
    reclamp(CLOCK, LEASES)
    return
  end
  redis.call('ZREM', HELPER_LEASES, boot)
  if redis.call('EXISTS', HELPERS) == 1 then reclamp(HELPER_CLOCK, HELPER_LEASES) else redis.call('UNLINK', HELPER_CLOCK) end
end
