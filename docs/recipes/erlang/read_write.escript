#!/usr/bin/env escript
%% Readers share a lock, a writer excludes all others.

main(_) ->
    Redis = connect(),
    Alice = dlock(Redis, "RLOCK", ["recipe:read_write", "alice", "PX", 30000]),
    Bob = dlock(Redis, "RLOCK", ["recipe:read_write", "bob", "PX", 30000]),
    say(Alice =/= undefined andalso Bob =/= undefined, "alice and bob: reading"),
    Refused = dlock(Redis, "WLOCK", ["recipe:read_write", "carol", "PX", 30000]),
    say(Refused =:= undefined, "carol: not granted"),

    dlock(Redis, "RELEASE", ["recipe:read_write", "alice", "TOKEN", Alice]),
    dlock(Redis, "RELEASE", ["recipe:read_write", "bob", "TOKEN", Bob]),
    Carol = dlock(Redis, "WLOCK", ["recipe:read_write", "carol", "PX", 30000]),
    say(Carol =/= undefined, "carol: writing"),
    dlock(Redis, "RELEASE", ["recipe:read_write", "carol", "TOKEN", Carol]).

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
