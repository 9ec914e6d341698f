#!/usr/bin/env escript
%% Acquire a lock, or learn at once that another owner holds it.

main(_) ->
    Redis = connect(),
    Token = dlock(Redis, "ACQUIRE", ["recipe:acquire", "alice", "PX", 30000]),
    say(Token =/= undefined, "alice: granted"),
    Other = dlock(Redis, "ACQUIRE", ["recipe:acquire", "bob", "PX", 30000]),
    say(Other =:= undefined, "bob: not granted"),

    %% The release carries the token, so a late release cannot affect the next hold.
    Released = dlock(Redis, "RELEASE", ["recipe:acquire", "alice", "TOKEN", Token]),
    say(Released =:= <<"1">>, "alice: released").

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
