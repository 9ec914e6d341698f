#!/usr/bin/env escript
%% Renew a lease while the work goes on.

main(_) ->
    Redis = connect(),
    Token = dlock(Redis, "ACQUIRE", ["recipe:renew", "alice", "PX", 10000]),

    %% Send this whenever about a third of the lease has passed. Without PX, the hold keeps its lease.
    Renewed = dlock(Redis, "RENEW", ["recipe:renew", "alice", "TOKEN", Token]),
    say(Renewed =:= <<"1">>, "renewed"),

    dlock(Redis, "RELEASE", ["recipe:renew", "alice", "TOKEN", Token]),
    %% The lock is lost: stop the work. A renewal never acquires a lock.
    Lost = dlock(Redis, "RENEW", ["recipe:renew", "alice", "TOKEN", Token]),
    say(Lost =:= undefined, "nothing to renew").

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
