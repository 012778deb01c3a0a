-- Removes a boot that owns no task from the namespace.
-- use: tick
local function remove_boot(boot)
  redis.call('ZREM', BOOTS, boot)
  redis.call('ZREM', LEASES, boot)
  redis.call('UNLINK', WORKER .. boot, ASKED .. boot)
  reclamp()
end
