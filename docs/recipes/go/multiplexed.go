// A connection for many owners, and a second one for waiting.
package main

import (
	"fmt"
	"log"
	"net"
	"os"

	"github.com/gomodule/redigo/redis"
)

func main() {
	shared := connect()
	defer shared.Close()

	// The owner names tell the holds on a connection apart. Their session locks all end with it.
	alice := dlock(shared, "ACQUIRE", "recipe:multiplexed:a", "alice", "PX", 10000, "SESSION")
	bob := dlock(shared, "ACQUIRE", "recipe:multiplexed:b", "bob", "PX", 200)
	if alice != 0 && bob != 0 {
		fmt.Println("alice and bob: granted on one connection")
	}

	// BLOCK would delay all commands on the shared connection, so carol waits on her own, without SESSION.
	line := connect()
	carol := dlock(line, "ACQUIRE", "recipe:multiplexed:b", "carol", "PX", 10000, "BLOCK", 5000)
	if dlock(shared, "RENEW", "recipe:multiplexed:b", "carol", "TOKEN", carol, "SESSION") == 1 {
		line.Close()
		fmt.Println("carol: waited on another, bound to the first")
	}

	dlock(shared, "RELEASE", "recipe:multiplexed:a", "alice", "TOKEN", alice)
	dlock(shared, "RELEASE", "recipe:multiplexed:b", "carol", "TOKEN", carol)
}

func connect() redis.Conn {
	address := net.JoinHostPort(env("DLOCK_TEST_HOST", "127.0.0.1"), env("DLOCK_TEST_PORT", "6379"))
	connection, err := redis.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

func env(name, otherwise string) string {
	if value, set := os.LookupEnv(name); set {
		return value
	}
	return otherwise
}

// dlock returns an integer, or 0 for nil.
func dlock(connection redis.Conn, command string, arguments ...interface{}) int64 {
	reply, err := redis.Int64(connection.Do("DLOCK."+command, arguments...))
	if err != nil && err != redis.ErrNil {
		log.Fatal(err)
	}
	return reply
}
