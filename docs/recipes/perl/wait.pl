# Wait in the queue: one command on a connection of its own.
use strict;
use warnings;
use Redis;

# The client sends the name of a method that it does not have as a command. A reply that is nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $redis = Redis->new(server => $address);
dlock($redis, "ACQUIRE", "recipe:wait", "alice", "PX", 200);    # her lease ends in a moment

# Without read_timeout, which is the default.
my $line = Redis->new(server => $address);
my $token = dlock($line, "ACQUIRE", "recipe:wait", "bob", "PX", 30000, "BLOCK", 60000, "REQUEST", "1");
$line->quit;

if ($token) {    # undef: the 60 seconds are over
    print "bob: granted after waiting\n";
    dlock($redis, "RELEASE", "recipe:wait", "bob", "TOKEN", $token);
}
