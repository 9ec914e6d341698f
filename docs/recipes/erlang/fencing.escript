#!/usr/bin/env escript
%% A write that a database rejects if a later owner of the lock has written. (It runs the
%% command sqlite3, because only the statement matters here.)

main(_) ->
    Redis = connect(),
    Alice = dlock(Redis, "ACQUIRE", ["recipe:fencing", "alice", "PX", 30000]),
    {ok, _} = eredis:q(Redis, ["DEL", "recipe:fencing"]), % her lease ended while she was paused
    Bob = dlock(Redis, "ACQUIRE", ["recipe:fencing", "bob", "PX", 30000]),

    Schema = "CREATE TABLE report (id INTEGER PRIMARY KEY, body TEXT, fence INTEGER NOT NULL);"
             "INSERT INTO report VALUES (1, '', 0);",
    Statements = Schema ++ write("by bob", Bob) ++ write("by alice", Alice),
    %% The number of rows that each statement has changed.
    Changes = string:lexemes(os:cmd("sqlite3 :memory: \"" ++ Statements ++ "\""), "\n"),
    say(lists:nth(1, Changes) =:= "1", "bob: written"),
    say(lists:nth(2, Changes) =:= "0", "alice: refused, her token is the older one"),
    dlock(Redis, "RELEASE", ["recipe:fencing", "bob", "TOKEN", Bob]).

write(Body, Token) ->
    Update = "UPDATE report SET body = '~s', fence = ~s WHERE id = 1 AND fence <= ~s; SELECT changes();",
    lists:flatten(io_lib:format(Update, [Body, Token, Token])).

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
