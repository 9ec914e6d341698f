#!/usr/bin/env escript
%% Wait in the queue: one command on a connection of its own.

main(_) ->
    Redis = connect(),
    dlock(Redis, "ACQUIRE", ["recipe:wait", "alice", "PX", 200]), % her lease ends in a moment

    Line = connect(),
    Token = dlock(Line, "ACQUIRE", ["recipe:wait", "bob", "PX", 30000, "BLOCK", 60000, "REQUEST", "1"]),
    eredis:stop(Line),

    release(Redis, Token).

%% undefined: the 60 seconds are over.
release(_, undefined) -> ok;
release(Redis, Token) ->
    io:format("bob: granted after waiting~n"),
    dlock(Redis, "RELEASE", ["recipe:wait", "bob", "TOKEN", Token]).

connect() ->
    Port = list_to_integer(os:getenv("DLOCK_TEST_PORT", "6379")),
    {ok, Redis} = eredis:start_link(os:getenv("DLOCK_TEST_HOST", "127.0.0.1"), Port, 0, "", no_reconnect),
    Redis.

%% Without a timeout: the default is 5 seconds. Integers come as binaries, nil is undefined.
dlock(Redis, Command, Arguments) ->
    {ok, Reply} = eredis:q(Redis, ["DLOCK." ++ Command | Arguments], infinity),
    Reply.
