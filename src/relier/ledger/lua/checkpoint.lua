-- Saves an attempt's checkpoint. `seq` grows within an attempt, so an older checkpoint that arrives late never replaces a
-- newer one.
-- ARGV: boot (worker id), id, fence, seq, value, durable ('1' or '')
-- returns: {verdict, state, fence}
-- use: record close notes lease
local id, fence, seq = ARGV[2], ARGV[3], tonumber(ARGV[4])
local r = read(id)
local said = verdict(id, r, 'checkpoint', fence, ARGV[1])
if said == 'ok' then
  local of, last = string.match(noted(id, r, 'checkpoint') or '', '^(%d+):(%d+)$')
  if of == fence and tonumber(last) >= seq then
    said = 'repeat'
    if ARGV[6] == '1' then
      -- here: touch
      touch()
    end
  else
    redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
    redis.call('SET', CHECKPOINT .. id, ARGV[5])
    mark(r, 'k')
    note(id, r, 'checkpoint', fence .. ':' .. ARGV[4])
    redis.call('SETRANGE', TASK .. id, 0, core(r))
  end
end
close()
return {said, r.state or '', r.fence or '0'}
