"""The scripts that Redis runs: a compare-and-set with leases, and what keeps leases alive. No policy stands in them.

A budget is one hash, so all of it lies on one node of a cluster, and lives and expires as one:

`t`       the revision: a number that each change raises, and the random id of the operation that wrote it
`e`       the entry, as `rows.py` writes it, its times on the clock of the server
`l`       its leases: `id expiry;` for each request in flight, the expiry in milliseconds of the server's clock
`f:<id>`  what is settled if the process of that lease is gone
`w`       whose turn it is: `operation expiry`, left by one that was overtaken
"""

from dataclasses import dataclass, field
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name that a server knows it by."""

    text: str
    digest: str = field(init=False)
    """What EVALSHA takes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


_LEASES = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local living, count, dead, expired = {}, 0, {}, {}
local function read(leases)
  for id, expiry in string.gmatch(leases or '', '([^;]+) (%d+);') do
    if tonumber(expiry) > now then
      living[id] = expiry
      count = count + 1
    else
      dead[#dead + 1] = id
      expired[id] = expiry
    end
  end
end
local function write(also)
  local parts = {}
  for id, expiry in pairs(living) do
    parts[#parts + 1] = id .. ' ' .. expiry .. ';'
  end
  for _, part in ipairs(also) do
    parts[#parts + 1] = part
  end
  redis.call('HSET', KEYS[1], 'l', table.concat(parts))
end
"""

TURN_MS = 10
"""Milliseconds: several trips. Whoever dies with the turn holds up the others for no longer."""
COMPARE_AND_SET = Script(
    _LEASES
    + """
local expected, new, entry, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local about, phase, lease, lease_ms = tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8])
local operation = ARGV[9]
local kept = redis.call('HMGET', KEYS[1], 't', 'l', 'w')
local revision = kept[1] or ''
read(kept[2])
local turn, turn_ends = string.match(kept[3] or '', '(%S+) (%d+)')
local free = turn == nil or turn == operation or tonumber(turn_ends) <= now
if new ~= '' and revision == new then
  return {1, now, count}
end
local reaped, settled = {}, math.abs(now - about) <= 1000
for at = 10, #ARGV do
  reaped[ARGV[at]] = true
end
for _, id in ipairs(dead) do
  settled = settled and reaped[id] ~= nil
end
if new == '' or revision ~= expected or not settled or not free then
  if new ~= '' and free and revision ~= '' then
    redis.call('HSET', KEYS[1], 'w', operation .. ' ' .. string.format('%.0f', now + TURN_MS))
  end
  local answer = {0, now, count, revision, redis.call('HGET', KEYS[1], 'e') or ''}
  for _, id in ipairs(dead) do
    answer[#answer + 1] = id
    answer[#answer + 1] = expired[id]
    answer[#answer + 1] = redis.call('HGET', KEYS[1], 'f:' .. id) or ''
  end
  return answer
end
redis.call('HSET', KEYS[1], 't', new, 'e', entry)
if turn then
  redis.call('HDEL', KEYS[1], 'w')
end
if phase == 'open' and not living[lease] then
  living[lease] = string.format('%.0f', now + lease_ms)
  count = count + 1
elseif phase == 'close' then
  if living[lease] then
    living[lease] = nil
    count = count - 1
  end
  redis.call('HDEL', KEYS[1], 'f:' .. lease)
end
if phase ~= '' or #dead > 0 then
  for _, id in ipairs(dead) do
    redis.call('HDEL', KEYS[1], 'f:' .. id)
  end
  write({})
end
redis.call('PEXPIRE', KEYS[1], keep)
return {1, now, count}
""".replace("TURN_MS", str(TURN_MS))
)
"""KEYS: the budget. ARGV: the revision expected, the new one (empty only reads), the entry, milliseconds to keep the
key, what the caller takes for the time, `open`, `close` or nothing, a lease, its milliseconds, the operation, then the
ids of the dead leases that were settled.

An operation that was overtaken has the next turn: for as long as it may take to come again, nobody else changes the
budget. Otherwise a busy replica, which needs one trip, would always be in front of one that needs two.

Returns `{1, now, living}`; or `{0, now, living, revision, entry, dead id, its expiry, its fate, ...}` when it is
otherwise, or the caller is a second wrong about the time: one of the two clocks was set, and the entry's times would be
wrong. The new revision found in place means that this very call was made before and its answer was lost."""

BEAT = Script(
    _LEASES
    + """
local keep, phase, lease, lease_ms, fate = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local others, found, kept = {}, false, redis.call('HGET', KEYS[1], 'l')
for id, expiry in string.gmatch(kept or '', '([^;]+) (%d+);') do
  if id == lease then
    found = true
  else
    others[#others + 1] = id .. ' ' .. expiry .. ';'
  end
end
if not found and phase ~= 'open' then
  return {0, now}
end
if phase == 'close' then
  write(others)
  redis.call('HDEL', KEYS[1], 'f:' .. lease)
else
  others[#others + 1] = lease .. ' ' .. string.format('%.0f', now + lease_ms) .. ';'
  write(others)
  if fate ~= '' then
    redis.call('HSET', KEYS[1], 'f:' .. lease, fate)
  end
end
redis.call('PEXPIRE', KEYS[1], keep)
return {1, now}
"""
)
"""KEYS: the budget. ARGV: milliseconds to keep the key; `keep` for a lease that should be there, `open` for one that is
to be there, `close`; the lease, its milliseconds, and its fate, if it has one. Expired leases of others stay: whoever
changes the entry next settles them. Returns `{1, now}`, or `{0, now}` when there is no such lease."""
