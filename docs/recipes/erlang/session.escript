#!/usr/bin/env escript
%% A lock that ends with its connection: the server renews it, and releases it when the connection closes.

main(_) ->
    Alice = connect(), % with no_reconnect: the lock would be gone, and nobody told
    dlock(Alice, "ACQUIRE", ["recipe:session", "alice", "PX", 10000, "SESSION"]),
    eredis:stop(Alice), % or the process that is linked to it ends

    Bob = connect(),
    Token = dlock(Bob, "ACQUIRE", ["recipe:session", "bob", "PX", 10000, "BLOCK", 5000]),
    release(Bob, Token).

%% undefined: the 5 seconds are over.
release(_, undefined) -> ok;
release(Bob, Token) ->
    io:format("bob: granted when the connection of alice ended~n"),
    dlock(Bob, "RELEASE", ["recipe:session", "bob", "TOKEN", Token]).

connect() ->
    Port = list_to_integer(os:getenv("DLOCK_TEST_PORT", "6379")),
    {ok, Redis} = eredis:start_link(os:getenv("DLOCK_TEST_HOST", "127.0.0.1"), Port, 0, "", no_reconnect),
    Redis.

%% Without a timeout: the default is 5 seconds. Integers come as binaries, nil is undefined.
dlock(Redis, Command, Arguments) ->
    {ok, Reply} = eredis:q(Redis, ["DLOCK." ++ Command | Arguments], infinity),
    Reply.
