-- Stores an attempt's progress, for people only. The last report wins, and nothing depends on it.
-- ARGV: boot (worker id), id, fence, text
-- returns: {verdict, state, fence}
-- use: record close notes lease
local id = ARGV[2]
local r = read(id)
local said = verdict(id, r, 'progress', ARGV[3], ARGV[1])
if said == 'ok' then
  redis.call('HDEL', META, 'full')   -- even a full store accepts this write, and the writes after it
  note(id, r, 'progress', ARGV[4])
  redis.call('SETRANGE', TASK .. id, 0, core(r))
end
close()
return {said, r.state or '', r.fence or '0'}
