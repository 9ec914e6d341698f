# A lock that ends with its connection: the server renews it, and releases it when the connection closes.
use strict;
use warnings;
use Redis;

# The client sends the name of a method that it does not have as a command. A reply that is nil is undef.
sub dlock { my ($redis, $command, @arguments) = @_; my $name = "DLOCK.$command"; return $redis->$name(@arguments) }

my $address = ($ENV{DLOCK_TEST_HOST} // "127.0.0.1") . ":" . ($ENV{DLOCK_TEST_PORT} // 6379);

# Without the option reconnect: the lock would be gone without notice.
my $alice = Redis->new(server => $address);
dlock($alice, "ACQUIRE", "recipe:session", "alice", "PX", 10000, "SESSION");
$alice->quit;    # or the process dies

my $bob = Redis->new(server => $address);
my $token = dlock($bob, "ACQUIRE", "recipe:session", "bob", "PX", 10000, "BLOCK", 5000);
if ($token) {    # undef: the 5 seconds are over
    print "bob: granted when the connection of alice ended\n";
    dlock($bob, "RELEASE", "recipe:session", "bob", "TOKEN", $token);
}
