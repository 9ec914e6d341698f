#!lua name=bench_reentrant
-- The reentrant lock of ../reentrant.rs as functions.

local function enter(keys, args)
  if redis.call('exists', keys[1]) == 0 or redis.call('hexists', keys[1], args[1]) == 1 then
    redis.call('hincrby', keys[1], args[1], 1)
    redis.call('pexpire', keys[1], args[2])
    return 1
  end
  return 0
end

local function leave(keys, args)
  if redis.call('hexists', keys[1], args[1]) == 0 then
    return nil
  end
  if redis.call('hincrby', keys[1], args[1], -1) > 0 then
    return 0
  end
  redis.call('del', keys[1])
  return 1
end

redis.register_function('bench_enter', enter)
redis.register_function('bench_leave', leave)
