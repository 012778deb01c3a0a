-- Takes up to `want` tasks for a live boot, queue by queue in the order given, revived tasks first. Paused queues are
-- passed over; a task past `expires` that never ran ends as cancelled; one whose record is broken ends as dead, or, where there is no
-- record left to end, leaves the index and is counted as a stray.
-- ARGV: boot, lane, seq, want, max record bytes, rung ('1': a ring was taken for this claim), queue, …
--   lane and seq: a boot's claims count upwards per lane, one at a time; a re-sent claim gets the same set, and one that
--   arrives after a newer one that took something gets nothing. After newer empty ones it does take: whoever compares
--   what it owns with what it runs hands that back.
-- returns: {'ok', TIME (ms), {id, record, more}, …}   more: false, or
--            {checkpoint, {step, value, …}, retries, deaths, scares, since, revision, locked since, where the rest of the steps begins
--             (false: none is left; see steps.lua)}
--          {'gone'} the boot is lost | {'old'} a newer claim of the lane was seen
-- use: claim_one take
local lane, seq = 'lane:' .. ARGV[2], tonumber(ARGV[3])
boot, want, room = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local worker = redis.call('HMGET', WORKER .. boot, 'registered', 'lost', lane)
if not worker[1] or worker[2] then return {'gone'} end

answer, told, claims, taken, put_aside = {'ok', now}, {ARGV[3]}, {}, 0, 0
fence_now, since = digits(now_us), digits(now)

local last = worker[3]
if last and seq <= tonumber(string.match(last, '^%d+')) then
  local words = {}
  for word in string.gmatch(last, '%S+') do words[#words + 1] = word end
  if seq < tonumber(words[1]) then return {'old'} end
  -- The set of the lane's last claim, as far as it is still this boot's: after the seq, id and fence of each.
  for i = 2, #words, 2 do
    local text = ask('GET', TASK .. words[i])
    local r = parse(text or '')
    if r.state == 'running' and r.owner == boot and r.fence == words[i + 1] then hand_over(words[i], r, text) end
  end
  return answer
end

local full = false
for i = 7, #ARGV do
  local queue = ARGV[i]
  local pause = redis.call('HGET', PAUSES, queue)
  if not pause or string.sub(pause, 1, 1) == '0' then
    if not full then full = not drain(READY .. queue) end
    -- Ring on for what is left: the ring it took was for whoever has room, and one that put away all it may has seen too little.
    if full and (ARGV[6] == '1' or put_aside >= MOST_PUT_AWAY) and redis.call('EXISTS', READY .. queue) == 1 then ring(queue) end
  end
end
if taken > 0 then
  zadd(OWNED .. boot, claims)
  redis.call('HSET', WORKER .. boot, lane, table.concat(told, ' '))
end
close()
return answer
