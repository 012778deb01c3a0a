-- Wakes one relay, because rows were committed to an outbox.
-- returns: ok
if redis.call('LLEN', OUTBOX) == 0 then redis.call('RPUSH', OUTBOX, '1') end
return 'ok'
