-- For redis_exporter: --script dlock.lua. Returns the numbers of INFO dlock, which the exporter itself does not read,
-- as redis_script_values{key="dlock_grants"} and so on. Percentiles are dlock_wait_usec_p99 and so on.
local found = {}
for field, value in string.gmatch(redis.call('INFO', 'dlock'), '(dlock_[%w_]+):([^\r\n]+)') do
    if tonumber(value) then
        table.insert(found, field)
        table.insert(found, value)
    end
    for percent, micros in string.gmatch(value, 'p([%d.]+)=([%d.]+)') do
        table.insert(found, field .. '_p' .. percent)
        table.insert(found, micros)
    end
end
return found
