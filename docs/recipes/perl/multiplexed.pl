# One connection for many owners, another one for waiting.
use strict;
use warnings;
use Redis;

# The client sends the name of a method that it does not have as a command. A reply that is nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);
my $shared = Redis->new(server => $address);

# The owner names tell the holds on a connection apart. All holds with SESSION end with it.
my $alice = dlock($shared, "ACQUIRE", "recipe:multiplexed:a", "alice", "PX", 10000, "SESSION");
my $bob = dlock($shared, "ACQUIRE", "recipe:multiplexed:b", "bob", "PX", 200);
print "alice and bob: granted on one connection\n" if $alice && $bob;

# BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
my $line = Redis->new(server => $address);
my $carol = dlock($line, "ACQUIRE", "recipe:multiplexed:b", "carol", "PX", 10000, "BLOCK", 5000);
my $bound = dlock($shared, "RENEW", "recipe:multiplexed:b", "carol", "TOKEN", $carol, "SESSION");
$line->quit;
print "carol: waited on another, bound to the first\n" if $bound;

dlock($shared, "RELEASE", "recipe:multiplexed:a", "alice", "TOKEN", $alice);
dlock($shared, "RELEASE", "recipe:multiplexed:b", "carol", "TOKEN", $carol);
