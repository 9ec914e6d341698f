// A lock that ends with its connection: the server renews it, and releases it when the connection closes.
package main

import (
	"fmt"
	"log"
	"net"
	"os"

	"github.com/gomodule/redigo/redis"
)

func main() {
	alice := connect() // not from a pool
	dlock(alice, "ACQUIRE", "recipe:session", "alice", "PX", 10000, "SESSION")
	alice.Close() // or the process dies

	bob := connect()
	defer bob.Close()
	token := dlock(bob, "ACQUIRE", "recipe:session", "bob", "PX", 10000, "BLOCK", 5000)
	if token != 0 {
		fmt.Println("bob: granted when the connection of alice ended")
	}
	dlock(bob, "RELEASE", "recipe:session", "bob", "TOKEN", token)
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
