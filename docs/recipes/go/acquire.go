// Acquire a lock, or learn at once that another owner holds it.
package main

import (
	"fmt"
	"log"
	"net"
	"os"

	"github.com/gomodule/redigo/redis"
)

func main() {
	client := connect()
	defer client.Close()

	token := dlock(client, "ACQUIRE", "recipe:acquire", "alice", "PX", 30000)
	if token != 0 {
		fmt.Println("alice: granted")
	}
	if dlock(client, "ACQUIRE", "recipe:acquire", "bob", "PX", 30000) == 0 {
		fmt.Println("bob: not granted")
	}
	// The release carries the token, so a late release cannot affect the next hold.
	if dlock(client, "RELEASE", "recipe:acquire", "alice", "TOKEN", token) == 1 {
		fmt.Println("alice: released")
	}
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
