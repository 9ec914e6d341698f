#!/usr/bin/env escript
%% A transaction that takes effect only if the lock is still held: WATCH the lock, check it, then MULTI.

main(_) ->
    {Redis, Other} = {connect(), connect()},
    Token = dlock(Redis, "ACQUIRE", ["recipe:watch_multi", "alice", "PX", 30000]),
    say(write(Redis, Token, "one", fun() -> ok end), "alice: written"),
    Lose = fun() -> eredis:q(Other, ["DEL", "recipe:watch_multi"]) end,
    say(not write(Redis, Token, "two", Lose), "alice: not written, the lock was lost").

write(Redis, Token, Value, Meanwhile) ->
    {ok, _} = eredis:q(Redis, ["WATCH", "recipe:watch_multi"]),
    case dlock(Redis, "CHECK", ["recipe:watch_multi", Token]) of
        undefined ->
            {ok, _} = eredis:q(Redis, ["UNWATCH"]),
            false;
        _ ->
            Meanwhile(),
            {ok, _} = eredis:q(Redis, ["MULTI"]),
            {ok, _} = eredis:q(Redis, ["SET", "recipe:value", Value]),
            {ok, Replies} = eredis:q(Redis, ["EXEC"]),
            Replies =/= undefined
    end.

connect() ->
    Port = list_to_integer(os:getenv("DLOCK_TEST_PORT", "6379")),
    {ok, Redis} = eredis:start_link(os:getenv("DLOCK_TEST_HOST", "127.0.0.1"), Port, 0, "", no_reconnect),
    Redis.

%% Without a timeout: the default is 5 seconds. Integers come as binaries, nil is undefined.
dlock(Redis, Command, Arguments) ->
    {ok, Reply} = eredis:q(Redis, ["DLOCK." ++ Command | Arguments], infinity),
    Reply.

say(true, What) -> io:format("~s~n", [What]);
say(false, _) -> ok.
