#!/usr/bin/env escript
%% One connection for many owners, another one for waiting.

main(_) ->
    Shared = connect(),

    %% The owner names tell the holds on a connection apart. All holds with SESSION end with it.
    Alice = dlock(Shared, "ACQUIRE", ["recipe:multiplexed:a", "alice", "PX", 10000, "SESSION"]),
    Bob = dlock(Shared, "ACQUIRE", ["recipe:multiplexed:b", "bob", "PX", 200]),
    say(Alice =/= undefined andalso Bob =/= undefined, "alice and bob: granted on one connection"),

    %% BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
    Line = connect(),
    Carol = dlock(Line, "ACQUIRE", ["recipe:multiplexed:b", "carol", "PX", 10000, "BLOCK", 5000]),
    Bound = dlock(Shared, "RENEW", ["recipe:multiplexed:b", "carol", "TOKEN", Carol, "SESSION"]),
    eredis:stop(Line),
    say(Bound =:= <<"1">>, "carol: waited on another, bound to the first"),

    dlock(Shared, "RELEASE", ["recipe:multiplexed:a", "alice", "TOKEN", Alice]),
    dlock(Shared, "RELEASE", ["recipe:multiplexed:b", "carol", "TOKEN", Carol]).

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
